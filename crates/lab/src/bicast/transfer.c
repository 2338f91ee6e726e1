/* One transfer over SCTP between two hosts with two addresses each: paper 004's "server-client program" (4.2).
 *
 *   transfer receive PORT BYTES OWN OWN                     says "ready", and when all bytes are there
 *                                                           SECONDS LONGEST_GAP_MS GAPS_OVER_500_MS
 *   transfer send PORT BYTES PRIMARY OWN OWN PEER PEER      at the end lines of counters, NAME NUMBER
 *
 * Time counts at the receiver, from the association's being up to the last byte; gaps are between two of its reads.
 * With "probe" before these words, each end asks for HEARTBEATs to all the other's addresses at once, by which they are
 * known to be its own; usrsctp does so by itself, the kernel only after some seconds.
 *
 * PRIMARY is 0 or 1, the peer's address that all goes to as long as SCTP itself does not decide otherwise.
 * Compiled as it is for the kernel's SCTP, and with -DUSRSCTP for that library, over raw IP sockets; then a sender says
 * "ready" and does not begin while another process has an exclusive lock on this program's file. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifdef USRSCTP
#include <usrsctp.h>
typedef struct socket *sctp;
#define PRIMARY sctp_setprim
#else
#include <linux/sctp.h>
typedef int sctp;
#define PRIMARY sctp_prim
#endif

#define MESSAGE 1400 /* one DATA chunk, one packet */
#define GAP 0.5

static void fail(const char *what)
{
	fprintf(stderr, "transfer: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void check(int failed, const char *what)
{
	if (failed)
		fail(what);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static struct sockaddr_in address(const char *text, const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

	check(inet_pton(AF_INET, text, &to.sin_addr) != 1, text);
	return to;
}

/* ---- The two stacks ---- */

#ifdef USRSCTP

static void start(void)
{
	usrsctp_init(0, NULL, NULL);
	/* Other associations of this host are other processes': do not abort them. */
	usrsctp_sysctl_set_sctp_blackhole(2);
	usrsctp_sysctl_set_sctp_ecn_enable(0);
}

/* Between the two calls above a process aborts what it sees of others' associations, and it can say so no earlier, since the
 * first one resets it: waits until all have begun. */
static void await_others(void)
{
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	puts("ready");
	fflush(stdout);
	check(file < 0 || flock(file, LOCK_SH) || close(file), "wait for others");
}

static sctp make(struct sockaddr_in *own)
{
	sctp s = usrsctp_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);

	check(!s, "socket");
	check(usrsctp_bindx(s, (struct sockaddr *)own, 2, SCTP_BINDX_ADD_ADDR) < 0, "bind");
	return s;
}

#define set(s, option, value) check(usrsctp_setsockopt(s, IPPROTO_SCTP, option, &value, sizeof(value)) < 0, #option)

static void probe(sctp s)
{
	(void)s;
}

static void join(sctp s, struct sockaddr_in *peer)
{
	sctp_assoc_t id;

	check(usrsctp_connectx(s, (struct sockaddr *)peer, 2, &id) < 0, "connect");
}

static sctp await(sctp s)
{
	check(usrsctp_listen(s, 1) < 0, "listen");
	puts("ready");
	fflush(stdout);
	s = usrsctp_accept(s, NULL, NULL);
	check(!s, "accept");
	return s;
}

static ssize_t take(sctp s, void *buffer, size_t length)
{
	struct sctp_rcvinfo info;
	socklen_t from_length = 0, info_length = sizeof(info);
	unsigned type = 0;
	int flags = 0;

	return usrsctp_recvv(s, buffer, length, NULL, &from_length, &info, &info_length, &type, &flags);
}

static ssize_t give(sctp s, const void *buffer, size_t length)
{
	return usrsctp_sendv(s, buffer, length, NULL, 0, NULL, 0, SCTP_SENDV_NOINFO, 0);
}

static void end(sctp s)
{
	check(usrsctp_shutdown(s, SHUT_WR) < 0, "shutdown");
}

static void tell_counters(void)
{
	struct sctpstat counters;

	usrsctp_get_stat(&counters);
	printf("t3_expiries %u\n", counters.sctps_timodata);
	printf("retransmitted_chunks %u\n", counters.sctps_sendretransdata);
	printf("fast_retransmitted_chunks %u\n", counters.sctps_sendfastretrans);
	printf("again_fast_retransmitted_chunks %u\n", counters.sctps_sendmultfastretrans);
}

#else

static void start(void)
{
}

#define set(s, option, value) check(setsockopt(s, IPPROTO_SCTP, option, &value, sizeof(value)), #option)

static sctp make(struct sockaddr_in *own)
{
	sctp s = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);

	check(s < 0, "socket");
	check(setsockopt(s, IPPROTO_SCTP, SCTP_SOCKOPT_BINDX_ADD, own, 2 * sizeof(*own)), "bind");
	return s;
}

static void probe(sctp s)
{
	char room[sizeof(struct sctp_getaddrs) + 4 * sizeof(struct sockaddr_in)] = { 0 };
	struct sctp_getaddrs *peer = (struct sctp_getaddrs *)room;
	socklen_t length = sizeof(room);

	check(getsockopt(s, IPPROTO_SCTP, SCTP_GET_PEER_ADDRS, room, &length), "the peer's addresses");
	for (unsigned i = 0; i < peer->addr_num; i++) {
		struct sctp_paddrparams now = { .spp_flags = SPP_HB_DEMAND };

		memcpy(&now.spp_address, peer->addrs + i * sizeof(struct sockaddr_in), sizeof(struct sockaddr_in));
		set(s, SCTP_PEER_ADDR_PARAMS, now);
	}
}

static void join(sctp s, struct sockaddr_in *peer)
{
	check(setsockopt(s, IPPROTO_SCTP, SCTP_SOCKOPT_CONNECTX, peer, 2 * sizeof(*peer)) < 0, "connect");
}

static sctp await(sctp s)
{
	check(listen(s, 1), "listen");
	puts("ready");
	fflush(stdout);
	s = accept(s, NULL, NULL);
	check(s < 0, "accept");
	return s;
}

static ssize_t take(sctp s, void *buffer, size_t length)
{
	return recv(s, buffer, length, 0);
}

static ssize_t give(sctp s, const void *buffer, size_t length)
{
	return send(s, buffer, length, 0);
}

static void end(sctp s)
{
	check(shutdown(s, SHUT_WR), "shutdown");
}

static void await_others(void)
{
}

/* The kernel counts for all its associations together: /proc/net/sctp/snmp. */
static void tell_counters(void)
{
}

#endif

/* ---- The transfer ---- */

static int probing;

static void receive(char **words)
{
	struct sockaddr_in own[2] = { address(words[2], words[0]), address(words[3], words[0]) };
	unsigned long long left = strtoull(words[1], NULL, 10);
	static char buffer[1 << 16];
	unsigned gaps = 0;
	sctp s = await(make(own));
	double began = now(), last = began, longest = 0;

	if (probing)
		probe(s);
	while (left) {
		ssize_t length = take(s, buffer, sizeof(buffer));
		double time = now();

		check(length <= 0 || (unsigned long long)length > left, "receive");
		if (time - last > longest)
			longest = time - last;
		gaps += time - last > GAP;
		last = time;
		left -= length;
	}
	printf("%.6f %.3f %u\n", last - began, longest * 1e3, gaps);
	fflush(stdout);
	/* The sender may be gone before its last word is acknowledged; then this end is told that it was aborted. */
	while (take(s, buffer, sizeof(buffer)) > 0)
		;
}

static void transmit(char **words)
{
	unsigned long long left = strtoull(words[1], NULL, 10);
	int primary = atoi(words[2]) == 1, yes = 1;
	struct sockaddr_in own[2] = { address(words[3], "0"), address(words[4], "0") };
	struct sockaddr_in peer[2] = { address(words[5 + primary], words[0]), address(words[6 - primary], words[0]) };
	struct PRIMARY fixed = { 0 };
	static char message[MESSAGE];
	sctp s = make(own);
	ssize_t sent;

	set(s, SCTP_NODELAY, yes);
	await_others();
	join(s, peer);
	memcpy(&fixed.ssp_addr, &peer[0], sizeof(peer[0]));
	set(s, SCTP_PRIMARY_ADDR, fixed);
	if (probing)
		probe(s);
	for (; left; left -= sent) {
		sent = give(s, message, left < MESSAGE ? left : MESSAGE);
		check(sent <= 0, "send");
	}
	end(s);
	/* Until the peer has it all. */
	while (take(s, message, sizeof(message)) > 0)
		;
	tell_counters();
}

int main(int count, char **words)
{
	start();
	probing = count > 1 && !strcmp(words[1], "probe");
	count -= probing;
	words += probing;
	if (count == 6 && !strcmp(words[1], "receive"))
		receive(words + 2);
	else if (count == 9 && !strcmp(words[1], "send"))
		transmit(words + 2);
	else
		return 2;
	fflush(stdout);
	/* A library's threads are not waited for. */
	_exit(0);
}
