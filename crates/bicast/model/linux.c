/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What copies do to SCTP as Linux has it, in virtual time (links.h): its window, its fast retransmission, once for each chunk, its
 * timers and its SACKs, as RFC 9260 and net/sctp of Linux 6.1 have them. Both paths are known from the start.
 *
 * With `beside` a TCP flow shares the second path: it may retransmit a chunk again, waits for its timer 200 ms, and keeps
 * .7 of its window after a loss (RFC 9438, where CUBIC is as friendly as Reno). */
#include "links.h"

#define DATA 1452  /* bytes of a chunk */
#define HEADERS 48
#define MTU 1500
#define WINDOW 106496 /* what Linux announces */
#define RING 4096  /* chunks; more than a window */
#define BURST 4    /* packets sent at a time (max_burst) */
#define MISSING 3  /* reports */
#define DELAY_US 200000
#define LONGEST_RTO_US 60000000
#define FIRST_RTO_US 3000000

enum state { NONE, FLYING, LOST, ARRIVED };

struct chunk {
	enum state state;
	__u32 missing, sent_as, again;
};

static struct flow {
	int path, tcp;
	/* The sender. */
	struct chunk chunks[RING];
	__u32 next, acknowledged, all, sent; /* TSNs; packets */
	__u32 recovering, recovered_at;
	double window, threshold, partial;
	__u32 flying; /* chunks */
	__u64 rto_us, timer_us, timed_us, srtt_us, rttvar_us;
	__u32 timed;
	/* The receiver. */
	unsigned char has[RING];
	__u32 cumulative, highest, twice[8], twice_count, waiting, arrived;
	__u64 sack_us, last_us;
	int reply_by, gaps;
} flows[TRANSFERS];

static __u32 port_of(const struct flow *f)
{
	return PORT + (f - flows);
}

static void put(unsigned char *at, __u32 value, int bytes)
{
	while (bytes--) {
		at[bytes] = value;
		value >>= 8;
	}
}

/* Sends the chunks of `length` bytes that stand behind the headers. */
static void send_chunks(const struct flow *f, int path, int direction, unsigned char *bytes, int length)
{
	memset(bytes, 0, 32);
	bytes[12] = bytes[16] = 10;
	bytes[13] = bytes[17] = path + 1;
	bytes[15] = 1 + direction;
	bytes[19] = 2 - direction;
	put(bytes + (direction == FORTH ? 22 : 20), port_of(f), 2);
	if (f->tcp)
		transmit(path, direction, bytes, 32 + length);
	else
		send_by(path, direction, bytes, 32 + length);
}

static void send_data(struct flow *f, __u32 tsn)
{
	struct chunk *c = &f->chunks[tsn % RING];
	unsigned char bytes[PACKET] = { 0 };

	put(bytes + 32, 3, 2);
	put(bytes + 34, 16 + DATA, 2);
	put(bytes + 36, tsn, 4);
	c->again = c->state == LOST;
	c->state = FLYING;
	c->missing = 0;
	c->sent_as = f->sent++;
	f->flying++;
	if (!f->timed && !c->again) {
		f->timed = tsn;
		f->timed_us = now_us;
	}
	if (!f->timer_us)
		f->timer_us = now_us + f->rto_us;
	send_chunks(f, f->path, FORTH, bytes, 16 + DATA);
}

/* Sends what the window allows, what is lost first. `more`: a packet beyond it. */
static void send_more(struct flow *f, int more)
{
	int burst = f->tcp ? RING : BURST;

	for (__u32 tsn = f->acknowledged + 1; tsn != f->next; tsn++) {
		if (f->chunks[tsn % RING].state != LOST)
			continue;
		if (!more && f->flying && (f->flying + 1) * MTU > f->window)
			return;
		more = 0;
		burst--;
		send_data(f, tsn);
	}
	while (burst-- > 0 && f->next <= f->all && f->flying * MTU < f->window &&
	       (f->next - f->acknowledged) * DATA < WINDOW * (f->tcp ? 4 : 1)) {
		f->chunks[f->next % RING].state = NONE;
		send_data(f, f->next++);
	}
}

static void measure(struct flow *f, __u64 rtt_us)
{
	__u64 off_us = rtt_us > f->srtt_us ? rtt_us - f->srtt_us : f->srtt_us - rtt_us, least_us = f->tcp ? 200000 : 1000000;

	f->rttvar_us = f->srtt_us ? f->rttvar_us * 3 / 4 + off_us / 4 : rtt_us / 2;
	f->srtt_us = f->srtt_us ? f->srtt_us * 7 / 8 + rtt_us / 8 : rtt_us;
	f->rto_us = f->srtt_us + 4 * f->rttvar_us;
	if (f->rto_us < least_us)
		f->rto_us = least_us;
}

static void reduce(struct flow *f, double to)
{
	f->threshold = f->window * (f->tcp ? .7 : .5);
	if (f->threshold < 4 * MTU)
		f->threshold = 4 * MTU;
	f->window = to ? to : f->threshold;
	f->partial = 0;
}

static void grow(struct flow *f, double bytes, int full)
{
	if (!full || f->recovering)
		return;
	if (f->window <= f->threshold) {
		f->window += bytes < MTU || f->tcp ? bytes : MTU;
		return;
	}
	f->partial += bytes * (f->tcp ? .53 : 1);
	if (f->partial >= f->window) {
		f->partial -= f->window;
		f->window += MTU;
	}
}

static __u32 arrived(struct flow *f, __u32 tsn, __u32 *newest)
{
	struct chunk *c = &f->chunks[tsn % RING];

	if (c->state == ARRIVED)
		return 0;
	f->flying -= c->state == FLYING;
	c->state = ARRIVED;
	if (c->sent_as > *newest)
		*newest = c->sent_as;
	if (tsn == f->timed) {
		if (!c->again)
			measure(f, now_us - f->timed_us);
		f->timed = 0;
	}
	return MTU;
}

static void take_sack(struct flow *f, const unsigned char *sack)
{
	__u32 cumulative = word(sack + 4), gaps = half(sack + 12), newest = 0, bytes = 0, highest = cumulative, highest_new = 0;
	int full = (f->flying + 1) * MTU >= f->window, advances = cumulative > f->acknowledged, lost = 0;

	if (cumulative < f->acknowledged)
		return;
	for (__u32 tsn = f->acknowledged + 1; tsn <= cumulative; tsn++)
		bytes += arrived(f, tsn, &newest);
	for (__u32 i = 0; i < gaps; i++)
		for (__u32 n = half(sack + 16 + 4 * i); n <= half(sack + 18 + 4 * i); n++) {
			highest = cumulative + n;
			if (arrived(f, highest, &newest)) {
				bytes += MTU;
				highest_new = highest;
			}
		}
	f->acknowledged = cumulative;
	if (f->timed && f->timed <= cumulative)
		f->timed = 0;
	if (f->recovering && cumulative >= f->recovered_at)
		f->recovering = 0;
	for (__u32 tsn = cumulative + 1; tsn < highest; tsn++) {
		struct chunk *c = &f->chunks[tsn % RING];

		/* Linux counts what was reported anew above a chunk, and retransmits that once. */
		if (c->state != FLYING || (f->tcp ? c->sent_as + MISSING > newest : tsn >= highest_new && !(f->recovering && advances)))
			continue;
		if (!f->tcp && (c->again || ++c->missing < MISSING))
			continue;
		c->state = LOST;
		f->flying--;
		lost = 1;
	}
	if (advances)
		grow(f, bytes, full);
	if (lost && !f->recovering) {
		f->recovering = 1;
		f->recovered_at = f->next - 1;
		reduce(f, 0);
	}
	if (advances)
		f->timer_us = f->acknowledged + 1 == f->next ? 0 : now_us + f->rto_us;
	send_more(f, lost);
}

static void send_sack(struct flow *f)
{
	unsigned char bytes[PACKET] = { 0 }, *sack = bytes + 32, *at = sack + 16;
	__u32 gaps = 0;

	for (__u32 tsn = f->cumulative + 1; tsn <= f->highest && gaps < 20; tsn++) {
		if (!f->has[tsn % RING])
			continue;
		put(at, tsn - f->cumulative, 2);
		while (tsn < f->highest && f->has[(tsn + 1) % RING])
			tsn++;
		put(at + 2, tsn - f->cumulative, 2);
		at += 4;
		gaps++;
	}
	for (__u32 i = 0; i < f->twice_count; i++, at += 4)
		put(at, f->twice[i], 4);
	sack[0] = CHUNK_SACK;
	put(sack + 2, at - sack, 2);
	put(sack + 4, f->cumulative, 4);
	put(sack + 12, gaps, 2);
	put(sack + 14, f->twice_count, 2);
	f->twice_count = f->waiting = 0;
	f->sack_us = 0;
	send_chunks(f, f->reply_by, BACK, bytes, at - sack);
}

static void take_data(struct flow *f, __u32 tsn, int path)
{
	int twice = tsn <= f->cumulative || f->has[tsn % RING], gap = f->highest > f->cumulative;

	f->reply_by = path;
	if (twice && f->twice_count < 8)
		f->twice[f->twice_count++] = tsn;
	if (!twice)
		f->has[tsn % RING] = 1;
	if (tsn > f->highest)
		f->highest = tsn;
	while (f->has[(f->cumulative + 1) % RING]) {
		f->has[++f->cumulative % RING] = 0;
		f->arrived++;
		f->gaps += now_us - f->last_us > GAP_US;
		f->last_us = now_us;
	}
	if (twice || gap || f->highest > f->cumulative || ++f->waiting == 2)
		send_sack(f);
	else if (!f->sack_us)
		f->sack_us = now_us + DELAY_US;
}

static void arrive(const struct packet *p)
{
	__u32 n = transfer_of(p->bytes, p->direction);
	struct flow *f = &flows[n];
	struct end *e = &ends[n][!p->direction];

	if (p->direction == FORTH) {
		take_data(f, word(p->bytes + 36), p->bytes[17] - 1);
		return;
	}
	if (!f->tcp)
		take_report(e, p->bytes + 32);
	take_sack(f, p->bytes + 32);
}

static void tick(struct flow *f)
{
	if (f->sack_us && now_us >= f->sack_us)
		send_sack(f);
	if (!f->timer_us || now_us < f->timer_us)
		return;
	reduce(f, MTU);
	f->recovering = f->timed = f->timer_us = 0;
	f->rto_us = f->rto_us * 2 > LONGEST_RTO_US ? LONGEST_RTO_US : f->rto_us * 2;
	for (__u32 tsn = f->acknowledged + 1; tsn != f->next; tsn++)
		if (f->chunks[tsn % RING].state == FLYING) {
			f->chunks[tsn % RING].state = LOST;
			f->flying--;
		}
	send_more(f, 1);
}

static int done(void)
{
	int all = 1;

	for (__u32 i = 0; i < transfers; i++)
		all &= flows[i].arrived >= flows[i].all;
	return all;
}

static void begin(struct flow *f, int path, int tcp)
{
	f->path = path;
	f->tcp = tcp;
	f->next = 1;
	f->all = tcp ? 1u << 31 : BYTES / DATA;
	f->window = 4380;
	f->threshold = 1e9;
	f->rto_us = tcp ? 1000000 : FIRST_RTO_US;
	f->last_us = now_us;
	send_more(f, 0);
}

int main(int count, char **arguments)
{
	double seconds = 0;
	__u64 tick_us = now_us, end_us = now_us + LONGEST_US;
	int gaps = 0;

	configure(count, arguments);
	check(transfers + beside > TRANSFERS, "as many flows");
	for (__u32 i = 0; i < transfers; i++) {
		for (int way = FORTH; way <= BACK; way++)
			ends[i][way].rate.stack = STACK_ADDRESSES_FIRST;
		begin(&flows[i], i % 2 && !on_first, 0);
	}
	if (beside)
		begin(&flows[transfers], 1, 1);
	while (!done() && now_us < end_us) {
		if (!step(&tick_us, arrive))
			for (__u32 i = 0; i < transfers + beside; i++)
				tick(&flows[i]);
	}
	for (__u32 i = 0; i < transfers; i++) {
		seconds += (flows[i].last_us - began_us) / 1e6 / transfers;
		gaps += flows[i].gaps;
	}
	print(seconds, gaps, beside ? flows[transfers].arrived * 8. * DATA / (now_us - began_us) : 0);
	return 0;
}
