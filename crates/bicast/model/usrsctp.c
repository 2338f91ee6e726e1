/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What copies do to usrsctp, FreeBSD's SCTP, in virtual time: the installed library at both ends in one process, its clock,
 * timers and packets driven from here, over two paths of 10 Mbit/s, 5 ms and 50 packets that lose packets independently in
 * both directions; bicast.h and rate.h decide what is copied. A transfer takes milliseconds.
 *
 *   usrsctp MODE LOSS_PERCENT TRANSFERS SEED [BUDGET_PERCENT]
 *
 * prints the mean of the transfers' seconds, the bytes of copies over the others', and the gaps over 500 ms. `make
 * usrsctp` compares modes.
 *
 * The library's own calls are answered here, those to the system and one of its own; it starts no threads. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <usrsctp.h>

#include "rate.h"

#define BYTES (10 << 20)
#define MESSAGE 1400
#define TRANSFERS 8
#define PORT 5001
#define PACKET 2000
#define QUEUE 50
#define DELAY_US 5000
#define NS_PER_BYTE 800 /* 10 Mbit/s */
#define ETHERNET 14
#define GAP_US 500000
#define LONGEST_US 600000000ull

enum { FORTH, BACK };

static __u64 now_us = 1000000000;
static __u32 mode, transfers, budget_percent = 15;
static double loss;

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

/* ---- What the library takes from the system ---- */

static char *const ADDRESSES[4] = { "10.1.0.1", "10.2.0.1", "10.1.0.2", "10.2.0.2" };

static struct sockaddr_in address(int which, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	inet_pton(AF_INET, ADDRESSES[which], &a.sin_addr);
	return a;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
	(void)zone;
	time->tv_sec = 1700000000 + now_us / 1000000;
	time->tv_usec = now_us % 1000000;
	return 0;
}

int getifaddrs(struct ifaddrs **all)
{
	static struct ifaddrs interfaces[4];
	static struct sockaddr_in addresses[4];
	static char *const names[4] = { "p0", "p1", "p2", "p3" };

	for (int i = 0; i < 4; i++) {
		addresses[i] = address(i, 0);
		interfaces[i] = (struct ifaddrs){ .ifa_name = names[i], .ifa_addr = (struct sockaddr *)&addresses[i] };
		interfaces[i].ifa_next = i < 3 ? &interfaces[i + 1] : NULL;
	}
	*all = interfaces;
	return 0;
}

void freeifaddrs(struct ifaddrs *all)
{
	(void)all;
}

unsigned if_nametoindex(const char *name)
{
	return 1 + name[1] - '0';
}

int sctp_userspace_get_mtu_from_ifn(__u32 interface, int family)
{
	(void)interface, (void)family;
	return 1500;
}

int socket(int domain, int type, int protocol)
{
	(void)domain, (void)type, (void)protocol;
	return 1000;
}

int setsockopt(int s, int level, int name, const void *value, socklen_t length)
{
	(void)s, (void)level, (void)name, (void)value, (void)length;
	return 0;
}

int bind(int s, const struct sockaddr *to, socklen_t length)
{
	(void)s, (void)to, (void)length;
	return 0;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with)
{
	(void)thread, (void)how, (void)run, (void)with;
	return 0;
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
	__u64 dice, free_ns, leaves_ns[QUEUE]; /* the last ones */
	__u32 sent;
} links[2][2]; /* by path and direction */

static double random_number(struct link *l)
{
	__u64 z = l->dice += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return ((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

static void transmit(int path, int direction, const unsigned char *bytes, int length)
{
	struct link *l = &links[path][direction];
	__u64 now_ns = now_us * 1000, *oldest = &l->leaves_ns[l->sent % QUEUE];
	struct packet *p, **at = &under_way;

	if (random_number(l) < loss || *oldest > now_ns)
		return;
	l->free_ns = (l->free_ns > now_ns ? l->free_ns : now_ns) + (length + ETHERNET) * NS_PER_BYTE;
	*oldest = l->free_ns;
	l->sent++;
	p = malloc(sizeof(*p));
	check(!p, "malloc");
	p->at_us = l->free_ns / 1000 + DELAY_US;
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
	__u64 sent_bytes, extra_bytes;
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

static __u32 reasons_to_copy(struct end *e, const struct bicast_sctp *fields, int length)
{
	__u32 reasons = bicast_sctp_classify(&e->tsn, fields);

	if (mode != BICAST_ADAPTIVE)
		return bicast_wanted(mode, reasons);
	if (!(fields->found & FOUND_DATA))
		reasons &= ~(__u32)BICAST_REST;
	return bicast_rate_sent(&e->rate, reasons, length, budget_percent, now_us);
}

/* A copy goes by `path`. */
static void copy(struct end *e, int path, int direction, unsigned char *bytes, int length)
{
	bytes[13] = bytes[17] = path + 1;
	bytes[15] = direction == FORTH ? 1 : 2;
	e->extra_bytes += length;
	transmit(path, direction, bytes, length);
}

/* The library sends: by raw sockets, with IP's header. Networks 10.1 and 10.2 are the paths. */
ssize_t sendmsg(int s, const struct msghdr *message, int flags)
{
	unsigned char bytes[PACKET];
	struct bicast_sctp fields = { 0 };
	int length = 0, direction, path;
	struct end *e;
	__u32 reasons;

	(void)s, (void)flags;
	for (size_t i = 0; i < message->msg_iovlen; i++) {
		if (length + message->msg_iov[i].iov_len > sizeof(bytes))
			return -1;
		memcpy(bytes + length, message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
		length += message->msg_iov[i].iov_len;
	}
	direction = bytes[19] == 2 ? FORTH : BACK;
	path = bytes[17] - 1;
	e = &ends[transfer_of(bytes, direction)][direction];
	walk(&fields, bytes, length);
	if (bytes[32] == CHUNK_INIT || bytes[32] == CHUNK_INIT_ACK)
		e->rate.stack = stack_of(bytes, length);
	reasons = reasons_to_copy(e, &fields, length);
	e->sent_bytes += length;
	transmit(path, direction, bytes, length);
	if (!reasons)
		return length;
	bicast_rate_copied(&e->rate, fields.found & FOUND_DATA ? reasons : 0, fields.tsn_low, length, now_us);
	copy(e, !path, direction, bytes, length);
	if (mode == BICAST_ADAPTIVE && bicast_rate_thrice(&e->rate, reasons, length)) {
		bicast_rate_copied(&e->rate, 0, 0, length, now_us);
		copy(e, path, direction, bytes, length);
	}
	return length;
}

static void take_report(struct end *e, const unsigned char *sack)
{
	__u32 gaps = half(sack + 12), count = half(sack + 14), highest = word(sack + 4);

	if (gaps)
		highest += half(sack + 16 + 4 * gaps - 2);
	bicast_rate_acknowledged(&e->rate, highest, count ? word(sack + 16 + 4 * gaps) : 0, count, budget_percent, now_us);
}

/* ---- What the library exports beside its interface: the way that its receiving thread goes ---- */

struct mbuf {
	struct mbuf *next, *next_packet;
	char *data;
	int length;
};

struct mbuf *sctp_get_mbuf_for_msg(unsigned space, int header, int how, int one, int type);
void m_copyback(struct mbuf *m, int at, int length, char *from);
void m_freem(struct mbuf *m);
void sctp_common_input_processing(struct mbuf **m, int ip_length, int at, int length, struct sockaddr *from,
				  struct sockaddr *to, void *sctp, void *chunk, __u8 ecn, __u8 checksum_wrong,
				  __u32 vrf, __u16 udp_port);

static void arrive(const struct packet *p)
{
	struct end *e = &ends[transfer_of(p->bytes, p->direction)][!p->direction];
	struct bicast_sctp fields = { 0 };
	const unsigned char *sack = walk(&fields, p->bytes, p->length);
	struct sockaddr_in from = { .sin_family = AF_INET }, to = from;
	struct mbuf *m = sctp_get_mbuf_for_msg(p->length, 1, 1, 1, 1);

	bicast_rate_earn(&e->rate, p->length, budget_percent);
	if (sack)
		take_report(e, sack);
	check(!m, "mbuf");
	m->length = p->length;
	m_copyback(m, 0, p->length, (char *)p->bytes);
	memcpy(&from.sin_addr, p->bytes + 12, 4);
	memcpy(&to.sin_addr, p->bytes + 16, 4);
	memcpy(&from.sin_port, p->bytes + 20, 2);
	memcpy(&to.sin_port, p->bytes + 22, 2);
	sctp_common_input_processing(&m, 20, 32, p->length, (struct sockaddr *)&from, (struct sockaddr *)&to,
				     m->data + 20, m->data + 32, 0, 0, 0, 0);
	if (m)
		m_freem(m);
}

/* ---- Transfers ---- */

static struct transfer {
	struct socket *listener, *receiver, *sender;
	size_t to_send, received;
	__u64 began_us, last_us;
	int gaps;
} all[TRANSFERS];

static struct socket *make(struct sockaddr_in *own)
{
	struct socket *s = usrsctp_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);

	check(!s, "socket");
	check(usrsctp_bindx(s, (struct sockaddr *)own, 2, SCTP_BINDX_ADD_ADDR) < 0, "bind");
	usrsctp_set_non_blocking(s, 1);
	return s;
}

/* Each keeps to one path, spread evenly. */
static void begin(struct transfer *t, int n)
{
	struct sockaddr_in server[2] = { address(2, PORT + n), address(3, PORT + n) };
	struct sockaddr_in client[2] = { address(0, 0), address(1, 0) };
	struct sockaddr_in peer[2] = { server[n % 2], server[!(n % 2)] };
	struct sctp_setprim primary = { 0 };
	sctp_assoc_t id;
	int yes = 1;

	t->to_send = BYTES;
	t->listener = make(server);
	check(usrsctp_listen(t->listener, 1) < 0, "listen");
	t->sender = make(client);
	usrsctp_setsockopt(t->sender, IPPROTO_SCTP, SCTP_NODELAY, &yes, sizeof(yes));
	check(usrsctp_connectx(t->sender, (struct sockaddr *)peer, 2, &id) < 0 && errno != EINPROGRESS, "connect");
	memcpy(&primary.ssp_addr, &peer[0], sizeof(peer[0]));
	usrsctp_setsockopt(t->sender, IPPROTO_SCTP, SCTP_PRIMARY_ADDR, &primary, sizeof(primary));
}

static void go_on(struct transfer *t)
{
	static char buffer[1 << 16];
	ssize_t n;

	while (t->to_send) {
		size_t next = t->to_send < MESSAGE ? t->to_send : MESSAGE;

		n = usrsctp_sendv(t->sender, buffer, next, NULL, 0, NULL, 0, SCTP_SENDV_NOINFO, 0);
		if (n <= 0)
			break;
		t->to_send -= n;
	}
	if (!t->receiver) {
		t->receiver = usrsctp_accept(t->listener, NULL, NULL);
		if (!t->receiver)
			return;
		usrsctp_set_non_blocking(t->receiver, 1);
		t->began_us = t->last_us = now_us;
	}
	while (t->received < BYTES) {
		struct sctp_rcvinfo info;
		socklen_t from_length = 0, info_length = sizeof(info);
		unsigned type = 0;
		int flags = 0;

		n = usrsctp_recvv(t->receiver, buffer, sizeof(buffer), NULL, &from_length, &info, &info_length, &type, &flags);
		if (n <= 0)
			break;
		t->gaps += now_us - t->last_us > GAP_US;
		t->last_us = now_us;
		t->received += n;
	}
}

/* Whether all are done, once each has gone as far as it can. */
static int go_all_on(void)
{
	int done = 1;

	for (__u32 i = 0; i < transfers; i++) {
		go_on(&all[i]);
		done &= all[i].received >= BYTES;
	}
	return done;
}

static void run(void)
{
	__u64 tick_us = now_us, end_us = now_us + LONGEST_US;

	while (!go_all_on() && now_us < end_us) {
		struct packet *p = under_way;

		if (p && p->at_us <= tick_us + 1000) {
			under_way = p->next;
			now_us = p->at_us > now_us ? p->at_us : now_us;
			arrive(p);
			free(p);
		} else {
			now_us = tick_us += 1000;
			usrsctp_handle_timers(1);
		}
	}
}

int main(int count, char **arguments)
{
	static const char *const modes[] = { "off", "selective", "full", "adaptive" };
	__u64 sent = 0, extra = 0;
	double seconds = 0;
	int gaps = 0;

	if (count == 6)
		budget_percent = atoi(arguments[--count]);
	while (count == 5 && mode < 4 && strcmp(modes[mode], arguments[1]))
		mode++;
	transfers = count == 5 ? atoi(arguments[3]) : 0;
	if (mode > BICAST_ADAPTIVE || !transfers || transfers > TRANSFERS) {
		fprintf(stderr, "usrsctp off|selective|full|adaptive LOSS_PERCENT TRANSFERS SEED [BUDGET_PERCENT] (1 to %d transfers)\n", TRANSFERS);
		return 2;
	}
	loss = atof(arguments[2]) / 100;
	for (int i = 0; i < 4; i++)
		links[i / 2][i % 2].dice = atoi(arguments[4]) * 1000003ull + i * 17;
	usrsctp_init(0, NULL, NULL);
	usrsctp_sysctl_set_sctp_ecn_enable(0);
	usrsctp_sysctl_set_sctp_blackhole(2);
	for (__u32 i = 0; i < transfers; i++)
		begin(&all[i], i);
	run();
	for (__u32 i = 0; i < transfers; i++) {
		seconds += (all[i].last_us - all[i].began_us) / 1e6 / transfers;
		gaps += all[i].gaps;
		for (int way = FORTH; way <= BACK; way++) {
			sent += ends[i][way].sent_bytes;
			extra += ends[i][way].extra_bytes;
		}
	}
	printf("%.3f %.3f %d\n", seconds, (double)extra / sent, gaps);
	return 0;
}
