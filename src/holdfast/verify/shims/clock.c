/* Moves the wall clock of one process by an offset that can change while it runs.
 *
 * Only the wall clock: timeouts, event loops and the kit's own history use the monotonic one.
 * An absolute deadline on the wall clock that is given to the kernel (pthread_cond_timedwait)
 * is not translated. A statically linked program never comes here; the kit notices by asking
 * it for the time. */

#define _GNU_SOURCE
#include <stdint.h>
#include <sys/time.h>
#include <time.h>

#include "control.h"

static const volatile int64_t *offset_ns;

__attribute__((constructor)) static void begin(void)
{
    offset_ns = control_of("HOLDFAST_CLOCK", sizeof *offset_ns, 0);
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    long failed = syscall(SYS_clock_gettime, id, now);
    if (failed || offset_ns == NULL || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
        return (int)failed;
    int64_t nanoseconds = now->tv_nsec + *offset_ns % 1000000000;
    int64_t carry = nanoseconds < 0 ? -1 : nanoseconds / 1000000000;
    now->tv_nsec = (long)(nanoseconds - carry * 1000000000);
    now->tv_sec += *offset_ns / 1000000000 + carry;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now != NULL)
        *now = exact.tv_sec;
    return exact.tv_sec;
}

int timespec_get(struct timespec *now, int base)
{
    if (base != TIME_UTC)
        return 0;
    clock_gettime(CLOCK_REALTIME, now);
    return base;
}
