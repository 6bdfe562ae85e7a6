/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks as plain 64-bit numbers.
 *
 * A uint64_t of nanoseconds lasts 584 years, so differences and deadlines are ordinary arithmetic.  All
 * measurements and waits use the monotonic clock.  The wall clock serves only people, logs and certificates.
 * The scheduler and the picker never read a clock: their callers pass the time, so a simulator can make it
 * up. */
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/check.h"

static uint64_t read_clock_ns(clockid_t id)
{
    struct timespec now;

    ASSERT(clock_gettime(id, &now) == 0);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ns(void)
{
    return read_clock_ns(CLOCK_MONOTONIC);
}

uint64_t clock_thread_cpu_ns(void)
{
    return read_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t clock_unix_ns(void)
{
    return read_clock_ns(CLOCK_REALTIME);
}

void clock_sleep_ns(uint64_t ns)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t until_ns = ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + ns;
    struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S)};

    /* An absolute deadline, so that a signal does not lengthen the sleep. */
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

void clock_rfc3339(uint64_t unix_s, char out[21])
{
    const uint64_t last_s = UINT64_C(253402300799); /* 9999-12-31T23:59:59Z: the largest that fits */
    time_t when = (time_t)(unix_s < last_s ? unix_s : last_s);
    struct tm parts;

    ASSERT(gmtime_r(&when, &parts) != NULL);
    ASSERT(strftime(out, 21, "%Y-%m-%dT%H:%M:%SZ", &parts) == 20);
}
