/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What copies do to usrsctp, FreeBSD's SCTP, in virtual time (links.h): the installed library at both ends in one process, its clock,
 * timers and packets driven from here. A transfer takes milliseconds. `make usrsctp` compares modes.
 *
 * The library's own calls are answered here, those to the system and one of its own; it starts no threads. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <usrsctp.h>

#include "links.h"

#define MESSAGE 1400

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

/* By raw sockets, with IP's header. */
ssize_t sendmsg(int s, const struct msghdr *message, int flags)
{
	unsigned char bytes[PACKET];
	int length = 0;

	(void)s, (void)flags;
	for (size_t i = 0; i < message->msg_iovlen; i++) {
		if (length + message->msg_iov[i].iov_len > sizeof(bytes))
			return -1;
		memcpy(bytes + length, message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
		length += message->msg_iov[i].iov_len;
	}
	send_by(bytes[17] - 1, bytes[19] == 2 ? FORTH : BACK, bytes, length);
	return length;
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
	struct sockaddr_in peer[2] = { server[n % 2 && !on_first], server[!(n % 2 && !on_first)] };
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
		if (!step(&tick_us, arrive))
			usrsctp_handle_timers(1);
	}
}

int main(int count, char **arguments)
{
	double seconds = 0;
	int gaps = 0;

	configure(count, arguments);
	usrsctp_init(0, NULL, NULL);
	usrsctp_sysctl_set_sctp_ecn_enable(0);
	usrsctp_sysctl_set_sctp_blackhole(2);
	for (__u32 i = 0; i < transfers; i++)
		begin(&all[i], i);
	run();
	for (__u32 i = 0; i < transfers; i++) {
		seconds += (all[i].last_us - all[i].began_us) / 1e6 / transfers;
		gaps += all[i].gaps;
	}
	print(seconds, gaps, 0);
	return 0;
}
