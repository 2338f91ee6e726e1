// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* An attacker's datagrams, made within the kernel: they share processors with the attacked, which in a real attack they
 * would not, so making them should cost little. For each frame of the type SEED that leaves by the interface, as many
 * packets leave instead as it says, each the next of the list.
 */
#include "skb.h"
#include "attack.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define TC_ACT_UNSPEC (-1)
#define TC_ACT_SHOT 2
#define BPF_MAP_TYPE_ARRAY 2
#define MINIMUM 60

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_skb_store_bytes)(struct __sk_buff *skb, __u32 at, const void *from, __u32 length,
					 __u64 flags) = (void *)9;
static long (*const bpf_clone_redirect)(struct __sk_buff *skb, __u32 ifindex, __u64 flags) = (void *)13;
static long (*const bpf_skb_load_bytes)(const void *skb, __u32 at, void *to, __u32 length) = (void *)26;
static long (*const bpf_skb_change_tail)(struct __sk_buff *skb, __u32 length, __u64 flags) = (void *)38;
static long (*const bpf_loop)(__u32 times, void *callback, void *ctx, __u64 flags) = (void *)181;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ATTACK_FRAMES);
	__type(key, __u32);
	__type(value, struct attack_frame);
} frames SEC(".maps");

struct attack_state state SEC(".bss.state");

/* Sends the next one. */
static long next(__u32 index, struct __sk_buff **skb)
{
	__u32 at = state.next, length;
	struct attack_frame *frame = bpf_map_lookup_elem(&frames, &at);

	(void)index;
	if (!frame)
		return 1;
	state.next = at + 1 < state.count ? at + 1 : 0;
	length = frame->length;
	if (length < MINIMUM || length > sizeof(frame->bytes))
		return 0;
	if ((*skb)->len != length && bpf_skb_change_tail(*skb, length, 0))
		return 0;
	if (bpf_skb_store_bytes(*skb, 0, frame->bytes, length, 0))
		return 0;
	if (!bpf_clone_redirect(*skb, (*skb)->ifindex, 0))
		state.sent++;
	return 0;
}

SEC("tc")
int multiply(struct __sk_buff *skb)
{
	struct attack_seed seed;

	if (bpf_skb_load_bytes(skb, 0, &seed, sizeof(seed)) || seed.ethertype != __builtin_bswap16(ATTACK_SEED))
		return TC_ACT_UNSPEC;
	bpf_loop(seed.count, next, &skb, 0);
	return TC_ACT_SHOT;
}
