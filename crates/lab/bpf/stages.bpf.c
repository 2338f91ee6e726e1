// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Where a message's time goes: what the kernel's tracepoints tell of the nodes' namespaces and the medium's, in order. */
#include "xdp.h"
#include "medium.h"
#include "stages.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2

static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static __u64 (*const bpf_get_current_task_btf)(void) = (void *)158;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct net_device {
	int ifindex;
	possible_net_t nd_net;
};
struct sk_buff {
	struct net_device *dev;
};
struct nsproxy {
	struct net *net_ns;
};
struct task_struct {
	struct nsproxy *nsproxy;
	char comm[16];
};
#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STAGES_NAMESPACES);
	__type(key, __u32);
	__type(value, __u32);
} namespaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STAGES_EVENTS);
	__type(key, __u32);
	__type(value, struct stages_event);
} events SEC(".maps");

struct {
	__u32 count;
} written SEC(".bss.written");

/* The number that the medium's namespace has in `namespaces`. */
#define MEDIUM MEDIUM_NODES

INLINE void add(__u32 kind, __u32 node)
{
	__u32 slot = __sync_fetch_and_add(&written.count, 1) & (STAGES_EVENTS - 1);
	struct stages_event *event = bpf_map_lookup_elem(&events, &slot);

	if (!event)
		return;
	event->ns = bpf_ktime_get_ns();
	event->kind = kind;
	event->node = node;
}

INLINE const __u32 *node_of(const struct net *net)
{
	__u32 inum = net->ns.inum;

	return bpf_map_lookup_elem(&namespaces, &inum);
}

/* At a device of a node's, or the medium's device for that node if `medium`. */
INLINE void at_device(__u32 kind, const struct net_device *device, __u32 medium)
{
	const __u32 *node = node_of(device->nd_net.net);

	if (!node || (*node == MEDIUM) != medium)
		return;
	add(kind, medium ? device->ifindex - MEDIUM_FIRST : *node);
}

INLINE void at_task(__u32 kind, __u32 napi_kind, const struct task_struct *task)
{
	const struct nsproxy *spaces = task->nsproxy;
	const __u32 *node;

	if (task->comm[0] == 'n' && task->comm[1] == 'a' && task->comm[2] == 'p' && task->comm[3] == 'i' &&
	    task->comm[4] == '/') {
		add(napi_kind, MEDIUM);
		return;
	}
	if (!spaces)
		return;
	node = node_of(spaces->net_ns);
	if (node && *node != MEDIUM)
		add(kind, *node);
}

SEC("tp_btf/xdp_devmap_xmit")
int stage_leave(__u64 *ctx)
{
	at_device(STAGES_LEAVE, (void *)ctx[1], 1);
	return 0;
}

SEC("tp_btf/xdp_redirect")
int stage_enter(__u64 *ctx)
{
	at_device(STAGES_ENTER, (void *)ctx[0], 1);
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int stage_receive(__u64 *ctx)
{
	at_device(STAGES_RECEIVE, ((struct sk_buff *)ctx[0])->dev, 0);
	return 0;
}

SEC("tp_btf/net_dev_queue")
int stage_queue(__u64 *ctx)
{
	at_device(STAGES_QUEUE, ((struct sk_buff *)ctx[0])->dev, 0);
	return 0;
}

SEC("tp_btf/sched_waking")
int stage_wake(__u64 *ctx)
{
	at_task(STAGES_WAKE, STAGES_NAPI_WAKE, (void *)ctx[0]);
	return 0;
}

SEC("tp_btf/sched_switch")
int stage_run(__u64 *ctx)
{
	at_task(STAGES_RUN, STAGES_NAPI_RUN, (void *)ctx[2]);
	return 0;
}

SEC("tp_btf/sys_enter")
int stage_call(__u64 *ctx)
{
	(void)ctx;
	at_task(STAGES_CALL, STAGES_CALL, (void *)bpf_get_current_task_btf());
	return 0;
}
