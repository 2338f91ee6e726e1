/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * fsat.h's functions, for Rust to call. */
#include "fsat.h"

void nawa_fsat_init(struct fsat *f, const struct fsat_config *c, __u32 now_us, __u32 flight_limit)
{
	fsat_init(f, c, now_us, flight_limit);
}

void nawa_fsat_on_ack(struct fsat *f, const struct fsat_config *c, const struct fsat_ack *a)
{
	fsat_on_ack(f, c, a);
}

__u32 nawa_fsat_window(const struct fsat *f, const struct fsat_ack *a)
{
	return fsat_window(f, a);
}

__u32 nawa_fsat_on_loss(struct fsat *f, const struct fsat_config *c, __u32 cwnd, __u32 ssthresh, __u32 mss)
{
	return fsat_on_loss(f, c, cwnd, ssthresh, mss);
}

__u32 nawa_fsat_on_mark(struct fsat *f, __u32 mss)
{
	return fsat_on_mark(f, mss);
}

__u32 nawa_fsat_burst(const struct fsat *f, const struct fsat_config *c, __u32 mss)
{
	return fsat_burst(f, c, mss);
}

__u64 nawa_fsat_pacing_rate(const struct fsat *f, const struct fsat_config *c, const struct fsat_ack *a)
{
	return fsat_pacing_rate(f, c, a);
}

__u32 nawa_fsat_size(void)
{
	return sizeof(struct fsat);
}
