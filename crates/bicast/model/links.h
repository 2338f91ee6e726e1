/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What the models of stacks here share: two paths in virtual time, and the copies that bicast.h and rate.h ask for. Both paths lose packets
 * independently in both directions.
 *
 * A model takes KEY=VALUE: mode=off|selective|full|adaptive, loss=PERCENT, transfers=N, seed=N, and where they differ from a path of
 * 10 Mbit/s, 5 ms and 50 packets: budget=PERCENT, burst=PACKETS (the mean length of a burst of losses), delay=MS, second=loss-PERCENT|
 * policed|short (how the second path is, while all transfers keep to the first), beside=1 (a TCP flow shares the second; linux.c), third=MS
 * (there is a third path, with that delay; linux.c), dies=S (when the second ceases to carry anything).
 * It prints the mean of the transfers' seconds, the bytes of copies over the others', the gaps over 500 ms, that share of bytes from 5 s on, and
 * the goodput of that flow in Mbit/s. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "rate.h"

#define BYTES (10 << 20) /* of each transfer */
#define TRANSFERS 8 /* at a time, at most */
#define PORT 5001 /* of the receivers */
#define PACKET 2000 /* bytes, more than any packet has */
#define QUEUE 50 /* packets that wait for a link, at most */
#define NS_PER_BYTE 800 /* 10 Mbit/s: a link's own time for a byte */
#define POLICED_NS_PER_BYTE 8000 /* 1 Mbit/s: what a policer passes, a tenth */
#define POLICED_BYTES 15000 /* its bucket: ten full packets */
#define SHORT 3 /* packets: the queue of a second path that is short */
#define ETHERNET 14 /* bytes of a frame's header, which take time as well */
#define GAP_US 500000 /* a pause that is counted, as in the lab */
#define LATER_US 5000000 /* from then on copies have to have ceased where they do not pay */
#define LONGEST_US 600000000ull /* a run that takes longer is given up */

enum { FORTH, BACK };

static __u64 now_us = 1000000000, began_us, dies_us = ~0ull;
static __u32 mode, transfers, budget_percent = 15, on_first, beside, third;

static __u32 word(const unsigned char *at)
{
	return (__u32)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

static __u32 half(const unsigned char *at)
{
	return at[0] << 8 | at[1];
}

static void check(int failed, const char *what)
{
	if (!failed)
		return;
	perror(what);
	exit(1);
}

/* ---- Links ---- */

struct packet {
	struct packet *next; /* by when they arrive */
	__u64 at_us;
	int length, direction;
	unsigned char bytes[PACKET];
};

static struct packet *under_way;

static struct link {
	double loss, burst;
	int losing;          /* a burst goes on */
	int queue, policed;
	__u64 delay_us, dice, free_ns, full_ns, leaves_ns[QUEUE]; /* the last ones */
	__u32 sent;
} links[3][2]; /* by path and direction */

static double random_number(struct link *l)
{
	__u64 z = l->dice += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return ((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

/* Losses come in bursts (Gilbert); of one packet each they are independent. */
static int loses(struct link *l)
{
	double begin = l->burst > 1 ? l->loss / (l->burst * (1 - l->loss)) : l->loss;

	if (l->losing && l->burst > 1)
		l->losing = random_number(l) >= 1 / l->burst;
	else
		l->losing = random_number(l) < begin;
	return l->losing;
}

/* A policer drops what would have waited longer than its bucket holds. */
static int polices(struct link *l, __u64 now_ns, int length)
{
	__u64 from_ns = l->full_ns > now_ns ? l->full_ns : now_ns;

	if (!l->policed)
		return 0;
	if (from_ns - now_ns > (__u64)(POLICED_BYTES - length) * POLICED_NS_PER_BYTE)
		return 1;
	l->full_ns = from_ns + (__u64)length * POLICED_NS_PER_BYTE;
	return 0;
}

static void transmit(int path, int direction, const unsigned char *bytes, int length)
{
	struct link *l = &links[path][direction];
	__u64 now_ns = now_us * 1000, *oldest = &l->leaves_ns[l->sent % l->queue];
	struct packet *p, **at = &under_way;

	if (loses(l) || (path == 1 && now_us - began_us > dies_us) || *oldest > now_ns || polices(l, now_ns, length))
		return;
	l->free_ns = (l->free_ns > now_ns ? l->free_ns : now_ns) + (length + ETHERNET) * NS_PER_BYTE;
	*oldest = l->free_ns;
	l->sent++;
	p = malloc(sizeof(*p));
	check(!p, "malloc");
	p->at_us = l->free_ns / 1000 + l->delay_us;
	p->length = length;
	p->direction = direction;
	memcpy(p->bytes, bytes, length);
	while (*at && (*at)->at_us <= p->at_us)
		at = &(*at)->next;
	p->next = *at;
	*at = p;
}

/* ---- Copies, as bicast.bpf.c makes them, where both paths are known ---- */

static struct end {
	struct bicast_association tsn;
	struct bicast_rate rate;
	__u64 sent_bytes, extra_bytes, later_bytes, later_extra_bytes;
} ends[TRANSFERS][2]; /* by what they send */

/* The chunks behind IP's and SCTP's headers; where a SACK is, if any. */
static const unsigned char *walk(struct bicast_sctp *fields, const unsigned char *bytes, int length)
{
	const unsigned char *sack = NULL;

	for (int at = 32; at + 4 <= length && half(bytes + at + 2) >= 4; at += (half(bytes + at + 2) + 3) & ~3) {
		const unsigned char *chunk = bytes + at;

		if (chunk[0] == CHUNK_SACK)
			sack = chunk;
		bicast_chunk_seen(fields, chunk[0], chunk[1], chunk[0] == CHUNK_DATA ? word(chunk + 4) : 0,
				  sack == chunk ? half(chunk + 12) : 0);
	}
	return sack;
}

/* Whose INIT or INIT ACK this is. */
static __u32 stack_of(const unsigned char *bytes, int length)
{
	__u32 stack = STACK_UNKNOWN;

	for (int at = 52; at + 4 <= length && stack == STACK_UNKNOWN; at += (half(bytes + at + 2) + 3) & ~3)
		stack = bicast_stack(half(bytes + at));
	return stack;
}

/* The server's port tells. */
static __u32 transfer_of(const unsigned char *bytes, int direction)
{
	return (half(bytes + (direction == FORTH ? 22 : 20)) - PORT) % TRANSFERS;
}

/* Whether the budget, which pays for it then, allows for a copy for `reasons` by that path. */
static int pays(struct end *e, const struct bicast_sctp *fields, int length, __u32 reasons, int by, int patient)
{
	if (mode != BICAST_ADAPTIVE)
		return 1;
	if (!bicast_rate_affords(&e->rate, length, budget_percent, patient))
		return 0;
	bicast_rate_copied(&e->rate, fields->found & FOUND_DATA ? reasons : 0, fields->tsn_low, length, by + 1);
	return 1;
}

static __u32 reasons_to_copy(struct end *e, const struct bicast_sctp *fields, int length)
{
	__u32 reasons = bicast_sctp_classify(&e->tsn, fields);

	if (mode != BICAST_ADAPTIVE)
		return bicast_wanted(mode, reasons);
	if (!(fields->found & FOUND_DATA))
		reasons &= ~(__u32)BICAST_REST;
	return bicast_rate_sent(&e->rate, reasons, length, budget_percent, now_us);
}

/* Which path copies of what goes by `path` take: of two others the shorter, but for the one that was late last. */
static int other(const struct end *e, int path)
{
	return third && path < 2 && e->rate.late == !path + 1 ? 2 : !path;
}

/* A copy goes by `path`. */
static void copy(struct end *e, int path, int direction, unsigned char *bytes, int length)
{
	bytes[13] = bytes[17] = path + 1;
	bytes[15] = direction == FORTH ? 1 : 2;
	e->extra_bytes += length;
	if (now_us - began_us > LATER_US)
		e->later_extra_bytes += length;
	transmit(path, direction, bytes, length);
}

/* An end sends. Networks 10.1 and 10.2 are the paths. */
static void send_by(int path, int direction, unsigned char *bytes, int length)
{
	struct end *e = &ends[transfer_of(bytes, direction)][direction];
	struct bicast_sctp fields = { 0 };
	__u32 reasons;
	int by;

	walk(&fields, bytes, length);
	if (bytes[32] == CHUNK_INIT || bytes[32] == CHUNK_INIT_ACK)
		e->rate.stack = stack_of(bytes, length);
	reasons = reasons_to_copy(e, &fields, length);
	e->sent_bytes += length;
	if (now_us - began_us > LATER_US)
		e->later_bytes += length;
	transmit(path, direction, bytes, length);
	by = other(e, path);
	if (!reasons || !pays(e, &fields, length, reasons, by, reasons == BICAST_REST))
		return;
	copy(e, by, direction, bytes, length);
	if (mode == BICAST_ADAPTIVE && (reasons & BICAST_RETRANSMISSION) && pays(e, &fields, length, 0, path, 1))
		copy(e, path, direction, bytes, length);
}

static void take_report(struct end *e, const unsigned char *sack)
{
	__u32 gaps = half(sack + 12), count = half(sack + 14), highest = word(sack + 4);

	if (gaps)
		highest += half(sack + 16 + 4 * gaps - 2);
	bicast_rate_acknowledged(&e->rate, highest, count ? word(sack + 16 + 4 * gaps) : 0, count, budget_percent, now_us);
}

/* ---- From and to the command line ---- */

static void set(const char *key, const char *value)
{
	static const char *const modes[] = { "off", "selective", "full", "adaptive" };
	double number = atof(value);

	for (int i = 0; i < 6; i++) {
		struct link *l = &links[i / 2][i % 2];

		if (!strcmp(key, "seed"))
			l->dice = number * 1000003ull + i * 17;
		else if (!strcmp(key, "loss"))
			l->loss = number / 100;
		else if (!strcmp(key, "burst"))
			l->burst = number;
		else if (!strcmp(key, "delay"))
			l->delay_us = number * 1000;
		else if (!strcmp(key, "third") && i > 3)
			third = l->delay_us = number * 1000;
		else if (i < 4 && !strcmp(key, "mode") && !strcmp(value, modes[i]))
			mode = i;
	}
	if (!strcmp(key, "transfers"))
		transfers = number;
	else if (!strcmp(key, "budget"))
		budget_percent = number;
	else if (!strcmp(key, "beside"))
		beside = number;
	else if (!strcmp(key, "dies"))
		dies_us = number * 1000000;
	for (int direction = FORTH; !strcmp(key, "second") && direction <= BACK; direction++) {
		struct link *l = &links[1][direction];

		on_first = 1;
		l->loss = strncmp(value, "loss-", 5) ? 0 : atof(value + 5) / 100;
		l->queue = strcmp(value, "short") ? QUEUE : SHORT;
		l->policed = !strcmp(value, "policed");
	}
}

/* Keys count in the order in which they are given. */
static void configure(int count, char **arguments)
{
	for (int i = 0; i < 6; i++)
		links[i / 2][i % 2] = (struct link){ .queue = QUEUE, .delay_us = 5000 };
	set("mode", "adaptive");
	for (int i = 1; i < count; i++) {
		char *value = strchr(arguments[i], '=');

		check(!value, arguments[i]);
		*value = 0;
		set(arguments[i], value + 1);
	}
	if (!transfers || transfers > TRANSFERS) {
		fprintf(stderr, "%s: transfers=1 to transfers=%d, and as links.h says\n", arguments[0], TRANSFERS);
		exit(2);
	}
	began_us = now_us;
}

static void print(double seconds, int gaps, double goodput_mbps)
{
	__u64 sent = 0, extra = 0, later = 0, later_extra = 0;

	for (__u32 i = 0; i < 2 * transfers; i++) {
		const struct end *e = &ends[i / 2][i % 2];

		sent += e->sent_bytes;
		extra += e->extra_bytes;
		later += e->later_bytes;
		later_extra += e->later_extra_bytes;
	}
	printf("%.3f %.4f %d %.4f %.3f\n", seconds, (double)extra / sent, gaps, later ? (double)later_extra / later : 0, goodput_mbps);
}

/* What comes next: a packet arrives, which is true, or a millisecond has passed. */
static int step(__u64 *tick_us, void (*arrive)(const struct packet *))
{
	struct packet *p = under_way;

	if (!p || p->at_us > *tick_us + 1000) {
		now_us = *tick_us += 1000;
		return 0;
	}
	under_way = p->next;
	now_us = p->at_us > now_us ? p->at_us : now_us;
	arrive(p);
	free(p);
	return 1;
}
