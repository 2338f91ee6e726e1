/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * FS-AT, Flight Size Auto Tuning (paper 001): limits what a sender has in flight to what the path
 * carries. Equation numbers are the paper's; what `fsat` adds is in docs/flight.md.
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

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define FSAT_INLINE static inline __attribute__((always_inline))
/* To BPF a global function, which the kernel verifies by itself: all in one has more paths than it follows (Linux 6.12). */
#ifdef __bpf__
#define FSAT_OUTLINE __attribute__((noinline))
#else
#define FSAT_OUTLINE FSAT_INLINE
#endif

/* target where nothing is limited: `snd_cwnd_max` in the paper, whatever that is at the time. */
#define FSAT_NO_LIMIT (~(__u32)0)
/* A rate that is none. */
#define FSAT_UNPACED (~(__u64)0)
/* The paper's smallest target (its evaluation), bytes. At least two segments, so that a receiver that
 * delays ACKs does not stop the flow. */
#define FSAT_MIN_TARGET 8192U

/* What `fsat` adds, each switched by itself. None: `fsat_paper`. */
#define FSAT_ADD_BEST  1U /* judges losses by the best BDP of late, not by the last; offers it to a link that varies */
#define FSAT_ADD_DRAIN 2U /* lets the queue run dry now and then, to learn rtt_min */
#define FSAT_ADD_FAIR  4U /* a constant on top of target, so that equal flows get equal shares */
#define FSAT_ADD_PACE  8U /* a rate */
#define FSAT_ADD_EVEN  16U /* what arrived, scaled to exactly one rtt_min */
#define FSAT_ADD_FULL  32U /* a loss in a buffer that is full is congestion */
#define FSAT_ADDITIONS \
	(FSAT_ADD_BEST | FSAT_ADD_DRAIN | FSAT_ADD_FAIR | FSAT_ADD_PACE | FSAT_ADD_EVEN | FSAT_ADD_FULL)

/* Chosen on generated traces (examples/ablation.rs), and none of them sharp. */
#define FSAT_SPELL_US         8000000U /* a spell of FSAT_ADD_BEST and FSAT_ADD_FULL; the last two count */
#define FSAT_FAIR_SEGMENTS    2U
#define FSAT_FEW_SEGMENTS     16U      /* where it is no more, what arrives within one rtt_min is chance */
#define FSAT_LEAST_SEGMENTS   5U       /* where it is no more, a drain of ours empties hardly any of a crowd's queue */
#define FSAT_BURST_SEGMENTS   8U       /* where it is no more, they go one by one, */
#define FSAT_LOSSY_US        24000000U /* but not so long after a loss: others may fill the buffer */
#define FSAT_DELAYED_ACK_US   40000U   /* Linux's */
#define FSAT_SINGLE_ACKS      16U      /* so many in a row for one segment: this receiver delays none */
#define FSAT_DRAIN_TICK_US    (1U << 21) /* drains begin at ticks of a clock that senders share, each 2.1 s, so that flows drain together. A
                                          * power of two, as how many lie between drains: who drains rarely does so when all others do */
#define FSAT_FLAT_PERIODS     3U       /* so many at least before RTT first rose: we have filled the link, not others */
#define FSAT_DRAIN_RARELY     4U       /* each 2^this ticks, 34 s, after many that brought nothing new, or where the rate varies; */
#define FSAT_DRAIN_SELDOM     5U       /* each 2^this of who came alone, or where others fill the buffer and would get what was won */
#define FSAT_DRAIN_JOIN_US    2000000U /* at the earliest after the queue was dry, if others drain */
#define FSAT_DRAIN_ALONE_US   8000000U /* and after it ran dry by itself, once drains bring nothing new: */
#define FSAT_DRAIN_QUIET      2U       /* so many in a row, */
#define FSAT_DRAIN_QUIET_CROWD 4U      /* in a crowd, whose other flows may be all that drains */
#define FSAT_FOREIGN_PERIODS  8U       /* so many in a row with more queue than is ours */
#define FSAT_DRY_PERIODS      3U       /* so many in a row in which nothing queues: it is not somebody's drain */
#define FSAT_ABOVE_DRAINS    16U       /* so many in a row that found more than rtt_min: nobody leaves it to others to drain */
#define FSAT_STEADY_PERIODS   8U       /* so many in a row with one rate: nobody else comes or goes */
#define FSAT_FALLS_PERIODS    32U      /* RTT's falls are averaged over so many, */
#define FSAT_FALLS_AFTER      16U      /* from so many after a drain on, which makes others drain as well */
#define FSAT_FALLS_ALWAYS     65536U   /* RTT falls in each of them */
#define FSAT_FALLS_VARIES     (FSAT_FALLS_ALWAYS / 10)
#define FSAT_FALLS_HALVED     4U       /* a fall by half counts for so many: flows that share a queue rarely empty half of it */
#define FSAT_FALLS_DRAINED    8U       /* RTT before a drain, in rtt_min, that our own queue has only if the rate fell */

struct fsat_config {
	__u32 additions; /* FSAT_ADD_* */
};

/* One ACK of TCP, or one report of the tunnel. */
struct fsat_ack {
	__u32 now_us;      /* wraps; drains begin at its ticks (FSAT_DRAIN_TICK_US), so one that other senders have as well is best */
	__u32 rtt_us;      /* this ACK's RTT sample, 0 = none */
	__u32 delivered;   /* bytes newly known to have arrived (cumulative + SACK) */
	__u32 flight;      /* bytes outstanding now: sent, neither acknowledged nor SACKed */
	__u32 cwnd;        /* the base's cwnd, bytes */
	__u32 cwnd_max;    /* snd_cwnd_max: what the advertised window and the send buffer allow */
	__u32 mss;         /* bytes */
	__u32 app_limited; /* not 0: the application, not the window, limits what is sent */
};

/* Values of rtt_known. */
#define FSAT_RTT_UNKNOWN 0U /* there was no drain, or the last found less; or less was seen since */
#define FSAT_RTT_KNOWN   1U /* it found rtt_min */
#define FSAT_RTT_DOUBTED 2U /* it found more, and rtt_min was not seen since */

/* Values of draining. */
#define FSAT_DRAIN_SHALLOW 1U /* the queue is emptied, and the path hardly */
#define FSAT_DRAIN_DEEP    2U /* and the path too, since RTT did not become rtt_min by that or is not to be trusted */

/* A connection's state. All 0 is not a valid one: fsat_init. What every ACK needs comes first, since a cache line
 * that is not there costs more than all that is computed. */
struct fsat {
	__u32 target;            /* ceiling of space; FSAT_NO_LIMIT */
	__u32 space;             /* the limit of what is in flight */
	__u32 rtt_min_us;        /* least RTT; 0 before the first sample */
	__u32 period_start_us;   /* the present period */
	__u32 period_rcv_bytes;  /* rcv_bytes_n-(p): so far */
	__u32 period_app_limited;/* not 0: the application limited in it */
	__u32 rtt_us;            /* the last RTT */
	/* FSAT_ADD_DRAIN */
	__u32 draining;          /* not 0: the queue is let run dry; FSAT_DRAIN_* */
	__u32 rtt_known;         /* FSAT_RTT_*: whether the last drain found what it looked for */
	__u32 rtt_found_us;      /* the least RTT that the last drain found; 0: there was none */
	__u32 rtt_low_us;        /* the least RTT since the end of the last drain */
	__u32 alone_us;          /* when RTT last was rtt_min, or nearly, without a drain of ours */
	__u32 dry_us;            /* when the queue was last as dry as it gets; while draining, the begin */
	__u32 period_rtt_us;     /* the least RTT of the present period */
	__u32 rtt_usual_us;      /* a moving average of that */
	__u32 two_segments_us;   /* how long two segments take at our rate; 0: not known */
	__u32 foreign;           /* periods in a row with more queue than is ours */
	__u32 falls;             /* in how many periods RTT fell, of late, of FSAT_FALLS_ALWAYS */
	__u32 quiet;             /* drains in a row that found nothing new */
	/* FSAT_ADD_PACE */
	__u32 srtt_us;           /* RFC 6298, but forgets what is more than four times the last RTT */
	/* FSAT_ADD_DRAIN, FSAT_ADD_FULL */
	__u32 rtt_least_us;      /* the least of all, whatever drains make of rtt_min */
	__u32 high_us[2];        /* the greatest RTT of the present spell, and of the one before, without delayed ACKs' */
	__u32 single_acks;       /* ACKs in a row that were for one segment */
	/* Once per period, or more rarely. */
	__u32 dry_periods;       /* FSAT_ADD_DRAIN: periods in a row in which nothing queued */
	__u32 rcv_bytes;         /* rcv_bytes_n-(m): of the last whole period n */
	__u32 flight_n;          /* flight_size_n: at the start of that period */
	__u32 s;                 /* smoothed rcv_bytes */
	__u32 dev;               /* its mean deviation */
	__u32 away;              /* and over more periods, */
	__u32 apart;             /* with how much one period's differ from the last's */
	__u32 period_flight;     /* outstanding at the present period's start */
	__u32 losses_radio;      /* judge(3)'s verdicts, counted; wrap */
	__u32 losses_congestion;
	/* FSAT_ADD_BEST, FSAT_ADD_FULL */
	__u32 best[2];           /* the greatest rcv_bytes, as high_us */
	__u32 spell_us;          /* when the present spell began */
	__u32 lost_us;           /* FSAT_ADD_PACE: when there was a loss last, to a period */
	/* FSAT_ADD_DRAIN */
	__u32 drains;            /* begun so far; wraps */
	__u32 drained_us;        /* when the last drain ended */
	__u32 drained_s;         /* and s then; 0: there was none */
	__u32 above;             /* drains in a row that found more than rtt_min */
	__u32 falls_us;          /* while draining: when RTT last fell */
	__u32 drain_rcv_bytes;   /* while draining: rcv_bytes before */
	__u32 rtt_found_before_us[3]; /* the least RTTs that drains before the last found, backwards; FSAT_NO_LIMIT: there was none */
	__u32 arrived;           /* what arrived in the last whole period, by fsat_arrived */
	__u32 steady;            /* periods in a row in which that was the same, within an eighth */
	__u32 rtt_before_us;     /* the least RTT of the last whole period */
	__u32 drain_rtt_us;      /* what RTT was when the last drain began; 0: in a crowd, where others drain too */
	__u32 undrained;         /* periods since a drain of ours, up to FSAT_FALLS_AFTER */
	__u32 rtt_first_us;      /* the first RTT of all */
	__u32 flat_periods;      /* periods before RTT first rose */
	__u32 filled;            /* the greatest rcv_bytes until then; 0: it has not risen yet */
	__u32 sole;              /* not 0: who came alone, and has seen no sign of others since */
};

FSAT_INLINE __u32 fsat_min(__u32 a, __u32 b) { return a < b ? a : b; }
FSAT_INLINE __u32 fsat_max(__u32 a, __u32 b) { return a > b ? a : b; }
/* No amount reaches FSAT_NO_LIMIT. */
FSAT_INLINE __u32 fsat_amount(__u64 bytes) { return bytes < FSAT_NO_LIMIT ? (__u32)bytes : FSAT_NO_LIMIT - 1; }
FSAT_INLINE __u32 fsat_twice(__u32 bytes) { return fsat_amount(2ULL * bytes); }
/* A moving average, one eighth for the new value; the first as it is. */
FSAT_INLINE __u32 fsat_average(__u32 old, __u32 new) { return old ? (__u32)((7ULL * old + new) / 8) : new; }

FSAT_INLINE __u32 fsat_distance(__u32 a, __u32 b) { return a > b ? a - b : b - a; }

FSAT_INLINE int fsat_adds(const struct fsat_config *c, __u32 addition)
{
	return (c->additions & addition) != 0;
}

FSAT_INLINE int fsat_segments(__u32 bytes, __u32 most, __u32 mss) { return bytes <= fsat_amount((__u64)most * mss); }

FSAT_INLINE int fsat_few(__u32 bytes, __u32 mss) { return fsat_segments(bytes, FSAT_FEW_SEGMENTS, mss); }

FSAT_INLINE int fsat_steady(const struct fsat *f) { return f->steady >= FSAT_STEADY_PERIODS; }

/* The path carries one segment at most: whatever is sent queues, and how many arrive says nothing of others. */
FSAT_INLINE int fsat_sparse(const struct fsat *f, __u32 mss) { return f->s && f->s <= mss; }

/* Whether a flow of few segments seems to be one of several: alone, its rate would be the same for some periods. */
FSAT_INLINE int fsat_crowded(const struct fsat *f, __u32 mss)
{
	return fsat_few(f->s, mss) && !fsat_sparse(f, mss) && !fsat_steady(f);
}

/* The greatest RTT of late. */
FSAT_INLINE __u32 fsat_high(const struct fsat *f) { return fsat_max(f->high_us[0], f->high_us[1]); }

/* A queue that is shared rises by who comes, and falls where flows drain; one that falls every few periods is that of a
 * link whose rate varies. Or of a buffer of two BDP at most that flows fill: it falls whenever they lose something. */
FSAT_INLINE int fsat_varies(const struct fsat *f)
{
	return f->falls > FSAT_FALLS_VARIES && !(f->losses_congestion && fsat_high(f) / 3 <= f->rtt_least_us);
}

FSAT_INLINE int fsat_ever_lost(const struct fsat *f) { return f->losses_radio || f->losses_congestion; }

/* For some spells nothing was lost, and RTT was at most so many times the least: flows that limit themselves fill no buffer, and
 * hold three BDP at times (four times the least RTT), but never seven (eight times). */
FSAT_INLINE int fsat_undisturbed(const struct fsat *f, __u32 times)
{
	int lossy = fsat_ever_lost(f) && f->period_start_us - f->lost_us < FSAT_LOSSY_US;

	return !lossy && fsat_high(f) / times <= f->rtt_least_us;
}

/* With FSAT_ADD_FAIR what is constant is on top of target, and several flows in a short path have not room for more. */
FSAT_INLINE __u32 fsat_min_target(const struct fsat_config *c, const struct fsat_ack *a)
{
	return fsat_adds(c, FSAT_ADD_FAIR) ? fsat_twice(a->mss) : fsat_max(FSAT_MIN_TARGET, fsat_twice(a->mss));
}

/* ---- The paper ---- */

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
 * where it is more, others have as much on top: we take less then, and nothing at three times. Not where rtt_min may be another's
 * queue, or the rate varies. */
FSAT_INLINE __u32 fsat_room(const struct fsat *f, __u32 rcv)
{
	__u64 rtt = f->rtt_usual_us, least = f->rtt_min_us;

	if (f->rtt_known != FSAT_RTT_KNOWN || rtt <= 2 * least || fsat_varies(f))
		return fsat_twice(rcv);
	return rtt < 3 * least ? fsat_amount(rcv + rcv * (3 * least - rtt) / least) : rcv;
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
	return fsat_varies(f) && f->apart >= f->away && fsat_few(f->s, mss);
}

/* (9): tw_rcv_bytes, the BDP and room for its variation. By (8) what arrived bounds that, but not where it means nothing. */
FSAT_INLINE __u32 fsat_tw_rcv_bytes(const struct fsat *f, __u32 rcv, __u32 mss)
{
	if (fsat_memoryless(f, mss))
		return fsat_amount(f->s + 4ULL * f->away);
	return fsat_min(fsat_amount(f->s + 4ULL * f->dev), fsat_room(f, rcv));
}

/* judge(1), once per rtt_min: target_n+1, (5) to (7). */
FSAT_INLINE __u32 fsat_judge1(const struct fsat *f, __u32 rcv, __u32 mss)
{
	__u32 tw = fsat_tw_rcv_bytes(f, rcv, mss);

	if (fsat_nothing_queues(f) && !fsat_rtt_queues(f))
		return FSAT_NO_LIMIT;                          /* (5) */
	if (f->target < tw || f->target == FSAT_NO_LIMIT)
		return tw;                                     /* (6) */
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

/* Our own queue makes RTT twice rtt_min: at more than twice that, the rate of a link where it varies has fallen. Few segments
 * would come to a halt. */
FSAT_INLINE int fsat_fell(const struct fsat *f, __u32 mss)
{
	return f->rtt_us / 4 > f->rtt_min_us && fsat_varies(f) && !fsat_few(f->s, mss);
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

/* ---- FSAT_ADD_BEST: a loss in a dip of the rate says nothing about the BDP ---- */

FSAT_INLINE __u32 fsat_best(const struct fsat *f) { return fsat_max(f->best[0], f->best[1]); }

FSAT_INLINE void fsat_begin_spell(struct fsat *f, __u32 now_us)
{
	f->best[1] = f->best[0];
	f->best[0] = 0;
	f->high_us[1] = f->high_us[0];
	f->high_us[0] = 0;
	f->spell_us = now_us;
}

/* Once per period. */
FSAT_INLINE void fsat_note_best(struct fsat *f, const struct fsat_config *c, __u32 now_us)
{
	if (now_us - f->spell_us >= FSAT_SPELL_US)
		fsat_begin_spell(f, now_us);
	if (fsat_adds(c, FSAT_ADD_BEST))
		f->best[0] = fsat_max(f->best[0], f->rcv_bytes);
}

/* (10) with the best: no more was outstanding than the path is known to carry. */
FSAT_INLINE int fsat_within_best(const struct fsat *f)
{
	return f->flight_n <= fsat_best(f);
}

/* (11) with the best. */
FSAT_INLINE __u32 fsat_best_ssthresh(const struct fsat *f, __u32 mss)
{
	return fsat_ssthresh(f, fsat_max(fsat_best(f), f->rcv_bytes), mss);
}

/* (8) where the rate varies: a quarter more than it, but no more than the best. */
FSAT_INLINE __u32 fsat_more_of_best(const struct fsat *f, __u32 arrived)
{
	return fsat_min(fsat_amount(5ULL * arrived / 2), fsat_best(f));
}

/* ---- FSAT_ADD_FULL: RTT is as great as it gets, so the buffer ends there ---- */

/* The buffer holds one BDP at most, and what packets in it are in bunches. */
FSAT_INLINE int fsat_buffer_of_one_bdp(const struct fsat *f)
{
	return fsat_high(f) / 2 <= f->rtt_least_us + f->rtt_least_us / 8;
}

/* Others' queue is in rtt_min, so that what arrives within it is more than the path carries. */
FSAT_INLINE int fsat_rtt_raised(const struct fsat *f)
{
	return f->rtt_min_us - f->rtt_min_us / 5 > f->rtt_least_us;
}

/* Where no more is in flight than the path is known to carry, it has to be a buffer of one BDP, which others fill: RTT
 * beyond says that the rate is in a dip, and nothing about the buffer. An RTT that does not differ of late knows of no
 * buffer; an eighth is enough, for who came when it was full has not seen it much emptier. */
FSAT_INLINE int fsat_buffer_full(const struct fsat *f)
{
	__u32 high = fsat_high(f), low = f->rtt_min_us;

	if (f->rtt_us < high - high / 6 || high <= low + low / 8)
		return 0;
	return !fsat_within_best(f) || fsat_rtt_raised(f) || fsat_buffer_of_one_bdp(f);
}

/* (10) at the end of a buffer: where few segments are in flight, or rtt_min has others' queue in it, RTT says better than what arrived
 * within rtt_min whether any waited. */
FSAT_INLINE int fsat_waited(const struct fsat *f, __u32 mss)
{
	return (fsat_few(f->flight_n, mss) || fsat_rtt_raised(f)) && f->rtt_us - f->rtt_us / 5 > f->rtt_least_us;
}

/* What the path itself carries of `bytes` that arrived within rtt_min: others' queue in that brings as much more of ours. */
FSAT_INLINE __u32 fsat_carried(const struct fsat *f, __u32 bytes)
{
	return fsat_rtt_raised(f) ? (__u32)((__u64)bytes * f->rtt_least_us / f->rtt_min_us) : bytes;
}

/* The others are at their losses as well, and at more of them, for what we send is paced: up to one BDP of buffer we give a
 * third, where CUBIC gives three tenths. In a deeper one, which FS-AT has left to them so far, one tenth. Never more than down to
 * the BDP, and up to one BDP of buffer that is of now: the best of late is the greater the more one had, and would keep shares as they
 * are. Where few segments are in flight it is the smoothed one, for that of one period is chance. */
FSAT_INLINE __u32 fsat_full_ssthresh(const struct fsat *f, __u32 cwnd, __u32 mss)
{
	__u32 now = fsat_few(f->flight_n, mss) ? f->s : f->rcv_bytes;
	int shallow = fsat_within_best(f) || fsat_buffer_of_one_bdp(f);
	__u32 bdp = fsat_carried(f, shallow ? now : fsat_max(fsat_best(f), f->rcv_bytes));
	__u32 rest = shallow ? fsat_amount(2ULL * cwnd / 3) : fsat_amount(9ULL * cwnd / 10);

	return fsat_max(fsat_max(bdp, rest), fsat_twice(mss));
}

/* ---- FSAT_ADD_DRAIN: what stands in the queue hides rtt_min ---- */

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

	f->undrained = f->draining ? 0 : fsat_min(f->undrained + 1, FSAT_FALLS_AFTER);
	if (f->undrained == FSAT_FALLS_AFTER) {
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

/* How often drains are due: each 2^this ticks. Who came last may take others' queue for its path, so each 2, as who does not know
 * rtt_min, for they have to drain together; but after each drain that brought nothing new more rarely: about as many ticks as there have
 * been since the first of them. */
FSAT_INLINE __u32 fsat_drain_ticks(const struct fsat *f)
{
	if (fsat_varies(f))
		return FSAT_DRAIN_RARELY;
	if (f->rtt_known != FSAT_RTT_KNOWN)
		return 1;
	if (f->sole || !fsat_undisturbed(f, 8))
		return FSAT_DRAIN_SELDOM;
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
 * they give way to us, what arrives goes on growing. */
FSAT_INLINE int fsat_came_alone(const struct fsat *f)
{
	return f->filled && f->flat_periods >= FSAT_FLAT_PERIODS && !fsat_ever_lost(f) &&
	       !fsat_differs(f, f->rtt_min_us, f->rtt_first_us) && f->rcv_bytes - f->rcv_bytes / 9 <= f->filled;
}

/* More queue than is ours, for long: others', or the route is longer. So a crowd of eight has it most of the time, and where a drain
 * takes a second, those that have one each second never drain together. */
FSAT_INLINE int fsat_foreign_due(const struct fsat *f, __u32 now_us)
{
	__u32 every = f->rtt_least_us > FSAT_DRAIN_TICK_US / 16 ? 2 * FSAT_DRAIN_TICK_US : FSAT_DRAIN_TICK_US / 2;

	return f->foreign >= FSAT_FOREIGN_PERIODS && fsat_ticked(now_us, f->drained_us, FSAT_DRAIN_TICK_US / 4, every);
}

FSAT_INLINE int fsat_drain_due(const struct fsat *f, const struct fsat_ack *a)
{
	if (fsat_drain_ticked(f, a->now_us, fsat_outgrown(f) ? 0 : fsat_drain_ticks(f)))
		return 1;
	if (fsat_varies(f))
		return 0;
	if (fsat_foreign_due(f, a->now_us))
		return 1;
	return a->now_us - f->dry_us >= FSAT_DRAIN_JOIN_US && fsat_differs(f, a->rtt_us, f->rtt_usual_us) &&
	       !fsat_dry_alone(f, a->now_us, a->mss) && !f->sole;
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

/* RTT is rtt_min again, or nearly: the last drain has not found the truth if it found more. */
FSAT_INLINE void fsat_confirm(struct fsat *f, const struct fsat_ack *a)
{
	if (f->rtt_known == FSAT_RTT_DOUBTED)
		f->rtt_found_us = f->rtt_min_us;
	f->rtt_known = FSAT_RTT_KNOWN;
	if (f->draining) {
		f->quiet++;
		fsat_note_drained(f);
	}
	fsat_dry(f, a);
}

/* The first drain is spared to who came alone: stopping until the queue is dry costs two RTTs. */
FSAT_INLINE void fsat_drain_or_trust(struct fsat *f, const struct fsat_ack *a)
{
	if (f->rtt_found_us || !fsat_came_alone(f)) {
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

/* FSAT_ADD_BEST where the rate varies: the queue has run dry, or RTT has halved since the last period and it soon will. The link
 * takes more than it is offered, and by (8) that would grow by RTTs. If it does not take the best, that waits once. */
FSAT_INLINE void fsat_leap(struct fsat *f, const struct fsat_ack *a)
{
	if (!fsat_varies(f) || f->draining)
		return;
	if (!fsat_differs(f, f->rtt_min_us, a->rtt_us) || a->rtt_us < f->rtt_before_us / 2)
		f->target = fsat_max(f->target, fsat_best(f));
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
	if (a->rtt_us < f->rtt_min_us - f->rtt_min_us / 8 || fsat_sinks(f, a->rtt_us)) {
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

/* Others fill a buffer of one BDP at most, a quarter at least, or did so. There what comes alone finds a place where one of
 * their pairs does not, so that any pacing takes their share. */
FSAT_INLINE int fsat_contended(const struct fsat *f)
{
	return f->losses_congestion && fsat_high(f) > f->rtt_least_us + f->rtt_least_us / 4 && fsat_buffer_of_one_bdp(f);
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
	if (fsat_contended(f) || fsat_sparse(f, a->mss))
		return FSAT_UNPACED;
	return fsat_pace(f) * fsat_window(f, a) / (fsat_varies(f) ? f->rtt_min_us : f->srtt_us);
}

#endif
