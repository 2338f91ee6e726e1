// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Runs one call of fsat.h or fsat_paper.h, so that tests can compare what it computes here with what it computes in Rust. */
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
	__u32 paper;
	struct fsat_ack ack;
	__u32 call;
	__u32 ssthresh;
	__u32 result;       /* the window, or what judge(3) says */
	__u32 cut;          /* whether the base has to reduce */
	__u32 rate[2];      /* the pacing rate, low word first */
};

static const struct fsat_constants constants = FSAT_CONSTANTS;
/* Not on the stack, where the verifier follows what is in each word, along each path. */
static struct vector vector;

INLINE void run_paper(struct vector *v)
{
	if (v->call == CALL_ACK)
		fsat_paper_on_ack(&v->fsat, &v->ack);
	if (v->call == CALL_LOSS)
		v->result = fsat_paper_on_loss(&v->fsat, v->ack.cwnd, v->ssthresh, v->ack.mss);
	else
		v->result = fsat_paper_window(&v->fsat, v->ack.cwnd, v->ack.mss);
}

INLINE void run_fsat(struct vector *v)
{
	__u64 rate;

	if (v->call == CALL_ACK)
		v->cut = fsat_on_ack(&v->fsat, &constants, &v->ack);
	if (v->call == CALL_LOSS)
		v->result = fsat_on_loss(&v->fsat, &constants, v->ack.cwnd, v->ssthresh);
	else
		v->result = fsat_window(&v->fsat, &constants, &v->ack);
	rate = fsat_pacing_rate(&v->fsat, &constants, &v->ack);
	v->rate[0] = (__u32)rate;
	v->rate[1] = (__u32)(rate >> 32);
}

SEC("syscall")
int run_vector(struct vector *ctx)
{
	vector = *ctx;
	if (vector.call == CALL_INIT)
		fsat_init(&vector.fsat, vector.ack.now_us, vector.ack.cwnd);
	if (vector.paper)
		run_paper(&vector);
	else
		run_fsat(&vector);
	*ctx = vector;
	return 0;
}
