/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * FS-AT, Flight Size Auto Tuning (paper 001): limits what a sender has in flight to what the path
 * carries. Equation numbers are the paper's; what `fsat` adds is in docs/flight.md.
 *
 * fsat_paper.h has the equations, fsat_loss.h and fsat_drain.h what `fsat` adds, fsat_state.h what all of them know; here is what a
 * sender calls, and how a period begins and ends.
 *
 * Pure integers, no kernel types: compiled into the BPF congestion control and, through `cc`, into the
 * Rust core. No loops, no pointer but to the structs handed in. Units: bytes and microseconds. Times wrap;
 * only differences count, so that an interval may last 71 minutes.
 *
 * The congestion avoidance below (`the base`: reno, cubic) stays outside: its cwnd is handed in, the
 * window comes out. A base must not let cwnd grow while `fsat_window` is below it, as TCP does not let it
 * grow while the application limits (RFC 7661).
 */
#ifndef NAWA_FSAT_H
#define NAWA_FSAT_H

#include "fsat_state.h"
#include "fsat_paper.h"
#include "fsat_loss.h"
#include "fsat_drain.h"

/* ---- FSAT_ADD_BEST: what a link that varies is offered ---- */

/* The queue has run dry, or RTT has halved since the last period and it soon will. The link takes more than it is offered, and by (8)
 * that would grow by RTTs. It is offered three quarters of the best: if it does not take them, they wait once. */
FSAT_INLINE void fsat_leap(struct fsat *f, const struct fsat_ack *a)
{
	if (!fsat_varies(f) || f->draining)
		return;
	if (!fsat_differs(f, f->rtt_min_us, a->rtt_us) || a->rtt_us < f->rtt_before_us / 2)
		f->target = fsat_max(f->target, (__u32)(3ULL * fsat_best(f) / 4));
}

/* (8) where the rate varies: an eighth more than it, but no more than the best. */
FSAT_INLINE __u32 fsat_more_of_best(const struct fsat *f, __u32 arrived)
{
	return fsat_min(fsat_amount(9ULL * arrived / 4), fsat_best(f));
}

/* ---- Periods ---- */

FSAT_INLINE void fsat_begin_period(struct fsat *f, const struct fsat_ack *a)
{
	f->period_start_us = a->now_us;
	f->period_rcv_bytes = 0;
	f->period_flight = a->flight;
	f->period_app_limited = a->app_limited;
	f->period_rtt_us = FSAT_NO_LIMIT;
}

/* FSAT_ADD_DRAIN: (5) after a drain, of ours or of others. That nothing queues lasts for a moment, and a flow that grew without limit
 * would fill the queue again before it sees that. Of about one segment that arrives it says nothing. */
FSAT_INLINE int fsat_refills(const struct fsat *f, __u32 mss)
{
	return f->rtt_found_us && f->dry_periods < FSAT_DRY_PERIODS && f->s > mss + mss / 4 && !fsat_varies(f);
}

/* A period in which the application limits, or a drain, understates the BDP: it may raise target and s,
 * never lower them. `arrived`: by fsat_arrived; (5), (10) and (11) compare with all of it. */
FSAT_INLINE void fsat_judge_period(struct fsat *f, const struct fsat_config *c, const struct fsat_ack *a, __u32 arrived)
{
	int understates = f->period_app_limited || f->draining;
	__u32 floor = understates ? f->target : fsat_min_target(c, a), target;

	f->rcv_bytes = f->period_rcv_bytes;
	f->flight_n = f->period_flight;
	if (!understates || arrived >= f->s)
		fsat_headroom(f, arrived);
	target = fsat_judge1(f, arrived, a->mss);
	f->dry_periods = target == FSAT_NO_LIMIT ? fsat_min(f->dry_periods + 1, FSAT_DRY_PERIODS) : 0;
	f->target = fsat_max(target == FSAT_NO_LIMIT && fsat_refills(f, a->mss) ? f->target : target, floor);
	fsat_note_best(f, c, a->now_us);
	if (fsat_adds(c, FSAT_ADD_DRAIN)) {
		fsat_note_arrived(f, arrived);
		fsat_note_rtt(f, a);
	}
	fsat_begin_period(f, a);
}

/* Always 0. */
FSAT_OUTLINE int fsat_end_period(struct fsat *f, const struct fsat_config *c, const struct fsat_ack *a, __u32 arrived)
{
	if (f && c && a)
		fsat_judge_period(f, c, a, arrived);
	return 0;
}

/* The measurement that this ACK is: (8), and if the period is over, (5) to (7) and (9). */
FSAT_INLINE void fsat_measure(struct fsat *f, const struct fsat_config *c, const struct fsat_ack *a)
{
	__u32 arrived;

	f->period_rcv_bytes = fsat_amount((__u64)f->period_rcv_bytes + a->delivered);
	f->period_app_limited |= a->app_limited;
	arrived = fsat_arrived(f, c, a);
	f->target = fsat_judge2(f, arrived);
	if (fsat_varies(f))
		f->target = fsat_max(f->target, fsat_more_of_best(f, arrived));
	if (a->now_us - f->period_start_us >= f->rtt_min_us)
		fsat_end_period(f, c, a, arrived);
}

/* Moves space one step; a drain stops sending until no more than its level is in flight. */
FSAT_INLINE __u32 fsat_moved_space(const struct fsat *f, const struct fsat_config *c, const struct fsat_ack *a)
{
	__u64 more = fsat_adds(c, FSAT_ADD_FAIR) ? (__u64)FSAT_FAIR_SEGMENTS * a->mss : 0;

	if (!f->draining)
		return fsat_step(f, c, a, fsat_amount(f->target + more));
	if (f->rtt_known == FSAT_RTT_KNOWN) /* it ends as soon as rtt_min is seen: gently */
		return fsat_step(f, c, a, fsat_drain_level(f, a));
	return fsat_drain_level(f, a);
}

/* RTT falls below what a drain has found, be it in small steps. Where the rate varies it does so without a cause that lasts. */
FSAT_INLINE int fsat_sinks(const struct fsat *f, __u32 rtt_us)
{
	return rtt_us < f->rtt_min_us && f->rtt_known == FSAT_RTT_KNOWN && !fsat_varies(f) &&
	       fsat_differs(f, rtt_us, f->rtt_found_us);
}

/* An ACK for one segment may have been delayed, by Linux for up to 200 ms, which made a buffer of one BDP look deep. An ACK for
 * more is sent at once. */
FSAT_INLINE void fsat_note_high(struct fsat *f, const struct fsat_ack *a)
{
	f->single_acks = a->delivered > a->mss ? 0 : fsat_min(f->single_acks + 1, FSAT_SINGLE_ACKS);
	if (!f->single_acks || f->single_acks == FSAT_SINGLE_ACKS)
		f->high_us[0] = fsat_max(f->high_us[0], a->rtt_us);
}

FSAT_INLINE void fsat_sample_rtt(struct fsat *f, const struct fsat_config *c, const struct fsat_ack *a)
{
	int theirs = fsat_settled(f) && !fsat_left_alone(f); /* RTT falls at each of the others' losses, which is nothing new */

	if (!theirs && (a->rtt_us < f->rtt_min_us - f->rtt_min_us / 8 || fsat_sinks(f, a->rtt_us))) {
		f->rtt_known = FSAT_RTT_UNKNOWN;
		f->quiet = 0;
	}
	if (!f->rtt_min_us)
		f->rtt_first_us = a->rtt_us;
	if (!f->rtt_min_us || a->rtt_us < f->rtt_min_us)
		f->rtt_min_us = a->rtt_us;
	f->rtt_us = a->rtt_us;
	f->rtt_least_us = f->rtt_least_us ? fsat_min(f->rtt_least_us, a->rtt_us) : a->rtt_us;
	if (fsat_adds(c, FSAT_ADD_FULL))
		fsat_note_high(f, a);
	if (fsat_adds(c, FSAT_ADD_PACE)) /* an outage would be in the average for long: that begins anew */
		f->srtt_us = fsat_average(f->srtt_us / 4 > a->rtt_us ? 0 : f->srtt_us, a->rtt_us);
}

/* ---- What a sender calls ---- */

/* A new connection that may have `flight_limit` bytes in flight until something is known. */
FSAT_INLINE void fsat_init(struct fsat *f, const struct fsat_config *c, __u32 now_us, __u32 flight_limit)
{
	(void)c;
	*f = (struct fsat){
		.target = FSAT_NO_LIMIT,
		.space = flight_limit,
		.period_start_us = now_us,
		.spell_us = now_us,
		.dry_us = now_us,
		.drained_us = now_us,
		.rtt_low_us = FSAT_NO_LIMIT,
		.undrained = FSAT_FALLS_AFTER / 2, /* nobody has drained yet */
		.rtt_found_before_us = { FSAT_NO_LIMIT, FSAT_NO_LIMIT, FSAT_NO_LIMIT },
	};
}

/* An ACK or a report: measures, judges, and moves space one step. */
FSAT_INLINE void fsat_on_ack(struct fsat *f, const struct fsat_config *c, const struct fsat_ack *a)
{
	int first = !f->rtt_min_us;

	if (a->rtt_us)
		fsat_sample_rtt(f, c, a);
	if (first)
		fsat_begin_period(f, a);
	else
		fsat_measure(f, c, a);
	if (a->rtt_us && fsat_adds(c, FSAT_ADD_DRAIN)) {
		fsat_drain(f, a);
		fsat_leap(f, a);
	}
	f->space = fsat_moved_space(f, c, a);
}

/* (4): how much may be in flight, bytes. The advertised window itself is left to TCP; never less than one
 * segment. */
FSAT_INLINE __u32 fsat_window(const struct fsat *f, const struct fsat_ack *a)
{
	return fsat_max(fsat_min(a->cwnd, f->space), a->mss);
}

/* judge(3): ssthresh, bytes, from the base's cwnd and its present ssthresh; counts the verdict. */
FSAT_INLINE __u32 fsat_on_loss(struct fsat *f, const struct fsat_config *c, __u32 cwnd, __u32 ssthresh, __u32 mss)
{
	int best = fsat_adds(c, FSAT_ADD_BEST), full = fsat_adds(c, FSAT_ADD_FULL) && fsat_buffer_full(f);

	f->lost_us = f->period_start_us;
	if (f->sole) { /* who fills the buffer may have come into others' queue */
		f->sole = 0;
		f->rtt_known = FSAT_RTT_UNKNOWN;
	}
	if ((fsat_nothing_queues(f) && !(full && fsat_waited(f, mss))) || (best && !full && fsat_within_best(f))) {
		f->losses_radio++;
		return fsat_max(cwnd, ssthresh);               /* (10) */
	}
	f->losses_congestion++;
	if (full)
		return fsat_full_ssthresh(f, cwnd, mss);
	return best ? fsat_best_ssthresh(f, mss) : fsat_ssthresh(f, f->rcv_bytes, mss); /* (11) */
}

/* judge(3) where the path itself says that it is congested (ECN): (11). */
FSAT_INLINE __u32 fsat_on_mark(struct fsat *f, __u32 mss)
{
	f->losses_congestion++;
	return fsat_ssthresh(f, f->rcv_bytes, mss);
}

/* Others fill a buffer of one BDP at most, a quarter at least, or did so; or a deeper one that several share, and we have our share of
 * it. There what comes alone finds a place where one of their pairs does not, so that any pacing takes their share. */
FSAT_INLINE int fsat_contended(const struct fsat *f, __u32 mss)
{
	return f->losses_congestion && fsat_high(f) > f->rtt_least_us + f->rtt_least_us / 4 &&
	       (fsat_buffer_of_one_bdp(f) || (fsat_settled(f) && fsat_segments(f->flight_n, FSAT_SHARE_SEGMENTS, mss)));
}

/* How many segments TCP hands over at once, 0 if it does not matter. By itself it hands over two as soon as ACKs allow them: of
 * few segments that is much of the queue. Where others fill the buffer, segments one by one would take their places. */
FSAT_INLINE __u32 fsat_burst(const struct fsat *f, const struct fsat_config *c, __u32 mss)
{
	return fsat_adds(c, FSAT_ADD_PACE) && fsat_segments(f->s, FSAT_BURST_SEGMENTS, mss) && fsat_undisturbed(f, 8);
}

/* How many millionths of what the window needs: so many that the rate never is what limits. Until the first drain as many as
 * BBR's startup has, 2 / ln 2, with which a window still doubles where ACKs come in bunches. */
FSAT_INLINE __u64 fsat_pace(const struct fsat *f)
{
	if (!f->rtt_found_us)
		return 2885390;
	return f->target == FSAT_NO_LIMIT ? 2000000 : 1500000;
}

/* At which rate to send, bytes per second, or FSAT_UNPACED; 0 leaves it to TCP. Where the link's rate varies and may have
 * risen, RTTs say so too late. */
FSAT_INLINE __u64 fsat_pacing_rate(const struct fsat *f, const struct fsat_config *c, const struct fsat_ack *a)
{
	if (!fsat_adds(c, FSAT_ADD_PACE) || !f->srtt_us)
		return 0;
	if (fsat_contended(f, a->mss) || fsat_sparse(f, a->mss))
		return FSAT_UNPACED;
	return fsat_pace(f) * fsat_window(f, a) / (fsat_varies(f) ? f->rtt_min_us : f->srtt_us);
}

#endif
