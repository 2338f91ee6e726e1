/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What a TCP connection under `fsat` keeps, and what is told about it. Shared with Rust (`kernel/record.rs`).
 */
#ifndef NAWA_CONNECTION_H
#define NAWA_CONNECTION_H

#include "fsat.h"

enum base {
	BASE_RENO = 0,
	BASE_CUBIC = 1,
};

/* Given by the loader before the programs are loaded. */
struct options {
	__u32 base;  /* enum base */
	__u32 paper; /* not 0: `fsat_paper` */
};

/* A connection's state: FS-AT's, and that of congestion avoidance and recovery below it. Congestion
 * avoidance proper keeps its own in the socket, as without us. */
struct connection {
	__u32 cwnd;          /* the base's, packets; TCP's own cwnd is the window that comes out */
	__u32 una;           /* snd_una when FS-AT was told last */
	__u32 state;         /* enum tcp_ca_state */
	__u32 lost;          /* tcp_sock.lost and .delivered then, packets */
	__u32 delivered;
	struct fsat fsat;
	__u32 prior_cwnd;    /* before the last loss, for undoing it */
	__u32 prr_delivered; /* packets since recovery began, RFC 9937 */
	struct options options;
};

/* What ACKs bring until FS-AT is told of them. It stands at the end of `icsk_ca_priv`, of which CUBIC uses the first 60 bytes. */
struct acks {
	__u32 told_us;     /* when FS-AT was told last */
	__u32 rtt_us;      /* the least RTT since; 0: none */
	__u32 ack_us;      /* when the last ACK came; 0: there was none */
	__u32 gap_us;      /* and the longest time between two since, where the application did not limit */
	__u32 app_limited; /* not 0: the application limited at one of them */
};

/* What the iterator writes of each connection. */
struct record {
	__u8 local[16];       /* network byte order; the first 4 if family is AF_INET */
	__u8 remote[16];
	__u16 local_port;     /* host byte order */
	__u16 remote_port_be; /* network byte order */
	__u16 family;
	__u16 tcp_state;
	__u32 namespace;      /* inode number of its network namespace */
	__u32 mss;            /* bytes */
	__u32 window;         /* TCP's cwnd, packets */
	char scheme[16];      /* its congestion control's name */
	struct connection connection;
};

#endif
