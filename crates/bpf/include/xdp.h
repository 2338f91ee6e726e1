/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What XDP programs need besides helpers.h: the context, the verdicts, and the kernel's helpers by number. The context is
 * user-space ABI: it is no kernel's own, and nothing is relocated.
 */
#ifndef NAWA_XDP_H
#define NAWA_XDP_H

#include "helpers.h"

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

enum xdp_action {
	XDP_ABORTED = 0,
	XDP_DROP,
	XDP_PASS,
	XDP_TX,
	XDP_REDIRECT,
};

#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_NOEXIST 1
#define BPF_RB_NO_WAKEUP 1

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static void *(*const bpf_ringbuf_reserve)(void *ringbuf, __u64 size, __u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static void (*const bpf_ringbuf_discard)(void *data, __u64 flags) = (void *)133;
static long (*const bpf_loop)(__u32 times, void *callback, void *ctx, __u64 flags) = (void *)181;
static __u64 (*const bpf_xdp_get_buff_len)(struct xdp_md *ctx) = (void *)188;
static long (*const bpf_xdp_load_bytes)(struct xdp_md *ctx, __u32 offset, void *to, __u32 len) = (void *)189;

#endif
