/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What a TCP connection under `fsat` keeps, and what is told about it. Shared with Rust (`kernel/connections.rs`).
 */
#ifndef NAWA_CONNECTION_H
#define NAWA_CONNECTION_H

#include "helpers.h"
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
	__u32 una;           /* snd_una at the last ACK */
	__u32 state;         /* enum tcp_ca_state */
	__u32 paced_us;      /* when the rate was last set, */
	__u32 paced_cwnd;    /* and the window then, packets */
	__u32 lost;          /* tcp_sock.lost at the last ACK, packets, */
	__u32 delivered_ce;  /* and tcp_sock.delivered_ce, those that tell of a mark */
	struct fsat fsat;    /* with what is above, what every ACK needs fills two cache lines */
	__u32 prior_cwnd;    /* before the last loss, for undoing it, */
	__u32 prior_mode;    /* and FS-AT's then */
	__u32 prr_delivered; /* packets since recovery began, RFC 9937 */
	__u32 initial;       /* the window to begin with, packets: a route's, if that says more than RFC 6928 */
	struct options options;
};

/* Each socket's connection. The iterator is given that of the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} fsat_sockets SEC(".maps");

/* What the iterator writes of each connection. */
struct record {
	__u8 local[16];       /* network byte order; the first 4 if family is AF_INET */
	__u8 remote[16];
	__u16 local_port;     /* host byte order */
	__u16 remote_port_be; /* network byte order */
	__u16 family;
	__u16 tcp_state;
	__u32 mss;            /* bytes */
	__u32 window;         /* TCP's cwnd, packets */
	char scheme[16];      /* its congestion control's name */
	struct connection connection;
};

#endif
