/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Flooding (paper 000): the frames, the tag, and which frames are new. Integers only, no kernel and no C library: the
 * same file is compiled into the XDP program (flood.bpf.c) and into the Rust core (src/ffi.c).
 *
 * Whoever includes it has __u8, __u16, __u32 and __u64.
 *
 * A frame follows the EtherType 0x88B5, or is a UDP datagram's payload. All numbers are big-endian.
 *
 *   wire 0, the paper's figure 7     ID 1 · SEQ 1 · TTL 1 · LEN 2 · DATA
 *   wire 1                           version 4 bits · kind 4 bits · TTL 1 · LEN 2 · ID 4 · EPOCH 4 · SEQ 4 · TAG 8 · DATA
 *
 * Behind 14 bytes of Ethernet, wire 1's numbers lie where a machine that aligns can load them whole.
 */
#ifndef NAWA_FLOOD_H
#define NAWA_FLOOD_H

#define FLOOD_INLINE static inline __attribute__((always_inline))

/* Bytes of a message at most, the paper's. */
#define FLOOD_DATA_MAX 2307
/* Bytes of the header by wire version. */
#define FLOOD_HEADER_0 5
#define FLOOD_HEADER_1 24
/* Where it has the TTL. */
#define FLOOD_TTL_AT_0 2
#define FLOOD_TTL_AT_1 1
/* A shorter Ethernet payload is padded with bytes that belong to no frame (IEEE 802.3, 3.2.7). */
#define FLOOD_ETHERNET_PAD 46
/* What a frame may have behind its data as a UDP payload. */
#define FLOOD_NO_PAD 0

/* What a frame is for, in wire 1. Relays do not look at it. */
enum flood_kind {
	FLOOD_DATA = 0,
	FLOOD_ECHO_REQUEST = 1, /* data begin with the ID that is to answer */
	FLOOD_ECHO_REPLY = 2,   /* the request's data */
	FLOOD_KINDS = 3,
};

/* What becomes of a frame. The order is that of the counters. */
enum flood_verdict {
	FLOOD_NEW = 0,       /* heard for the first time: deliver it, relay it */
	FLOOD_SHORT,         /* cut before the end of its header */
	FLOOD_VERSION,       /* of another version or of no known kind */
	FLOOD_LENGTH,        /* LEN is not what follows */
	FLOOD_EXPIRED,       /* TTL 0: should have been dropped by who sent it */
	FLOOD_OWN,           /* this node's own ID */
	FLOOD_DUPLICATE,     /* heard before */
	FLOOD_OLD,           /* behind the window: cannot be told from a duplicate */
	FLOOD_OLD_EPOCH,     /* of an earlier life of its source */
	FLOOD_BAD_TAG,       /* not from who has the key */
	FLOOD_LIMITED,       /* its source has sent more than it may */
	FLOOD_VERDICTS,
};

/* What is the same for all nodes of a network, and who this one is. */
struct flood_config {
	__u64 key[2];        /* SipHash's, as the machine loads 16 bytes; 0 without `keyed` */
	__u32 id;
	__u32 wire;          /* 0 or 1 */
	__u32 keyed;         /* whether tags are checked; wire 1 only */
	__u32 credit_tick;   /* rate limit: credit per tick, FLOOD_FRAME a frame; 0: none */
	__u32 credit_max;    /* and at most; FLOOD_FRAME at least */
	__u32 reserved;
};

struct flood_header {
	__u32 id;
	__u32 epoch;         /* 0 in wire 0 */
	__u32 seq;
	__u16 len;           /* of the data */
	__u8 ttl;
	__u8 kind;           /* FLOOD_DATA in wire 0 */
};

/* Time is a count of 2^20 ns, about a millisecond, that wraps after 52 days. */
#define FLOOD_TICK_SHIFT 20
/* Of these so many are one unit of silence, 67 ms. */
#define FLOOD_UNIT_SHIFT 6
/* A source that was silent for more of them may begin anywhere: it may have restarted. In wire 0 a second, since nothing
 * else tells a restart there; in wire 1 two minutes, for a node whose epoch went back. */
#define FLOOD_SILENCE_0 15
#define FLOOD_SILENCE_1 1788
/* What a frame costs of a source's credit. */
#define FLOOD_FRAME 65536

/* The window: a word for each block of sequence numbers, at the block's number modulo this. What is less than
 * FLOOD_BLOCK × (FLOOD_WORDS − 1) behind the newest is told from what was heard. */
#define FLOOD_WORDS 8
#define FLOOD_BLOCK 32
/* How often a processor tries to claim a frame. */
#define FLOOD_TRIES 64

/* What is kept for each source, of its present life: since its epoch grew, or since it was silent. Several processors change it
 * at once, `life` and `seen` by compare-and-swap alone. As each word says what it is of, nothing else has to change with it. */
struct flood_source {
	__u64 life;          /* epoch 32 · 0 1 · unit in which it was last heard 26 · life's number 5 */
	__u32 highest;       /* the newest sequence number; in wire 0, where SEQ wraps, counted on */
	__u32 paid;          /* tick until which it has got credit */
	__u32 credit;
	__u32 reserved;
	__u64 seen[FLOOD_WORDS]; /* life's number 5 · block's number 27 · a bit for each of its sequence numbers 32 */
};

FLOOD_INLINE __u16 flood_be16(__u16 x)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return __builtin_bswap16(x);
#else
	return x;
#endif
}

FLOOD_INLINE __u32 flood_be32(__u32 x)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return __builtin_bswap32(x);
#else
	return x;
#endif
}

FLOOD_INLINE __u64 flood_le64(__u64 x)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return x;
#else
	return __builtin_bswap64(x);
#endif
}

/* Loads of what may be unaligned. In BPF the plain load is one instruction and the verifier knows where it is allowed;
 * elsewhere the C library's copy of a constant size is. */
#ifdef __bpf__
#define FLOOD_LOAD(type, at) (*(const type *)(at))
#else
#define FLOOD_LOAD(type, at) ({ type flood_x; __builtin_memcpy(&flood_x, (at), sizeof(flood_x)); flood_x; })
#endif

/* --- the frame --- */

FLOOD_INLINE __u32 flood_header_length(const struct flood_config *c)
{
	return c->wire ? FLOOD_HEADER_1 : FLOOD_HEADER_0;
}

/* Reads the header of the frame that takes the `length` bytes from `at` up to `end` (the verifier knows the one, not
 * the other). Behind its data there may be padding up to a whole length of `pad`. Returns FLOOD_NEW, and then `len` bytes
 * of data do follow, or why it is no frame. */
FLOOD_INLINE __u32 flood_parse(struct flood_header *h, const struct flood_config *c, const __u8 *at, const __u8 *end,
			       __u32 length, __u32 pad)
{
	const __u32 header = flood_header_length(c);

	if (c->wire) {
		if (at + FLOOD_HEADER_1 > end)
			return FLOOD_SHORT;
		if (at[0] >> 4 != 1 || (at[0] & 15) >= FLOOD_KINDS)
			return FLOOD_VERSION;
		h->kind = at[0] & 15;
		h->ttl = at[1];
		h->len = flood_be16(FLOOD_LOAD(__u16, at + 2));
		h->id = flood_be32(FLOOD_LOAD(__u32, at + 4));
		h->epoch = flood_be32(FLOOD_LOAD(__u32, at + 8));
		h->seq = flood_be32(FLOOD_LOAD(__u32, at + 12));
	} else {
		if (at + FLOOD_HEADER_0 > end)
			return FLOOD_SHORT;
		h->kind = FLOOD_DATA;
		h->id = at[0];
		h->seq = at[1];
		h->ttl = at[2];
		h->len = (__u16)(at[3] << 8 | at[4]);
		h->epoch = 0;
	}
	if (h->len > FLOOD_DATA_MAX || header + h->len > length)
		return FLOOD_LENGTH;
	if (header + h->len != length && length > pad)
		return FLOOD_LENGTH;
	return h->ttl ? FLOOD_NEW : FLOOD_EXPIRED;
}

/* --- the tag: SipHash-2-4 (Aumasson, Bernstein 2012) of header and data, without TTL and tag --- */

struct flood_sip {
	__u64 v0, v1, v2, v3;
};

FLOOD_INLINE __u64 flood_rotate(__u64 x, int bits)
{
	return x << bits | x >> (64 - bits);
}

FLOOD_INLINE void flood_sip_round(struct flood_sip *s)
{
	s->v0 += s->v1;
	s->v1 = flood_rotate(s->v1, 13) ^ s->v0;
	s->v0 = flood_rotate(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = flood_rotate(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = flood_rotate(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = flood_rotate(s->v1, 17) ^ s->v2;
	s->v2 = flood_rotate(s->v2, 32);
}

/* Words of 8 bytes that hold the longest frame and what flood_tag_begin puts behind it, a power of two. */
#define FLOOD_FRAME_WORDS 512

/* A tag that is being computed. */
struct flood_tag {
	struct flood_sip sip;
	const __u64 *words;
	__u32 count;         /* of the words that flood_tag_words hashes */
	__u32 reserved;
};

/* Begins the tag of a frame whose header flood_parse has found good: of its 16 bytes before the tag with TTL 0, and of
 * its data. `words` is a copy of the frame, of which this makes what is hashed: from the second word on the header, the
 * data, the last word, and two of zeroes for the rounds that end it. So one piece of code hashes everything, and there is
 * little of it: in a relay that is used now and then, fetching code takes longer than running it. */
FLOOD_INLINE void flood_tag_begin(struct flood_tag *t, const struct flood_config *c, const struct flood_header *h,
				  __u64 *words)
{
	const __u64 k0 = flood_le64(c->key[0]), k1 = flood_le64(c->key[1]);
	const __u32 last = (FLOOD_HEADER_1 + h->len) / 8 & (FLOOD_FRAME_WORDS - 1), odd = h->len & 7;
	const __u64 rest = odd ? flood_le64(words[last]) << (64 - 8 * odd) >> (64 - 8 * odd) : 0;

	t->sip.v0 = k0 ^ 0x736f6d6570736575ULL;
	t->sip.v1 = k1 ^ 0x646f72616e646f6dULL;
	t->sip.v2 = k0 ^ 0x6c7967656e657261ULL;
	t->sip.v3 = k1 ^ 0x7465646279746573ULL;
	words[2] = words[1];
	words[1] = words[0] & flood_le64(~0xff00ULL);
	/* The length of all, modulo 256, in the highest byte. */
	words[last] = flood_le64(rest | (__u64)((16 + h->len) & 255) << 56);
	words[(last + 1) & (FLOOD_FRAME_WORDS - 1)] = 0;
	words[(last + 2) & (FLOOD_FRAME_WORDS - 1)] = 0;
	t->words = words;
	t->count = last + 2;
}

/* Hashes up to `many` words from `first` on, all before which are hashed; 1 if that was the end. */
FLOOD_INLINE __u32 flood_tag_words(struct flood_tag *t, __u32 first, __u32 many)
{
	struct flood_sip s = t->sip;
	__u32 i, at = first;

	for (i = 0; i < many; i++, at++) {
		const __u64 m = at < t->count ? flood_le64(t->words[(at + 1) & (FLOOD_FRAME_WORDS - 1)]) : 0;

		if (at >= t->count)
			break;
		if (at + 2 == t->count)
			s.v2 ^= 0xff;
		s.v3 ^= m;
		flood_sip_round(&s);
		flood_sip_round(&s);
		s.v0 ^= m;
	}
	t->sip = s;
	return at >= t->count;
}

/* The tag, as the machine would load it from the frame. */
FLOOD_INLINE __u64 flood_tag_end(const struct flood_tag *t)
{
	return flood_le64(t->sip.v0 ^ t->sip.v1 ^ t->sip.v2 ^ t->sip.v3);
}

/* --- which frames are new --- */

/* Numbers of lives, which wrap. */
#define FLOOD_LIVES 31
#define FLOOD_UNITS 0x3ffffff

FLOOD_INLINE __u32 flood_life_epoch(__u64 life)
{
	return (__u32)(life >> 32);
}

/* For how many units a source was silent at `now`; 0 if another processor has heard it a little later. */
FLOOD_INLINE __u32 flood_silent(__u64 life, __u32 now)
{
	const __u32 silent = ((now >> FLOOD_UNIT_SHIFT) - (__u32)(life >> 5)) & FLOOD_UNITS;

	return silent > FLOOD_UNITS - FLOOD_SILENCE_0 ? 0 : silent;
}

/* Whether what is kept of the source says nothing of this frame: the source has begun anew. */
FLOOD_INLINE __u32 flood_begins(__u64 life, const struct flood_config *c, const struct flood_header *h, __u32 now)
{
	return h->epoch > flood_life_epoch(life) ||
	       flood_silent(life, now) > (c->wire ? FLOOD_SILENCE_1 : FLOOD_SILENCE_0);
}

/* The sequence number in 32 bits. */
FLOOD_INLINE __u32 flood_number(const struct flood_source *s, const struct flood_config *c, __u32 seq)
{
	return c->wire ? seq : s->highest + (__u32)(int)(signed char)(__u8)(seq - s->highest);
}

/* FLOOD_NEW, or why the frame `number` of the life `life` is not, by its block's word. Serial arithmetic (RFC 1982). */
FLOOD_INLINE __u32 flood_look(__u64 word, __u32 life, __u32 number)
{
	const __u32 of = (__u32)(word >> 32);
	const int ahead = (int)((number / FLOOD_BLOCK - of) << 5);

	if (of >> 27 != life)
		return (((of >> 27) - life) & FLOOD_LIVES) <= FLOOD_LIVES / 2 ? FLOOD_OLD_EPOCH : FLOOD_NEW;
	if (ahead)
		return ahead > 0 ? FLOOD_NEW : FLOOD_OLD;
	return word >> number % FLOOD_BLOCK & 1 ? FLOOD_DUPLICATE : FLOOD_NEW;
}

/* FLOOD_NEW, or why the frame is not, by what is kept of its source. Changes nothing: the tag is looked at only of
 * what is new, and nothing is remembered of what has a bad one. */
FLOOD_INLINE __u32 flood_check(const struct flood_source *s, const struct flood_config *c,
			       const struct flood_header *h, __u32 now)
{
	const __u64 life = s->life;
	const __u32 number = flood_number(s, c, h->seq);

	if (flood_begins(life, c, h, now))
		return FLOOD_NEW;
	if (h->epoch < flood_life_epoch(life))
		return FLOOD_OLD_EPOCH;
	return flood_look(s->seen[number / FLOOD_BLOCK % FLOOD_WORDS], life & FLOOD_LIVES, number);
}

FLOOD_INLINE __u64 flood_life(const struct flood_header *h, __u32 now, __u32 number)
{
	return (__u64)h->epoch << 32 | (__u64)(now >> FLOOD_UNIT_SHIFT) << 5 | (number & FLOOD_LIVES);
}

/* A source's state before its first frame. Words of 0 are of the life before. */
FLOOD_INLINE void flood_source_init(struct flood_source *s, const struct flood_config *c,
				    const struct flood_header *h, __u32 now)
{
	__u32 i;

	s->life = flood_life(h, now, 1);
	s->highest = h->seq;
	s->paid = now;
	s->credit = c->credit_max;
	s->reserved = 0;
	/* Word by word, for a verifier that is wary of half a word over a pointer that was on the stack. */
	for (i = 0; i < FLOOD_WORDS; i++)
		*(volatile __u64 *)&s->seen[i] = 0;
}

/* A frame that flood_check called new, about to be remembered. */
struct flood_claim {
	struct flood_source *source;
	const struct flood_config *config;
	const struct flood_header *header;
	__u32 now;
	__u32 verdict;
};

/* Makes what is left of an earlier life in one of the words the last life's. Each life does so with the next word, so that none is
 * left when numbers of lives come again. */
FLOOD_INLINE void flood_forget(struct flood_source *s, __u32 life)
{
	__u64 *at = &s->seen[life % FLOOD_WORDS];
	const __u64 left = *(volatile __u64 *)at;

	if (left >> 59 != life)
		__sync_val_compare_and_swap(at, left, (__u64)((life - 1) & FLOOD_LIVES) << 59);
}

/* Enters the frame's life, which begins with it if nobody was quicker, and claims the frame, in `verdict` FLOOD_NEW for one
 * of all processors that hear it at once. 0 if another processor was in the way, which has then claimed something itself: try
 * again. */
FLOOD_INLINE __u32 flood_try(struct flood_claim *claim)
{
	struct flood_source *s = claim->source;
	const struct flood_config *c = claim->config;
	const struct flood_header *h = claim->header;
	const __u32 now = claim->now, number = flood_number(s, c, h->seq);
	const __u64 before = *(volatile __u64 *)&s->life, bit = 1ULL << number % FLOOD_BLOCK;
	const __u32 begins = flood_begins(before, c, h, now);
	const __u64 life = flood_life(h, now, (__u32)before + begins);
	const __u64 block = (life & FLOOD_LIVES) << 59 | (__u64)(number / FLOOD_BLOCK) << 32;
	__u64 *at = &s->seen[number / FLOOD_BLOCK % FLOOD_WORDS], word;

	claim->verdict = FLOOD_OLD_EPOCH;
	if (!begins && h->epoch < flood_life_epoch(before))
		return 1;
	if (begins) {
		if (__sync_val_compare_and_swap(&s->life, before, life) != before)
			return 0;
		flood_forget(s, life & FLOOD_LIVES);
	}
	word = *(volatile __u64 *)at;
	claim->verdict = flood_look(word, life & FLOOD_LIVES, number);
	if (claim->verdict != FLOOD_NEW)
		return 1;
	/* What is not new says nothing of its source's being there: anybody may have kept it. */
	if (!begins && flood_silent(before, now) && __sync_val_compare_and_swap(&s->life, before, life) != before)
		return 0;
	return __sync_val_compare_and_swap(at, word, ((word ^ block) >> 32 ? block : word) | bit) == word;
}

/* Gives the source what time has brought it and takes a frame's price; 0 if it cannot pay. */
FLOOD_INLINE __u32 flood_pay(struct flood_source *s, const struct flood_config *c, __u32 now)
{
	const int passed = (int)(now - s->paid);
	__u64 credit = s->credit;

	if (!c->credit_tick)
		return 1;
	if (passed > 0)
		credit += (__u64)passed * c->credit_tick;
	if (credit > c->credit_max)
		credit = c->credit_max;
	s->paid = now;
	if (credit < FLOOD_FRAME) {
		s->credit = (__u32)credit;
		return 0;
	}
	s->credit = (__u32)credit - FLOOD_FRAME;
	return 1;
}

/* What the frame is when trying is `done`, or given up: FLOOD_NEW, or FLOOD_DUPLICATE where another processor has just taken a
 * copy of it, or FLOOD_LIMITED, which is remembered: its copies are no better. */
FLOOD_INLINE __u32 flood_taken(struct flood_claim *claim, __u32 done)
{
	struct flood_source *s = claim->source;
	const __u32 number = flood_number(s, claim->config, claim->header->seq);

	if (!done)
		return FLOOD_LIMITED;
	if (claim->verdict != FLOOD_NEW)
		return claim->verdict;
	if ((int)(number - s->highest) > 0)
		s->highest = number;
	return flood_pay(s, claim->config, claim->now) ? FLOOD_NEW : FLOOD_LIMITED;
}

/* Whether a frame that is new goes on: with TTL n it is sent again with n - 1, as long as that is not 0. */
FLOOD_INLINE __u32 flood_goes_on(const struct flood_header *h)
{
	return h->ttl > 1;
}

#endif
