/* SPDX-License-Identifier: Apache-2.0 */
/* Time: monotonic nanoseconds, and wall time for display. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_US UINT64_C(1000)

uint64_t clock_now_ns(void);        /* CLOCK_MONOTONIC */
uint64_t clock_thread_cpu_ns(void); /* CPU time of the calling thread; costs a system call */
uint64_t clock_unix_ns(void);       /* CLOCK_REALTIME, since 1970 */
void clock_sleep_ns(uint64_t ns);   /* sleeps the full time, even if signals arrive */

/* Writes "2026-11-20T22:26:00Z" (21 bytes with the NUL). */
void clock_rfc3339(uint64_t unix_s, char out[21]);

#endif
