/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * From a frame to the fields that bicast.h takes: Ethernet, IPv4 or IPv6, perhaps UDP (RFC 6951), SCTP's chunks.
 */
#ifndef NAWA_BICAST_WALK_H
#define NAWA_BICAST_WALK_H

#include "tc.h"
#include "state.h"

/* Protocol numbers, by IANA. */
#define PROTOCOL_ICMP 1
#define PROTOCOL_UDP 17
#define PROTOCOL_ICMPV6 58
#define PROTOCOL_SCTP 132
#define SCTP_HEADER 12
#define UDP_HEADER 8
/* Chunks that are looked at; a packet of the longest MTU in use, stuffed with the smallest DATA, has 450. A plain loop, not
 * bpf_loop, since a kernel without a JIT for BPF, as user-mode Linux is, calls no functions back. */
#define CHUNKS 512

/* Where a chunk lies: from its header on; length 0 if the packet has none of the kind. */
struct place {
	__u32 at;
	__u32 length;
};

/* The chunks of which the place is kept, the last one of each kind. */
enum kept {
	OTHER = 0,
	SACK = 1,
	INIT_ACK = 2,
	HEARTBEAT = 3,
	HEARTBEAT_ACK = 4,
	ASCONF = 5,
	COOKIE = 6, /* COOKIE ECHO or COOKIE ACK */
	INIT = 7,
	PLACES = 8, /* a power of two */
};

/* Between which of an association's addresses a copy goes, and by which interface. */
struct choice {
	__u64 rank; /* less is better; 0: none */
	__u32 local;
	__u32 remote;
	__u32 interface;
	__u32 too_long; /* one was left out for its MTU */
};

/* A chunk as it stands there, and, of DATA and SACK, what follows. */
struct chunk {
	__u8 type, flags;
	__u16 length;
	__u32 tsn;
	__u16 counts[2]; /* gap ack blocks, and TSNs received twice */
};

/* A packet that carries SCTP. It lives in a map, because the verifier would follow every combination of what may be
 * found if it lay on the stack. */
struct walk {
	__u32 at;      /* of the next chunk, from the frame's start */
	__u32 end;     /* of the packet */
	__u32 wrong;
	struct chunk chunk; /* at `at` */
	struct bicast_sctp fields;
	struct place places[PLACES]; /* by enum kept */
	__u32 abort_reflected; /* an ABORT with the T bit: it has the tag of what it answers (RFC 9260 8.4) */
	__u32 ip_length;
	__u32 udp_at;  /* 0: none */
	struct udp_ports udp;
	__u32 is_ipv6;
	struct address source, destination;
	__u16 source_port, destination_port; /* network byte order, as is the tag */
	__u32 tag;
	struct choice best; /* so far */
	__u32 barred; /* the interface that no copy of it can leave by; 0: none */
};

enum walked {
	WALKED_FOREIGN = 0, /* no SCTP */
	WALKED_SCTP = 1,
	WALKED_MALFORMED = 2,
	WALKED_FRAGMENT = 3,
};

/* Tables, because the verifier follows no more than 8192 branches in a row. What the smallest chunk of each type has behind
 * its header, in bytes. */
static const __u8 least_value[256] = {
	[CHUNK_DATA] = 12,    [CHUNK_INIT] = 16,   [CHUNK_INIT_ACK] = 16, [CHUNK_SACK] = 12,
	[CHUNK_SHUTDOWN] = 4, [CHUNK_I_DATA] = 16, [CHUNK_ASCONF] = 4,
};

static const __u8 kept_as[256] = {
	[CHUNK_SACK] = SACK,
	[CHUNK_INIT] = INIT,
	[CHUNK_INIT_ACK] = INIT_ACK,
	[CHUNK_HEARTBEAT] = HEARTBEAT,
	[CHUNK_HEARTBEAT_ACK] = HEARTBEAT_ACK,
	[CHUNK_ASCONF] = ASCONF,
	[CHUNK_COOKIE_ECHO] = COOKIE,
	[CHUNK_COOKIE_ACK] = COOKIE,
};

/* Reads a field again, of which the verifier then knows nothing. It walks through loops round by round; with what it knew of
 * each chunk's type its states would multiply. */
#define ANEW(field) (*(volatile typeof(field) *)&(field))

/* The chunk at `w->at`: reads what counts of it, and whether it is well formed. */
INLINE int read_chunk(struct __sk_buff *skb, struct walk *w)
{
	struct chunk *c = &w->chunk;
	__u32 type, length;

	if (bpf_skb_load_bytes(skb, w->at, c, 4))
		return 0;
	length = ntohs(ANEW(c->length));
	if (length < 4 + least_value[c->type] || length > w->end - w->at)
		return 0;
	c->tsn = c->counts[0] = c->counts[1] = 0;
	type = ANEW(c->type);
	if (type == CHUNK_DATA || type == CHUNK_I_DATA)
		return !bpf_skb_load_bytes(skb, w->at + 4, &c->tsn, sizeof(c->tsn));
	if (type != CHUNK_SACK)
		return 1;
	if (bpf_skb_load_bytes(skb, w->at + 12, c->counts, sizeof(c->counts)))
		return 0;
	return ntohs(ANEW(c->length)) >= 16 + 4 * (ntohs(c->counts[0]) + ntohs(c->counts[1]));
}

/* One chunk; 1 ends the loop. */
INLINE int step(struct __sk_buff *skb, struct walk *w)
{
	struct chunk *c = &w->chunk;

	if (w->at >= w->end)
		return 1;
	if (!read_chunk(skb, w)) {
		w->wrong = 1;
		return 1;
	}
	bicast_chunk_seen(&w->fields, ANEW(c->type), ANEW(c->flags), ntohl(ANEW(c->tsn)), ntohs(ANEW(c->counts[0])));
	w->places[kept_as[ANEW(c->type)] % PLACES] = (struct place){ w->at, ntohs(ANEW(c->length)) };
	if (ANEW(c->type) == CHUNK_ABORT)
		w->abort_reflected |= ANEW(c->flags) & 1;
	w->at += (ntohs(ANEW(c->length)) + 3) & ~3u;
	return 0;
}

/* Reads the IP header at `at`: the protocol behind it, which begins at `w->at`; 0 if there is none to be read. */
INLINE __u32 read_ipv4(struct __sk_buff *skb, struct walk *w, __u32 at, __u32 *fragment)
{
	struct { __u8 version, tos; __u16 length, id, offset; __u8 ttl, protocol; __u16 sum; __u32 from, to; } ip;
	__u32 header;

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
		return 0;
	header = (ip.version & 15) * 4;
	w->ip_length = ntohs(ip.length);
	if (ip.version >> 4 != 4 || header < 20 || w->ip_length < header)
		return 0;
	*fragment = ntohs(ip.offset) & 0x3fff;
	w->source = (struct address){ { 0, 0, ntohl(0xffff), ip.from } };
	w->destination = (struct address){ { 0, 0, ntohl(0xffff), ip.to } };
	w->at = at + header;
	return ip.protocol;
}

/* SCTP and UDP behind extension headers are not looked for: no stack here sends them so. */
INLINE __u32 read_ipv6(struct __sk_buff *skb, struct walk *w, __u32 at, __u32 *fragment)
{
	struct { __u32 version; __u16 length; __u8 protocol, hops; struct address from, to; } ip;

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
		return 0;
	w->ip_length = 40 + ntohs(ip.length);
	if (ntohl(ip.version) >> 28 != 6)
		return 0;
	*fragment = ip.protocol == 44;
	w->source = ip.from;
	w->destination = ip.to;
	w->at = at + 40;
	return ip.protocol == 44 ? PROTOCOL_SCTP : ip.protocol;
}

INLINE __u32 read_ip(struct __sk_buff *skb, struct walk *w, __u32 at, __u32 *fragment)
{
	return w->is_ipv6 ? read_ipv6(skb, w, at, fragment) : read_ipv4(skb, w, at, fragment);
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
	w->udp = (struct udp_ports){ udp.from, udp.to };
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
	protocol = read_ip(skb, w, ETHERNET, &fragment);
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

	if (walked != WALKED_SCTP)
		return walked;
	for (__u32 i = 0; i < CHUNKS; i++)
		if (step(skb, w))
			break;
	return w->wrong || w->at < w->end ? WALKED_MALFORMED : WALKED_SCTP;
}

#endif
