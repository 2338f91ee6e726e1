/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Sends a message, then sends back the first one that comes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nawa-flood.h"

int main(int argc, char **argv)
{
	struct nawa_flood_header header;
	struct nawa_flood *flood;
	char data[2400];
	long length;

	if (argc != 2) {
		fprintf(stderr, "usage: echo INTERFACE\n");
		return 2;
	}
	flood = nawa_flood_open(argv[1]);
	if (!flood) {
		fprintf(stderr, "echo: cannot reach the node of %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	nawa_flood_listen(flood);
	nawa_flood_send(flood, 3, "hello from C", 12);
	length = nawa_flood_recv(flood, &header, data, sizeof(data), 30000);
	if (length < 0) {
		fprintf(stderr, "echo: %s\n", strerror((int)-length));
		return 1;
	}
	printf("%u %u %u %.*s\n", header.id, header.seq, header.ttl, (int)length, data);
	nawa_flood_send(flood, 0, data, (size_t)length);
	nawa_flood_close(flood);
	return 0;
}
