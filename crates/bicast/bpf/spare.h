/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What is worth copying in adaptive mode.
 *
 * First transmissions: all or none. A copy by a path with a shorter queue than the packet's own overtakes what was sent
 * before it, and what of that is not copied as well then looks lost to the sender. The first few are copied, and all while
 * packets are lost and the other path has room. Whether it has cannot be told while all are copied, since these copies
 * fill it as well; so copying rests now and then, until the last have left it, and single ones are tried: so many in a row
 * have to find no queue, and three times as many once one has found some. What tells is the receiver's SACKs (RFC 9260 3.3.4), so that
 * the load of other hosts counts as well as this one's. Before each one that is tried, a packet without a copy shows whether
 * their own path has a queue, since that comes and goes with every loss:
 *
 *   - A TSN is reported as received twice when the later of the two has arrived. If the packet's own path has no queue,
 *     that is how long the copy took, unless the packet itself took as long, for which a queue may have begun by then.
 *   - A copy that was faster than its packet is acknowledged before what was sent ahead of it. If the packet's own path has
 *     a queue, that is how long the copy took.
 *
 * All begin to be copied when nothing waits in their own path, or that has lasted: the first overtake what does, which then looks lost.
 *
 * Retransmissions: all of a stack whose handshake shows that it is not FreeBSD's (usrsctp), and a third time while many packets
 * are lost. FreeBSD's stays in fast recovery, its window as halved, until the next loss if a retransmission arrives before what
 * was sent before it, as a copy does by a path with a shorter queue (docs/bicast.md), so none of that. Where no handshake was
 * seen, they are copied once the sender's timer has had to find one that was lost again.
 *
 * With FreeBSD's and where no handshake was seen all else is done with care, too: none are copied from the start, twice as many
 * have to find room, and a tail is not while its own path has a queue, which the copy would overtake: usrsctp sets the I bit in
 * the middle of transfers.
 */
#ifndef NAWA_BICAST_SPARE_H
#define NAWA_BICAST_SPARE_H

#include "bicast.h"

#define FIRST 10            /* so many from the start; more would fill both paths while the sender looks for their rate */
#define RUN_US 250000       /* all are copied for so long before it is asked whether the other path has room, */
#define MOST_RUN_US 2000000 /* and twice as long each time that it has, up to this */
#define REST_US 125000      /* the same for how long none are where it has none */
#define MOST_REST_US 4000000
#define TRIES 8             /* in a row, and three times as many after one that found a queue; */
#define CAREFUL_TRIES 16    /* with care; */
#define AGAIN_TRIES 4       /* after a run */
#define QUEUED_US 4000      /* three full packets at 10 Mbit/s */
#define WAIT_US 1000000     /* then, but with care, all are copied though their own path still has one */
#define LEAST_US 60000000   /* how long the least time counts if none comes near it: queues last, too */
#define UNREPORTED_US 500000 /* then a copy, or its report, was lost */
#define UNTRIED_US 100000   /* and beyond twice the least time, of a copy that is tried */
#define STALL_US 500000     /* nothing sent for so long before a retransmission: a timer's */
#define EPOCH 512           /* packets with DATA, over which losses are judged */
#define LOSSY 2             /* so many lost in an epoch, and copies are worth it */
#define MANY 12             /* or 2.3 %, and so are two of each retransmission */
#define UNREPORTED_PER_LOSS 3 /* a copy stays unreported if itself, its packet or the report is lost */

enum spare_phase {
	SPARE_NEW = 0,
	SPARE_COPY = 1, /* all first transmissions */
	SPARE_REST = 2, /* none; while packets are lost, until `until_us` */
	SPARE_ASK = 3,  /* none; how long one takes by its own path */
	SPARE_TRY = 4,  /* one; how long it takes by the other path */
};

/* Of an association; begin with zeros. Times in µs. */
struct bicast_spare {
	__u32 phase;      /* enum spare_phase */
	__u32 tries;      /* that still have to find room; then nothing has to wait in the packets' own path */
	__u32 watched;    /* whether the fate of `tsn` is awaited */
	__u32 tsn;
	__u64 sent_us;    /* when `tsn` was */
	__u64 until_us;   /* the end of this run or rest, or of the wait for their own path */
	__u64 least_us;   /* from a packet to its acknowledgement, or from a copy to its report */
	__u64 least_at_us; /* when one came near it */
	__u32 took_us;    /* from a copy to its report, last; at first a guess */
	__u32 own_us;     /* what a packet took by its own path alone, last */
	__u32 run_us;     /* of the next one */
	__u32 rest_us;
	__u32 packets;    /* with DATA, in this epoch, as the next three */
	__u32 retransmissions;
	__u32 copies;
	__u32 reported;
	__u32 last;       /* the TSN reported last: a SACK may itself arrive twice */
	__u32 lossy;
	__u32 many;
	__u32 stalled;    /* a timer has had to find a loss */
	__u32 stack;      /* enum bicast_stack, of the sender */
	__u32 unused;
};

/* Whether what arrives earlier than it was sent may slow the sender down for long. */
BICAST_FN __u32 bicast_spare_careful(const struct bicast_spare *s)
{
	return s->stack != STACK_ADDRESSES_FIRST;
}

BICAST_FN __u32 bicast_spare_tries(const struct bicast_spare *s)
{
	return bicast_spare_careful(s) ? CAREFUL_TRIES : TRIES;
}

BICAST_FN void bicast_spare_begin(struct bicast_spare *s, __u64 now_us)
{
	s->phase = bicast_spare_careful(s) ? SPARE_ASK : SPARE_COPY;
	s->until_us = now_us + RUN_US;
	s->run_us = RUN_US;
	s->rest_us = s->took_us = REST_US;
	s->tries = bicast_spare_tries(s);
	s->lossy = 1;
}

BICAST_FN void bicast_spare_rest(struct bicast_spare *s, __u32 us, __u64 now_us)
{
	s->phase = SPARE_REST;
	s->until_us = now_us + us;
	s->watched = 0;
}

BICAST_FN void bicast_spare_watch(struct bicast_spare *s, __u32 tsn, __u64 now_us)
{
	s->watched = 1;
	s->tsn = tsn;
	s->sent_us = now_us;
}

/* Whether what took so long has waited in a queue. */
BICAST_FN __u32 bicast_spare_waited(struct bicast_spare *s, __u64 took_us, __u64 now_us)
{
	if (!s->least_us || took_us < s->least_us || now_us - s->least_at_us > LEAST_US)
		s->least_us = took_us;
	if (took_us <= s->least_us + QUEUED_US / 2)
		s->least_at_us = now_us;
	return took_us > s->least_us + QUEUED_US;
}

BICAST_FN __u32 bicast_spare_twice(__u32 us, __u32 most_us)
{
	return us < most_us / 2 ? us * 2 : most_us;
}

BICAST_FN void bicast_spare_run(struct bicast_spare *s, __u64 now_us)
{
	s->phase = SPARE_COPY;
	s->until_us = now_us + s->run_us;
	s->run_us = bicast_spare_twice(s->run_us, MOST_RUN_US);
	s->rest_us = REST_US;
	s->tries = AGAIN_TRIES;
}

/* Whether there was a queue in the packets' own path when it was asked last. */
BICAST_FN __u32 bicast_spare_queued(const struct bicast_spare *s)
{
	return s->own_us > s->least_us + QUEUED_US;
}

/* A copy that was tried alone has found the other path with a queue, or without. */
BICAST_FN void bicast_spare_tried(struct bicast_spare *s, __u32 waited, __u64 now_us)
{
	s->watched = 0;
	s->phase = SPARE_ASK;
	if (!waited) {
		s->tries--;
		s->until_us = now_us + WAIT_US;
	} else if (s->run_us > RUN_US) {
		/* The first one since there was room: one alone may have waited for a processor. */
		s->run_us = RUN_US;
		s->tries = bicast_spare_tries(s);
	} else {
		bicast_spare_rest(s, s->rest_us, now_us);
		s->rest_us = bicast_spare_twice(s->rest_us, MOST_REST_US);
		s->tries = 3 * bicast_spare_tries(s);
	}
}

/* A packet was on its way by its own path alone for so long. */
BICAST_FN void bicast_spare_asked(struct bicast_spare *s, __u64 took_us, __u64 now_us)
{
	__u32 waited = bicast_spare_waited(s, took_us, now_us);

	s->watched = 0;
	s->own_us = took_us;
	if (s->tries)
		s->phase = SPARE_TRY;
	else if (!waited || (!bicast_spare_careful(s) && now_us > s->until_us))
		bicast_spare_run(s, now_us);
}

/* Whether a run is over: the first one, of which `run_us` is still as it began, is short. */
BICAST_FN __u32 bicast_spare_has_run(const struct bicast_spare *s, __u64 now_us)
{
	return now_us > s->until_us || (s->run_us == RUN_US && s->copies >= FIRST);
}

/* A run is over, or nothing is lost: rests, unless nothing waits in either path, which is known once one has been asked
 * alone. */
BICAST_FN void bicast_spare_end_run(struct bicast_spare *s, __u64 now_us)
{
	if (s->lossy && s->run_us > RUN_US && s->took_us <= s->least_us + QUEUED_US)
		s->until_us = now_us + s->run_us;
	else
		bicast_spare_rest(s, s->took_us, now_us);
}

/* Whether a first transmission is to be copied. */
BICAST_FN __u32 bicast_spare_first(struct bicast_spare *s, __u32 tsn, __u64 now_us)
{
	if (s->phase == SPARE_NEW)
		bicast_spare_begin(s, now_us);
	if (s->phase == SPARE_COPY && (!s->lossy || bicast_spare_has_run(s, now_us)))
		bicast_spare_end_run(s, now_us);
	if (s->phase == SPARE_TRY && s->watched && now_us - s->sent_us > 2 * s->least_us + UNTRIED_US)
		s->watched = 0;
	if (s->phase == SPARE_ASK && s->watched && now_us - s->sent_us > UNREPORTED_US)
		s->watched = 0;
	if (s->phase == SPARE_REST && s->lossy && now_us > s->until_us)
		s->phase = SPARE_ASK;
	if (s->phase == SPARE_ASK && !s->watched)
		bicast_spare_watch(s, tsn, now_us);
	return s->phase == SPARE_COPY || (s->phase == SPARE_TRY && !s->watched);
}

BICAST_FN void bicast_spare_count(struct bicast_spare *s, __u32 retransmission)
{
	__u32 unreported;

	s->retransmissions += retransmission;
	s->lossy |= s->retransmissions >= LOSSY;
	s->many |= s->retransmissions >= MANY;
	if (++s->packets < EPOCH)
		return;
	unreported = s->copies > s->reported ? s->copies - s->reported : 0;
	s->lossy = s->retransmissions + unreported >= LOSSY;
	s->many = s->retransmissions + unreported / UNREPORTED_PER_LOSS >= MANY;
	s->packets = s->retransmissions = s->copies = s->reported = 0;
}

/* The reasons among those of a packet with DATA, whose lowest TSN is `tsn`, for which it is to be copied, but for the budget;
 * nothing has been sent for `idle_us` before it. */
BICAST_FN __u32 bicast_spare_sent(struct bicast_spare *s, __u32 reasons, __u32 tsn, __u64 idle_us, __u64 now_us)
{
	__u32 retransmission = reasons & BICAST_RETRANSMISSION, wanted = bicast_wanted(BICAST_ADAPTIVE, reasons);

	bicast_spare_count(s, !!retransmission);
	if (retransmission && idle_us > STALL_US)
		s->stalled = 1;
	if (s->stack == STACK_EXTENSIONS_FIRST || (s->stack == STACK_UNKNOWN && !s->stalled))
		wanted &= ~(__u32)BICAST_RETRANSMISSION;
	if (bicast_spare_careful(s) && bicast_spare_queued(s))
		wanted &= ~(__u32)BICAST_TAIL;
	if (reasons == BICAST_REST && bicast_spare_first(s, tsn, now_us))
		return BICAST_REST;
	return wanted;
}

/* Whether a packet with DATA that has been copied goes a third time, by its own path: what two paths lose of 5 % is still one
 * retransmission in 400, for each of which a stack that retransmits no chunk twice waits for its timer. */
BICAST_FN __u32 bicast_spare_thrice(const struct bicast_spare *s, __u32 reasons)
{
	return s->stack == STACK_ADDRESSES_FIRST && s->many && (reasons & BICAST_RETRANSMISSION);
}

/* The budget is spent: single copies would only make others look lost. */
BICAST_FN void bicast_spare_spent(struct bicast_spare *s, __u64 now_us)
{
	bicast_spare_rest(s, MOST_RUN_US, now_us);
}

/* A packet with DATA, whose lowest TSN is `tsn`, has been copied for `reasons`. */
BICAST_FN void bicast_spare_copied(struct bicast_spare *s, __u32 reasons, __u32 tsn, __u64 now_us)
{
	s->copies++;
	if (reasons != BICAST_REST)
		return;
	if (s->watched && now_us - s->sent_us > UNREPORTED_US) {
		s->watched = 0;
		s->took_us = UNREPORTED_US;
	}
	if (!s->watched)
		bicast_spare_watch(s, tsn, now_us);
}

/* The receiver has `highest` and nothing above it, and reports `count` TSNs as received twice, the first of them `tsn`. */
BICAST_FN void bicast_spare_acknowledged(struct bicast_spare *s, __u32 highest, __u32 tsn, __u32 count, __u64 now_us)
{
	__u32 reported = count && tsn != s->last, waited;
	__u64 took_us = now_us - s->sent_us;

	if (reported) {
		s->last = tsn;
		s->reported += count;
	}
	if (!s->watched || bicast_above(s->tsn, highest))
		return;
	if (s->phase == SPARE_ASK) {
		bicast_spare_asked(s, took_us, now_us);
	} else if (s->phase == SPARE_TRY && bicast_spare_queued(s) && !bicast_spare_waited(s, took_us, now_us)) {
		bicast_spare_tried(s, 0, now_us);
	} else if (reported && tsn == s->tsn) {
		s->watched = 0;
		s->took_us = took_us;
		waited = bicast_spare_waited(s, took_us, now_us);
		/* It may be its packet that was slow: by as much more than the one before it, that is no queue of the copy's. */
		if (s->phase == SPARE_TRY)
			bicast_spare_tried(s, waited && (bicast_spare_queued(s) || took_us > s->own_us + QUEUED_US), now_us);
	} else if (reported && bicast_above(tsn, s->tsn)) {
		/* A later one: this one, or its report, was lost. */
		s->watched = 0;
	}
}

#endif
