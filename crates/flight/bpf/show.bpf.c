// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Writes a `struct record` of each TCP connection of a network namespace that has its state in `fsat_sockets`, which the
 * loader gives.
 *
 * The iterator goes over TCP's sockets, not over the map (`iter/bpf_sk_storage_map`): programs for that one may write
 * to the map, and hardened kernels refuse them.
 */
#include "connection.h"

#define AF_INET 2

char LICENSE[] SEC("license") = "Dual MIT/GPL";

static long (*const bpf_probe_read_kernel)(void *to, __u32 size, const void *from) = (void *)113;
static struct tcp_sock *(*const bpf_skc_to_tcp_sock)(void *sk) = (void *)137;

INLINE void addresses(struct record *r, const struct sock_common *common)
{
	if (common->skc_family == AF_INET) {
		__builtin_memcpy(r->local, &(__be32){ common->skc_rcv_saddr }, 4);
		__builtin_memcpy(r->remote, &(__be32){ common->skc_daddr }, 4);
	} else if (__builtin_preserve_field_info(common->skc_v6_daddr, 2)) { /* it exists */
		bpf_probe_read_kernel(r->local, 16, &common->skc_v6_rcv_saddr);
		bpf_probe_read_kernel(r->remote, 16, &common->skc_v6_daddr);
	}
}

INLINE void identify(struct record *r, const struct sock_common *common)
{
	r->local_port = common->skc_num;
	r->remote_port_be = common->skc_dport;
	r->family = common->skc_family;
	r->tcp_state = common->skc_state;
	addresses(r, common);
}

SEC("iter/tcp")
int show(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	const struct connection *c;
	struct record r = {};
	struct tcp_sock *tp;

	if (!common)
		return 0;
	tp = bpf_skc_to_tcp_sock(common);
	if (!tp)
		return 0;
	c = bpf_sk_storage_get(&fsat_sockets, tp, 0, 0);
	if (!c)
		return 0;
	identify(&r, common);
	r.mss = tp->mss_cache;
	r.window = tp->snd_cwnd;
	bpf_probe_read_kernel(r.scheme, sizeof(r.scheme), &tp->inet_conn.icsk_ca_ops->name);
	r.connection = *c;
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}
