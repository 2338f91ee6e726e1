// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Floods inside the driver (paper 000, 3.2): a frame of the EtherType 0x88B5 that is new goes back out of the interface
 * that it came in by (XDP_TX), before the kernel has made a packet of it. All other traffic passes.
 *
 * XDP cannot send a frame and pass it up: the local copy goes through a ring buffer, and only while somebody listens.
 *
 * What waits cannot be decided here. With `hand_up`, nothing is relayed: the first copy goes up, and of each further one
 * the header (of this node's own messages too), so that user space can count them and decide (src/suppression.rs).
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
	__u32 quiet;         /* user space looks by itself: nobody has to be woken, which takes microseconds here */
};

const volatile struct flood_setup setup SEC(".rodata.setup");

/* What user space changes while it runs. */
struct flood_control {
	__u32 listening;     /* data are wanted up here */
};

struct flood_control control SEC(".bss.control");

/* Where a processor copies the frame whose tag it checks. */
struct flood_copy {
	__u64 frame[FLOOD_FRAME_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flood_copy);
} copies SEC(".maps");

/* What is counted, by the number of the counter: the verdicts, and after them these. */
enum flood_counter {
	FLOOD_RELAYED = FLOOD_VERDICTS, /* new, and sent again; FLOOD_NEW counts those that were not */
	FLOOD_LOST,                     /* not delivered: the ring was full */
	FLOOD_COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct flood_source);
} sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FLOOD_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
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

/* One element each: without CAP_PERFMON the verifier allows no arithmetic on pointers that depends on the way taken. */
INLINE void count(__u32 counter)
{
	__u64 *counted = bpf_map_lookup_elem(&counts, &counter);

	if (counted)
		++*counted;
}

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

/* Keeps the compiler from knowing what a variable holds. */
#define KEEP(variable) __asm__ volatile("" : "+r"(variable))

/* The sizes are fixed because the verifier wants to know them: most messages are small, and the ring holds more of these. */
INLINE int hand_up_as(struct xdp_md *ctx, __u32 verdict, __u32 length, const __u32 size)
{
	struct flood_record *record = bpf_ringbuf_reserve(&frames, size, 0);

	if (!record)
		return 0;
	record->verdict = verdict;
	record->length = length;
	/* Two comparisons, and each of the register that is used behind it: the compiler would make one of them, of a copy, and
	 * Linux 6.1 does not know of a register what it knows of its copy. */
	KEEP(length);
	if (length > size - sizeof(*record))
		goto none;
	KEEP(length);
	if (!length || bpf_xdp_load_bytes(ctx, ETHERNET, record + 1, length))
		goto none;
	bpf_ringbuf_submit(record, setup.quiet ? BPF_RB_NO_WAKEUP : 0);
	return 1;
none:
	bpf_ringbuf_discard(record, 0);
	return 0;
}

INLINE void hand_up(struct xdp_md *ctx, __u32 verdict, __u32 length)
{
	const int done = length <= SMALL - sizeof(struct flood_record) ? hand_up_as(ctx, verdict, length, SMALL)
								       : hand_up_as(ctx, verdict, length, LARGE);
	if (!done)
		count(FLOOD_LOST);
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

struct walk {
	struct flood_sip sip;
	const __u64 *frame;
};

static long walk_word(__u64 number, struct walk *walk)
{
	flood_sip_word(&walk->sip, flood_data_word(walk->frame, number));
	return 0;
}

/* By bpf_loop, and in a copy: of a program without CAP_PERFMON, the verifier follows every branch that a processor might
 * speculate on, which has no end in a loop, and allows constant places of a packet only. */
INLINE __u32 tag_is_good(struct xdp_md *ctx, const struct flood_config *c, const struct flood_header *h)
{
	const __u32 zero = 0, length = FLOOD_HEADER_1 + h->len;
	struct flood_copy *copy = bpf_map_lookup_elem(&copies, &zero);
	struct walk walk;

	if (!copy || length > sizeof(copy->frame) || bpf_xdp_load_bytes(ctx, ETHERNET, copy->frame, length))
		return 0;
	walk.frame = copy->frame;
	flood_tag_begin(&walk.sip, c, copy->frame);
	bpf_loop(h->len / 8, walk_word, &walk, 0);
	return flood_tag_end(&walk.sip, h, copy->frame) == copy->frame[2];
}

INLINE __u32 judge(struct xdp_md *ctx, const struct flood_config *c, const struct flood_header *h)
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
	if (c->keyed && !tag_is_good(ctx, c, h))
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

/* Each place is a constant to the verifier, which the compiler would like to make a variable of. */
INLINE void set(__u8 *at, __u8 value)
{
	KEEP(at);
	*at = value;
}

SEC("xdp")
int flood_relay(struct xdp_md *ctx)
{
	const struct flood_config c = load_config();
	__u8 *start = (__u8 *)(long)ctx->data, *end = (__u8 *)(long)ctx->data_end;
	__u8 *frame = start + ETHERNET;
	struct flood_header h = {};
	__u32 verdict, length;

	if (frame > end || *(__u16 *)(start + 12) != flood_be16(ETHERTYPE))
		return XDP_PASS;
	length = (__u32)bpf_xdp_get_buff_len(ctx) - ETHERNET;
	verdict = flood_parse(&h, &c, frame, end, length, FLOOD_ETHERNET_PAD);
	if (verdict == FLOOD_NEW)
		verdict = h.id == c.id ? FLOOD_OWN : judge(ctx, &c, &h);
	if (setup.hand_up && (verdict == FLOOD_DUPLICATE || verdict == FLOOD_OWN))
		hand_up(ctx, verdict, flood_header_length(&c));
	else if (verdict == FLOOD_NEW && (setup.hand_up || wanted(&c, &h, frame, end)))
		hand_up(ctx, verdict, flood_header_length(&c) + h.len);
	if (verdict != FLOOD_NEW || setup.hand_up || !flood_goes_on(&h)) {
		count(verdict);
		return XDP_DROP;
	}
	count(FLOOD_RELAYED);
	if (c.wire)
		set(frame + FLOOD_TTL_AT_1, h.ttl - 1);
	else
		set(frame + FLOOD_TTL_AT_0, h.ttl - 1);
	*(__u16 *)(start + 6) = *(const volatile __u16 *)&setup.mac[0];
	*(__u16 *)(start + 8) = *(const volatile __u16 *)&setup.mac[2];
	*(__u16 *)(start + 10) = *(const volatile __u16 *)&setup.mac[4];
	return XDP_TX;
}
