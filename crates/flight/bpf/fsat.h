/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * `fsat`: FS-AT for networks as they are; docs/flight.md explains it. fsat_paper.h has the state, and what is published.
 *
 * A sender is in one of three modes. It asks (slow start) whether a queue answers. Where one does, the queue is its own: it holds what
 * arrives within rtt_min and a contract of a few segments, which is the same for all, so that who has less gains. Where it loses
 * something by congestion it leaves all to the congestion avoidance below (`the base`: reno, cubic), whose cwnd is handed in.
 */
#ifndef NAWA_FSAT_H
#define NAWA_FSAT_H

#include "fsat_paper.h"

enum fsat_mode {
	FSAT_ASK = 0,    /* twice as much each RTT, until a queue or heavy loss answers */
	FSAT_OWN = 1,    /* target, whatever the base says */
	FSAT_OTHERS = 2, /* the base alone */
};

/* All that is tuned. `1/n`: one part in so many. examples/ablation.rs prints what is lost without each. */
struct fsat_constants {
	__u32 contract;   /* segments that each flow holds in the queue; 1 to 4 */
	__u32 deviations; /* mean deviations of what arrives that it holds where they are more, as (9); 3 to 6 */
	__u32 more;       /* 1/n of what arrives on top where a queue is nearly forgotten; half of that beyond rtt_min is near; 2 to 3 */
	__u32 answer;     /* 1/n of rtt_min is a queue that answers; 4 to 16 */
	__u32 empty;      /* 1/n of rtt_min is no queue; 12 to 16 */
	__u32 heavy;      /* 1/n of a period lost is congestion; 6 to 12 */
	__u32 memory;     /* periods in which a queue's length is forgotten, to 1/e; 32 to 128 */
	__u32 stale_us;   /* rtt_min is believed for so long while something waits; 5 to 20 s */
	__u32 far;        /* and for so many periods while RTT is not near it; 16 to 64 */
	__u32 slow;       /* a slowdown leaves 1/n in flight; 2 to 4 */
	__u32 host_us;    /* rtt_min is never taken for less: so long hosts hold what they send and acknowledge, without a queue; .5 to 4 ms */
	__u32 pace;       /* percent of the window per RTT, twice that while asking, which doubles it; 120 to 200 */
};

#define FSAT_CONSTANTS                                                                                          \
	{                                                                                                       \
		.contract = 2, .deviations = 4, .more = 2, .answer = 8, .empty = 12, .heavy = 8,                \
		.memory = 64, .stale_us = 8000000, .far = 32, .slow = 2, .host_us = 1000, .pace = 150,          \
	}

/* What stands in the queue at this RTT, µs. */
FSAT_INLINE __u32 fsat_wait(const struct fsat *f, __u32 rtt_us) { return rtt_us > f->rtt_min_us ? rtt_us - f->rtt_min_us : 0; }

/* How long so many bytes take at our rate, µs. */
FSAT_INLINE __u32 fsat_time(const struct fsat *f, __u32 bytes) { return fsat_amount((__u64)bytes * f->rtt_min_us / fsat_max(f->s, 1)); }

/* Nothing waits, or next to nothing. */
FSAT_INLINE int fsat_idle(const struct fsat *f, const struct fsat_constants *c, __u32 rtt_us)
{
	return fsat_wait(f, rtt_us) <= f->rtt_min_us / c->empty;
}

/* A queue of late was long enough to be seen: the path delays what is too much, before it loses it. */
FSAT_INLINE int fsat_answers(const struct fsat *f, const struct fsat_constants *c)
{
	return fsat_wait(f, f->high_us) >= f->rtt_min_us / c->answer;
}

/* ---- rtt_min ---- */

/* rtt_min is not to be believed any more: less is in flight until it is seen again, or another. */
FSAT_INLINE int fsat_slows(const struct fsat *f, const struct fsat_constants *c, __u32 now_us)
{
	return now_us - f->seen_us >= c->stale_us;
}

/* The window is a slowdown's, from the first RTT in it on. */
FSAT_INLINE int fsat_slowed(const struct fsat *f) { return f->low_us != FSAT_NO_LIMIT; }

/* A slowdown is over: where no queue answers without what we took out of it, nobody else fills it. */
FSAT_INLINE void fsat_compare(struct fsat *f, const struct fsat_constants *c)
{
	if (f->mode == FSAT_OTHERS && fsat_answers(f, c) && fsat_wait(f, f->low_us) < f->rtt_min_us / c->answer)
		f->mode = FSAT_OWN;
}

/* What arrives within rtt_min changes with it. */
FSAT_INLINE void fsat_believe(struct fsat *f, const struct fsat_constants *c, __u32 rtt_us, __u32 now_us)
{
	rtt_us = fsat_max(rtt_us, c->host_us);
	f->s = fsat_amount((__u64)f->s * rtt_us / f->rtt_min_us);
	f->rtt_min_us = rtt_us;
	f->seen_us = now_us;
	f->near_us = now_us;
	f->low_us = FSAT_NO_LIMIT;
}

FSAT_INLINE void fsat_sample(struct fsat *f, const struct fsat_constants *c, const struct fsat_ack *a)
{
	f->period_rtt_us = fsat_min(f->period_rtt_us, a->rtt_us);
	if (!fsat_slows(f, c, a->now_us)) {
		if (a->rtt_us < f->rtt_min_us && f->rtt_min_us > c->host_us)
			fsat_believe(f, c, a->rtt_us, a->now_us);
		if (fsat_idle(f, c, a->rtt_us))
			f->seen_us = a->now_us;
		if (2 * fsat_wait(f, a->rtt_us) <= f->rtt_min_us / c->more)
			f->near_us = a->now_us;
		if (a->now_us - f->near_us >= c->far * f->rtt_min_us)
			f->seen_us = a->now_us - c->stale_us;
		return;
	}
	f->low_us = fsat_min(f->low_us, a->rtt_us);
	if (a->rtt_us <= f->rtt_min_us || a->now_us - f->seen_us - c->stale_us >= a->rtt_us + f->rtt_min_us) {
		fsat_compare(f, c);
		fsat_believe(f, c, f->low_us, a->now_us);
	}
}

/* ---- Periods ---- */

FSAT_INLINE void fsat_begin_period(struct fsat *f, const struct fsat_ack *a)
{
	f->period_start_us = a->now_us;
	f->period_rcv_bytes = 0;
	f->period_app_limited = !!a->app_limited;
	f->period_rtt_us = FSAT_NO_LIMIT;
	f->gap_us = 0;
	f->lost = 0;
}

/* What may be in flight: what arrives within rtt_min, the contract or (9), and what ACKs that come in bunches need. That is up to what
 * arrives within an RTT: where a radio delays now and then, RTT is many times rtt_min without a queue. A queue that answered is made
 * to answer again before that is forgotten: its length is down to four thirds of the least that answers. */
FSAT_INLINE __u32 fsat_target(const struct fsat *f, const struct fsat_constants *c, __u32 mss)
{
	__u32 contract = c->contract * mss, r = f->rcv_bytes;
	__u64 bunch = (__u64)f->s * fsat_min(f->gap_us, f->queue_rtt_us) / f->rtt_min_us;
	__u64 head = fsat_max(contract, fsat_amount((__u64)c->deviations * f->dev));
	__u32 target = fsat_amount(fsat_min(fsat_amount(f->s + head), fsat_amount(2ULL * r + contract)) + bunch);

	if (3ULL * fsat_wait(f, f->high_us) < 4ULL * f->rtt_min_us / c->answer)
		target = fsat_max(target, fsat_amount((__u64)r + r / c->more + contract));
	return fsat_max(target, contract);
}

/* Whether so much of the period is lost that the base has to reduce. */
FSAT_INLINE int fsat_loses(struct fsat *f, const struct fsat_constants *c, __u32 mss)
{
	__u32 all = fsat_amount((__u64)f->period_rcv_bytes + f->lost);

	if (f->mode == FSAT_OTHERS || f->lost <= all / c->heavy + mss)
		return 0;
	f->mode = FSAT_OTHERS;
	f->losses_congestion++;
	return 1;
}

FSAT_INLINE int fsat_judge(struct fsat *f, const struct fsat_constants *c, const struct fsat_ack *a)
{
	__u32 took = fsat_max(a->now_us - f->period_start_us, f->rtt_min_us);
	__u32 r = (__u32)((__u64)f->period_rcv_bytes * f->rtt_min_us / took), wait;
	int understates = f->period_app_limited || fsat_slows(f, c, a->now_us), cut;

	if (f->period_rtt_us != FSAT_NO_LIMIT && !fsat_slows(f, c, a->now_us))
		f->queue_rtt_us = f->period_rtt_us;
	f->gap_us -= fsat_min(f->gap_us, fsat_time(f, c->contract * a->mss));
	f->high_us -= fsat_wait(f, f->high_us) / c->memory;
	if (r >= 2 * c->contract * a->mss) /* of fewer segments an ACK that is delayed looks like a queue */
		f->high_us = fsat_max(f->high_us, f->queue_rtt_us);
	if (!understates || r >= f->s) {
		f->rcv_bytes = r;
		fsat_headroom(f, r);
		f->target = fsat_target(f, c, a->mss);
	}
	f->flight_n = f->period_flight;
	f->period_flight = 0;
	cut = fsat_loses(f, c, a->mss);
	wait = fsat_wait(f, f->queue_rtt_us);
	if (f->mode == FSAT_ASK && wait > f->gap_us && wait > f->rtt_min_us / c->answer)
		f->mode = FSAT_OWN;
	fsat_begin_period(f, a);
	return cut;
}

/* ---- What a sender calls ---- */

/* A new connection that may have `flight_limit` bytes in flight until something is known. */
FSAT_INLINE void fsat_init(struct fsat *f, __u32 now_us, __u32 flight_limit)
{
	*f = (struct fsat){
		.target = FSAT_NO_LIMIT,
		.space = flight_limit,
		.period_start_us = now_us,
		.period_rtt_us = FSAT_NO_LIMIT,
		.low_us = FSAT_NO_LIMIT,
	};
}

/* How much may be in flight, bytes, never less than one segment; the advertised window is left to TCP. */
FSAT_INLINE __u32 fsat_window(const struct fsat *f, const struct fsat_constants *c, const struct fsat_ack *a)
{
	__u32 window = f->mode == FSAT_OTHERS ? a->cwnd : f->mode == FSAT_ASK ? fsat_max(f->space, a->cwnd) : f->space;

	if (fsat_slowed(f))
		window = fsat_min(window, fsat_max(f->s / c->slow, 4 * a->mss));
	return fsat_max(window, a->mss);
}

/* In FSAT_ASK: of what may be in flight half was, in this period or the last. Now is not enough, as ACKs may come in a bunch. */
FSAT_INLINE int fsat_limits(struct fsat *f, const struct fsat_constants *c, const struct fsat_ack *a)
{
	f->period_flight = fsat_max(f->period_flight, fsat_amount((__u64)a->flight + a->delivered));
	return !a->app_limited && fsat_max(f->flight_n, f->period_flight) >= fsat_window(f, c, a) / 2;
}

/* An ACK or a report: measures, judges, and moves space one step. Not 0: the base has to reduce, as after a loss. */
FSAT_INLINE int fsat_on_ack(struct fsat *f, const struct fsat_constants *c, const struct fsat_ack *a)
{
	int cut = 0;

	if (!f->rtt_min_us && a->rtt_us) {
		f->high_us = f->queue_rtt_us = a->rtt_us;
		f->rtt_min_us = fsat_max(a->rtt_us, c->host_us);
		f->ack_us = a->now_us;
		fsat_begin_period(f, a);
	}
	if (!f->rtt_min_us)
		return 0;
	if (a->rtt_us)
		fsat_sample(f, c, a);
	if (!a->app_limited)
		f->gap_us = fsat_max(f->gap_us, a->now_us - f->ack_us);
	f->ack_us = a->now_us;
	f->period_rcv_bytes = fsat_amount((__u64)f->period_rcv_bytes + a->delivered);
	f->lost = fsat_amount((__u64)f->lost + a->lost);
	f->period_app_limited |= !!a->app_limited;
	if (FSAT_SELDOM(a->now_us - f->period_start_us >= f->rtt_min_us))
		cut = fsat_judge(f, c, a);
	if (f->mode == FSAT_OTHERS)
		f->space = a->cwnd;
	else if (f->mode == FSAT_OWN)
		f->space = fsat_step(f, a, fsat_min(f->target, a->cwnd_max));
	else if (fsat_limits(f, c, a))
		f->space = fsat_min(fsat_amount((__u64)f->space + a->delivered), a->cwnd_max);
	return cut;
}

/* judge(3): ssthresh, bytes; of what is congestion it is the least, the base's own cut may leave more. Counts the verdict. */
FSAT_INLINE __u32 fsat_on_loss(struct fsat *f, const struct fsat_constants *c, __u32 cwnd, __u32 ssthresh)
{
	__u32 rtt = f->period_rtt_us == FSAT_NO_LIMIT ? f->queue_rtt_us : f->period_rtt_us;

	if (f->mode == FSAT_ASK || (fsat_answers(f, c) && fsat_idle(f, c, rtt))) {
		if (f->mode == FSAT_OTHERS)
			f->mode = FSAT_OWN;
		f->losses_radio++;
		return fsat_max(cwnd, ssthresh); /* (10) */
	}
	ssthresh = f->mode == FSAT_OWN ? fsat_min(f->s, cwnd) : 0; /* (11) */
	f->losses_congestion++;
	f->mode = FSAT_OTHERS;
	return ssthresh;
}

/* A timeout, after which `space` bytes may be in flight. No ACK ended the period: what it lost is judged now. Not 0: as fsat_on_ack. */
FSAT_INLINE int fsat_on_timeout(struct fsat *f, const struct fsat_constants *c, __u32 space, __u32 mss)
{
	int cut = fsat_loses(f, c, mss);

	f->lost = 0;
	f->space = space;
	return cut;
}

/* The path itself says that it is congested (ECN). */
FSAT_INLINE void fsat_on_mark(struct fsat *f)
{
	f->losses_congestion++;
	f->mode = FSAT_OTHERS;
}

/* At which rate to send, bytes per second; 0 leaves it to TCP. */
FSAT_INLINE __u64 fsat_pacing_rate(const struct fsat *f, const struct fsat_constants *c, const struct fsat_ack *a)
{
	if (f->mode == FSAT_OTHERS || !f->queue_rtt_us)
		return 0;
	return (__u64)c->pace * (f->mode == FSAT_ASK ? 2 : 1) * 10000 * fsat_window(f, c, a) / f->queue_rtt_us;
}

#endif
