// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Runs one call of fsat.h, so that tests can compare what it computes here with what it computes in Rust. */
#include "helpers.h"
#include "fsat.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum call {
	CALL_INIT = 0,
	CALL_ACK = 1,
	CALL_LOSS = 2,
};

struct vector {
	struct fsat fsat;
	struct fsat_config config;
	struct fsat_ack ack;
	__u32 call;
	__u32 ssthresh;
	__u32 result;       /* the window, or what judge(3) says */
	__u32 rate[2];      /* the pacing rate, low word first */
};

/* Not on the stack, where the verifier follows what is in each word, along each path. */
static struct fsat fsat;

SEC("syscall")
int run_vector(struct vector *ctx)
{
	struct fsat_config config = ctx->config;
	struct fsat_ack ack = ctx->ack;
	__u64 rate;

	fsat = ctx->fsat;
	if (ctx->call == CALL_INIT)
		fsat_init(&fsat, &config, ack.now_us, ack.cwnd);
	if (ctx->call == CALL_ACK)
		fsat_on_ack(&fsat, &config, &ack);
	ctx->result = ctx->call == CALL_LOSS ? fsat_on_loss(&fsat, &config, ack.cwnd, ctx->ssthresh, ack.mss)
					     : fsat_window(&fsat, &ack);
	rate = fsat_pacing_rate(&fsat, &config, &ack);
	ctx->rate[0] = (__u32)rate;
	ctx->rate[1] = (__u32)(rate >> 32);
	ctx->fsat = fsat;
	return 0;
}
