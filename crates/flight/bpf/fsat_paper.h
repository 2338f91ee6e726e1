/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * FS-AT as paper 001 publishes it: `fsat_paper`. Numbers in brackets are its equations.
 *
 * Pure integers, no kernel types: compiled into the BPF congestion controls and, through `cc`, into the Rust core. No loops, no pointer
 * but to the structs handed in. Units: bytes and microseconds. Times wrap; only differences count, so that an interval may last 71 minutes.
 */
#ifndef NAWA_FSAT_PAPER_H
#define NAWA_FSAT_PAPER_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/* What is not the case at most ACKs is out of the way of what is. */
#define FSAT_SELDOM(condition) __builtin_expect(!!(condition), 0)
#define FSAT_INLINE static inline __attribute__((always_inline))

/* target where nothing is limited: `snd_cwnd_max` in the paper, whatever that is at the time. */
#define FSAT_NO_LIMIT (~(__u32)0)
/* The paper's smallest target (its evaluation), bytes. */
#define FSAT_MIN_TARGET 8192U

/* One ACK of TCP, or one report of the tunnel. */
struct fsat_ack {
	__u32 now_us;      /* wraps */
	__u32 rtt_us;      /* this ACK's RTT sample, 0 = none */
	__u32 delivered;   /* bytes newly known to have arrived (cumulative + SACK) */
	__u32 lost;        /* bytes newly believed to be lost */
	__u32 flight;      /* bytes outstanding now: sent, neither acknowledged nor SACKed */
	__u32 cwnd;        /* the base's cwnd, bytes */
	__u32 cwnd_max;    /* snd_cwnd_max: what the advertised window and the send buffer allow */
	__u32 mss;         /* bytes */
	__u32 app_limited; /* not 0: the application, not the window, limits what is sent */
};

/* A connection's state. All 0 is not a valid one: fsat_init. */
struct fsat {
	__u32 target;             /* ceiling of space; FSAT_NO_LIMIT */
	__u32 space;              /* the limit of what is in flight */
	__u32 rtt_min_us;         /* least RTT; 0 before the first sample */
	__u32 period_start_us;    /* the present period */
	__u32 period_rcv_bytes;   /* rcv_bytes_n-(p): so far */
	__u16 period_app_limited; /* not 0: the application limited in it */
	__u16 mode;               /* enum fsat_mode */
	__u32 rcv_bytes;          /* rcv_bytes_n-(m): of the last whole period n */
	__u32 s;                  /* smoothed rcv_bytes */
	__u32 dev;                /* its mean deviation */
	__u32 losses_radio;       /* judge(3)'s verdicts, counted; wrap */
	__u32 losses_congestion;
	__u32 flight_n;           /* flight_size_n: outstanding at the start of that period; in `fsat` the most in it, while asking, */
	__u32 period_flight;      /* and of the present period */
	/* `fsat` alone. */
	__u32 period_rtt_us;      /* the least RTT of the present period; FSAT_NO_LIMIT: none yet */
	__u32 queue_rtt_us;       /* that of the last whole period: what stands in the queue is beyond rtt_min by it */
	__u32 high_us;            /* the greatest of those, slowly forgotten */
	__u32 seen_us;            /* when nothing waited last, */
	__u32 near_us;            /* and when RTT was near rtt_min */
	__u32 low_us;             /* the least RTT since the slowdown began; FSAT_NO_LIMIT: there is none */
	__u32 ack_us;             /* when the last ACK came, */
	__u32 gap_us;             /* and the longest time between two in the present period */
	__u32 lost;               /* bytes lost in the present period */
};

FSAT_INLINE __u32 fsat_min(__u32 a, __u32 b) { return a < b ? a : b; }
FSAT_INLINE __u32 fsat_max(__u32 a, __u32 b) { return a > b ? a : b; }
/* No amount reaches FSAT_NO_LIMIT. */
FSAT_INLINE __u32 fsat_amount(__u64 bytes) { return bytes < FSAT_NO_LIMIT ? (__u32)bytes : FSAT_NO_LIMIT - 1; }
FSAT_INLINE __u32 fsat_twice(__u32 bytes) { return fsat_amount(2ULL * bytes); }

/* (9): dev first, with the old mean; the first measurement as in RFC 6298 (2.2). */
FSAT_INLINE void fsat_headroom(struct fsat *f, __u32 rcv)
{
	__u32 away = f->s > rcv ? f->s - rcv : rcv - f->s;

	f->dev = f->s ? (__u32)((3ULL * f->dev + away) / 4) : rcv / 2;
	f->s = f->s ? (__u32)((7ULL * f->s + rcv) / 8) : rcv;
}

/* (5), (10): what was outstanding at the period's start arrived within one rtt_min, so none of it waited. */
FSAT_INLINE int fsat_nothing_queues(const struct fsat *f) { return f->flight_n <= f->rcv_bytes; }

/* judge(1), once per rtt_min: target_n+1, (5) to (7), with tw_rcv_bytes of (9). */
FSAT_INLINE __u32 fsat_judge1(const struct fsat *f)
{
	__u32 tw = fsat_min(fsat_amount(f->s + 4ULL * f->dev), fsat_twice(f->rcv_bytes));

	if (fsat_nothing_queues(f))
		return FSAT_NO_LIMIT;                /* (5) */
	if (f->target < tw || f->target == FSAT_NO_LIMIT)
		return tw;                           /* (6) */
	return (__u32)(((__u64)tw + f->target) / 2); /* (7) */
}

FSAT_INLINE __u32 fsat_paper_floor(__u32 mss) { return fsat_max(FSAT_MIN_TARGET, fsat_twice(mss)); }

FSAT_INLINE void fsat_paper_begin_period(struct fsat *f, const struct fsat_ack *a)
{
	f->period_start_us = a->now_us;
	f->period_rcv_bytes = 0;
	f->period_flight = a->flight;
	f->period_app_limited = !!a->app_limited;
}

/* A period in which the application limits understates the BDP: it may raise target and s, never lower them. */
FSAT_INLINE void fsat_paper_judge(struct fsat *f, const struct fsat_ack *a)
{
	__u32 floor = f->period_app_limited ? f->target : fsat_paper_floor(a->mss);

	f->rcv_bytes = f->period_rcv_bytes;
	f->flight_n = f->period_flight;
	if (!f->period_app_limited || f->rcv_bytes >= f->s)
		fsat_headroom(f, f->rcv_bytes);
	f->target = fsat_max(fsat_judge1(f), floor);
	fsat_paper_begin_period(f, a);
}

/* The steps of space towards `target`: up by what arrived (RFC 3465), down by half of it, as rate halving does. Down from where it
 * limits: what lies above cwnd limits nothing. */
FSAT_INLINE __u32 fsat_step(const struct fsat *f, const struct fsat_ack *a, __u32 target)
{
	__u32 space = f->space, down = a->delivered / 2;

	if (space <= target)
		return fsat_min(target, fsat_amount((__u64)space + a->delivered));
	space = fsat_min(space, fsat_max(a->cwnd, target));
	return space - target > down ? space - down : target;
}

FSAT_INLINE void fsat_paper_on_ack(struct fsat *f, const struct fsat_ack *a)
{
	int first = !f->rtt_min_us;

	if (a->rtt_us && (first || a->rtt_us < f->rtt_min_us))
		f->rtt_min_us = a->rtt_us;
	if (first) {
		fsat_paper_begin_period(f, a);
	} else {
		f->period_rcv_bytes = fsat_amount((__u64)f->period_rcv_bytes + a->delivered);
		f->period_app_limited |= !!a->app_limited;
		f->target = fsat_max(f->target, fsat_twice(f->period_rcv_bytes)); /* judge(2), (8) */
		if (a->now_us - f->period_start_us >= f->rtt_min_us)
			fsat_paper_judge(f, a);
	}
	f->space = fsat_step(f, a, fsat_min(f->target, fsat_max(a->cwnd_max, fsat_paper_floor(a->mss))));
}

/* (4): how much may be in flight, bytes. The advertised window itself is left to TCP; never less than one segment. */
FSAT_INLINE __u32 fsat_paper_window(const struct fsat *f, __u32 cwnd, __u32 mss) { return fsat_max(fsat_min(cwnd, f->space), mss); }

/* (11): ssthresh after a loss by congestion, from the BDP just before it. */
FSAT_INLINE __u32 fsat_paper_ssthresh(const struct fsat *f, __u32 mss)
{
	return fsat_max(fsat_max(f->rcv_bytes, f->flight_n / 2), fsat_twice(mss));
}

/* judge(3) where the path itself says that it is congested (ECN): (11). */
FSAT_INLINE __u32 fsat_paper_on_mark(struct fsat *f, __u32 mss)
{
	f->losses_congestion++;
	return fsat_paper_ssthresh(f, mss);
}

/* judge(3): ssthresh, bytes, from the base's cwnd and its present ssthresh; counts the verdict. */
FSAT_INLINE __u32 fsat_paper_on_loss(struct fsat *f, __u32 cwnd, __u32 ssthresh, __u32 mss)
{
	if (fsat_nothing_queues(f)) {
		f->losses_radio++;
		return fsat_max(cwnd, ssthresh); /* (10) */
	}
	return fsat_paper_on_mark(f, mss);
}

#endif
