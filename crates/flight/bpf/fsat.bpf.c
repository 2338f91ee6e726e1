// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * FS-AT as a TCP congestion control. What is FS-AT stands in fsat.h and fsat_paper.h; here is what lies between them and Linux:
 *
 *  - Congestion avoidance is the kernel's own (`base`), by its kfuncs. It works on a cwnd of its own,
 *    `connection.cwnd`, put into the socket for the time of the call. What TCP obeys is FS-AT's window of
 *    that and of its space: fsat_window(), and in the paper the lesser of both (4).
 *  - With `cong_control` the kernel leaves recovery to us: proportional rate reduction (RFC 9937) towards the
 *    window, which judge(3) has cut or not; slow start after idle (RFC 5681, 4.1); the rate that bounds bursts.
 *
 * Packets here, bytes there: FS-AT's amounts are packets times mss_cache.
 */
#include "connection.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile struct options options SEC(".rodata.options");

static const struct fsat_constants constants = FSAT_CONSTANTS;

KFUNC void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked);
KFUNC void cubictcp_init(struct sock *sk);
KFUNC void cubictcp_cong_avoid(struct sock *sk, u32 ack, u32 acked);
KFUNC u32 cubictcp_recalc_ssthresh(struct sock *sk);
KFUNC void cubictcp_state(struct sock *sk, u8 new_state);

INLINE struct connection *of(struct sock *sk)
{
	return bpf_sk_storage_get(&fsat_sockets, sk, 0, 0);
}

INLINE u32 mss(const struct tcp_sock *tp)
{
	u32 mss = tp->mss_cache;

	return mss ? mss : 1;
}

INLINE u32 bytes(const struct tcp_sock *tp, u32 packets)
{
	return fsat_amount((u64)packets * mss(tp));
}

/* ---- congestion avoidance, on its own cwnd ---- */

/* Puts the base's cwnd into the socket for the time of a call. */
#define ON_OWN_CWND(tp, c, call)           \
	do {                               \
		u32 window = tp->snd_cwnd; \
		tp->snd_cwnd = c->cwnd;    \
		call;                      \
		c->cwnd = tp->snd_cwnd;    \
		tp->snd_cwnd = window;     \
	} while (0)

INLINE void cong_avoid(struct sock *sk, u32 acked)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;

	if (options.base == BASE_CUBIC)
		cubictcp_cong_avoid(sk, tp->snd_una, acked);
	else
		tcp_reno_cong_avoid(sk, tp->snd_una, acked);
}

/* What CUBIC learns in `pkts_acked`, without HyStart: ending slow start early is FS-AT's part. */
INLINE void tell_delay(struct inet_connection_sock *icsk, const struct fsat *f)
{
	struct bictcp *cubic = (struct bictcp *)icsk->icsk_ca_priv;

	if (options.base == BASE_CUBIC)
		cubic->delay_min = f->rtt_min_us;
}

/* `fsat` has its own window, which the base does not know of. */
INLINE bool owns(const struct connection *c) { return !options.paper && c->fsat.mode == FSAT_OWN; }

/* cwnd grows only while it limits, not space: as Linux did when the paper was written. */
INLINE void grow(struct sock *sk, struct connection *c, u32 acked)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;

	if (c->cwnd > tp->snd_cwnd || owns(c))
		return;
	tell_delay(&tp->inet_conn, &c->fsat);
	ON_OWN_CWND(tp, c, cong_avoid(sk, acked));
}

/* ---- each ACK ---- */

/* What was sent again has an RTT by timestamps only: in whole milliseconds, and up to one too short. */
INLINE struct fsat_ack measured(const struct tcp_sock *tp, const struct connection *c, const struct rate_sample *rs)
{
	long rtt = rs->rtt_us;

	return (struct fsat_ack){
		.now_us = (u32)tp->tcp_mstamp,
		.rtt_us = rtt > 0 && !rs->is_retrans ? (u32)rtt : 0,
		.delivered = bytes(tp, rs->acked_sacked),
		.lost = bytes(tp, tp->lost - c->lost),
		.flight = bytes(tp, tp->packets_out - tp->sacked_out),
		.cwnd = bytes(tp, owns(c) ? fsat_min(c->cwnd, tp->snd_cwnd) : c->cwnd), /* less in a slowdown */
		.cwnd_max = tp->max_window,
		.mss = mss(tp),
		.app_limited = rs->is_app_limited,
	};
}

/* No window is more than what TCP may have at most, packets: a route may say so (`cwnd lock`). */
INLINE u32 clamped(const struct tcp_sock *tp, u32 window) { return fsat_min(window, tp->snd_cwnd_clamp); }

INLINE u32 window(const struct tcp_sock *tp, const struct connection *c)
{
	struct fsat_ack a = { .cwnd = bytes(tp, c->cwnd), .mss = mss(tp) };
	u32 window = options.paper ? fsat_paper_window(&c->fsat, a.cwnd, a.mss) : fsat_window(&c->fsat, &constants, &a);

	if (window == a.cwnd) /* free of rounding, and of a division */
		window = c->cwnd;
	else
		window = window > a.mss ? window / a.mss : 1;
	return clamped(tp, window);
}

/* RFC 9937: how many packets this ACK allows to send on the way to `goal`. */
INLINE s32 reduction(const struct tcp_sock *tp, const struct connection *c, s32 in_flight, s32 goal, bool safe, u32 acked)
{
	s32 out = tp->prr_out, delivered = c->prr_delivered, allowed = delivered - out;
	u32 prior = tp->prior_cwnd;

	if (in_flight > goal)
		return (s32)(((u64)c->prr_delivered * goal + prior - 1) / (prior ? prior : 1)) - out;
	if (allowed < (s32)acked)
		allowed = acked;
	allowed += safe;
	return allowed < goal - in_flight ? allowed : goal - in_flight;
}

INLINE u32 recovering(const struct tcp_sock *tp, struct connection *c, bool safe, u32 acked)
{
	s32 in_flight = tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
	s32 send, least = !tp->prr_out;

	if (!acked)
		return tp->snd_cwnd;
	send = reduction(tp, c, in_flight, window(tp, c), safe, acked);
	send = in_flight + (send > least ? send : least);
	return clamped(tp, send > 1 ? send : 1);
}

/* What the kernel sets without `cong_control`: bounds TSO bursts and the host's own queue. */
INLINE u64 rate_of_bursts(const struct tcp_sock *tp)
{
	u32 cwnd = tp->snd_cwnd, out = tp->packets_out, srtt = tp->srtt_us;
	u64 rate = (u64)mss(tp) * (cwnd > out ? cwnd : out) * (USEC_PER_SEC / 100 * 8);

	rate *= cwnd < tp->snd_ssthresh / 2 ? 200 : 120;
	return srtt ? rate / srtt : rate;
}

/* A rate is set anew some four times an RTT, since its divisions are a good part of what an ACK costs; but not to be what limits in slow
 * start, where a bunch of ACKs doubles the window. */
INLINE bool pace_due(const struct tcp_sock *tp, const struct connection *c, u32 now_us)
{
	return !c->paced_us || now_us - c->paced_us >= c->fsat.rtt_min_us / 4 ||
	       tp->snd_cwnd > c->paced_cwnd + c->paced_cwnd / 8;
}

INLINE void pace(struct sock *sk, struct connection *c, const struct fsat_ack *a)
{
	u64 rate, most = sk->sk_max_pacing_rate;

	if (!FSAT_SELDOM(pace_due((struct tcp_sock *)sk, c, a->now_us)))
		return;
	c->paced_us = a->now_us | 1; /* 0 is never */
	c->paced_cwnd = ((struct tcp_sock *)sk)->snd_cwnd;
	rate = options.paper ? 0 : fsat_pacing_rate(&c->fsat, &constants, a);
	if (rate && sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
	if (!rate)
		rate = rate_of_bursts((struct tcp_sock *)sk);
	sk->sk_pacing_rate = rate < most ? rate : most;
}

/* What the base makes of congestion: its new ssthresh, packets. */
INLINE u32 cut(struct sock *sk, struct connection *c)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u32 ssthresh = c->cwnd / 2;

	if (options.base == BASE_CUBIC)
		ON_OWN_CWND(tp, c, ssthresh = cubictcp_recalc_ssthresh(sk));
	return ssthresh > 2 ? ssthresh : 2;
}

/* What was lost was congestion, which is seen only now. After a timeout cwnd is what that left: the cut is of the window from before. */
INLINE void reduce(struct sock *sk, struct connection *c)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u32 cwnd = c->cwnd;

	if (c->state == TCP_CA_Loss)
		c->cwnd = fsat_max(cwnd, c->prior_cwnd);
	tp->snd_ssthresh = cut(sk, c);
	c->cwnd = fsat_min(cwnd, tp->snd_ssthresh);
}

/* Whether FS-AT sees only now that what was lost was congestion. */
INLINE bool judges(struct connection *c, const struct fsat_ack *a)
{
	if (!options.paper)
		return fsat_on_ack(&c->fsat, &constants, a);
	fsat_paper_on_ack(&c->fsat, a);
	return 0;
}

/* Recovery holds down what is in flight, but where `fsat` has a window of its own. */
INLINE bool held(const struct connection *c)
{
	return (c->state == TCP_CA_CWR || c->state == TCP_CA_Recovery) && (options.paper || c->fsat.mode == FSAT_OTHERS);
}

INLINE void acknowledged(struct sock *sk, const struct rate_sample *rs)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct connection *c = of(sk);
	u32 acked = rs->acked_sacked;
	struct fsat_ack a;
	bool advanced;

	if (!c) { /* no memory for it when the connection began */
		tcp_reno_cong_avoid(sk, tp->snd_una, acked);
		return;
	}
	advanced = tp->snd_una != c->una;
	a = measured(tp, c, rs);
	c->una = tp->snd_una;
	c->lost = tp->lost;
	c->delivered_ce = tp->delivered_ce;
	c->prr_delivered += acked;
	if (FSAT_SELDOM(judges(c, &a)))
		reduce(sk, c);
	if (FSAT_SELDOM(held(c))) {
		tp->snd_cwnd = recovering(tp, c, advanced && !rs->losses, acked);
	} else {
		if (advanced)
			grow(sk, c, acked);
		tp->snd_cwnd = window(tp, c);
	}
	if (owns(c) && !fsat_slowed(&c->fsat)) /* a loss in it costs what one before it would */
		c->cwnd = tp->snd_cwnd;
	pace(sk, c, &a);
}

/* The kernel's signature since 6.10: (sk, ack, flag, rs). */
SEC("struct_ops")
int fsat_tcp_cong_control(u64 *ctx)
{
	acknowledged((struct sock *)ctx[0], (const struct rate_sample *)ctx[3]);
	return 0;
}

/* Before: (sk, rs). */
SEC("struct_ops")
int fsat_tcp_cong_control_6_9(u64 *ctx)
{
	acknowledged((struct sock *)ctx[0], (const struct rate_sample *)ctx[1]);
	return 0;
}

/* ---- losses ---- */

/* This ACK tells of a mark, which is congestion by a router's own word. The kernel counts it before it asks for ssthresh. */
INLINE bool marked(const struct tcp_sock *tp, const struct connection *c) { return tp->delivered_ce != c->delivered_ce; }

/* (10), free of rounding: what the radio loses, the base does not hear of. */
INLINE u32 spared(const struct tcp_sock *tp, const struct connection *c)
{
	return c->cwnd > tp->snd_ssthresh ? c->cwnd : tp->snd_ssthresh;
}

INLINE u32 judged(struct sock *sk, struct connection *c)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u32 radio = c->fsat.losses_radio, ssthresh = 0, least;

	if (marked(tp, c) && options.paper)
		ssthresh = fsat_paper_on_mark(&c->fsat, mss(tp));
	else if (marked(tp, c))
		fsat_on_mark(&c->fsat);
	else if (options.paper)
		ssthresh = fsat_paper_on_loss(&c->fsat, bytes(tp, c->cwnd), bytes(tp, tp->snd_ssthresh), mss(tp));
	else
		ssthresh = fsat_on_loss(&c->fsat, &constants, bytes(tp, c->cwnd), bytes(tp, tp->snd_ssthresh));
	if (c->fsat.losses_radio != radio)
		return spared(tp, c);
	least = cut(sk, c); /* CUBIC is to know of it */
	ssthresh /= mss(tp);
	if (options.paper)
		least = 2;
	return ssthresh > least ? ssthresh : least;
}

/* A loss, or a mark, begins something: judge(3). */
SEC("struct_ops")
u32 fsat_tcp_ssthresh(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct connection *c = of(sk);
	u32 ssthresh;

	if (!c) { /* the kernel leaves it to us to reduce, so at once */
		tp->snd_cwnd = tp->snd_cwnd > 4 ? tp->snd_cwnd / 2 : 2;
		return tp->snd_cwnd;
	}
	c->prior_cwnd = c->cwnd;
	c->prior_mode = c->fsat.mode;
	c->prr_delivered = 0;
	ssthresh = judged(sk, c);
	if (c->cwnd > ssthresh)
		c->cwnd = ssthresh;
	return ssthresh;
}

/* The kernel has cut its cwnd to what is in flight, and one. */
INLINE void timed_out(struct sock *sk, struct connection *c)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;

	c->prior_cwnd = fsat_max(c->prior_cwnd, c->cwnd);
	if (!options.paper && fsat_on_timeout(&c->fsat, &constants, bytes(tp, tp->snd_cwnd), mss(tp)))
		reduce(sk, c);
	c->cwnd = tp->snd_cwnd;
	c->lost = tp->lost; /* all that was in flight, which may yet arrive */
}

SEC("struct_ops")
int fsat_tcp_set_state(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u8 state = ctx[1];
	struct connection *c = of(sk);

	if (!c)
		return 0;
	c->state = state;
	if (state == TCP_CA_Loss)
		timed_out(sk, c);
	if (options.base == BASE_CUBIC)
		ON_OWN_CWND(tp, c, cubictcp_state(sk, state));
	return 0;
}

/* The loss was none: nor is what the period has counted, and the mode is what it was. */
SEC("struct_ops")
u32 fsat_tcp_undo_cwnd(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct connection *c = of(sk);

	if (!c)
		return tp->snd_cwnd > tp->prior_cwnd ? tp->snd_cwnd : tp->prior_cwnd;
	if (c->cwnd < c->prior_cwnd)
		c->cwnd = c->prior_cwnd;
	c->fsat.mode = c->prior_mode;
	c->fsat.lost = 0;
	if (!options.paper)
		c->fsat.space = fsat_max(c->fsat.space, bytes(tp, c->cwnd));
	return window(tp, c);
}

/* ---- a connection's life ---- */

/* RFC 5681, 4.1: an idle connection forgets; half of its cwnd for each RTO, down to the initial window. */
INLINE void restart_after_idle(struct tcp_sock *tp, struct connection *c, u32 idle, u32 rto)
{
	struct net *net = tp->inet_conn.icsk_inet.sk.__sk_common.skc_net.net;
	u32 cwnd = c->cwnd;

	if (!rto || !net->ipv4.sysctl_tcp_slow_start_after_idle)
		return;
	if (tp->snd_ssthresh < cwnd - cwnd / 4)
		tp->snd_ssthresh = cwnd - cwnd / 4;
	for (int i = 0; i < 32 && idle > rto && cwnd > c->initial; i++, idle -= rto)
		cwnd = fsat_max(cwnd / 2, c->initial);
	c->cwnd = cwnd;
	if (!options.paper)
		c->fsat.space = fsat_min(c->fsat.space, bytes(tp, cwnd));
	tp->snd_cwnd = window(tp, c);
}

/* CUBIC's clock stands still while nothing is sent (cubictcp_cwnd_event, cubictcp_cwnd_event_tx_start). */
INLINE void stop_clock(struct sock *sk, u32 now, u32 idle)
{
	struct bictcp *cubic = (struct bictcp *)((struct inet_connection_sock *)sk)->icsk_ca_priv;

	if (options.base != BASE_CUBIC || !cubic->epoch_start || (s32)idle <= 0)
		return;
	cubic->epoch_start += idle;
	if ((s32)(cubic->epoch_start - now) > 0)
		cubic->epoch_start = now;
}

INLINE void resumed(struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u32 now = (u32)bpf_jiffies64(), idle = now - tp->lsndtime, rto = tp->inet_conn.icsk_rto;
	struct connection *c;

	if (idle > rto) {
		c = of(sk);
		if (c)
			restart_after_idle(tp, c, idle, rto);
	}
	stop_clock(sk, now, idle);
}

SEC("struct_ops")
int fsat_tcp_cwnd_event(u64 *ctx)
{
	if ((int)ctx[1] == CA_EVENT_TX_START)
		resumed((struct sock *)ctx[0]);
	return 0;
}

/* Since 7.1: (sk), for that event alone. */
SEC("struct_ops")
int fsat_tcp_cwnd_event_tx_start(u64 *ctx)
{
	resumed((struct sock *)ctx[0]);
	return 0;
}

SEC("struct_ops")
int fsat_tcp_init(u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct connection *c = bpf_sk_storage_get(&fsat_sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (options.base == BASE_CUBIC)
		cubictcp_init(sk);
	if (!c)
		return 0;
	*c = (struct connection){
		.options = { .base = options.base, .paper = options.paper },
		.cwnd = tp->snd_cwnd,
		.initial = tp->data_segs_out ? TCP_INIT_CWND : fsat_max(tp->snd_cwnd, TCP_INIT_CWND),
		.una = tp->snd_una,
		.lost = tp->lost,
		.delivered_ce = tp->delivered_ce,
	};
	fsat_init(&c->fsat, (u32)tp->tcp_mstamp, bytes(tp, tp->snd_cwnd));
	return 0;
}

SEC("struct_ops")
int fsat_tcp_release(u64 *ctx)
{
	bpf_sk_storage_delete(&fsat_sockets, (struct sock *)ctx[0]);
	return 0;
}

#define FSAT(control, event)                                   \
	{                                                      \
		.name = "fsat",                                \
		.ssthresh = (void *)fsat_tcp_ssthresh,         \
		.set_state = (void *)fsat_tcp_set_state,       \
		.event = (void *)fsat_tcp_##event,             \
		.cong_control = (void *)control,               \
		.undo_cwnd = (void *)fsat_tcp_undo_cwnd,       \
		.init = (void *)fsat_tcp_init,                 \
		.release = (void *)fsat_tcp_release,           \
		.flags = TCP_CONG_NON_RESTRICTED,              \
	}

/* The loader creates the one that fits the kernel, and gives it its name. */
SEC(".struct_ops.link")
struct tcp_congestion_ops fsat_ops_7_1 = FSAT(fsat_tcp_cong_control, cwnd_event_tx_start);

SEC(".struct_ops.link")
struct tcp_congestion_ops fsat_ops = FSAT(fsat_tcp_cong_control, cwnd_event);

SEC(".struct_ops.link")
struct tcp_congestion_ops fsat_ops_6_9 = FSAT(fsat_tcp_cong_control_6_9, cwnd_event);
