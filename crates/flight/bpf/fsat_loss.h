/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What `fsat` adds to judge(3), (10) and (11): FSAT_ADD_BEST and FSAT_ADD_FULL.
 */
#ifndef NAWA_FSAT_LOSS_H
#define NAWA_FSAT_LOSS_H

#include "fsat_paper.h"

/* ---- FSAT_ADD_BEST: a loss in a dip of the rate says nothing about the BDP ---- */

FSAT_INLINE __u32 fsat_best(const struct fsat *f) { return fsat_max(f->best[0], f->best[1]); }

FSAT_INLINE void fsat_begin_spell(struct fsat *f, __u32 now_us)
{
	f->best[1] = f->best[0];
	f->best[0] = 0;
	f->high_us[1] = f->high_us[0];
	f->high_us[0] = 0;
	f->spell_us = now_us;
}

/* Once per period. */
FSAT_INLINE void fsat_note_best(struct fsat *f, const struct fsat_config *c, __u32 now_us)
{
	if (now_us - f->spell_us >= FSAT_SPELL_US)
		fsat_begin_spell(f, now_us);
	if (fsat_adds(c, FSAT_ADD_BEST))
		f->best[0] = fsat_max(f->best[0], f->rcv_bytes);
}

/* (10) with the best: no more was outstanding than the path is known to carry. */
FSAT_INLINE int fsat_within_best(const struct fsat *f)
{
	return f->flight_n <= fsat_best(f);
}

/* (11) with the best. */
FSAT_INLINE __u32 fsat_best_ssthresh(const struct fsat *f, __u32 mss)
{
	return fsat_ssthresh(f, fsat_max(fsat_best(f), f->rcv_bytes), mss);
}

/* ---- FSAT_ADD_FULL: RTT is as great as it gets, so the buffer ends there ---- */

/* The buffer holds one BDP at most, and what packets in it are in bunches. */
FSAT_INLINE int fsat_buffer_of_one_bdp(const struct fsat *f)
{
	return fsat_high(f) / 2 <= f->rtt_least_us + f->rtt_least_us / 8;
}

/* Others' queue is in rtt_min, so that what arrives within it is more than the path carries. */
FSAT_INLINE int fsat_rtt_raised(const struct fsat *f)
{
	return f->rtt_min_us - f->rtt_min_us / 5 > f->rtt_least_us;
}

/* Others fill the buffer, and have done so for long. */
FSAT_INLINE int fsat_filled_for_long(const struct fsat *f)
{
	return f->losses_congestion >= FSAT_SETTLED_LOSSES && !fsat_undisturbed(f, 8);
}

/* And their queue is in rtt_min: we have our share by now, and compete for it by cwnd as they do. */
FSAT_INLINE int fsat_settled(const struct fsat *f) { return fsat_filled_for_long(f) && fsat_rtt_raised(f); }

/* Where no more is in flight than the path is known to carry, it has to be a buffer of one BDP, which others fill: RTT
 * beyond says that the rate is in a dip, and nothing about the buffer. An RTT that does not differ from rtt_min, be that of a route
 * that has become longer, knows of no buffer; an eighth is enough, for who came when it was full has not seen it much emptier. */
FSAT_INLINE int fsat_buffer_full(const struct fsat *f)
{
	__u32 high = fsat_high(f), low = f->rtt_min_us;

	if (f->rtt_us < high - high / 6 || high <= low + low / 8)
		return 0;
	return !fsat_within_best(f) || fsat_rtt_raised(f) || fsat_buffer_of_one_bdp(f);
}

/* (10) at the end of a buffer: where few segments are in flight, or rtt_min has others' queue in it, RTT says better than what arrived
 * within rtt_min whether any waited. */
FSAT_INLINE int fsat_waited(const struct fsat *f, __u32 mss)
{
	return (fsat_few(f->flight_n, mss) || fsat_rtt_raised(f)) && f->rtt_us - f->rtt_us / 5 > f->rtt_least_us;
}

/* What the path itself carries of `bytes` that arrived within rtt_min: others' queue in that brings as much more of ours. */
FSAT_INLINE __u32 fsat_carried(const struct fsat *f, __u32 bytes)
{
	return fsat_rtt_raised(f) ? (__u32)((__u64)bytes * f->rtt_least_us / f->rtt_min_us) : bytes;
}

/* The others are at their losses as well, and at more of them as long as what we send is paced: up to one BDP of buffer we give a
 * third, where CUBIC gives three tenths. In a deeper one, which FS-AT has left to them so far, one tenth, and once it has its share of it
 * a quarter. Never more than down to the BDP, and up to one BDP of buffer that is of now: the best of late is the greater the more
 * one had, and would keep shares as they are. Where few segments are in flight it is the smoothed one, for that of one period is chance. */
FSAT_INLINE __u32 fsat_full_ssthresh(const struct fsat *f, __u32 cwnd, __u32 mss)
{
	__u32 now = fsat_few(f->flight_n, mss) ? f->s : f->rcv_bytes;
	int shallow = fsat_within_best(f) || fsat_buffer_of_one_bdp(f);
	__u32 bdp = fsat_carried(f, shallow ? now : fsat_max(fsat_best(f), f->rcv_bytes));
	__u64 deep = fsat_settled(f) ? 3ULL * cwnd / 4 : 9ULL * cwnd / 10;
	__u32 rest = fsat_amount(shallow ? 2ULL * cwnd / 3 : deep);

	return fsat_max(fsat_max(bdp, rest), fsat_twice(mss));
}

#endif
