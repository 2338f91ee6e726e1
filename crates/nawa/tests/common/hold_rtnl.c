/*
 * Holds the kernel's RTNL lock from when it says "held" until its standard input ends.
 *
 * The kernel reads an IP_ADD_MEMBERSHIP's argument under the lock. The argument is on a page that is not there, and
 * userfaultfd leaves it to this program when it comes. What it then reads are zeroes: nobody joins anything. A page that
 * never comes is no trap: with this process the lock is free again, and the alarm ends it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <signal.h>
#include <unistd.h>

/* Longer than a test waits for what does not come, s. */
#define LONGEST 60

static void *page;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void *join(void *unused)
{
	int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (sock < 0)
		fail("socket");
	/* Fails, for 0.0.0.0 is no group. */
	(void)!setsockopt(sock, IPPROTO_IP, IP_ADD_MEMBERSHIP, page, sizeof(struct ip_mreqn));
	close(sock);
	return unused;
}

int main(void)
{
	long size = sysconf(_SC_PAGESIZE);
	int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage zero = { .mode = 0 };
	struct uffd_msg fault;
	pthread_t thread;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(LONGEST);
	page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (faults < 0 || page == MAP_FAILED || ioctl(faults, UFFDIO_API, &api))
		fail("userfaultfd");
	range.range.start = zero.range.start = (unsigned long)page;
	range.range.len = zero.range.len = size;
	if (ioctl(faults, UFFDIO_REGISTER, &range))
		fail("UFFDIO_REGISTER");
	if (pthread_create(&thread, NULL, join, NULL))
		fail("pthread_create");
	if (read(faults, &fault, sizeof(fault)) != sizeof(fault))
		fail("read");
	puts("held");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	if (ioctl(faults, UFFDIO_ZEROPAGE, &zero))
		fail("UFFDIO_ZEROPAGE");
	pthread_join(thread, NULL);
	return 0;
}
