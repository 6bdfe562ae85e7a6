/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: recorded traces.  A refused trace names its line.  An accepted one is in order of time, replays
 * as many requests as it has, and runs to its end in the simulator, which accounts for every request. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "clients/sim/replay.h"

#define MOST_SIMULATED 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void simulate(const struct trace *trace)
{
    struct replay_opts opts = {.speed = 1, .n_replicas = 2, .n_requests = MOST_SIMULATED};
    struct sim_opts sim = {.n_prefill = 2,
                           .n_decode = 2,
                           .prefill_times = {.step_s = 0.01, .token_s = 1e-6},
                           .decode_times = {.step_s = 0.01, .token_s = 1e-6},
                           .block_tokens = TRACE_BLOCK_TOKENS,
                           .max_seqs = 8,
                           .chunk_tokens = 512,
                           .kv_tokens = 1 << 20,
                           .heartbeat_ns = NS_PER_S,
                           .ttft_slo_ns = NS_PER_S,
                           .itl_slo_ns = NS_PER_S,
                           .queue_max = 4,
                           .queue_timeout_ns = NS_PER_S,
                           .index_entries = 1000,
                           .n_columns = 4};
    struct sim_result result;
    struct replay *replay;
    struct sim_load load;
    int rc = replay_new(trace, &opts, &replay);
    uint64_t n = 0;

    if (rc < 0) {
        ASSERT(rc == E_RANGE);
        return;
    }
    load = replay_load(replay);
    ASSERT(sim_run(&sim, &load, NULL, &result) == 0);
    for (unsigned i = 0; i < REFUSAL_REASONS; i++)
        n += result.classes[0].n_refused[i];
    ASSERT(result.classes[0].n_arrived <= MOST_SIMULATED);
    ASSERT(n + result.classes[0].n_done == result.classes[0].n_arrived);
    sim_result_fini(&result);
    replay_free(replay);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace trace = {0};
    struct fault fault = {0};

    if (trace_parse("t", bytes_of(data, size), &fault, &trace) < 0) {
        ASSERT(fault.code < 0 && strncmp(fault.text, "t:", 2) == 0);
        return 0;
    }
    for (size_t i = 1; i < trace.n_entries; i++)
        ASSERT(trace.entries[i - 1].at_ns <= trace.entries[i].at_ns);
    for (size_t i = 0; i < trace.n_entries; i++)
        ASSERT((uint64_t)trace.entries[i].first_block + trace.entries[i].n_blocks <= trace.n_block_ids);
    simulate(&trace);
    trace_fini(&trace);
    return 0;
}
