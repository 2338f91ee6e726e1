/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What the programs on tc's hooks keep. Shared with Rust (`kernel/records.rs`).
 */
#ifndef NAWA_BICAST_STATE_H
#define NAWA_BICAST_STATE_H

#include "rate.h"

/* Addresses of either end that an association is known by; more are not used for copies. */
#define ADDRESSES 4
/* Associations remembered; then the one unused for longest is forgotten, which at worst costs its copies. */
#define ASSOCIATIONS 16384
/* More HEARTBEATs in a row than this without an answer, and an address is not used until it answers. */
#define UNANSWERED 2
/* ns. A way that the stack has not used for so long is not used for copies either: ten intervals of HEARTBEATs
 * (RFC 9260 §16). */
#define WAY_NS (300 * 1000000000ull)

/* Network byte order; IPv4 as ::ffff:a.b.c.d. */
struct address {
	__u32 words[4];
};

/* An association as one end's packets name it: ports and tag in network byte order. */
struct key {
	__u32 tag;
	__u16 local_port;
	__u16 remote_port;
};

/* That this host's stack has sent between two addresses, by an interface: what was answered, an answer, or DATA or a SACK (ends.h). */
struct way {
	__u32 interface; /* 0: it has not */
	__u64 seen_ns;   /* when it has sent, last; CLOCK_MONOTONIC */
};

/* An address of this end, at which the peer's packets have arrived. */
struct local {
	struct address address;
	struct way ways[ADDRESSES]; /* to the peer's addresses, by their places in `remotes` */
	__u32 forwarded;            /* it is that of a host behind this one */
	__u32 unused;
};

/* Ports of SCTP in UDP (RFC 6951), network byte order; 0: SCTP right behind IP. */
struct udp_ports {
	__u16 from, to;
};

/* An address of the peer. It is used once a HEARTBEAT that was sent to it has been answered (RFC 9260 5.4). */
struct remote {
	struct address address;
	__u64 probed_ns;
	__u32 nonce;      /* a hash of what that HEARTBEAT says, which its answer repeats */
	__u32 rtt_us;     /* of the last answered one */
	__u32 confirmed;
	__u32 unanswered; /* since the last answer */
	__u32 interface;  /* by which that HEARTBEAT left */
	__u32 mtu;        /* of the path, as routers have said; 0: they have not */
	struct udp_ports probed; /* of that HEARTBEAT */
	struct udp_ports udp;    /* of the last answered one: behind a NAT each address has its own (RFC 6951 5.4) */
};

enum skipped {
	SKIPPED_NO_PATH = 0,     /* no other interface by which the stack itself reaches the peer */
	SKIPPED_BUDGET = 1,
	SKIPPED_UNSENT = 2,      /* the other interface did not take it, or its hook has not given it its addresses */
	SKIPPED_TOO_LONG = 3,    /* for the other path's MTU */
	SKIPPED_BUSY = 4,        /* another processor had the association */
	SKIPPED_KINDS = 5,
};

/* By the tag and the ports of what this host sends. */
struct association {
	struct bicast_association tsn;
	__u32 local_tag;    /* of what it receives; network byte order, 0 while unknown */
	__u32 locked;       /* by a processor (maps.h): all but the counters is under it */
	__u64 seen_ns;      /* CLOCK_MONOTONIC */
	__u64 sent_packets;
	__u64 sent_bytes;   /* of IP packets, copies not counted */
	__u64 extra_bytes;  /* of the copies */
	__u64 duplicates;   /* TSNs that the peer reported as received twice */
	__u64 copies[6];    /* by the bits of enum bicast_reason; one packet may count for several */
	__u64 skipped[SKIPPED_KINDS];
	struct local locals[ADDRESSES];
	struct remote remotes[ADDRESSES];
	struct bicast_rate rate;
};

/* Set while the programs run. */
struct settings {
	__u32 mode;           /* enum bicast_mode */
	__u32 budget_percent; /* of the bytes sent; in adaptive mode */
	__u32 udp_port;       /* of SCTP in UDP, host byte order */
	__u32 forwarding;     /* copy also what is forwarded for other hosts */
};

/* Counted for all associations together, ended ones as well, per CPU. */
enum counter {
	COUNT_MALFORMED = 0, /* packets that were passed on and not understood */
	COUNT_FRAGMENT = 1,
	COUNT_SENT_PACKETS = 2, /* copies not counted, as in struct association */
	COUNT_SENT_BYTES = 3,
	COUNT_COPIES = 4,
	COUNT_EXTRA_BYTES = 5,
	COUNTERS = 6,
};

#endif
