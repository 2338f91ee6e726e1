/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What FS-AT knows of a connection and of its path, and the constants by which it believes it.
 */
#ifndef NAWA_FSAT_STATE_H
#define NAWA_FSAT_STATE_H

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
#define FSAT_CHANCE_SEGMENTS  32U      /* where it is no more, what arrives within one rtt_min may say nothing of the next */
#define FSAT_SETTLED_LOSSES  12U       /* so many in a buffer that others fill: who came last has to catch up first */
#define FSAT_SHARE_SEGMENTS   20U      /* where it is no more then, several share that buffer, and we do not come off badly */
#define FSAT_LEAST_SEGMENTS   5U       /* where it is no more, a drain of ours empties hardly any of a crowd's queue */
#define FSAT_BURST_SEGMENTS   8U       /* where it is no more, they go one by one, */
#define FSAT_LOSSY_US        24000000U /* but not so long after a loss: others may fill the buffer */
#define FSAT_DELAYED_ACK_US   40000U   /* Linux's */
#define FSAT_SINGLE_ACKS      16U      /* so many in a row for one segment: this receiver delays none */
#define FSAT_DRAIN_TICK_US    (1U << 21) /* drains begin at ticks of a clock that senders share, each 2.1 s, so that flows drain together. A
                                          * power of two, as how many lie between drains: who drains rarely does so when all others do */
#define FSAT_FLAT_PERIODS     3U       /* so many at least before RTT first rose: we have filled the link, not others */
#define FSAT_DRAIN_RARELY     4U       /* each 2^this ticks, 34 s, after many that brought nothing new, or where the rate varies; */
#define FSAT_DRAIN_SELDOM     5U       /* each 2^this of who came alone; */
#define FSAT_DRAIN_FILLED     6U       /* each 2^this, 134 s, where others fill the buffer and would get what was won */
#define FSAT_LEVEL_PERIODS    8U       /* but so many in a row with one rate, */
#define FSAT_LEVEL_PART       32U      /* within this part of it, no flow has that fills the buffer with others: they are gone */
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
#define FSAT_FALLS_VARIES     (FSAT_FALLS_ALWAYS / 10) /* and so many say that the rate varies */
#define FSAT_FALLS_COUNTED    20U      /* until the first drain of as many periods as there were, of so many at least */
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
	__u32 level;             /* what arrived in the period from which on it was the same, within a 32nd, */
	__u32 level_periods;     /* and how many there were since */
	__u32 rtt_before_us;     /* the least RTT of the last whole period */
	__u32 drain_rtt_us;      /* what RTT was when the last drain began; 0: in a crowd, where others drain too */
	__u32 undrained;         /* periods since a drain of ours, up to FSAT_FALLS_AFTER + FSAT_FALLS_PERIODS */
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

/* As many falls as say that the rate varies: a tenth of the last 32 periods. Until the first drain a tenth of those that were counted,
 * since the average begins with none; of 20 at least, for two falls are chance. */
FSAT_INLINE __u32 fsat_falls_enough(const struct fsat *f)
{
	__u32 counted = f->undrained - fsat_min(f->undrained, FSAT_FALLS_AFTER);

	if (f->rtt_found_us)
		return FSAT_FALLS_VARIES;
	return FSAT_FALLS_VARIES * fsat_max(counted, FSAT_FALLS_COUNTED) / FSAT_FALLS_PERIODS;
}

/* A queue that is shared rises by who comes, and falls where flows drain; one that falls every few periods is that of a
 * link whose rate varies. Or of a buffer of two BDP at most that flows fill: it falls whenever they lose something. */
FSAT_INLINE int fsat_varies(const struct fsat *f)
{
	return f->falls > fsat_falls_enough(f) && !(f->losses_congestion && fsat_high(f) / 3 <= f->rtt_least_us);
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

#endif
