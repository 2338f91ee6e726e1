/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Messages to every node of an ad-hoc network, by the node that the Nawa daemon runs on an interface of this network
 * namespace. Link with -lnawa_flood. One thread at a time may use a connection; several connections are independent.
 *
 * What fails returns a negative errno: -ECONNREFUSED no node, -EPIPE the node has stopped or does not want this user (only
 * root may), -EMSGSIZE too long, -ENETDOWN the interface is down, -ETIMEDOUT nothing came, -EINVAL an argument.
 */
#ifndef NAWA_FLOOD_H
#define NAWA_FLOOD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct nawa_flood;

/* What came with a message. */
struct nawa_flood_header {
	uint32_t id;      /* who sent it first */
	uint32_t epoch;   /* in which of its lives; 0 in wire version 0 */
	uint32_t seq;     /* its number in that life */
	uint8_t ttl;      /* how many hops it could still have gone */
	uint8_t reserved[3];
	uint64_t dropped; /* messages that this receiver has lost so far, because it read too slowly */
};

/* Connects to the node of `interface`. NULL with errno set if that fails. */
struct nawa_flood *nawa_flood_open(const char *interface);

/* Has what is heard from now on delivered. */
int nawa_flood_listen(struct nawa_flood *flood);

/* Whether nawa_flood_recv looks again and again, which takes a processor, instead of sleeping until woken. Before
 * nawa_flood_listen, so that nobody is woken for this connection. */
void nawa_flood_busy_poll(struct nawa_flood *flood, int busy);

/* Sends a message. ttl: how many hops it may go; 0: as the node's file says. */
int nawa_flood_send(struct nawa_flood *flood, uint8_t ttl, const void *data, size_t length);

/* Waits for a message, at most timeout_ms if that is not negative. Returns its length; what exceeds `size` is cut off.
 * `header` may be NULL. */
long nawa_flood_recv(struct nawa_flood *flood, struct nawa_flood_header *header, void *data, size_t size, int timeout_ms);

/* For poll(2): readable when a message has come, until nawa_flood_recv finds no more. It belongs to the connection. */
int nawa_flood_fd(const struct nawa_flood *flood);

/* Bytes that a message may have. */
size_t nawa_flood_data_max(const struct nawa_flood *flood);

void nawa_flood_close(struct nawa_flood *flood);

#ifdef __cplusplus
}
#endif

#endif
