/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * bicast.h's functions, for Rust to call. */
#include "rate.h"

void nawa_bicast_chunk_seen(struct bicast_sctp *p, __u32 type, __u32 flags, __u32 tsn, __u32 gaps)
{
	bicast_chunk_seen(p, type, flags, tsn, gaps);
}

__u32 nawa_bicast_sctp_classify(struct bicast_association *a, const struct bicast_sctp *p)
{
	return bicast_sctp_classify(a, p);
}

__u32 nawa_bicast_tcp_classify(struct bicast_connection *c, const struct bicast_segment *s)
{
	return bicast_tcp_classify(c, s);
}

__u32 nawa_bicast_wanted(__u32 mode, __u32 reasons)
{
	return bicast_wanted(mode, reasons);
}

__u32 nawa_bicast_within_budget(__u64 sent_bytes, __u64 extra_bytes, __u32 length, __u32 percent)
{
	return bicast_within_budget(sent_bytes, extra_bytes, length, percent);
}

__u32 nawa_bicast_rate_sent(struct bicast_rate *r, __u32 reasons, __u32 length, __u32 percent, __u64 now_us)
{
	return bicast_rate_sent(r, reasons, length, percent, now_us);
}

__u32 nawa_bicast_rate_affords(const struct bicast_rate *r, __u32 length, __u32 percent, __u32 patient)
{
	return bicast_rate_affords(r, length, percent, patient);
}

void nawa_bicast_rate_copied(struct bicast_rate *r, __u32 reasons, __u32 tsn, __u32 length, __u32 path)
{
	bicast_rate_copied(r, reasons, tsn, length, path);
}

void nawa_bicast_rate_acknowledged(struct bicast_rate *r, __u32 highest, __u32 tsn, __u32 count, __u32 percent, __u64 now_us)
{
	bicast_rate_acknowledged(r, highest, tsn, count, percent, now_us);
}

/* In the order of the structs in the headers. */
__u32 nawa_bicast_size(__u32 which)
{
	const __u32 sizes[] = { sizeof(struct bicast_sctp), sizeof(struct bicast_association),
				sizeof(struct bicast_segment), sizeof(struct bicast_connection),
				sizeof(struct bicast_rate) };

	return which < 5 ? sizes[which] : 0;
}
