/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What programs on tc's hooks are given and may call, as the kernel's user interface has it (linux/bpf.h).
 */
#ifndef NAWA_BICAST_TC_H
#define NAWA_BICAST_TC_H

#include "skb.h"

#define TC_ACT_UNSPEC (-1)
#define TC_ACT_SHOT 2
/* From linux/bpf.h and linux/if_ether.h. */
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_F_NO_PREALLOC 1
#define BPF_MTU_CHK_SEGS 1
#define BPF_F_PSEUDO_HDR (1 << 4)
#define BPF_F_MARK_MANGLED_0 (1 << 5)
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETHERNET 14
#define SOCK_RAW 3 /* linux/net.h */

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static long (*const bpf_skb_store_bytes)(struct __sk_buff *skb, __u32 at, const void *from, __u32 length,
					 __u64 flags) = (void *)9;
static long (*const bpf_l3_csum_replace)(struct __sk_buff *skb, __u32 at, __u64 from, __u64 to,
					 __u64 size) = (void *)10;
static long (*const bpf_l4_csum_replace)(struct __sk_buff *skb, __u32 at, __u64 from, __u64 to,
					 __u64 flags) = (void *)11;
static long (*const bpf_clone_redirect)(struct __sk_buff *skb, __u32 ifindex, __u64 flags) = (void *)13;
static long (*const bpf_skb_load_bytes)(const void *skb, __u32 at, void *to, __u32 length) = (void *)26;
static __s64 (*const bpf_csum_diff)(__u32 *from, __u32 from_size, __u32 *to, __u32 to_size,
				    __u32 seed) = (void *)28;
static struct bpf_sock *(*const bpf_sk_fullsock)(struct bpf_sock *sk) = (void *)95;
static long (*const bpf_redirect_neigh)(__u32 ifindex, void *params, int size, __u64 flags) = (void *)152;
static __u64 (*const bpf_ktime_get_coarse_ns)(void) = (void *)160;
static long (*const bpf_check_mtu)(void *ctx, __u32 ifindex, __u32 *mtu, __s32 longer, __u64 flags) = (void *)163;

#endif
