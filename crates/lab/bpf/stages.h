/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What stages.bpf.c shares with src/flood/stages.rs, which has the same layouts.
 */
#ifndef NAWA_STAGES_H
#define NAWA_STAGES_H

/* A power of two. */
#define STAGES_EVENTS (1 << 18)
#define STAGES_NAMESPACES 256

enum stages_kind {
	STAGES_LEAVE = 0,    /* the medium has handed a frame to a node */
	STAGES_ENTER,        /* a node's frame has come into the medium */
	STAGES_RECEIVE,      /* the node's kernel has a packet of it */
	STAGES_QUEUE,        /* the node's kernel hands a packet to its driver */
	STAGES_WAKE,         /* a program of the node is to run */
	STAGES_RUN,          /* it runs */
	STAGES_CALL,         /* it enters the kernel */
	STAGES_NAPI_WAKE,    /* a thread that polls a driver is to run */
	STAGES_NAPI_RUN,     /* it runs */
};

struct stages_event {
	__u64 ns;
	__u32 kind;
	__u32 node;
};

#endif
