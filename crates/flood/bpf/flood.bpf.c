// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Floods inside the driver (paper 000, 3.2): a frame of the EtherType 0x88B5 that is new goes back out of the interface
 * that it came in by (XDP_TX), before the kernel has made a packet of it. All other traffic passes.
 *
 * XDP cannot send a frame and pass it up: the local copy goes onto the board (board.h), and only while somebody listens.
 * Whoever sleeps is woken by the bell, a device that no frame leaves by: handing it one wakes those who wait for it. That takes longer
 * than all else here, so it is not rung from here but by the rope, a veth whose other end has a program that rings: the kernel runs
 * that end after all that waits for this processor already, which the relayed frame's next device may be. A ring buffer's own way
 * of waking is an interrupt, which comes at once; it is for what the node itself has to know: pings, and all messages where there
 * is no bell.
 *
 * What waits cannot be decided here. With `hand_up`, nothing is relayed: the first copy goes up, once its tag is good, and
 * further ones (of this node's own messages too) are counted for user space, which decides (src/suppression.rs).
 */
#include "xdp.h"
#include "flood.h"
#include "board.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_DEVMAP 14
#define BPF_F_MMAPABLE 1024
#define BPF_F_BROADCAST 8
#define BPF_F_EXCLUDE_INGRESS 16

static long (*const bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)51;

#define ETHERTYPE 0x88b5
#define ETHERNET 14
#define MAC 6

/* What user space sets before loading: the verifier takes it for constants and drops what cannot happen. */
struct flood_setup {
	struct flood_config config;
	__u8 mac[8];         /* this interface's address in the first 6 */
	__u32 hand_up;
	__u32 quiet;         /* user space looks by itself: nobody has to be woken, which takes microseconds here */
	__u32 jiffy_ns;      /* of the kernel's own clock, which is read without a call */
	__u32 reserved;
};

const volatile struct flood_setup setup SEC(".rodata.setup");

/* How applications get what is heard. */
enum flood_listening {
	FLOOD_NOBODY = 0,
	FLOOD_BOARD,         /* by the board; all of them look by themselves */
	FLOOD_BELL,          /* by the board, and are woken by the bell */
	FLOOD_DAEMON,        /* from the node, to which all goes up */
};

/* What user space changes while it runs. */
struct flood_control {
	__u32 listening;
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
	FLOOD_RELAYED = FLOOD_VERDICTS, /* new, and given to the driver to be sent again; FLOOD_NEW counts those that were not */
	FLOOD_LOST,                     /* had no room in the ring, or on the board */
	FLOOD_POSTED,                   /* put onto the board */
	FLOOD_COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct flood_source);
} sources SEC(".maps");

/* With `hand_up`: how many copies of a message were heard, of the latest ones. */
struct flood_message {
	__u32 id;
	__u32 epoch;
	__u32 seq;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct flood_message);
	__type(value, __u32);
} heard SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FLOOD_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

/* What goes up: the number of bytes, and so many of the frame. */
struct flood_record {
	__u32 length;
};

#define SMALL 256
#define LARGE 2400

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} frames SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 + BOARD_SLOTS);
	__type(key, __u32);
	__type(value, struct board_slot);
} board SEC(".maps");

/* The bell, and the bell again. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 2);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} bell SEC(".maps");

/* The rope, and this interface, in whichever order has the kernel send to the latter first. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 2);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} rope_and_out SEC(".maps");

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
INLINE int hand_up_as(struct xdp_md *ctx, __u32 length, const __u32 size)
{
	struct flood_record *record = bpf_ringbuf_reserve(&frames, size, 0);

	if (!record)
		return 0;
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

static __attribute__((noinline)) int hand_up(struct xdp_md *ctx, __u32 length)
{
	const int done = length <= SMALL - sizeof(struct flood_record) ? hand_up_as(ctx, length, SMALL)
								       : hand_up_as(ctx, length, LARGE);
	if (!done)
		count(FLOOD_LOST);
	return done;
}

/* Puts the frame onto the board. Who finds another processor still writing into the slot, one board of messages later,
 * gives up: two at once would make nonsense. */
static __attribute__((noinline)) __u32 post(struct xdp_md *ctx, __u32 length)
{
	__u32 key = 0;
	struct board_slot *slot = bpf_map_lookup_elem(&board, &key);
	__u64 number, before;

	if (!slot)
		return 0;
	number = __sync_fetch_and_add(&slot->stamp, 1);
	key = 1 + (number & (BOARD_SLOTS - 1));
	slot = bpf_map_lookup_elem(&board, &key);
	if (!slot || length < 1 || length > sizeof(slot->frame))
		return 0;
	before = *(volatile __u64 *)&slot->stamp;
	number = 2 * (number + 1);
	if (before & 1 || __sync_val_compare_and_swap(&slot->stamp, before, number + 1) != before) {
		count(FLOOD_LOST);
		return 0;
	}
	slot->length = length;
	/* Once more, and each of the register that is used behind it, for Linux 6.1 (as in hand_up_as). Cannot fail: the frame is
	 * as long as its header says. */
	KEEP(length);
	if (length <= sizeof(slot->frame)) {
		KEEP(length);
		if (length)
			bpf_xdp_load_bytes(ctx, ETHERNET, slot->frame, length);
	}
	/* Not before all that is written: an exchange is a barrier. */
	__sync_lock_test_and_set(&slot->stamp, number);
	count(FLOOD_POSTED);
	return 1;
}

/* Counts a message that user space waits for, and its copies, whose tags are not looked at. */
INLINE void count_copy(const struct flood_header *h, __u32 verdict)
{
	const struct flood_message message = { h->id, h->epoch, h->seq };
	/* Not on the stack, for a verifier that is wary of half a word over a pointer that was there. */
	static const __u32 one = 1;
	__u32 *copies;

	if (verdict == FLOOD_NEW)
		bpf_map_update_elem(&heard, &message, &one, 0);
	if (verdict != FLOOD_DUPLICATE && verdict != FLOOD_OWN)
		return;
	copies = bpf_map_lookup_elem(&heard, &message);
	if (copies)
		__sync_fetch_and_add(copies, 1);
}

/* Whether the node itself has to know. */
INLINE __u32 wanted(const struct flood_config *c, const struct flood_header *h, const __u8 *frame, const __u8 *end,
		    __u32 listening)
{
	const __u8 *target = frame + FLOOD_HEADER_1;

	if (listening == FLOOD_DAEMON)
		return 1;
	/* A ping for this node is answered whether anybody listens or not. */
	return c->wire && h->kind == FLOOD_ECHO_REQUEST && target + 4 <= end &&
	       flood_be32(FLOOD_LOAD(__u32, target)) == c->id;
}

/* Enough for messages of 100 bytes in one go. */
#define TURN 16

static long hash_turn(__u64 number, struct flood_tag *tag)
{
	return flood_tag_words(tag, (__u32)number * TURN, TURN);
}

static long hash_word(__u64 number, struct flood_tag *tag)
{
	return flood_tag_words(tag, (__u32)number, 1);
}

/* By bpf_loop, since the verifier follows a loop in C to its end, and in a copy, since it allows constant places of a
 * packet only. */
INLINE __u32 tag_is_good(struct xdp_md *ctx, const struct flood_config *c, const struct flood_header *h,
			 const __u32 wary)
{
	const __u32 zero = 0;
	__u32 length = FLOOD_HEADER_1 + h->len;
	struct flood_copy *copy = bpf_map_lookup_elem(&copies, &zero);
	struct flood_tag tag;
	__u64 claimed;

	/* The compiler knows it from before, Linux 6.1 has forgotten it: that all fits, and what flood_tag_begin appends. */
	KEEP(length);
	if (!copy || length > sizeof(copy->frame) - 32 || bpf_xdp_load_bytes(ctx, ETHERNET, copy->frame, length))
		return 0;
	claimed = copy->frame[2];
	flood_tag_begin(&tag, c, h, copy->frame);
	if (wary)
		bpf_loop(FLOOD_FRAME_WORDS, hash_word, &tag, 0);
	else
		bpf_loop(FLOOD_FRAME_WORDS / TURN, hash_turn, &tag, 0);
	return flood_tag_end(&tag) == claimed;
}

static long try_to_claim(__u64 number, struct flood_claim *claim)
{
	(void)number;
	return flood_try(claim);
}

INLINE __u32 judge(struct xdp_md *ctx, const struct flood_config *c, const struct flood_header *h, const __u32 wary)
{
	const __u32 now = (__u32)(bpf_jiffies64() * setup.jiffy_ns >> FLOOD_TICK_SHIFT);
	const __u32 id = h->id;
	struct flood_source *source = bpf_map_lookup_elem(&sources, &id);
	struct flood_source begun;
	struct flood_claim claim = { .config = c, .header = h, .now = now };
	__u32 verdict;

	/* After the window: most copies that a node hears are duplicates. Before anything is remembered: what has a bad tag
	 * leaves no trace. */
	verdict = c->keyed && source ? flood_check(source, c, h, now) : FLOOD_NEW;
	if (verdict != FLOOD_NEW)
		return verdict;
	if (c->keyed && !tag_is_good(ctx, c, h, wary))
		return FLOOD_BAD_TAG;
	if (!source) {
		flood_source_init(&begun, c, h, now);
		/* That another processor was first is as good. */
		bpf_map_update_elem(&sources, &id, &begun, BPF_NOEXIST);
		source = bpf_map_lookup_elem(&sources, &id);
		if (!source)
			return FLOOD_LIMITED;
	}
	claim.source = source;
	/* Further tries run in bpf_loop, since the verifier follows each round of a C loop. The wary program does not try here first:
	 * `source` came from one of two look-ups, and the verifier lets it compute nothing from that. */
	return flood_taken(&claim, (!wary && flood_try(&claim)) || bpf_loop(FLOOD_TRIES, try_to_claim, &claim, 0) < FLOOD_TRIES);
}

/* Each place is a constant to the verifier, which the compiler would like to make a variable of. */
INLINE void set(__u8 *at, __u8 value)
{
	KEEP(at);
	*at = value;
}

INLINE int relay(struct xdp_md *ctx, const __u32 wary)
{
	const struct flood_config c = load_config();
	__u8 *start = (__u8 *)(long)ctx->data, *end = (__u8 *)(long)ctx->data_end;
	__u8 *frame = start + ETHERNET;
	struct flood_header h = {};
	const __u32 listening = *(volatile __u32 *)&control.listening;
	__u32 verdict, length, rings = 0;

	if (frame > end || *(__u16 *)(start + 12) != flood_be16(ETHERTYPE))
		return XDP_PASS;
	/* What is for one node alone is no flood, as in UDP: it may come from beyond the network. */
	if ((*(__u16 *)start & *(__u16 *)(start + 2) & *(__u16 *)(start + 4)) != 0xffff)
		return XDP_PASS;
	/* A frame is in one piece: the program does not say that it takes others (xdp.frags). Pointers are not for the wary. */
	length = (wary ? (__u32)bpf_xdp_get_buff_len(ctx) : (__u32)(end - start)) - ETHERNET;
	verdict = flood_parse(&h, &c, frame, end, length, FLOOD_ETHERNET_PAD);
	if (verdict == FLOOD_NEW)
		verdict = h.id == c.id ? FLOOD_OWN : judge(ctx, &c, &h, wary);
	if (setup.hand_up)
		count_copy(&h, verdict);
	if (verdict == FLOOD_NEW && (setup.hand_up || wanted(&c, &h, frame, end, listening)))
		hand_up(ctx, flood_header_length(&c) + h.len);
	else if (verdict == FLOOD_NEW && listening && h.kind != FLOOD_ECHO_REQUEST)
		rings = post(ctx, flood_header_length(&c) + h.len) && listening == FLOOD_BELL;
	if (verdict != FLOOD_NEW || setup.hand_up || !flood_goes_on(&h)) {
		count(verdict);
		return rings ? bpf_redirect_map(&rope_and_out, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS) : XDP_DROP;
	}
	count(FLOOD_RELAYED);
	if (c.wire)
		set(frame + FLOOD_TTL_AT_1, h.ttl - 1);
	else
		set(frame + FLOOD_TTL_AT_0, h.ttl - 1);
	*(__u16 *)(start + 6) = *(const volatile __u16 *)&setup.mac[0];
	*(__u16 *)(start + 8) = *(const volatile __u16 *)&setup.mac[2];
	*(__u16 *)(start + 10) = *(const volatile __u16 *)&setup.mac[4];
	return rings ? bpf_redirect_map(&rope_and_out, 0, BPF_F_BROADCAST) : XDP_TX;
}

SEC("xdp")
int flood_relay(struct xdp_md *ctx)
{
	return relay(ctx, 0);
}

/* The same for a process without CAP_PERFMON, of whose programs the verifier follows every branch that a processor might
 * speculate on, which has no end in the loop of a turn. */
SEC("?xdp")
int flood_relay_wary(struct xdp_md *ctx)
{
	return relay(ctx, 1);
}

/* At the rope's other end: rings the bell. Twice, so that its queue is filled by the copy: a frame that stays there has to be nobody's. */
SEC("xdp")
int flood_ring(struct xdp_md *ctx)
{
	(void)ctx;
	return bpf_redirect_map(&bell, 0, BPF_F_BROADCAST);
}
