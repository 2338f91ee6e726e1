// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Floods inside the driver (paper 000, 3.2): a frame of the EtherType 0x88B5 that is new goes back out of the interface
 * that it came in by (XDP_TX), before the kernel has made a packet of it. All other traffic passes.
 *
 * XDP cannot send a frame and pass it up: the local copy goes through a ring buffer, and only while somebody listens.
 *
 * What waits cannot be decided here. With `hand_up`, nothing is relayed: the first copy goes up, and of each further one
 * the header, so that user space can count them and decide (src/suppression.rs).
 */
#include "xdp.h"
#include "flood.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define ETHERTYPE 0x88b5
#define ETHERNET 14
#define MAC 6

/* What user space sets before loading: the verifier takes it for constants and drops what cannot happen. */
struct flood_setup {
	struct flood_config config;
	__u8 mac[8];         /* this interface's address in the first 6 */
	__u32 hand_up;
	__u32 reserved;
};

const volatile struct flood_setup setup SEC(".rodata.setup");

/* What user space changes while it runs. */
struct flood_control {
	__u32 listening;     /* data are wanted up here */
};

struct flood_control control SEC(".bss.control");

struct flood_counts {
	__u64 verdicts[FLOOD_VERDICTS];
	__u64 relayed;
	__u64 lost;          /* not delivered: the ring was full */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct flood_source);
} sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flood_counts);
} counts SEC(".maps");

/* What goes up: a verdict, the number of bytes, and so many of the frame. */
struct flood_record {
	__u32 verdict;
	__u32 length;
};

#define SMALL 256
#define LARGE 2400

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} frames SEC(".maps");

INLINE struct flood_config load_config(void)
{
	struct flood_config c = {};

	c.key[0] = setup.config.key[0];
	c.key[1] = setup.config.key[1];
	c.id = setup.config.id;
	c.wire = setup.config.wire;
	c.keyed = setup.config.keyed;
	c.credit_tick = setup.config.credit_tick;
	c.credit_max = setup.config.credit_max;
	return c;
}

/* The sizes are fixed because the verifier wants to know them: most messages are small, and the ring holds more of these. */
INLINE int hand_up_as(struct xdp_md *ctx, __u32 verdict, __u32 length, const __u32 size)
{
	struct flood_record *record = bpf_ringbuf_reserve(&frames, size, 0);

	if (!record)
		return 0;
	record->verdict = verdict;
	record->length = length;
	if (length < 1 || length > size - sizeof(*record) ||
	    bpf_xdp_load_bytes(ctx, ETHERNET, record + 1, length)) {
		bpf_ringbuf_discard(record, 0);
		return 0;
	}
	bpf_ringbuf_submit(record, 0);
	return 1;
}

INLINE void hand_up(struct xdp_md *ctx, struct flood_counts *count, __u32 verdict, __u32 length)
{
	const int done = length <= SMALL - sizeof(struct flood_record) ? hand_up_as(ctx, verdict, length, SMALL)
								       : hand_up_as(ctx, verdict, length, LARGE);
	if (!done)
		count->lost++;
}

INLINE __u32 wanted(const struct flood_config *c, const struct flood_header *h, const __u8 *frame, const __u8 *end)
{
	const __u8 *target = frame + FLOOD_HEADER_1;

	if (*(volatile __u32 *)&control.listening)
		return 1;
	/* A ping for this node is answered whether anybody listens or not. */
	return c->wire && h->kind == FLOOD_ECHO_REQUEST && target + 4 <= end &&
	       flood_be32(FLOOD_LOAD(__u32, target)) == c->id;
}

INLINE __u32 judge(const struct flood_config *c, const struct flood_header *h, const __u8 *frame, const __u8 *end)
{
	const __u32 now = (__u32)(bpf_ktime_get_coarse_ns() >> FLOOD_TICK_SHIFT), id = h->id;
	struct flood_source *source = bpf_map_lookup_elem(&sources, &id);
	struct flood_source begun;
	__u32 verdict;

	if (source) {
		verdict = flood_check(source, c, h, now);
		if (verdict != FLOOD_NEW)
			return verdict;
	}
	/* After the window: most copies that a node hears are duplicates. Before anything is remembered: what has a bad tag
	 * leaves no trace. */
	if (c->keyed && !flood_tag_good(c, h, frame, end))
		return FLOOD_BAD_TAG;
	if (!source) {
		flood_source_init(&begun, c, h, now);
		/* That another processor was first is as good. */
		bpf_map_update_elem(&sources, &id, &begun, BPF_NOEXIST);
		source = bpf_map_lookup_elem(&sources, &id);
		if (!source)
			return FLOOD_LIMITED;
	}
	return flood_take(source, c, h, now);
}

SEC("xdp")
int flood_relay(struct xdp_md *ctx)
{
	const struct flood_config c = load_config();
	__u8 *start = (__u8 *)(long)ctx->data, *end = (__u8 *)(long)ctx->data_end;
	__u8 *frame = start + ETHERNET;
	struct flood_header h = {};
	struct flood_counts *count;
	__u32 zero = 0, verdict, length;

	if (frame > end || *(__u16 *)(start + 12) != flood_be16(ETHERTYPE))
		return XDP_PASS;
	count = bpf_map_lookup_elem(&counts, &zero);
	if (!count)
		return XDP_DROP;
	length = (__u32)bpf_xdp_get_buff_len(ctx) - ETHERNET;
	verdict = flood_parse(&h, &c, frame, end, length, FLOOD_ETHERNET_PAD);
	if (verdict == FLOOD_NEW)
		verdict = h.id == c.id ? FLOOD_OWN : judge(&c, &h, frame, end);
	if (verdict < FLOOD_VERDICTS)
		count->verdicts[verdict]++;
	if (verdict == FLOOD_DUPLICATE && setup.hand_up)
		hand_up(ctx, count, verdict, flood_header_length(&c));
	if (verdict != FLOOD_NEW)
		return XDP_DROP;
	if (setup.hand_up) {
		hand_up(ctx, count, verdict, flood_header_length(&c) + h.len);
		return XDP_DROP;
	}
	if (wanted(&c, &h, frame, end))
		hand_up(ctx, count, verdict, flood_header_length(&c) + h.len);
	/* The ring's helpers may have moved nothing, but the verifier wants to see it. */
	start = (__u8 *)(long)ctx->data;
	end = (__u8 *)(long)ctx->data_end;
	frame = start + ETHERNET;
	if (!flood_goes_on(&h) || frame + FLOOD_HEADER_0 > end)
		return XDP_DROP;
	frame[flood_ttl_at(&c)]--;
	*(__u16 *)(start + 6) = *(const volatile __u16 *)&setup.mac[0];
	*(__u16 *)(start + 8) = *(const volatile __u16 *)&setup.mac[2];
	*(__u16 *)(start + 10) = *(const volatile __u16 *)&setup.mac[4];
	count->relayed++;
	return XDP_TX;
}
