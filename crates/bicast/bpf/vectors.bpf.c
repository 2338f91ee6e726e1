// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* For tests: one call of bicast.h each, to compare what it says here with what it says in Rust, and a program of somebody else's. */
#include "helpers.h"
#include "tc.h"
#include "bicast.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct sctp_vector {
	struct bicast_association association;
	struct bicast_sctp packet;
	__u32 reasons;
};

struct tcp_vector {
	struct bicast_connection connection;
	struct bicast_segment segment;
	__u32 reasons;
};

SEC("syscall")
int run_sctp(struct sctp_vector *ctx)
{
	struct bicast_association association = ctx->association;
	struct bicast_sctp packet = ctx->packet;

	ctx->reasons = bicast_sctp_classify(&association, &packet);
	ctx->association = association;
	return 0;
}

SEC("syscall")
int run_tcp(struct tcp_vector *ctx)
{
	struct bicast_connection connection = ctx->connection;
	struct bicast_segment segment = ctx->segment;

	ctx->reasons = bicast_tcp_classify(&connection, &segment);
	ctx->connection = connection;
	return 0;
}

SEC("tc")
int drops_all(struct __sk_buff *skb __attribute__((unused)))
{
	return TC_ACT_SHOT;
}
