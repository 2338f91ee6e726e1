/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * bicast.h's functions, for Rust to call. */
#include "spare.h"

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

__u32 nawa_bicast_spare_sent(struct bicast_spare *s, __u32 reasons, __u32 tsn, __u64 idle_us, __u64 now_us)
{
	return bicast_spare_sent(s, reasons, tsn, idle_us, now_us);
}

__u32 nawa_bicast_spare_thrice(const struct bicast_spare *s, __u32 reasons)
{
	return bicast_spare_thrice(s, reasons);
}

void nawa_bicast_spare_spent(struct bicast_spare *s, __u64 now_us)
{
	bicast_spare_spent(s, now_us);
}

void nawa_bicast_spare_copied(struct bicast_spare *s, __u32 reasons, __u32 tsn, __u64 now_us)
{
	bicast_spare_copied(s, reasons, tsn, now_us);
}

void nawa_bicast_spare_acknowledged(struct bicast_spare *s, __u32 highest, __u32 tsn, __u32 count, __u64 now_us)
{
	bicast_spare_acknowledged(s, highest, tsn, count, now_us);
}

/* In the order of the structs in the headers. */
__u32 nawa_bicast_size(__u32 which)
{
	const __u32 sizes[] = { sizeof(struct bicast_sctp), sizeof(struct bicast_association),
				sizeof(struct bicast_segment), sizeof(struct bicast_connection),
				sizeof(struct bicast_spare) };

	return which < 5 ? sizes[which] : 0;
}
