/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * The congestion control of copies in adaptive mode.
 *
 * All copies of an association keep within a budget, a share of the bytes that it sends. Requests, retransmissions and tails go first: they
 * may owe ten packets, others none. First transmissions have a rate of their own, less than best effort (as in RFC 6817), while packets are
 * retransmitted: a copy that is reported in time, as a duplicate TSN (RFC 9260 3.3.4) when its packet is acknowledged, doubles it, one that
 * is not brings it back to its least. A copy in time neither waited in a queue nor overtakes what was sent before it. */
#ifndef NAWA_BICAST_RATE_H
#define NAWA_BICAST_RATE_H

#include "bicast.h"

#define TARGET_US 3000 /* two full packets at 10 Mbit/s; three that overtake make what they overtake look lost */
#define FEW 128        /* packets: one in so many is copied to see whether copies are in time, while one in so many is a retransmission */

/* Of an association; begin with zeros. */
struct bicast_rate {
	__u64 sent_bytes;
	__u64 copied_bytes;
	__u64 met_us;     /* when the receiver was known to have `tsn`; 0: not yet */
	__u32 lossy;      /* packets to come that count as lossy */
	__u32 every;      /* one in so many first transmissions is copied while they do */
	__u32 wait;       /* until the next of them; 1: it is the next */
	__u32 watched;    /* the report of a copy of `tsn` is awaited */
	__u32 tsn;
	__u32 stack;      /* enum bicast_stack, of the sender */
	__u32 path;       /* of the copy that was watched last; from 1 */
	__u32 late;       /* the one whose watched copy was not in time last, until one of its own is; it comes after others */
};

/* Whether `percent` of what was sent allows for a copy of `length` bytes, for a `patient` one without debts. */
BICAST_FN __u32 bicast_rate_affords(const struct bicast_rate *r, __u32 length, __u32 percent, __u32 patient)
{
	return bicast_within_budget(r->sent_bytes, r->copied_bytes + (patient ? BICAST_ALLOWANCE : 0), length, percent);
}

/* A copy that was watched was reported in time, or was not. */
BICAST_FN void bicast_rate_judge(struct bicast_rate *r, __u32 in_time, __u32 percent)
{
	r->watched = 0;
	r->late = !in_time ? r->path : r->late == r->path ? 0 : r->late;
	r->every = !in_time ? FEW : r->every * percent >= 200 ? r->every / 2 : r->every;
}

/* Whether a copy that is watched can be in time no more. */
BICAST_FN __u32 bicast_rate_missed(const struct bicast_rate *r, __u64 now_us)
{
	return r->watched && r->met_us && now_us > r->met_us + TARGET_US;
}

/* Whether it is a first transmission's turn to be copied. */
BICAST_FN __u32 bicast_rate_first(struct bicast_rate *r, __u32 percent, __u64 now_us)
{
	if (!r->lossy)
		return 0;
	if (bicast_rate_missed(r, now_us))
		bicast_rate_judge(r, 0, percent);
	if (r->wait < 2)
		return 1;
	r->wait--;
	return 0;
}

/* The reasons among those of a packet for which it goes first. A retransmission that overtakes what was sent before it halves the
 * window of FreeBSD's stack for long (docs/bicast.md), which one that is not known may be. */
BICAST_FN __u32 bicast_rate_wanted(const struct bicast_rate *r, __u32 reasons)
{
	return bicast_wanted(BICAST_ADAPTIVE, r->stack == STACK_ADDRESSES_FIRST ? reasons : reasons & ~(__u32)BICAST_RETRANSMISSION);
}

/* A packet of `length` bytes is sent: the reasons for which it is to be copied, if the budget of `percent` allows for it. */
BICAST_FN __u32 bicast_rate_sent(struct bicast_rate *r, __u32 reasons, __u32 length, __u32 percent, __u64 now_us)
{
	__u32 wanted = bicast_rate_wanted(r, reasons);

	r->sent_bytes += length;
	if (reasons & BICAST_RETRANSMISSION) {
		/* What is copied in the midst of a recovery overtakes, and has the stack take what it overtakes for lost. */
		if (!r->lossy)
			r->every = r->wait = FEW;
		r->lossy = FEW;
	} else if (r->lossy && (reasons & (BICAST_REST | BICAST_TAIL))) {
		r->lossy--;
	}
	return wanted ? wanted : (reasons & BICAST_REST) && bicast_rate_first(r, percent, now_us) ? BICAST_REST : 0;
}

/* A packet of `length` bytes, whose lowest TSN is `tsn`, has been copied for `reasons` by that path. */
BICAST_FN void bicast_rate_copied(struct bicast_rate *r, __u32 reasons, __u32 tsn, __u32 length, __u32 path)
{
	r->copied_bytes += length;
	if (!(reasons & BICAST_REST))
		return;
	r->wait = r->every;
	if (r->watched)
		return;
	r->watched = 1;
	r->tsn = tsn;
	r->path = path;
	r->met_us = 0;
}

/* The receiver has `highest` and nothing above it, and reports `count` TSNs as duplicates, the first of them `tsn`. */
BICAST_FN void bicast_rate_acknowledged(struct bicast_rate *r, __u32 highest, __u32 tsn, __u32 count, __u32 percent,
					__u64 now_us)
{
	if (!r->watched || bicast_above(r->tsn, highest))
		return;
	if (!r->met_us)
		r->met_us = now_us;
	if (bicast_rate_missed(r, now_us))
		bicast_rate_judge(r, 0, percent);
	else if (r->tsn - tsn < count)
		bicast_rate_judge(r, 1, percent);
}

#endif
