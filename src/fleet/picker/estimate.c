/* SPDX-License-Identifier: Apache-2.0 */
/* Time estimates for one worker, computed from its report.
 *
 * Workers learn their rates themselves (a warm-up at start gives the first value), so nothing here is fitted
 * to a machine. Until a worker reports a rate, a pessimistic prior keeps it usable without making it
 * attractive. Three priors are fixed here:
 *
 * - A decode step grows with each sequence by the time that the worker learned and reported. Without a report, a step
 *   with n sequences takes 1 + STEP_GROWTH x n times the step without sequences. Decode is bound by reading the
 *   weights, which all sequences share.
 * - KV that moves while prefill computes costs only its tail, which is sent after the last layer is done.
 * - A disk read begins between two steps, and the worker notices its end between two steps. */
#include "fleet/picker/picker.h"

#include <math.h>

#define DEFAULT_PREFILL_TOKENS_PER_S 200.0
#define DEFAULT_DECODE_STEP_S        0.03
#define STEP_GROWTH                  0.05
#define MAX_GROWTH                   1.0 /* a sequence takes at least its part of the step */
#define EXPOSED_SHARE                0.1
#define READ_LATENCY_S               0.001
#define PAIR_SHARE_ALPHA             0.2
#define PAIR_SHARE_MAX               0.01 /* an attended token costs at most a hundredth of a prompt token */

/* A worker that has read only short prompts would look fast beside one that has read long prompts.  So both are compared
 * by the cost of a token and of a token attended to. */
void picker_worker_set_prompt_cost(struct picker_worker *worker, const struct rate *pair_share)
{
    double pair_s = worker->prompt_pair_s;

    if (pair_s <= 0)
        pair_s = worker->prompt_token_s * rate_level(pair_share);
    if (worker->prompt_token_s > 0) {
        worker->prefill_tokens_per_s = 1 / worker->prompt_token_s;
        worker->prefill_pair_s = pair_s;
    }
}

void picker_pair_share_learn(struct rate *pair_share, double token_s, double pair_s, uint64_t now_ns)
{
    if (token_s > 0 && pair_s > 0)
        rate_learn(pair_share, fmin(pair_s / token_s, PAIR_SHARE_MAX), PAIR_SHARE_ALPHA, 1, now_ns);
}

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

double picker_store_s(const struct picker_worker *worker, uint32_t n_tokens)
{
    double step_s =
        worker->n_running > 0 ? 2 * worker->decode_step_s : 0; /* the answer waits for a step too */
    double bytes = ((double)worker->queued_store_tokens + n_tokens) * (double)worker->kv_bytes_per_token;
    double n_asked = worker->block_tokens > 0 ? (double)n_tokens / worker->block_tokens : 0;

    if (worker->store == 0 || worker->store_bytes_per_s <= 0)
        return INFINITY;
    return READ_LATENCY_S + step_s + n_asked * worker->store_ask_s + bytes / worker->store_bytes_per_s;
}

double picker_itl_at_s(const struct picker_worker *worker, uint32_t n_running)
{
    double step = worker->decode_step_s > 0 ? worker->decode_step_s : DEFAULT_DECODE_STEP_S;
    double beyond =
        worker->max_seqs && n_running >= worker->max_seqs ? ((double)n_running + 1) / worker->max_seqs : 1;
    double least = step / (1 + MAX_GROWTH * worker->step_seqs); /* lower bound, even if the report has less */

    if (worker->decode_row_s > 0 && worker->step_seqs > 0)
        step = fmax(step + worker->decode_row_s * ((double)n_running - worker->step_seqs), least);
    else
        step *= (1 + STEP_GROWTH * n_running) / (1 + STEP_GROWTH * worker->step_seqs);
    return step * beyond;
}

double picker_itl_s(const struct picker_worker *worker)
{
    return picker_itl_at_s(worker, worker->n_running);
}

double picker_transfer_s(const struct picker_worker *to, uint32_t n_tokens)
{
    double rate = to->transfer_bytes_per_s > 0 ? to->transfer_bytes_per_s : LOAD_RATE_LINK_PRIOR;

    return EXPOSED_SHARE * (double)n_tokens * (double)to->kv_bytes_per_token / rate;
}
