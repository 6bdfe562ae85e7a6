/* SPDX-License-Identifier: Apache-2.0 */
/* See breaker.h. */
#include "base/breaker.h"

#include "base/clock.h"

#define LATE_IN_ROW 3u
#define REST_MIN_NS NS_PER_S
#define REST_MAX_NS (30 * NS_PER_S)

bool breaker_wants_test(struct breaker *breaker, uint64_t now_ns)
{
    if (breaker->state == BREAKER_DOWN && now_ns >= breaker->until_ns)
        breaker->state = BREAKER_TRYING;
    if (breaker->state != BREAKER_TRYING || breaker->is_testing)
        return false;
    breaker->is_testing = true;
    return true;
}

bool breaker_succeed(struct breaker *breaker)
{
    bool is_change = breaker->state == BREAKER_TRYING;

    if (breaker->state == BREAKER_DOWN)
        return false; /* a late answer to an earlier request */
    breaker->n_late = 0;
    breaker->is_testing = false;
    breaker->state = BREAKER_UP;
    if (!is_change)
        breaker->rest_ns = 0; /* it works: the next failure begins with a short rest */
    return is_change;
}

void breaker_answered(struct breaker *breaker)
{
    if (breaker->state == BREAKER_UP)
        breaker->rest_ns = 0;
}

bool breaker_fail(struct breaker *breaker, uint64_t now_ns)
{
    bool is_change = breaker->state == BREAKER_UP;

    if (breaker->state == BREAKER_DOWN)
        return false;
    breaker->rest_ns = breaker->rest_ns == 0                 ? REST_MIN_NS
                       : breaker->rest_ns >= REST_MAX_NS / 2 ? REST_MAX_NS
                                                             : 2 * breaker->rest_ns;
    breaker->until_ns = now_ns + breaker->rest_ns;
    breaker->n_late = 0;
    breaker->is_testing = false;
    breaker->state = BREAKER_DOWN;
    return is_change;
}

bool breaker_late(struct breaker *breaker, uint64_t now_ns)
{
    if (breaker->state != BREAKER_UP || ++breaker->n_late < LATE_IN_ROW)
        return false;
    return breaker_fail(breaker, now_ns);
}
