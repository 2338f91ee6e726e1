// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Writes a `struct record` of each connection whose state is in the map that the iterator goes over. */
#include "helpers.h"
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
	r->namespace = common->skc_net.net->ns.inum;
	r->local_port = common->skc_num;
	r->remote_port_be = common->skc_dport;
	r->family = common->skc_family;
	r->tcp_state = common->skc_state;
	addresses(r, common);
}

SEC("iter/bpf_sk_storage_map")
int show(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	const struct connection *c = ctx->value;
	struct sock *sk = ctx->sk;
	struct record r = {};
	struct tcp_sock *tp;

	if (!sk || !c)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	identify(&r, &sk->__sk_common);
	r.mss = tp->mss_cache;
	r.window = tp->snd_cwnd;
	bpf_probe_read_kernel(r.scheme, sizeof(r.scheme), &tp->inet_conn.icsk_ca_ops->name);
	r.connection = *c;
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}
