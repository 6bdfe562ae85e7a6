/* SPDX-License-Identifier: Apache-2.0 */
/* A circuit breaker for a store: it stops the use of a store that fails, and tests later whether the store is back.
 *
 *     TRYING --a test succeeds--> UP --a failure, or LATE_IN_ROW late answers in a row--> DOWN
 *        ^ |                                                                               | |
 *        | +--the test fails: twice the rest--> DOWN                    the rest is over --+ |
 *        +----------------------------------------------------------------------------------+
 *
 * Requests use the store in UP only.  A test is no request, so no client waits for it.  Pure; the caller passes the
 * time. */
#ifndef BASE_BREAKER_H
#define BASE_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum breaker_state {
    BREAKER_TRYING, /* a test is due or under way */
    BREAKER_UP,     /* the store is used */
    BREAKER_DOWN    /* nothing is sent until the rest is over */
};

struct breaker { /* zeroed: TRYING */
    enum breaker_state state;
    bool is_testing;
    unsigned n_late; /* in a row */
    uint64_t rest_ns, until_ns;
};

/* True: the caller starts a test now.  It ends with breaker_succeed() or breaker_fail(). */
bool breaker_wants_test(struct breaker *breaker, uint64_t now_ns);
/* In UP: the store answered a request that no client waited for.  The count of late answers stays. */
void breaker_answered(struct breaker *breaker);
/* All return whether the state just entered or left UP, for the log. */
bool breaker_succeed(struct breaker *breaker);
bool breaker_fail(struct breaker *breaker, uint64_t now_ns);
bool breaker_late(struct breaker *breaker,
                  uint64_t now_ns); /* an answer came after its deadline, or not yet */

#endif
