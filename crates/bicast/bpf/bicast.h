/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Selective bicast (paper 004): which of a sender's packets control retransmission. Integers only, on fields that
 * others have parsed: a program on tc's egress hook and Rust walk packets in their own ways.
 *
 * 3.2.2 and 4.1 of the paper: a SACK with gap ack blocks asks for a retransmission; DATA whose TSN is not above the
 * highest that was sent is one; the end of an association forgets that TSN. TCP has the same two kinds of packets.
 */
#ifndef NAWA_BICAST_H
#define NAWA_BICAST_H

#ifndef __bpf__
#include <linux/types.h>
#endif

#define BICAST_FN static inline __attribute__((always_inline, unused))

/* Why a packet may be sent twice; several may hold. 0: it must not be. */
enum bicast_reason {
	BICAST_RETRANSMISSION = 1, /* DATA that was sent before */
	BICAST_REQUEST = 2,        /* says what is missing */
	BICAST_TAIL = 4,           /* nothing follows that would tell of its loss: the I bit (RFC 9260 3.3.1) */
	BICAST_END = 8,            /* SHUTDOWN and its answers, FIN */
	BICAST_BEGIN = 16,         /* SYN; of SCTP, what makes a path known */
	BICAST_REST = 32,          /* none of these: only full bicast copies it */
};

enum bicast_mode {
	BICAST_OFF = 0,
	BICAST_SELECTIVE = 1, /* as published */
	BICAST_FULL = 2,      /* every packet, the published rival */
	BICAST_ADAPTIVE = 3,  /* the published reasons, and what else a timer would have to find, within a budget */
};

/* The reasons that count in `mode`. */
BICAST_FN __u32 bicast_wanted(__u32 mode, __u32 reasons)
{
	if (mode == BICAST_SELECTIVE)
		return reasons & (BICAST_RETRANSMISSION | BICAST_REQUEST);
	if (mode == BICAST_ADAPTIVE)
		return reasons & ~(__u32)BICAST_REST;
	return mode == BICAST_FULL ? reasons : 0;
}

/* Bytes of copies that are allowed before the budget's share counts: ten full packets, so that the first losses of a
 * short transfer are helped. */
#define BICAST_ALLOWANCE 15000

/* Whether a copy of `length` bytes keeps all copies within `percent` of what has been sent. */
BICAST_FN __u32 bicast_within_budget(__u64 sent_bytes, __u64 extra_bytes, __u32 length, __u32 percent)
{
	return (extra_bytes + length) * 100 <= sent_bytes * percent + BICAST_ALLOWANCE * 100;
}

/* Serial number arithmetic (RFC 1982): whether a is above b. */
BICAST_FN __u32 bicast_above(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

/* ---- SCTP ---- */

/* Chunk types (RFC 9260 3.2, RFC 8260 for I-DATA). */
enum bicast_chunk {
	CHUNK_DATA = 0,
	CHUNK_INIT = 1,
	CHUNK_INIT_ACK = 2,
	CHUNK_SACK = 3,
	CHUNK_HEARTBEAT = 4,
	CHUNK_HEARTBEAT_ACK = 5,
	CHUNK_ABORT = 6,
	CHUNK_SHUTDOWN = 7,
	CHUNK_SHUTDOWN_ACK = 8,
	CHUNK_COOKIE_ECHO = 10,
	CHUNK_COOKIE_ACK = 11,
	CHUNK_SHUTDOWN_COMPLETE = 14,
	CHUNK_I_DATA = 64,
	CHUNK_PAD = 0x84,
	CHUNK_ASCONF = 0xc1,
};

/* Parameters of INIT and INIT ACK (RFC 9260 3.3.2, RFC 5061 4.2.7), and of ASCONF. */
enum bicast_parameter {
	PARAMETER_IPV4 = 5,
	PARAMETER_IPV6 = 6,
	PARAMETER_EXTENSIONS = 0x8008,
};

/* Whose an INIT or INIT ACK is, by the order of what it lists. Linux begins with its addresses; FreeBSD's stack, which is
 * usrsctp's, ends with them, whatever its version and settings. What it lists as extensions depends on both. */
enum bicast_stack {
	STACK_UNKNOWN = 0,
	STACK_ADDRESSES_FIRST = 1,
	STACK_EXTENSIONS_FIRST = 2,
};

/* What a parameter tells of that, until one does. */
BICAST_FN __u32 bicast_stack(__u32 parameter)
{
	if (parameter == PARAMETER_IPV4 || parameter == PARAMETER_IPV6)
		return STACK_ADDRESSES_FIRST;
	return parameter == PARAMETER_EXTENSIONS ? STACK_EXTENSIONS_FIRST : STACK_UNKNOWN;
}

#define CHUNK_FLAG_IMMEDIATE 8 /* of DATA: the I bit */

enum bicast_found {
	FOUND_DATA = 1,
	FOUND_GAPS = 2,      /* a SACK with gap ack blocks */
	FOUND_IMMEDIATE = 4, /* the I bit on DATA */
	FOUND_SHUTDOWN = 8,  /* SHUTDOWN or SHUTDOWN ACK: no DATA will follow */
	FOUND_END = 16,      /* SHUTDOWN COMPLETE or ABORT: nothing will follow */
	FOUND_PATH = 32,     /* about one path, or about who the ends are: HEARTBEAT, INIT, COOKIE, ASCONF */
	FOUND_ABORT = 64,
	FOUND_PADDING = 128, /* it probes how long packets may be (RFC 8899) */
};

/* What a packet's chunks are, gathered by `bicast_chunk_seen`; begin with zeros. */
struct bicast_sctp {
	__u32 found;    /* enum bicast_found */
	__u32 tsn_low;  /* of its DATA, by serial numbers */
	__u32 tsn_high;
};

/* Of an association, in one direction; begin with zeros. */
struct bicast_association {
	__u32 tsn_known;
	__u32 tsn_highest; /* sent so far, if known */
};

BICAST_FN void bicast_data_seen(struct bicast_sctp *p, __u32 flags, __u32 tsn)
{
	if (!(p->found & FOUND_DATA) || bicast_above(p->tsn_low, tsn))
		p->tsn_low = tsn;
	if (!(p->found & FOUND_DATA) || bicast_above(tsn, p->tsn_high))
		p->tsn_high = tsn;
	p->found |= FOUND_DATA;
	if (flags & CHUNK_FLAG_IMMEDIATE)
		p->found |= FOUND_IMMEDIATE;
}

/* What a chunk of each type says by its being there. */
static const __u8 bicast_found[256] = {
	[CHUNK_SACK] = FOUND_GAPS, /* if it has any */
	[CHUNK_SHUTDOWN] = FOUND_SHUTDOWN,
	[CHUNK_SHUTDOWN_ACK] = FOUND_SHUTDOWN,
	[CHUNK_SHUTDOWN_COMPLETE] = FOUND_END,
	[CHUNK_ABORT] = FOUND_END | FOUND_ABORT,
	[CHUNK_HEARTBEAT] = FOUND_PATH,
	[CHUNK_HEARTBEAT_ACK] = FOUND_PATH,
	[CHUNK_INIT] = FOUND_PATH,
	[CHUNK_INIT_ACK] = FOUND_PATH,
	[CHUNK_COOKIE_ECHO] = FOUND_PATH,
	[CHUNK_COOKIE_ACK] = FOUND_PATH,
	[CHUNK_ASCONF] = FOUND_PATH,
	[CHUNK_PAD] = FOUND_PADDING,
};

/* Takes in one chunk: `tsn` is that of DATA, `gaps` the number of gap ack blocks of a SACK. */
BICAST_FN void bicast_chunk_seen(struct bicast_sctp *p, __u32 type, __u32 flags, __u32 tsn, __u32 gaps)
{
	if (type == CHUNK_DATA || type == CHUNK_I_DATA)
		bicast_data_seen(p, flags, tsn);
	else if (type != CHUNK_SACK || gaps)
		p->found |= bicast_found[type & 255];
}

/* Whether the packet holds DATA that was sent before; remembers the highest TSN. */
BICAST_FN __u32 bicast_sent_before(struct bicast_association *a, const struct bicast_sctp *p)
{
	__u32 before = a->tsn_known && !bicast_above(p->tsn_low, a->tsn_highest);

	if (!a->tsn_known || bicast_above(p->tsn_high, a->tsn_highest))
		a->tsn_highest = p->tsn_high;
	a->tsn_known = 1;
	return before;
}

/* The reasons to send the packet twice. What is about one path is not copied, but its DATA counts as sent. */
BICAST_FN __u32 bicast_sctp_classify(struct bicast_association *a, const struct bicast_sctp *p)
{
	__u32 reasons = 0;

	if ((p->found & FOUND_DATA) && bicast_sent_before(a, p))
		reasons |= BICAST_RETRANSMISSION;
	if (p->found & FOUND_GAPS)
		reasons |= BICAST_REQUEST;
	if (p->found & FOUND_IMMEDIATE)
		reasons |= BICAST_TAIL;
	if (p->found & (FOUND_SHUTDOWN | FOUND_END)) {
		a->tsn_known = 0;
		reasons |= BICAST_END;
	}
	if (p->found & (FOUND_PATH | FOUND_ABORT))
		return 0;
	return reasons ? reasons : BICAST_REST;
}

/* ---- TCP ---- */

enum bicast_tcp_flag {
	TCP_FLAG_FIN = 1,
	TCP_FLAG_SYN = 2,
	TCP_FLAG_RST = 4,
	TCP_FLAG_ACK = 16,
};

/* A segment's fields, in host byte order. */
struct bicast_segment {
	__u32 seq;
	__u32 ack;
	__u32 length;      /* bytes of data */
	__u32 flags;       /* enum bicast_tcp_flag */
	__u32 window;      /* as in the header */
	__u32 sack_blocks; /* RFC 2018 3 */
};

/* Of a connection, in one direction; begin with zeros. */
struct bicast_connection {
	__u32 next_known;
	__u32 next;      /* behind the highest sequence number sent, if known */
	__u32 ack_known;
	__u32 ack;       /* the last one sent, if known */
	__u32 window;    /* that went with it */
};

/* Whether the segment holds what was sent before; remembers how far it has been sent. */
BICAST_FN __u32 bicast_segment_before(struct bicast_connection *c, const struct bicast_segment *s, __u32 span)
{
	__u32 before = c->next_known && bicast_above(c->next, s->seq);

	if (!c->next_known || bicast_above(s->seq + span, c->next))
		c->next = s->seq + span;
	c->next_known = 1;
	return before;
}

/* Whether it says what is missing: SACK blocks, or a duplicate ACK (RFC 5681 2). */
BICAST_FN __u32 bicast_segment_requests(struct bicast_connection *c, const struct bicast_segment *s, __u32 span)
{
	__u32 duplicate = c->ack_known && !span && s->ack == c->ack && s->window == c->window;

	if (!(s->flags & TCP_FLAG_ACK))
		return 0;
	c->ack_known = 1;
	c->ack = s->ack;
	c->window = s->window;
	return duplicate || s->sack_blocks;
}

/* The reasons to send the segment twice. */
BICAST_FN __u32 bicast_tcp_classify(struct bicast_connection *c, const struct bicast_segment *s)
{
	__u32 syn = !!(s->flags & TCP_FLAG_SYN), fin = !!(s->flags & TCP_FLAG_FIN);
	__u32 span = s->length + syn + fin, reasons = 0;

	if (s->flags & TCP_FLAG_RST) {
		c->next_known = c->ack_known = 0;
		return BICAST_REST;
	}
	/* A SYN elsewhere in the sequence is a new connection of the same ports. */
	if (syn && c->next_known && c->next != s->seq + span)
		c->next_known = c->ack_known = 0;
	if (span && bicast_segment_before(c, s, span))
		reasons |= BICAST_RETRANSMISSION;
	if (bicast_segment_requests(c, s, span))
		reasons |= BICAST_REQUEST;
	if (fin)
		reasons |= BICAST_END;
	if (syn)
		reasons |= BICAST_BEGIN;
	return reasons ? reasons : BICAST_REST;
}

#endif
