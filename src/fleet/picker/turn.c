/* SPDX-License-Identifier: Apache-2.0 */
/* See fleet/picker/turn.h. */
#include "fleet/picker/turn.h"

#include "base/err.h"

#define MAX_TRIED   8 /* tenants' first requests tried before the turn ends */
#define MAX_PASSED  64
#define FEW_WORKERS 4
#define EQUAL_NS    UINT64_C(10000000) /* closer deadlines count as equal */
#define MAX_LIMIT_S 3600.0

enum picker_yield picker_yield_for(const struct picker_patience *patience)
{
    uint64_t most_ns = patience->ttft_slo_ns < patience->queue_timeout_ns / 2
                           ? patience->ttft_slo_ns
                           : patience->queue_timeout_ns / 2;

    if (patience->is_refused_early)
        return patience->takes_any ? PICKER_LEAST_BAD : PICKER_CONSERVES;
    if (patience->is_waiting)
        return patience->waited_ns >= most_ns ? PICKER_LEAST_BAD : PICKER_CONSERVES;
    return patience->is_full ? PICKER_LEAST_BAD : PICKER_CONSERVES;
}

uint64_t picker_turn_order(uint64_t arrived_ns, double limit_s, bool is_warm)
{
    double limit_ns = limit_s < MAX_LIMIT_S ? limit_s * 1e9 : MAX_LIMIT_S * 1e9;

    return (arrived_ns + (uint64_t)limit_ns) / EQUAL_NS * 2 + !is_warm;
}

uint32_t picker_turn_max_passed(uint32_t n_workers)
{
    uint32_t n = n_workers / FEW_WORKERS;

    return n < 1 ? 1 : n < MAX_PASSED ? n : MAX_PASSED;
}

bool picker_turn_next(const struct picker_turn *turn)
{
    struct fair_item *passed[MAX_TRIED];
    struct fair_item *item = fair_first(turn->turns);
    uint32_t max_passed = turn->max_passed > 0 ? turn->max_passed : MAX_PASSED;
    unsigned n = 0;

    while (item != NULL && n < MAX_TRIED) {
        int rc = turn->try_place(turn->arg, item); /* success ends the loop */

        if (rc == 0) {
            while (n > 0)
                ++*turn->passed(turn->arg, passed[--n]);
            return true;
        }
        if (turn->is_odd != NULL && turn->is_odd(turn->arg, item, rc)) {
            fair_rewind(turn->turns);
            turn->make_odd(turn->arg, item, rc);
            return true;
        }
        if (rc == E_NOT_FOUND || *turn->passed(turn->arg, item) >= max_passed)
            break;
        passed[n++] = item;
        item = fair_skip(turn->turns, item);
    }
    fair_rewind(turn->turns);
    return false;
}
