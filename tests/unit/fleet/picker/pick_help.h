/* SPDX-License-Identifier: Apache-2.0 */
/* A worker and a choice among workers, for the tests of the picker's choice. */
#ifndef TESTS_UNIT_FLEET_PICKER_PICK_HELP_H
#define TESTS_UNIT_FLEET_PICKER_PICK_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "fleet/picker/fleet.h"

static struct picker_worker worker(enum picker_role role)
{
    return (struct picker_worker){
        .is_usable = true,
        .role = role,
        .layout = 7,
        .block_tokens = 32,
        .blocks_free = 10000,
        .max_seqs = 64,
        .prefill_tokens_per_s = 1000,
        .decode_step_s = 0.02,
        .transfer_bytes_per_s = 1e9,
        .kv_bytes_per_token = 65536,
    };
}

static struct picker_goals goals = {.ttft_slo_s = 0.5, .itl_slo_s = 0.05, .local_prefill_tokens = 64};

/* Picks from rows as a fleet has them; the cached part of the prompt is separate. */
static int pick(const struct picker_worker *workers, uint32_t n, const struct picker_request *request,
                struct picker_choice *out)
{
    uint32_t cached_blocks[PICKER_MAX_WORKERS] = {0};
    struct picker_run runs[PICKER_MAX_WORKERS];
    struct picker_request known = *request;
    struct picker_fleet *fleet;
    int rc;

    assert_int_equal(picker_fleet_new(0, &fleet), 0);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(picker_fleet_set(fleet, i, &workers[i]), 0);
        cached_blocks[i] = workers[i].cached_tokens / workers[i].block_tokens;
        if (workers[i].stored_tokens > workers[i].cached_tokens)
            runs[known.n_runs++] = (struct picker_run){
                .slot = i, .n_blocks = workers[i].stored_tokens / workers[i].block_tokens};
    }
    known.cached_blocks = cached_blocks;
    known.runs = runs;
    rc = picker_pick(fleet, &goals, &known, out);
    picker_fleet_free(fleet);
    return rc;
}

static struct picker_choice choose(const struct picker_worker *workers, uint32_t n, uint32_t n_tokens,
                                   int expect)
{
    struct picker_request request = {.n_tokens = n_tokens, .max_new_tokens = 100};
    struct picker_choice choice = {0};

    assert_int_equal(pick(workers, n, &request, &choice), expect);
    return choice;
}

#endif
