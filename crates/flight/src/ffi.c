/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * The functions of fsat.h and fsat_paper.h, for Rust to call. */
#include "fsat.h"

const struct fsat_constants nawa_fsat_constants = FSAT_CONSTANTS;

void nawa_fsat_init(struct fsat *f, __u32 now_us, __u32 flight_limit)
{
	fsat_init(f, now_us, flight_limit);
}

int nawa_fsat_on_ack(struct fsat *f, const struct fsat_constants *c, const struct fsat_ack *a)
{
	return fsat_on_ack(f, c, a);
}

__u32 nawa_fsat_window(const struct fsat *f, const struct fsat_constants *c, const struct fsat_ack *a)
{
	return fsat_window(f, c, a);
}

__u32 nawa_fsat_on_loss(struct fsat *f, const struct fsat_constants *c, __u32 cwnd, __u32 ssthresh)
{
	return fsat_on_loss(f, c, cwnd, ssthresh);
}

int nawa_fsat_on_timeout(struct fsat *f, const struct fsat_constants *c, __u32 space, __u32 mss)
{
	return fsat_on_timeout(f, c, space, mss);
}

void nawa_fsat_on_mark(struct fsat *f)
{
	fsat_on_mark(f);
}

__u64 nawa_fsat_pacing_rate(const struct fsat *f, const struct fsat_constants *c, const struct fsat_ack *a)
{
	return fsat_pacing_rate(f, c, a);
}

__u32 nawa_fsat_paper_on_mark(struct fsat *f, __u32 mss)
{
	return fsat_paper_on_mark(f, mss);
}

void nawa_fsat_paper_on_ack(struct fsat *f, const struct fsat_ack *a)
{
	fsat_paper_on_ack(f, a);
}

__u32 nawa_fsat_paper_window(const struct fsat *f, __u32 cwnd, __u32 mss)
{
	return fsat_paper_window(f, cwnd, mss);
}

__u32 nawa_fsat_paper_on_loss(struct fsat *f, __u32 cwnd, __u32 ssthresh, __u32 mss)
{
	return fsat_paper_on_loss(f, cwnd, ssthresh, mss);
}

/* Of the state, an ACK and the constants. */
__u32 nawa_fsat_size(__u32 which)
{
	const __u32 sizes[] = { sizeof(struct fsat), sizeof(struct fsat_ack), sizeof(struct fsat_constants) };

	return which < 3 ? sizes[which] : 0;
}
