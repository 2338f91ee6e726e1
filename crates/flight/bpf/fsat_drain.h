/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * FSAT_ADD_DRAIN: what stands in the queue hides rtt_min, so it is let run dry now and then.
 */
#ifndef NAWA_FSAT_DRAIN_H
#define NAWA_FSAT_DRAIN_H

#include "fsat_loss.h"

/* RTT has fallen to rtt_min, but that may be others' queue, to which it was raised or which was there when we came: the first drains
 * that find it look below. */
FSAT_INLINE int fsat_looks_deeper(const struct fsat *f)
{
	return f->draining && f->rtt_known == FSAT_RTT_KNOWN && f->quiet < FSAT_DRAIN_QUIET && !f->sole && !fsat_varies(f);
}

/* What a drain leaves in flight: too little to queue, enough to go on measuring. A deep one leaves less as long as
 * rtt_min may be too great, for rcv_bytes is too great with it. Four segments at least, in a crowd two: of eight flows, the
 * BDP of a path that carries 15. An ACK of one alone would be delayed, and make RTT look longer. Who looks deeper is no surer of
 * rtt_min; but others who fill the buffer would get what that costs. */
FSAT_INLINE __u32 fsat_drain_level(const struct fsat *f, const struct fsat_ack *a)
{
	__u32 bdp = f->drain_rcv_bytes, level = bdp - bdp / 8;
	int sure = f->rtt_known == FSAT_RTT_KNOWN && !(fsat_looks_deeper(f) && fsat_undisturbed(f, 8));

	if (f->draining == FSAT_DRAIN_DEEP)
		level = sure ? bdp / 2 : bdp / 8;
	return fsat_max(level, fsat_amount((fsat_crowded(f, a->mss) ? 2ULL : 4ULL) * a->mss));
}

/* Once per period. */
FSAT_INLINE void fsat_note_arrived(struct fsat *f, __u32 arrived)
{
	f->steady = fsat_distance(f->arrived, arrived) <= f->arrived / 8 ? f->steady + 1 : 0;
	f->arrived = arrived;
	if (fsat_distance(f->level, arrived) <= f->level / FSAT_LEVEL_PART && !f->period_app_limited) {
		f->level_periods++;
	} else {
		f->level = arrived;
		f->level_periods = 0;
	}
}

/* Whether RTTs differ by more than an eighth, and by more than chance: where the receiver acknowledges every second segment,
 * RTT differs from one ACK to the next by what these take on the link. At our rate that is too long if others share the
 * link, but then no longer than the receiver delays an ACK. */
FSAT_INLINE int fsat_differs(const struct fsat *f, __u32 less_us, __u32 more_us)
{
	return more_us > less_us && more_us - less_us > fsat_max(more_us / 8, f->two_segments_us);
}

FSAT_INLINE void fsat_note_falls(struct fsat *f, __u32 rtt_us)
{
	__u32 fall = FSAT_FALLS_ALWAYS / FSAT_FALLS_PERIODS * (rtt_us < f->rtt_before_us / 2 ? FSAT_FALLS_HALVED : 1);

	f->undrained = f->draining ? 0 : fsat_min(f->undrained + 1, FSAT_FALLS_AFTER + FSAT_FALLS_PERIODS);
	if (f->undrained >= FSAT_FALLS_AFTER) {
		f->falls -= f->falls / FSAT_FALLS_PERIODS;
		if (fsat_differs(f, rtt_us, f->rtt_before_us))
			f->falls = fsat_min(f->falls + fall, FSAT_FALLS_ALWAYS);
	}
	f->rtt_before_us = rtt_us;
}

/* What the path carries, by what arrived until RTT first rose. */
FSAT_INLINE void fsat_note_filled(struct fsat *f, __u32 rtt_us)
{
	if (f->filled)
		return;
	if (fsat_differs(f, f->rtt_min_us, rtt_us))
		f->filled = fsat_max(f->rcv_bytes, fsat_best(f));
	else
		f->flat_periods++;
}

/* A drain has found rtt_min. A queue that makes RTT many times that, and goes with what we hold back, was ours, and the rate
 * has fallen. Drains that are due for such RTTs again and again leave no time to count falls. */
FSAT_INLINE void fsat_note_drained(struct fsat *f)
{
	if (f->drain_rtt_us / FSAT_FALLS_DRAINED > f->rtt_min_us)
		f->falls = fsat_min(f->falls + FSAT_FALLS_ALWAYS / 2, FSAT_FALLS_ALWAYS);
}

/* By Little's law RTT is at most twice rtt_min if the queue is ours alone, since target is at most twice
 * rcv_bytes, and FSAT_ADD_FAIR's two segments more where nobody seems to share the link. More, for long, is another's
 * queue, or a longer route; or the rate has fallen, where it varies. */
FSAT_INLINE void fsat_note_rtt(struct fsat *f, const struct fsat_ack *a)
{
	__u32 rtt = f->period_rtt_us, two = fsat_amount(2ULL * f->rtt_min_us * a->mss / fsat_max(f->rcv_bytes, fsat_twice(a->mss)));
	__u32 constant = fsat_steady(f) ? two : 0;

	if (!f->draining)
		f->two_segments_us = fsat_max(constant, fsat_min(two, FSAT_DELAYED_ACK_US));
	if (rtt == FSAT_NO_LIMIT)
		return;
	f->rtt_usual_us = fsat_average(f->rtt_usual_us, rtt);
	fsat_note_filled(f, rtt);
	fsat_note_falls(f, rtt);
	if ((rtt - fsat_min(rtt, constant)) / 2 > f->rtt_min_us)
		f->foreign = fsat_min(f->foreign + 1, FSAT_FOREIGN_PERIODS);
	else
		f->foreign = 0;
	if (f->foreign == FSAT_FOREIGN_PERIODS)
		f->sole = 0;
}

/* Whether there was a multiple of `every_us`, a power of two, `rest_us` after `since_us` or later. */
FSAT_INLINE int fsat_ticked(__u32 now_us, __u32 since_us, __u32 rest_us, __u32 every_us)
{
	__u32 tick = ((since_us + rest_us - 1) | (every_us - 1)) + 1;

	return now_us - since_us >= tick - since_us;
}

/* Others' queue is in rtt_min, but what arrives is the same for long, and not the application's doing: of a buffer that others fill as well
 * it would be now more, now less. They have gone, and the queue is ours. */
FSAT_INLINE int fsat_left_alone(const struct fsat *f)
{
	return fsat_rtt_raised(f) && f->level_periods >= FSAT_LEVEL_PERIODS;
}

/* How often drains are due: each 2^this ticks. Who came last may take others' queue for its path, so each 2, as who does not know
 * rtt_min, for they have to drain together; but after each drain that brought nothing new more rarely: about as many ticks as there have
 * been since the first of them. */
FSAT_INLINE __u32 fsat_drain_ticks(const struct fsat *f)
{
	if (fsat_varies(f))
		return FSAT_DRAIN_RARELY;
	if (f->rtt_known != FSAT_RTT_KNOWN)
		return 1;
	if (f->sole)
		return FSAT_DRAIN_SELDOM;
	if (!fsat_undisturbed(f, 8) && !fsat_left_alone(f))
		return FSAT_DRAIN_FILLED;
	return f->quiet < 1 ? 1 : f->quiet < 3 ? 2 : f->quiet < 7 ? 3 : FSAT_DRAIN_RARELY;
}

/* Half of what lies between drains has to have passed since the queue was dry, on average all of it. Of who does not know rtt_min an
 * eighth: drains take longer than ticks where the queue is long, and who waited for half would miss the others' next. Before the first
 * drain half where RTT was flat at first, as of who came alone. */
FSAT_INLINE int fsat_drain_ticked(const struct fsat *f, __u32 now_us, __u32 ticks)
{
	__u32 every = FSAT_DRAIN_TICK_US << ticks;
	int flat = !f->rtt_found_us && f->flat_periods >= FSAT_FLAT_PERIODS;
	int soon = f->rtt_known != FSAT_RTT_KNOWN && !fsat_varies(f) && !flat;

	return fsat_ticked(now_us, f->dry_us, soon ? every / 8 : every / 2, every);
}

/* RTT comes down to rtt_min without us, on a link that varies or because others see to it: no need to join them. */
FSAT_INLINE int fsat_dry_alone(const struct fsat *f, __u32 now_us, __u32 mss)
{
	return f->quiet >= (fsat_crowded(f, mss) ? FSAT_DRAIN_QUIET_CROWD : FSAT_DRAIN_QUIET) && now_us - f->alone_us < FSAT_DRAIN_ALONE_US;
}

/* A drain empties our own part of the queue, and since the last that has grown by half: the next shows more. Where others fill
 * the buffer it would only leave them what was won. */
FSAT_INLINE int fsat_outgrown(const struct fsat *f)
{
	return f->drained_s && 2ULL * f->s > 3ULL * f->drained_s && fsat_undisturbed(f, 8) && !fsat_varies(f);
}

/* Nobody else was there when we came, so rtt_min is right without a drain: RTT stayed what it was at first while we sent more and
 * more, and what arrives has not grown since it rose. A queue of others makes RTT rise with our first packets, or vary; and where
 * they give way to us, what arrives goes on growing. Not by one pair of segments, though: of few that is more than an eighth. */
FSAT_INLINE int fsat_came_alone(const struct fsat *f, __u32 mss)
{
	__u32 then = fsat_amount(f->filled + 2ULL * mss);

	return f->filled && f->flat_periods >= FSAT_FLAT_PERIODS && !fsat_ever_lost(f) &&
	       !fsat_differs(f, f->rtt_min_us, f->rtt_first_us) && f->rcv_bytes - f->rcv_bytes / 9 <= then;
}

/* More queue than is ours, for long: others', or the route is longer. So a crowd of eight has it most of the time, and where a drain
 * takes a second, those that have one each second never drain together. */
FSAT_INLINE int fsat_foreign_due(const struct fsat *f, __u32 now_us)
{
	__u32 every = f->rtt_least_us > FSAT_DRAIN_TICK_US / 16 ? 2 * FSAT_DRAIN_TICK_US : FSAT_DRAIN_TICK_US / 2;

	return f->foreign >= FSAT_FOREIGN_PERIODS && fsat_ticked(now_us, f->drained_us, FSAT_DRAIN_TICK_US / 4, every);
}

/* RTT falls: others drain, or the rate rises. Who has not drained yet and lost nothing knows too little to tell, and has its tick soon. */
FSAT_INLINE int fsat_joins(const struct fsat *f, const struct fsat_ack *a)
{
	return a->now_us - f->dry_us >= FSAT_DRAIN_JOIN_US && fsat_differs(f, a->rtt_us, f->rtt_usual_us) &&
	       (f->rtt_found_us || fsat_ever_lost(f)) && !fsat_dry_alone(f, a->now_us, a->mss) && !f->sole;
}

FSAT_INLINE int fsat_drain_due(const struct fsat *f, const struct fsat_ack *a)
{
	if (fsat_drain_ticked(f, a->now_us, fsat_outgrown(f) ? 0 : fsat_drain_ticks(f)))
		return 1;
	if (fsat_varies(f))
		return 0;
	if (fsat_foreign_due(f, a->now_us))
		return 1;
	return fsat_joins(f, a);
}

/* Whether the queue can be expected to be ours alone and rtt_min to be right, so that emptying it is enough to see that.
 * A flow that does not know its rtt_min knows of no others as long as its rate stays as it is. */
FSAT_INLINE int fsat_alone(const struct fsat *f)
{
	if (f->rtt_known == FSAT_RTT_UNKNOWN)
		return fsat_steady(f) && f->foreign < FSAT_FOREIGN_PERIODS;
	return f->rtt_known == FSAT_RTT_KNOWN;
}

FSAT_INLINE void fsat_begin_drain(struct fsat *f, const struct fsat_ack *a)
{
	f->draining = fsat_alone(f) ? FSAT_DRAIN_SHALLOW : FSAT_DRAIN_DEEP;
	f->drains++;
	f->dry_us = a->now_us;
	f->falls_us = a->now_us;
	f->drain_rtt_us = a->rtt_us;
	f->drain_rcv_bytes = fsat_min(f->space, f->rcv_bytes);
	if (fsat_crowded(f, a->mss)) { /* the last period may have had more by chance */
		f->drain_rtt_us = 0;
		f->drain_rcv_bytes = fsat_min(f->drain_rcv_bytes, f->s);
	}
	if (!f->rtt_found_us)
		f->rtt_found_us = f->rtt_min_us;
}

/* The queue is dry, by a drain or by itself. */
FSAT_INLINE void fsat_dry(struct fsat *f, const struct fsat_ack *a)
{
	if (f->draining) {
		f->space = fsat_max(f->space, f->drain_rcv_bytes);
		f->drained_s = f->s;
	}
	f->draining = 0;
	f->foreign = 0;
	f->dry_us = a->now_us;
	f->drained_us = a->now_us;
	f->rtt_low_us = FSAT_NO_LIMIT;
}

/* rtt_min: the least RTT that the last two drains found, so that it takes two to raise it; three in a crowd, since not all
 * drain together, and five where each has so little that it takes most of them, be it that others leave us no more than one
 * segment. Two in any case where both found eight times the least RTT, which flows that limit themselves never have. Where nobody
 * fills the buffer and RTT is less than twice as great, it may be that one or the other does not drain, and it takes many. `low`:
 * what this one has found. */
FSAT_INLINE __u32 fsat_least_found(const struct fsat *f, __u32 low, __u32 mss)
{
	const __u32 *before = f->rtt_found_before_us;
	__u32 least = fsat_min(low, f->rtt_found_us);

	if (!fsat_few(f->s, mss) || fsat_steady(f) || least / 8 > f->rtt_least_us)
		return least;
	least = fsat_min(least, before[0]);
	if (fsat_segments(f->s, FSAT_LEAST_SEGMENTS, mss))
		least = fsat_min(least, fsat_min(before[1], before[2]));
	if (f->above < FSAT_ABOVE_DRAINS && least / 2 < f->rtt_min_us && fsat_undisturbed(f, 4))
		least = fsat_min(least, f->rtt_min_us);
	return least;
}

/* RTT falls no more. */
FSAT_INLINE void fsat_end_drain(struct fsat *f, const struct fsat_ack *a)
{
	__u32 low = f->rtt_low_us, last = f->rtt_found_us, least;
	int above, below;

	f->above = fsat_differs(f, f->rtt_min_us, low) ? fsat_min(f->above + 1, FSAT_ABOVE_DRAINS) : 0;
	least = fsat_least_found(f, low, a->mss);
	above = fsat_differs(f, least, low);
	below = fsat_differs(f, low, last);
	if (above) /* it was not our queue that fell */
		f->falls = 0;
	f->rtt_known = above ? FSAT_RTT_DOUBTED : below ? FSAT_RTT_UNKNOWN : FSAT_RTT_KNOWN;
	f->quiet = above || below ? 0 : f->quiet + 1;
	f->sole = f->sole && f->quiet;
	f->rtt_min_us = least;
	f->rtt_found_before_us[2] = f->rtt_found_before_us[1];
	f->rtt_found_before_us[1] = f->rtt_found_before_us[0];
	f->rtt_found_before_us[0] = last;
	f->rtt_found_us = low;
	if (f->rtt_known == FSAT_RTT_KNOWN)
		fsat_note_drained(f);
	fsat_dry(f, a);
}

/* Whether a drain that has gone so far has to go on: RTT falls, or what was in flight before still is. */
FSAT_INLINE int fsat_drain_acts(const struct fsat *f, const struct fsat_ack *a, __u32 low)
{
	int emptying = a->flight > fsat_drain_level(f, a) + a->mss;

	return a->rtt_us < low - low / 16 || (emptying && a->now_us - f->dry_us < 8ULL * a->rtt_us);
}

/* The queue is empty as far as RTT says: now the path is emptied too. */
FSAT_INLINE void fsat_deepen(struct fsat *f, const struct fsat_ack *a)
{
	f->draining = FSAT_DRAIN_DEEP;
	f->falls_us = a->now_us;
}

/* RTT falls no more. A shallow drain has shown rtt_min, or it has to go deep. */
FSAT_INLINE void fsat_settle(struct fsat *f, const struct fsat_ack *a, int seen)
{
	__u32 settled = a->now_us - f->falls_us;

	if (f->draining == FSAT_DRAIN_DEEP) {
		if (settled >= a->rtt_us / 2)
			fsat_end_drain(f, a);
	} else if (settled >= a->rtt_us) { /* what RTT was before then says nothing of the level */
		if (seen && !fsat_differs(f, f->rtt_low_us, f->rtt_found_us)) {
			fsat_end_drain(f, a);
			return;
		}
		fsat_deepen(f, a);
	}
}

/* RTT is rtt_min again, or nearly: the last drain has not found the truth if it found more. By itself that is no drain where others have
 * filled for long what seems a buffer of one BDP at most: it may be a longer one that was full when we came, so that RTT is never far
 * from rtt_min, and we have to look below. */
FSAT_INLINE void fsat_confirm(struct fsat *f, const struct fsat_ack *a)
{
	if (f->rtt_known == FSAT_RTT_DOUBTED)
		f->rtt_found_us = f->rtt_min_us;
	f->rtt_known = FSAT_RTT_KNOWN;
	if (f->draining) {
		f->quiet++;
		fsat_note_drained(f);
	} else if (fsat_filled_for_long(f) && fsat_buffer_of_one_bdp(f)) {
		return;
	}
	fsat_dry(f, a);
}

/* The first drain is spared to who came alone: stopping until the queue is dry costs two RTTs. */
FSAT_INLINE void fsat_drain_or_trust(struct fsat *f, const struct fsat_ack *a)
{
	if (f->rtt_found_us || !fsat_came_alone(f, a->mss)) {
		fsat_begin_drain(f, a);
		return;
	}
	f->rtt_found_us = f->rtt_min_us;
	f->rtt_known = FSAT_RTT_KNOWN;
	f->sole = 1;
	fsat_dry(f, a);
}

/* The least RTT since the last drain: whoever shares the queue sees the same, so that all drain together. To one alone whose drain
 * found more than rtt_min it is what a longer route has, time and again, and the next drain has to say so. */
FSAT_INLINE int fsat_low_is_drain(const struct fsat *f, __u32 mss)
{
	return f->rtt_known != FSAT_RTT_DOUBTED || fsat_crowded(f, mss) || !fsat_undisturbed(f, 8);
}

FSAT_INLINE void fsat_learn_rtt_min(struct fsat *f, const struct fsat_ack *a)
{
	__u32 low = f->rtt_low_us;
	int seen = !fsat_differs(f, f->rtt_min_us, a->rtt_us);

	f->period_rtt_us = fsat_min(f->period_rtt_us, a->rtt_us);
	if (seen && !f->draining) {
		f->alone_us = a->now_us;
		if (!f->rtt_found_us && !fsat_ever_lost(f)) /* nothing queues yet; or the buffer was full from the begin */
			f->dry_us = a->now_us;
	}
	if (seen && f->rtt_known != FSAT_RTT_UNKNOWN) {
		if (!fsat_looks_deeper(f)) {
			fsat_confirm(f, a);
			return;
		}
		if (f->draining == FSAT_DRAIN_SHALLOW)
			fsat_deepen(f, a);
	}
	f->rtt_low_us = fsat_min(low, a->rtt_us);
	if (f->draining) {
		if (fsat_drain_acts(f, a, low))
			f->falls_us = a->now_us;
		else
			fsat_settle(f, a, seen);
	} else {
		if (a->rtt_us <= low && fsat_low_is_drain(f, a->mss))
			f->dry_us = a->now_us;
		if ((f->target != FSAT_NO_LIMIT || fsat_ever_lost(f)) && fsat_drain_due(f, a))
			fsat_drain_or_trust(f, a);
	}
}

/* Always 0. */
FSAT_OUTLINE int fsat_drain(struct fsat *f, const struct fsat_ack *a)
{
	if (f && a) /* BPF asks for that */
		fsat_learn_rtt_min(f, a);
	return 0;
}

#endif
