/* SPDX-License-Identifier: Apache-2.0 */
/* Serving stats of an answer, as its workers report them.
 *
 *      worker's report -> its part of the job -> plus earlier attempts -> the answer's serving stats
 *
 * Tokens and times of a pair's two workers are added up. Figures of the prompt as a whole come from the
 * side that prefilled. */
#include "fleet/router/stream_priv.h"

#include <string.h>

#include "base/str.h"

void router_part_serving(struct job_part *part, const Baton__Serving *serving)
{
    part->has_serving = true;
    part->serving.computed_tokens = serving->computed;
    part->serving.reused_tokens = serving->reused;
    part->serving.transferred_tokens = serving->transferred;
    part->serving.n_preempted = serving->preempted;
    part->serving.drafted_tokens = serving->drafted;
    part->serving.accepted_tokens = serving->accepted;
    part->serving.queue_ns = serving->queue_ns;
    part->serving.prefill_ns = serving->prefill_ns;
    part->serving.transfer_ns = serving->transfer_ns;
    part->serving.exposed_ns = serving->exposed_ns;
    part->serving.attention_bytes = serving->attention_bytes;
    part->serving.recurrent_bytes = serving->recurrent_bytes;
    part->serving.index_bytes = serving->index_bytes;
    part->serving.mtp_bytes = serving->mtp_bytes;
    part->serving.decode_ns = serving->decode_ns;
    part->serving.transport[0] = '\0'; /* answers and headers contain it, so only known names are allowed */
    if (strcmp(serving->transport, "shm") == 0 || strcmp(serving->transport, "tcp") == 0 ||
        strcmp(serving->transport, "rdma") == 0)
        str_copy(part->serving.transport, sizeof(part->serving.transport), serving->transport);
}

static void serving_add_part(const struct job *job, const struct job_part *part, struct gen_serving *sum)
{
    if (part->slot == PICKER_NONE)
        return;
    str_copy(part == &job->prefill ? sum->prefill_worker : sum->decode_worker, sizeof(sum->decode_worker),
             job->router->workers[part->slot].node);
    if (!part->has_serving)
        return;
    sum->computed_tokens += part->serving.computed_tokens;
    sum->transferred_tokens += part->serving.transferred_tokens;
    sum->n_preempted += part->serving.n_preempted;
    sum->drafted_tokens += part->serving.drafted_tokens;
    sum->accepted_tokens += part->serving.accepted_tokens;
    sum->queue_ns += part->serving.queue_ns;
    sum->prefill_ns += part->serving.prefill_ns;
    sum->transfer_ns += part->serving.transfer_ns;
    sum->exposed_ns += part->serving.exposed_ns;
    sum->attention_bytes += part->serving.attention_bytes;
    sum->recurrent_bytes += part->serving.recurrent_bytes;
    sum->index_bytes += part->serving.index_bytes;
    sum->mtp_bytes += part->serving.mtp_bytes;
    sum->decode_ns += part->serving.decode_ns;
    if (part->serving.transport[0] != '\0')
        memcpy(sum->transport, part->serving.transport, sizeof(sum->transport));
}

/* Sums the serving stats.  A pair's decode worker may find part of the prompt in its own cache, while the
 * prefill worker finds or computes all of it.  So the prompt's tokens are counted once, at the side that
 * prefilled. */
void router_job_serving(const struct job *job, struct gen_serving *out)
{
    const struct job_part *first =
        job->prefill.slot != PICKER_NONE && job->prefill.has_serving ? &job->prefill : &job->decode;

    *out = job->sum;
    serving_add_part(job, &job->prefill, out);
    serving_add_part(job, &job->decode, out);
    if (first->has_serving)
        out->reused_tokens = first->serving.reused_tokens;
    out->prompt_tokens = job->order.n_prompt;
    gen_handle_serving(&job->handle, out);
}
