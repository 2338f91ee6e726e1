/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What medium.bpf.c shares with src/medium.rs, which has the same layouts.
 */
#ifndef NAWA_MEDIUM_H
#define NAWA_MEDIUM_H

#define MEDIUM_NODES 256
/* The index of the first node's veth in the medium's namespace. */
#define MEDIUM_FIRST 10
/* Powers of two. */
#define MEDIUM_PASSAGES (1 << 16)
#define MEDIUM_DELAYS (1 << 18)

struct medium_setup {
	__u32 timed;         /* whether relays are */
	__u32 reserved;
};

/* From one node to another. */
struct medium_edge {
	__u32 heard;
	__u32 reserved;
	__u64 crossed;
};

struct medium_node {
	__u64 sent;
	__u32 hearers;
	__u32 hearer;        /* the only one, if there is one only */
};

struct medium_delay {
	__u32 node;
	__u32 hop_ns;        /* from its coming in from the node before */
	__u32 relay_ns;      /* from its leaving towards this one */
	__u32 source;        /* the ID of who sent the message first */
};

struct medium_delays {
	__u32 count;         /* it wraps: the last MEDIUM_DELAYS are there */
};

/* Bytes of a frame of a stream that are written anew each time; a multiple of 8. */
#define MEDIUM_HEAD 64

struct medium_stream {
	__u32 seq;           /* the last that was sent */
	__u32 udp;           /* whether the message is in a datagram */
	__u64 next;          /* when the next is due, in ns */
	__u64 interval;      /* from one to the next */
	__u64 head[MEDIUM_HEAD / 8];
};

#endif
