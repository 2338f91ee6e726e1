// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* A medium that many nodes share, each with one interface. In the medium's namespace there is one veth per node, of
 * index FIRST plus the node's number; `enter` runs where a node's frame comes in and hands it to all others, `leave` runs
 * once for each of them and lets it pass to those who hear the sender.
 *
 * It is also where relays are timed: a frame's leaving towards a node, and the same message's coming in from that node.
 */
#include "xdp.h"
#include "medium.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_DEVMAP_HASH 25
#define BPF_F_BROADCAST 8
#define BPF_F_EXCLUDE_INGRESS 16

static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static long (*const bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)51;

const volatile struct medium_setup setup SEC(".rodata.setup");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, MEDIUM_NODES);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 8);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MEDIUM_NODES *MEDIUM_NODES);
	__type(key, __u32);
	__type(value, struct medium_edge);
} edges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MEDIUM_NODES);
	__type(key, __u32);
	__type(value, struct medium_node);
} nodes SEC(".maps");

/* A message on its way through a node. */
struct passage {
	__u64 message;
	__u64 came;          /* when it came in from the node before, in ns */
	__u64 began;         /* when it left towards this one */
	__u64 ended;         /* whether it has come in again */
};

/* Copies of a message come this soon after it; what comes later with the same numbers is another, for SEQ wraps. */
#define COPIES_NS 5000000

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MEDIUM_PASSAGES);
	__type(key, __u32);
	__type(value, struct passage);
} passages SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MEDIUM_DELAYS);
	__type(key, __u32);
	__type(value, struct medium_delay);
} delays SEC(".maps");

struct medium_delays delays_taken SEC(".bss.taken");

/* When this processor's last frame came in. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} came_in SEC(".maps");

#define ETHERNET 14
#define IP_UDP 28
#define LONGEST_HEAD (ETHERNET + IP_UDP + 16)

/* ID and SEQ of a frame of `flood`, wire version 1, behind Ethernet or in UDP; 0 if it is none. */
INLINE __u64 message_of(struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const __u8 *at = data + ETHERNET;
	__u16 type;

	if (data + LONGEST_HEAD > end)
		return 0;
	type = *(const __u16 *)(data + 12);
	if (type == __builtin_bswap16(0x0800) && data[23] == 17)
		at += IP_UDP;
	else if (type != __builtin_bswap16(0x88b5))
		return 0;
	return (__u64)*(const __u32 *)(at + 4) << 32 | *(const __u32 *)(at + 12);
}

INLINE struct passage *passage_of(__u64 message, __u32 node)
{
	__u64 hash = (message + node) * 0x9e3779b97f4a7c15ULL;
	__u32 slot = hash >> 48 & (MEDIUM_PASSAGES - 1);

	return bpf_map_lookup_elem(&passages, &slot);
}

/* The first copy of a message leaves towards a node. */
INLINE void begin_passage(struct xdp_md *ctx, __u32 node)
{
	__u64 message = message_of(ctx);
	struct passage *p = passage_of(message, node);
	__u64 now = bpf_ktime_get_ns(), *came;
	__u32 zero = 0;

	came = bpf_map_lookup_elem(&came_in, &zero);
	if (!came || !message || !p || (p->message == message && now - p->began < COPIES_NS))
		return;
	p->message = message;
	p->came = *came;
	p->began = now;
	p->ended = 0;
}

/* A message comes in from a node: has it just left towards it? */
INLINE void end_passage(struct xdp_md *ctx, __u32 node)
{
	__u64 now = bpf_ktime_get_ns(), message = message_of(ctx), *came;
	struct passage *p = passage_of(message, node);
	struct medium_delay *delay;
	__u32 slot = 0;

	came = bpf_map_lookup_elem(&came_in, &slot);
	if (came)
		*came = now;
	if (!message || !p || p->message != message || p->ended)
		return;
	slot = __sync_fetch_and_add(&delays_taken.count, 1) & (MEDIUM_DELAYS - 1);
	delay = bpf_map_lookup_elem(&delays, &slot);
	if (delay) {
		delay->node = node;
		delay->hop_ns = now - p->came;
		delay->relay_ns = now - p->began;
		delay->source = __builtin_bswap32(message >> 32);
	}
	p->ended = 1;
}

SEC("xdp")
int enter(struct xdp_md *ctx)
{
	__u32 node = ctx->ingress_ifindex - MEDIUM_FIRST;
	struct medium_node *counts = bpf_map_lookup_elem(&nodes, &node);

	if (!counts)
		return XDP_DROP;
	__sync_fetch_and_add(&counts->sent, 1);
	if (setup.timed)
		end_passage(ctx, node);
	/* No copies for those who do not hear it. */
	if (counts->hearers == 1)
		return bpf_redirect_map(&ports, counts->hearer + MEDIUM_FIRST, 0);
	return bpf_redirect_map(&ports, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
}

SEC("xdp/devmap")
int leave(struct xdp_md *ctx)
{
	__u32 from = ctx->ingress_ifindex - MEDIUM_FIRST, to = ctx->egress_ifindex - MEDIUM_FIRST;
	__u32 index = from * MEDIUM_NODES + to;
	struct medium_edge *edge = bpf_map_lookup_elem(&edges, &index);

	if (!edge || !edge->heard)
		return XDP_DROP;
	__sync_fetch_and_add(&edge->crossed, 1);
	if (setup.timed)
		begin_passage(ctx, to);
	return XDP_PASS;
}

/* The bare reference for a relay: a frame of `flood` goes back as it came, whatever it is. */
SEC("xdp")
int echo(struct xdp_md *ctx)
{
	const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + ETHERNET > end || *(const __u16 *)(data + 12) != __builtin_bswap16(0x88b5))
		return XDP_PASS;
	return XDP_TX;
}

/* A stream of messages: the frame as it is, with the next SEQ; runs that come before it is due send nothing. The
 * buffers of frames are used again, and relays have written into them: the head is written anew. */
struct medium_stream stream SEC(".bss.stream");

SEC("xdp")
int generate(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 i;

	if (bpf_ktime_get_ns() < stream.next)
		return XDP_DROP;
	stream.next += stream.interval;
	if (data + MEDIUM_HEAD > end)
		return XDP_ABORTED;
	for (i = 0; i < MEDIUM_HEAD / 8; i++)
		((__u64 *)data)[i] = stream.head[i];
	stream.seq++;
	if (stream.udp)
		data += IP_UDP;
	if (data + ETHERNET + 16 > end)
		return XDP_ABORTED;
	*(__u32 *)(data + ETHERNET + 12) = __builtin_bswap32(stream.seq);
	return XDP_TX;
}

/* A node that hears and says nothing. */
SEC("xdp")
int sink(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_DROP;
}
