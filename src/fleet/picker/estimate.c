/* SPDX-License-Identifier: Apache-2.0 */
/* Time estimates for one worker, computed from its report.
 *
 * Workers learn their rates themselves (a warm-up at start gives the first value), so nothing here is
 * fitted to a machine. Where a worker has reported no rate yet, a pessimistic guess keeps it usable
 * without making it attractive. Three priors are fixed here:
 *
 * - A decode step grows by STEP_GROWTH of itself per sequence added since the report. Decode is bound by
 * reading the weights, which all sequences share; attention is not shared.
 * - KV that moves while prefill computes costs only its tail: the part that is sent after the last layer
 * is done.
 * - A disk read begins, and is found complete, between two steps. */
#include "fleet/picker/picker.h"

#include <math.h>

#define DEFAULT_PREFILL_TOKENS_PER_S 200.0
#define DEFAULT_DECODE_STEP_S        0.03
#define DEFAULT_TRANSFER_BYTES_PER_S 1e9
#define STEP_GROWTH                  0.05
#define EXPOSED_SHARE                0.1
#define READ_LATENCY_S               0.001

double picker_prefill_s(const struct picker_worker *worker, uint32_t n_tokens)
{
    double rate = worker->prefill_tokens_per_s;

    return n_tokens / (rate > 0 ? rate : DEFAULT_PREFILL_TOKENS_PER_S);
}

double picker_prompt_s(const struct picker_worker *worker, uint32_t from, uint32_t n_tokens)
{
    double n = n_tokens;

    return picker_prefill_s(worker, n_tokens) + worker->prefill_pair_s * n * (from + n / 2);
}

double picker_queue_s(const struct picker_worker *worker)
{
    double rate = worker->prefill_tokens_per_s;

    if (worker->queued_prefill_s > 0)
        return worker->queued_prefill_s;
    return (double)worker->queued_prefill_tokens / (rate > 0 ? rate : DEFAULT_PREFILL_TOKENS_PER_S);
}

double picker_read_s(const struct picker_worker *worker, uint32_t n_tokens)
{
    double step_s = worker->n_running > 0 ? worker->decode_step_s : 0;
    double bytes = ((double)worker->queued_read_tokens + n_tokens) * (double)worker->kv_bytes_per_token;

    return worker->read_bytes_per_s > 0 ? READ_LATENCY_S + step_s + bytes / worker->read_bytes_per_s
                                        : INFINITY;
}

double picker_itl_s(const struct picker_worker *worker)
{
    double step = worker->decode_step_s > 0 ? worker->decode_step_s : DEFAULT_DECODE_STEP_S;
    double beyond = worker->max_seqs && worker->n_running >= worker->max_seqs
                        ? ((double)worker->n_running + 1) / worker->max_seqs
                        : 1;

    return step * (1 + STEP_GROWTH * worker->n_running) * beyond;
}

int64_t picker_itl_alone_ns(int64_t itl_ns, uint32_t n_running)
{
    return (int64_t)((double)itl_ns / (1 + STEP_GROWTH * n_running));
}

double picker_transfer_s(const struct picker_worker *to, uint32_t n_tokens)
{
    double rate = to->transfer_bytes_per_s > 0 ? to->transfer_bytes_per_s : DEFAULT_TRANSFER_BYTES_PER_S;

    return EXPOSED_SHARE * (double)n_tokens * (double)to->kv_bytes_per_token / rate;
}
