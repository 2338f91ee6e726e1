/* Lets user-mode Linux run on processors whose extended state (XSAVE) is larger than it has room for: preloaded
 * (LD_PRELOAD) into its kernel.
 *
 * UML 6.1 keeps 2696 bytes of each process's extended state, all up to AVX-512, and writes them back by PTRACE_SETREGSET.
 * Where the processor has more (11,008 bytes with AMX), the host's kernel refuses anything but the whole (EFAULT), and UML
 * kills its first process. So what is missing is filled up with zeros, the initial state: it belongs to features that a
 * program has to ask its kernel for first, and UML's has none to give. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Static, because the stacks of UML's kernel are small; it has one processor. */
static char state[65536];
/* Bytes of the host's; 0: not known. */
static size_t whole;

/* As glibc's. */
long ptrace(enum __ptrace_request request, ...)
{
    va_list list;
    va_start(list, request);
    pid_t pid = va_arg(list, pid_t);
    unsigned long address = va_arg(list, unsigned long);
    void *data = va_arg(list, void *);
    va_end(list);

    struct iovec all = {state, sizeof state};
    long word = 0;
    int peeks = request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER;

    if (request == PTRACE_SETREGSET && address == NT_X86_XSTATE) {
        const struct iovec *given = data;

        if (!whole && syscall(SYS_ptrace, PTRACE_GETREGSET, pid, address, &all) == 0)
            whole = all.iov_len;
        if (given->iov_len < whole) {
            memcpy(state, given->iov_base, given->iov_len);
            memset(state + given->iov_len, 0, whole - given->iov_len);
            all.iov_len = whole;
            data = &all;
        }
    }
    long result = syscall(SYS_ptrace, request, pid, address, peeks ? &word : data);

    if (result == 0 && peeks) {
        errno = 0;
        return word;
    }
    return result;
}
