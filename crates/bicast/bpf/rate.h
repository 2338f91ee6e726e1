/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * The congestion control of copies in adaptive mode.
 *
 * All copies of an association keep within a budget, a share of the bytes that it sends and receives. Requests,
 * retransmissions and tails take of it what they need. First transmissions leave half of what may be saved of it, and have a
 * rate of their own, less than best effort (as in RFC 6817): a copy that is reported in time doubles the rate, one that is not
 * brings it back to its least. The receiver reports a copy as a duplicate TSN (RFC 9260 3.3.4). In time is what is reported
 * when its packet is acknowledged, so that the copy neither overtakes what was sent before it nor comes too late to help, and
 * what has not waited in a queue. There are copies of first transmissions only while packets are retransmitted; copies that
 * are lost are no reason for more of them.
 *
 * Integers only. Times are in µs.
 */
#ifndef NAWA_BICAST_RATE_H
#define NAWA_BICAST_RATE_H

#include "bicast.h"

#define TARGET_US 3000      /* two full packets at 10 Mbit/s; three that overtake make what they overtake look lost */
#define SAVED 90000         /* bytes: sixty packets, as many as a queue drops at once when a sender first fills it */
#define LEAST_US 60000000   /* how long the least time counts if none comes near it: routes change */
#define RECENT 256          /* packets, of which one has to be a retransmission */
#define LEAST_SHARE 8       /* 1/128 of the bytes, to find out whether copies are in time */
#define ALL 1024            /* the unit of shares */

/* Of an association; begin with zeros. */
struct bicast_rate {
	__s32 debt;       /* bytes copied that the budget has not paid for yet, times 100; below 0: what it has saved */
	__u32 lossy;      /* packets to come that count as lossy */
	__u32 share;      /* of the bytes of first transmissions that may be copied; units of 1/ALL */
	__u32 due;        /* bytes of them that may be copied now, times ALL */
	__u32 watched;    /* the report of a copy of `tsn` is awaited */
	__u32 tsn;
	__u32 stack;      /* enum bicast_stack, of the sender */
	__u32 unused;
	__u64 sent_us;    /* when `tsn` was */
	__u64 met_us;     /* when the receiver was known to have it; 0: not yet */
	__u64 least_us;   /* from a copy to its report */
	__u64 least_at_us; /* when one came near it */
};

/* `length` bytes were sent or received, of which `percent` may be copied. */
BICAST_FN void bicast_rate_earn(struct bicast_rate *r, __u32 length, __u32 percent)
{
	r->debt -= length * percent;
	if (r->debt < -SAVED * 100)
		r->debt = -SAVED * 100;
}

/* Whether the budget allows for a copy of `length` bytes, which leaves half of what may be saved to others if it is `patient`. */
BICAST_FN __u32 bicast_rate_affords(const struct bicast_rate *r, __u32 length, __u32 patient)
{
	return r->debt + (__s32)length * 100 <= (patient ? -SAVED / 2 : BICAST_ALLOWANCE) * 100;
}

/* A copy that was watched was reported in time, or was not. */
BICAST_FN void bicast_rate_judge(struct bicast_rate *r, __u32 in_time, __u32 percent)
{
	__u32 most = percent < 100 ? ALL * percent / 100 : ALL;

	r->watched = 0;
	r->share = in_time ? r->share * 2 : 0;
	if (r->share > most)
		r->share = most;
	if (r->share < LEAST_SHARE)
		r->share = LEAST_SHARE;
}

/* Whether a copy that is watched can be in time no more. */
BICAST_FN __u32 bicast_rate_missed(const struct bicast_rate *r, __u64 now_us)
{
	return r->watched && r->met_us && now_us > r->met_us + TARGET_US;
}

/* Whether a first transmission of `length` bytes is to be copied. */
BICAST_FN __u32 bicast_rate_first(struct bicast_rate *r, __u32 length, __u32 percent, __u64 now_us)
{
	if (!r->lossy) {
		r->share = r->watched = 0;
		return 0;
	}
	if (bicast_rate_missed(r, now_us))
		bicast_rate_judge(r, 0, percent);
	if (r->share < LEAST_SHARE)
		r->share = LEAST_SHARE;
	if (r->due < length * ALL)
		r->due += length * r->share;
	if (r->due < length * ALL || !bicast_rate_affords(r, length, 1))
		return 0;
	r->due -= length * ALL;
	return 1;
}

/* The reasons among those of a packet for which it goes first. A retransmission that overtakes what was sent before it halves the
 * window of FreeBSD's stack for long (docs/bicast.md), which one that is not known may be. */
BICAST_FN __u32 bicast_rate_wanted(const struct bicast_rate *r, __u32 reasons)
{
	return bicast_wanted(BICAST_ADAPTIVE, r->stack == STACK_ADDRESSES_FIRST ? reasons : reasons & ~(__u32)BICAST_RETRANSMISSION);
}

/* The reasons among those of a packet of `length` bytes for which it is to be copied. */
BICAST_FN __u32 bicast_rate_sent(struct bicast_rate *r, __u32 reasons, __u32 length, __u32 percent, __u64 now_us)
{
	__u32 wanted = bicast_rate_wanted(r, reasons);

	bicast_rate_earn(r, length, percent);
	if (reasons & BICAST_RETRANSMISSION)
		r->lossy = RECENT;
	else if (r->lossy && (reasons & (BICAST_REST | BICAST_TAIL)))
		r->lossy--;
	if (wanted)
		return bicast_rate_affords(r, length, 0) ? wanted : 0;
	return (reasons & BICAST_REST) && bicast_rate_first(r, length, percent, now_us) ? BICAST_REST : 0;
}

/* Whether a packet that has been copied for `reasons` goes a third time, by its own path: what two paths lose of 5 % is still one
 * retransmission in 400, for each of which a stack that retransmits no chunk twice waits for its timer. */
BICAST_FN __u32 bicast_rate_thrice(const struct bicast_rate *r, __u32 reasons, __u32 length)
{
	return (reasons & BICAST_RETRANSMISSION) && bicast_rate_affords(r, length, 1);
}

/* A packet of `length` bytes, whose lowest TSN is `tsn`, has been copied for `reasons`. */
BICAST_FN void bicast_rate_copied(struct bicast_rate *r, __u32 reasons, __u32 tsn, __u32 length, __u64 now_us)
{
	r->debt += length * 100;
	if (!(reasons & BICAST_REST) || r->watched)
		return;
	r->watched = 1;
	r->tsn = tsn;
	r->sent_us = now_us;
	r->met_us = 0;
}

/* The receiver has `highest` and nothing above it, and reports `count` TSNs as duplicates, the first of them `tsn`. */
BICAST_FN void bicast_rate_acknowledged(struct bicast_rate *r, __u32 highest, __u32 tsn, __u32 count, __u32 percent,
					__u64 now_us)
{
	__u64 took_us = now_us - r->sent_us;

	if (!r->watched || bicast_above(r->tsn, highest))
		return;
	if (!r->met_us)
		r->met_us = now_us;
	if (bicast_rate_missed(r, now_us)) {
		bicast_rate_judge(r, 0, percent);
	} else if (r->tsn - tsn < count) {
		if (!r->least_us || took_us < r->least_us || now_us - r->least_at_us > LEAST_US)
			r->least_us = took_us;
		if (took_us < r->least_us + TARGET_US / 2)
			r->least_at_us = now_us;
		bicast_rate_judge(r, took_us <= r->least_us + TARGET_US, percent);
	}
}

#endif
