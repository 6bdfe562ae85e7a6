/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet that tests of admission in virtual time share. */
#include "small_fleet.h"

#include "base/clock.h"

struct sim_opts small_fleet(bool refuses_early)
{
    static const struct sim_times times = {.step_s = 0.004, .row_s = 0.0008, .token_s = 0.00007};

    return (struct sim_opts){.n_prefill = 1,
                             .n_decode = 1,
                             .prefill_times = times,
                             .decode_times = times,
                             .block_tokens = 32,
                             .max_seqs = 64,
                             .chunk_tokens = 512,
                             .batch_tokens = 576,
                             .sched_itl_ns = 50 * NS_PER_MS,
                             .kv_tokens = 200000,
                             .kv_bytes_per_token = 4096,
                             .nic_bytes_per_s = 2e9,
                             .n_layers = 8,
                             .latency_ns = 100 * NS_PER_US,
                             .heartbeat_ns = NS_PER_S,
                             .ttft_slo_ns = 500 * NS_PER_MS,
                             .itl_slo_ns = 50 * NS_PER_MS,
                             .queue_timeout_ns = 10 * NS_PER_S,
                             .queue_max = 256,
                             .local_prefill_tokens = 128,
                             .local_prefill_ns = 500 * NS_PER_MS,
                             .index_entries = 10000,
                             .prefix_fetch = PICKER_FETCH_AUTO,
                             .refuses_early = refuses_early,
                             .seed = 1,
                             .n_columns = 12};
}
