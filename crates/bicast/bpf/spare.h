/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What is worth copying in adaptive mode. Retransmissions are once the sender's timer has had to find one that was lost
 * again, and while many are lost and the other path has room. Else a stack that repairs by itself what is lost again is left
 * alone: FreeBSD's (usrsctp) stays in fast recovery, its window as halved, until the next loss if a retransmission arrives
 * before what was sent before it, as a copy does by a path with a shorter queue (docs/bicast.md). First transmissions are
 * worth it while many are lost, as far as the other path has capacity to spare. That is told by what the receiver
 * reports as received twice (RFC 9260 3.3.4), so that the load of other hosts counts as well as this one's.
 *
 *   - Losses: by the share of retransmissions while little is copied, by that of copies not reported while much is.
 *   - Spare capacity: by the time from a copy to its report. A report comes when the later of the two has arrived, so that
 *     it waits in the queue of either path: in that of the other one, which then has no capacity to spare, or of the
 *     packet's own, which then is full, and copies could not make it faster. The share grows by steps while no report
 *     waits longer than QUEUED_US, falls with one that does, and is halved by each that follows.
 */
#ifndef NAWA_BICAST_SPARE_H
#define NAWA_BICAST_SPARE_H

#include "bicast.h"

#define SPARE_WHOLE 256     /* a share of all */
#define SPARE_BEGIN 16
#define SPARE_LEAST 4       /* goes on asking */
#define SPARE_STEP 8        /* at most a quarter of what there is */
#define QUEUED_US 10000     /* eight full packets at 10 Mbit/s */
#define LEAST_US 60000000   /* how long the least time counts if none comes near it: queues last, too */
#define UNREPORTED_US 500000 /* then a copy, or its report, was lost */
#define UNREPORTED 4        /* so many in a row, and the other path does not carry them */
#define STALL_US 500000     /* nothing sent for so long before a retransmission: a timer's */
#define EPOCH 256           /* packets with DATA, over which losses are judged */
#define LOSSY_RETRANSMISSIONS 8 /* in an epoch: more than 3 % */
#define EPOCH_COPIES 128    /* so many in an epoch, and reports tell more than retransmissions */

/* Of an association; begin with zeros. Times in µs. */
struct bicast_spare {
	__u32 lossy;      /* whether copies of first transmissions are worth it */
	__u32 share;      /* of them that is copied, of SPARE_WHOLE */
	__u32 owed;       /* of one copy, of SPARE_WHOLE */
	__u32 watched;    /* whether a report of `tsn` is awaited */
	__u32 tsn;
	__u32 unreported; /* in a row */
	__u64 copied_us;  /* when `tsn` was */
	__u64 least_us;   /* from a copy to its report */
	__u64 least_at_us; /* when one came near it */
	__u32 packets;    /* with DATA, in this epoch, as the next three */
	__u32 retransmissions;
	__u32 copies;
	__u32 reported;
	__u32 last;       /* the TSN reported last: a SACK may itself arrive twice */
	__u32 late;       /* whether the last report was */
	__u32 stalled;    /* a timer has had to find a loss */
	__u32 unused;
};

/* Losses are too frequent for the sender to repair alone. */
BICAST_FN void bicast_spare_begin(struct bicast_spare *s)
{
	s->lossy = 1;
	s->share = SPARE_BEGIN;
}

BICAST_FN void bicast_spare_end_epoch(struct bicast_spare *s)
{
	if (s->copies >= EPOCH_COPIES)
		s->lossy = s->reported * 16 < s->copies * 15;
	else if (s->share <= SPARE_WHOLE / 2)
		s->lossy = s->retransmissions >= LOSSY_RETRANSMISSIONS;
	s->packets = s->retransmissions = s->copies = s->reported = 0;
}

/* The reasons among those of a packet with DATA for which it is to be copied, but for the budget; nothing has been sent for
 * `idle_us` before it. */
BICAST_FN __u32 bicast_spare_sent(struct bicast_spare *s, __u32 reasons, __u64 idle_us)
{
	__u32 retransmission = reasons & BICAST_RETRANSMISSION, wanted = bicast_wanted(BICAST_ADAPTIVE, reasons);

	if (retransmission) {
		s->retransmissions++;
		if (idle_us > STALL_US)
			s->stalled = 1;
	}
	if (!s->lossy && s->retransmissions >= LOSSY_RETRANSMISSIONS)
		bicast_spare_begin(s);
	if (++s->packets >= EPOCH)
		bicast_spare_end_epoch(s);
	if (!s->stalled && !(s->lossy && s->share >= SPARE_BEGIN))
		wanted &= ~(__u32)BICAST_RETRANSMISSION;
	if (!s->lossy || reasons != BICAST_REST)
		return wanted;
	s->owed += s->share;
	if (s->owed < SPARE_WHOLE)
		return wanted;
	s->owed -= SPARE_WHOLE;
	return BICAST_REST;
}

BICAST_FN void bicast_spare_halve(struct bicast_spare *s)
{
	s->share = s->share / 2 > SPARE_LEAST ? s->share / 2 : SPARE_LEAST;
}

/* Nothing has been heard of the copy that was watched. */
BICAST_FN void bicast_spare_unreported(struct bicast_spare *s)
{
	s->watched = 0;
	if (++s->unreported < UNREPORTED)
		return;
	s->unreported = 0;
	bicast_spare_halve(s);
}

/* A packet with DATA whose lowest TSN is `tsn` has been copied at `now_us`. */
BICAST_FN void bicast_spare_copied(struct bicast_spare *s, __u32 tsn, __u64 now_us)
{
	s->copies++;
	if (s->watched && now_us - s->copied_us > UNREPORTED_US)
		bicast_spare_unreported(s);
	if (s->watched)
		return;
	s->watched = 1;
	s->tsn = tsn;
	s->copied_us = now_us;
}

BICAST_FN void bicast_spare_judge(struct bicast_spare *s, __u64 took_us, __u64 now_us)
{
	__u32 step;

	if (!s->least_us || took_us < s->least_us || now_us - s->least_at_us > LEAST_US)
		s->least_us = took_us;
	if (took_us <= s->least_us + QUEUED_US / 2)
		s->least_at_us = now_us;
	if (took_us > s->least_us + QUEUED_US) {
		/* One alone may be jitter. */
		if (s->late)
			bicast_spare_halve(s);
		else
			s->share -= s->share / 8;
		s->late = 1;
		return;
	}
	s->late = 0;
	step = s->share / 4 < SPARE_STEP ? s->share / 4 : SPARE_STEP;
	s->share = s->share + step < SPARE_WHOLE ? s->share + step : SPARE_WHOLE;
}

/* The receiver reports `count` TSNs as received twice, the first of them `tsn`. */
BICAST_FN void bicast_spare_reported(struct bicast_spare *s, __u32 tsn, __u32 count, __u64 now_us)
{
	if (s->last == tsn)
		return;
	s->last = tsn;
	s->reported += count;
	if (!s->watched || bicast_above(s->tsn, tsn))
		return;
	if (tsn == s->tsn) {
		s->watched = s->unreported = 0;
		bicast_spare_judge(s, now_us - s->copied_us, now_us);
	} else {
		/* A later one: this one, or its report, was lost. */
		bicast_spare_unreported(s);
	}
}

#endif
