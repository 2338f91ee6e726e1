/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * The equations of paper 001: (5) to (9), (11) and the steps of space. Where an addition of `fsat` changes one, it says so.
 */
#ifndef NAWA_FSAT_PAPER_H
#define NAWA_FSAT_PAPER_H

#include "fsat_state.h"

/* (5), (10): what was outstanding at the period's start arrived within one rtt_min, so none of it waited. */
FSAT_INLINE int fsat_nothing_queues(const struct fsat *f)
{
	return f->flight_n <= f->rcv_bytes;
}

/* FSAT_ADD_DRAIN: the least RTT of the period is half as much again as rtt_min, so something waits. Packets that are few,
 * or come in bunches, may all arrive within one rtt_min for all that. */
FSAT_INLINE int fsat_rtt_queues(const struct fsat *f)
{
	return f->period_rtt_us != FSAT_NO_LIMIT && f->period_rtt_us - f->period_rtt_us / 3 > f->rtt_min_us;
}

/* (8), (9): what arrived, and as much on top of it, as published. FSAT_ADD_DRAIN: by that our own queue makes RTT twice rtt_min;
 * where it is more, others have as much on top: we take less then, and nothing at three times. Where nobody fills the buffer a little
 * earlier, since all the others do so as well. Nor does more count as having arrived then than the mean and its deviation: (8) keeps what
 * was most, and of several flows the sum of that is more than the path carries. Not where rtt_min may be another's queue, or the rate
 * varies. */
FSAT_INLINE __u32 fsat_room(const struct fsat *f, __u32 rcv)
{
	__u64 rtt = f->rtt_usual_us, least = f->rtt_min_us, none = 3 * least;
	__u64 all = fsat_undisturbed(f, 8) ? 13 * least / 8 : 2 * least;

	if (f->rtt_known != FSAT_RTT_KNOWN || rtt <= all || fsat_varies(f))
		return fsat_twice(rcv);
	rcv = fsat_min(rcv, fsat_amount((__u64)f->s + f->dev));
	return rtt < none ? fsat_amount(rcv + rcv * (none - rtt) / (none - all)) : rcv;
}

/* (9): dev first, with the old mean; the first measurement as in RFC 6298 (2.2). */
FSAT_INLINE void fsat_headroom(struct fsat *f, __u32 rcv)
{
	__u32 away = fsat_distance(f->s, rcv);

	f->away = fsat_average(f->away, away);
	f->apart = fsat_average(f->apart, fsat_distance(f->arrived, rcv));
	f->dev = f->s ? (__u32)((3ULL * f->dev + away) / 4) : rcv / 2;
	f->s = fsat_average(f->s, rcv);
}

/* FSAT_ADD_DRAIN: the rate varies so fast that what arrives in one period says nothing of the next. Of many segments it costs delay
 * for nothing. */
FSAT_INLINE int fsat_memoryless(const struct fsat *f, __u32 mss)
{
	return fsat_varies(f) && f->apart >= f->away && fsat_segments(f->s, FSAT_CHANCE_SEGMENTS, mss);
}

/* (9): tw_rcv_bytes, the BDP and room for its variation. By (8) what arrived bounds that, but not where it means nothing. Where the
 * rate varies no more is kept on top of it than twice what a period differs by from the last: (8) follows at once when more arrives. */
FSAT_INLINE __u32 fsat_tw_rcv_bytes(const struct fsat *f, __u32 rcv, __u32 mss)
{
	__u32 most = fsat_varies(f) ? fsat_amount(rcv + 2ULL * f->apart) : fsat_room(f, rcv);

	if (fsat_memoryless(f, mss))
		return fsat_amount(f->s + 4ULL * f->away);
	return fsat_min(fsat_amount(f->s + 4ULL * f->dev), most);
}

/* judge(1), once per rtt_min: target_n+1, (5) to (7). Where the rate varies and has fallen, all of the way and not half. */
FSAT_INLINE __u32 fsat_judge1(const struct fsat *f, __u32 rcv, __u32 mss)
{
	__u32 tw = fsat_tw_rcv_bytes(f, rcv, mss);

	if (fsat_nothing_queues(f) && !fsat_rtt_queues(f))
		return FSAT_NO_LIMIT;                          /* (5) */
	if (f->target < tw || f->target == FSAT_NO_LIMIT || fsat_varies(f))
		return tw;                                     /* (6), or all of the way */
	return (__u32)(((__u64)tw + f->target) / 2);           /* (7) */
}

/* judge(2), at every measurement: target_n, to follow growth at once. */
FSAT_INLINE __u32 fsat_judge2(const struct fsat *f, __u32 rcv)
{
	return fsat_max(f->target, fsat_room(f, rcv)); /* (8) */
}

/* (11): ssthresh after a loss by congestion, from the BDP just before it. */
FSAT_INLINE __u32 fsat_ssthresh(const struct fsat *f, __u32 rcv_bytes, __u32 mss)
{
	return fsat_max(fsat_max(rcv_bytes, f->flight_n / 2), fsat_twice(mss));
}

/* Our own queue makes RTT twice rtt_min: at more than three times, the rate of a link where it varies has fallen. Few segments
 * would come to a halt. */
FSAT_INLINE int fsat_fell(const struct fsat *f, __u32 mss)
{
	return f->rtt_us / 3 > f->rtt_min_us && fsat_varies(f) && !fsat_few(f->s, mss);
}

/* The steps of space towards `target`: up by what arrived (RFC 3465), down by half of it, as rate halving
 * does, or by all of it where the rate has fallen. Down from where it limits: what lies above cwnd limits nothing. */
FSAT_INLINE __u32 fsat_step(const struct fsat *f, const struct fsat_config *c, const struct fsat_ack *a, __u32 target)
{
	__u32 space = f->space, down = fsat_fell(f, a->mss) ? a->delivered : a->delivered / 2;

	target = fsat_min(target, fsat_max(a->cwnd_max, fsat_min_target(c, a)));
	if (space <= target)
		return fsat_min(target, fsat_amount((__u64)space + a->delivered));
	space = fsat_min(space, fsat_max(a->cwnd, target));
	return space - target > down ? space - down : target;
}

/* ---- FSAT_ADD_EVEN: the ACK that ends a period comes late, with what arrived in more than one rtt_min ---- */

FSAT_INLINE __u32 fsat_arrived(const struct fsat *f, const struct fsat_config *c, const struct fsat_ack *a)
{
	__u32 took = a->now_us - f->period_start_us;

	if (took <= f->rtt_min_us || !fsat_adds(c, FSAT_ADD_EVEN))
		return f->period_rcv_bytes;
	return (__u32)((__u64)f->period_rcv_bytes * f->rtt_min_us / took);
}

#endif
