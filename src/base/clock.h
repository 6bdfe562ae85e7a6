/* SPDX-License-Identifier: Apache-2.0 */
/* Time: monotonic nanoseconds, and wall time for people. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_US UINT64_C(1000)

uint64_t clock_now_ns(void);      /* CLOCK_MONOTONIC */
uint64_t clock_unix_ns(void);     /* CLOCK_REALTIME, since 1970 */
uint64_t clock_thread_ns(void);   /* processor time of the calling thread */
void clock_sleep_ns(uint64_t ns); /* whole sleep, also across signals */

/* Writes "2026-11-20T22:26:00Z" (21 bytes with the NUL). */
void clock_rfc3339(uint64_t unix_s, char out[21]);

#endif
