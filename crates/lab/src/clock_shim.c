/* A clock that is wrong: preloaded (LD_PRELOAD) into one program, so that its CLOCK_MONOTONIC and CLOCK_BOOTTIME
 * run too fast or too slowly, and jump forward. Of the true time t since the machine's start they show
 *
 *     t + offset + t * ppm / 1,000,000 + step * floor(t / every)
 *
 * in whole nanoseconds: a function of t alone, so that every thread and every restarted program sees the same clock, and
 * one that never goes back as long as ppm > -1,000,000. NAWALAB_CLOCK is "OFFSET_NS PPM STEP_NS EVERY_NS";
 * EVERY_NS 0 is no steps. Timeouts still pass in true time. It reaches programs that call libc's clock_gettime, not those that read the
 * vDSO themselves. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long long offset, ppm, step, every;

__attribute__((constructor)) static void read_settings(void)
{
    const char *text = getenv("NAWALAB_CLOCK");

    if (!text || sscanf(text, "%lld %lld %lld %lld", &offset, &ppm, &step, &every) != 4)
        offset = ppm = step = every = 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    /* The system call itself: it needs neither dlsym nor a second definition. */
    int result = (int)syscall(SYS_clock_gettime, clock, now);

    if (result == 0 && (clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME)) {
        long long t = now->tv_sec * 1000000000LL + now->tv_nsec;

        t += offset + t / 1000000 * ppm + t % 1000000 * ppm / 1000000 + (every ? t / every * step : 0);
        now->tv_sec = t / 1000000000;
        now->tv_nsec = t % 1000000000;
    }
    return result;
}
