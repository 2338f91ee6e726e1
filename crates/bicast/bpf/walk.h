/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * From a frame to the fields that bicast.h takes: Ethernet, IPv4 or IPv6, perhaps UDP (RFC 6951), SCTP's chunks.
 */
#ifndef NAWA_BICAST_WALK_H
#define NAWA_BICAST_WALK_H

#include "tc.h"
#include "state.h"

#define PROTOCOL_UDP 17
#define PROTOCOL_SCTP 132
#define SCTP_HEADER 12
#define UDP_HEADER 8
/* Chunks that are looked at; a packet of the longest MTU in use, stuffed with the smallest DATA, has 450. */
#define CHUNKS 512

/* Where a chunk lies: from its header on; length 0 if the packet has none of the kind. */
struct place {
	__u32 at;
	__u32 length;
};

/* A packet that carries SCTP. It lives in a map, because the verifier would follow every combination of what may be
 * found if it lay on the stack. */
struct walk {
	__u32 at;      /* of the next chunk, from the frame's start */
	__u32 end;     /* of the packet */
	__u32 wrong;
	struct bicast_sctp fields;
	struct place sack, init_ack, heartbeat, heartbeat_ack, asconf;
	__u32 cookie;  /* COOKIE ECHO or COOKIE ACK */
	__u32 abort_reflected; /* an ABORT with the T bit: it has the tag of what it answers (RFC 9260 8.4) */
	__u32 ip_length;
	__u32 udp_at;  /* 0: none */
	__u32 is_ipv6;
	struct address source, destination;
	__u16 source_port, destination_port; /* network byte order, as is the tag */
	__u32 tag;
};

enum walked {
	WALKED_FOREIGN = 0, /* no SCTP */
	WALKED_SCTP = 1,
	WALKED_MALFORMED = 2,
	WALKED_FRAGMENT = 3,
};

INLINE __u32 smallest(__u32 type)
{
	if (type == CHUNK_DATA || type == CHUNK_SACK)
		return 16;
	if (type == CHUNK_INIT || type == CHUNK_INIT_ACK || type == CHUNK_I_DATA)
		return 20;
	return type == CHUNK_SHUTDOWN || type == CHUNK_ASCONF ? 8 : 4;
}

INLINE void note_place(struct walk *w, __u32 type, __u32 length)
{
	struct place place = { w->at, length };

	if (type == CHUNK_SACK)
		w->sack = place;
	else if (type == CHUNK_INIT_ACK)
		w->init_ack = place;
	else if (type == CHUNK_HEARTBEAT)
		w->heartbeat = place;
	else if (type == CHUNK_HEARTBEAT_ACK)
		w->heartbeat_ack = place;
	else if (type == CHUNK_ASCONF)
		w->asconf = place;
	else if (type == CHUNK_COOKIE_ECHO || type == CHUNK_COOKIE_ACK)
		w->cookie = 1;
}

struct stepping {
	struct __sk_buff *skb;
	struct walk *w;
};

/* One chunk; 1 ends the loop. */
static long step(__u32 index, struct stepping *s)
{
	struct walk *w = s->w;
	__u32 length, type, flags, tsn = 0, gaps = 0;
	struct { __u8 type, flags; __u16 length; } head;
	__u16 counts[2];

	(void)index;
	if (w->at >= w->end)
		return 1;
	w->wrong = 1;
	if (bpf_skb_load_bytes(s->skb, w->at, &head, sizeof(head)))
		return 1;
	length = ntohs(head.length);
	type = head.type;
	flags = head.flags;
	if (length < smallest(type) || length > w->end - w->at)
		return 1;
	if (type == CHUNK_DATA || type == CHUNK_I_DATA) {
		if (bpf_skb_load_bytes(s->skb, w->at + 4, &tsn, sizeof(tsn)))
			return 1;
	} else if (type == CHUNK_SACK) {
		if (bpf_skb_load_bytes(s->skb, w->at + 12, counts, sizeof(counts)))
			return 1;
		gaps = ntohs(counts[0]);
		if (length < 16 + 4 * (gaps + ntohs(counts[1])))
			return 1;
	}
	w->wrong = 0;
	bicast_chunk_seen(&w->fields, type, flags, ntohl(tsn), gaps);
	note_place(w, type, length);
	if (type == CHUNK_ABORT && (flags & 1))
		w->abort_reflected = 1;
	w->at += (length + 3) & ~3u;
	return 0;
}

/* Reads the IP header: the protocol behind it, which begins at `w->at`; 0 if there is none to be read. */
INLINE __u32 read_ipv4(struct __sk_buff *skb, struct walk *w, __u32 *fragment)
{
	struct { __u8 version, tos; __u16 length, id, offset; __u8 ttl, protocol; __u16 sum; __u32 from, to; } ip;
	__u32 header;

	if (bpf_skb_load_bytes(skb, ETHERNET, &ip, sizeof(ip)))
		return 0;
	header = (ip.version & 15) * 4;
	w->ip_length = ntohs(ip.length);
	if (ip.version >> 4 != 4 || header < 20 || w->ip_length < header)
		return 0;
	*fragment = ntohs(ip.offset) & 0x3fff;
	w->source = (struct address){ { 0, 0, ntohl(0xffff), ip.from } };
	w->destination = (struct address){ { 0, 0, ntohl(0xffff), ip.to } };
	w->at = ETHERNET + header;
	return ip.protocol;
}

/* SCTP and UDP behind extension headers are not looked for: no stack here sends them so. */
INLINE __u32 read_ipv6(struct __sk_buff *skb, struct walk *w, __u32 *fragment)
{
	struct { __u32 version; __u16 length; __u8 protocol, hops; struct address from, to; } ip;

	if (bpf_skb_load_bytes(skb, ETHERNET, &ip, sizeof(ip)))
		return 0;
	w->ip_length = 40 + ntohs(ip.length);
	if (ntohl(ip.version) >> 28 != 6)
		return 0;
	*fragment = ip.protocol == 44;
	w->source = ip.from;
	w->destination = ip.to;
	w->at = ETHERNET + 40;
	return ip.protocol == 44 ? PROTOCOL_SCTP : ip.protocol;
}

/* Whether UDP here carries SCTP; moves behind its header. */
INLINE int read_udp(struct __sk_buff *skb, struct walk *w, __u32 port)
{
	struct { __u16 from, to, length, sum; } udp;

	if (bpf_skb_load_bytes(skb, w->at, &udp, sizeof(udp)))
		return 0;
	if (ntohs(udp.from) != port && ntohs(udp.to) != port)
		return 0;
	w->udp_at = w->at;
	w->end = w->at + ntohs(udp.length);
	w->at += UDP_HEADER;
	return 1;
}

/* Fills all of `w`, which is zeros, but for the chunks. */
INLINE enum walked walk_headers(struct __sk_buff *skb, struct walk *w, __u32 udp_port)
{
	struct { __u16 from, to; __u32 tag, sum; } sctp;
	__u32 protocol, fragment = 0, frame;

	if (skb->vlan_present)
		return WALKED_FOREIGN;
	w->is_ipv6 = skb->protocol == ntohs(ETH_P_IPV6);
	if (!w->is_ipv6 && skb->protocol != ntohs(ETH_P_IP))
		return WALKED_FOREIGN;
	protocol = w->is_ipv6 ? read_ipv6(skb, w, &fragment) : read_ipv4(skb, w, &fragment);
	if (protocol != PROTOCOL_SCTP && (protocol != PROTOCOL_UDP || fragment))
		return WALKED_FOREIGN;
	if (fragment)
		return WALKED_FRAGMENT;
	frame = ETHERNET + w->ip_length;
	w->end = frame;
	if (protocol == PROTOCOL_UDP && !read_udp(skb, w, udp_port))
		return WALKED_FOREIGN;
	if (frame > skb->len || w->end > frame || w->at + SCTP_HEADER > w->end ||
	    bpf_skb_load_bytes(skb, w->at, &sctp, sizeof(sctp)))
		return WALKED_MALFORMED;
	w->source_port = sctp.from;
	w->destination_port = sctp.to;
	w->tag = sctp.tag;
	w->at += SCTP_HEADER;
	return WALKED_SCTP;
}

/* All of `w`. A packet with more chunks than are looked at counts as malformed. */
INLINE enum walked walk(struct __sk_buff *skb, struct walk *w, __u32 udp_port)
{
	enum walked walked = walk_headers(skb, w, udp_port);
	struct stepping stepping = { skb, w };

	if (walked != WALKED_SCTP)
		return walked;
	bpf_loop(CHUNKS, step, &stepping, 0);
	return w->wrong || w->at < w->end ? WALKED_MALFORMED : WALKED_SCTP;
}

#endif
