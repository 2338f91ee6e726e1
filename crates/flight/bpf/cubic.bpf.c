// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* `bpf_cubic`: the kernel's CUBIC, called from BPF. What `fsat` costs is compared with it; nothing else uses it. */
#include "helpers.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

KFUNC void cubictcp_init(struct sock *sk);
KFUNC u32 cubictcp_recalc_ssthresh(struct sock *sk);
KFUNC void cubictcp_cong_avoid(struct sock *sk, u32 ack, u32 acked);
KFUNC void cubictcp_state(struct sock *sk, u8 new_state);
/* Not since 7.1. */
KFUNC void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) __attribute__((weak));
KFUNC void cubictcp_acked(struct sock *sk, const struct ack_sample *sample);
KFUNC u32 tcp_reno_undo_cwnd(struct sock *sk);

SEC("struct_ops")
int cubic_init(u64 *ctx)
{
	cubictcp_init((struct sock *)ctx[0]);
	return 0;
}

SEC("struct_ops")
u32 cubic_ssthresh(u64 *ctx)
{
	return cubictcp_recalc_ssthresh((struct sock *)ctx[0]);
}

SEC("struct_ops")
int cubic_cong_avoid(u64 *ctx)
{
	cubictcp_cong_avoid((struct sock *)ctx[0], (u32)ctx[1], (u32)ctx[2]);
	return 0;
}

SEC("struct_ops")
int cubic_set_state(u64 *ctx)
{
	cubictcp_state((struct sock *)ctx[0], (u8)ctx[1]);
	return 0;
}

SEC("struct_ops")
int cubic_cwnd_event(u64 *ctx)
{
	if (cubictcp_cwnd_event)
		cubictcp_cwnd_event((struct sock *)ctx[0], (enum tcp_ca_event)ctx[1]);
	return 0;
}

SEC("struct_ops")
int cubic_pkts_acked(u64 *ctx)
{
	cubictcp_acked((struct sock *)ctx[0], (const struct ack_sample *)ctx[1]);
	return 0;
}

SEC("struct_ops")
u32 cubic_undo_cwnd(u64 *ctx)
{
	return tcp_reno_undo_cwnd((struct sock *)ctx[0]);
}

/* Nothing, at each ACK: what timing a program costs by itself. */
SEC("struct_ops")
int cubic_empty(u64 *ctx __attribute__((unused)))
{
	return 0;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops cubic_ops = {
	.name = "bpf_cubic",
	.init = (void *)cubic_init,
	.ssthresh = (void *)cubic_ssthresh,
	.cong_avoid = (void *)cubic_cong_avoid,
	.set_state = (void *)cubic_set_state,
	.cwnd_event = (void *)cubic_cwnd_event,
	.in_ack_event = (void *)cubic_empty,
	.pkts_acked = (void *)cubic_pkts_acked,
	.undo_cwnd = (void *)cubic_undo_cwnd,
	.flags = TCP_CONG_NON_RESTRICTED,
};
