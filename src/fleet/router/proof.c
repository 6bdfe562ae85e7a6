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

void router_part_proof(struct job_part *part, const Baton__Proof *proof)
{
    part->has_proof = true;
    part->proof.computed_tokens = proof->computed;
    part->proof.reused_tokens = proof->reused;
    part->proof.transferred_tokens = proof->transferred;
    part->proof.n_preempted = proof->preempted;
    part->proof.drafted_tokens = proof->drafted;
    part->proof.accepted_tokens = proof->accepted;
    part->proof.queue_ns = proof->queue_ns;
    part->proof.prefill_ns = proof->prefill_ns;
    part->proof.transfer_ns = proof->transfer_ns;
    part->proof.exposed_ns = proof->exposed_ns;
    part->proof.decode_ns = proof->decode_ns;
    part->proof.transport[0] = '\0'; /* it goes into answers and headers: only known names */
    if (strcmp(proof->transport, "shm") == 0 || strcmp(proof->transport, "tcp") == 0 ||
        strcmp(proof->transport, "rdma") == 0)
        str_copy(part->proof.transport, sizeof(part->proof.transport), proof->transport);
}

static void proof_add_part(const struct job *job, const struct job_part *part, struct gen_proof *sum)
{
    if (part->slot == PICKER_NONE)
        return;
    str_copy(part == &job->prefill ? sum->prefill_worker : sum->decode_worker, sizeof(sum->decode_worker),
             job->router->workers[part->slot].node);
    if (!part->has_proof)
        return;
    sum->computed_tokens += part->proof.computed_tokens;
    sum->transferred_tokens += part->proof.transferred_tokens;
    sum->n_preempted += part->proof.n_preempted;
    sum->drafted_tokens += part->proof.drafted_tokens;
    sum->accepted_tokens += part->proof.accepted_tokens;
    sum->queue_ns += part->proof.queue_ns;
    sum->prefill_ns += part->proof.prefill_ns;
    sum->transfer_ns += part->proof.transfer_ns;
    sum->exposed_ns += part->proof.exposed_ns;
    sum->decode_ns += part->proof.decode_ns;
    if (part->proof.transport[0] != '\0')
        memcpy(sum->transport, part->proof.transport, sizeof(sum->transport));
}

/* A pair's decode worker may have found part of the prompt in its own cache while the prefill worker found
 * (or computed) the whole: the prompt's tokens are counted once, from the side that prefilled. */
void router_job_proof(const struct job *job, struct gen_proof *out)
{
    const struct job_part *first =
        job->prefill.slot != PICKER_NONE && job->prefill.has_proof ? &job->prefill : &job->decode;

    *out = job->sum;
    proof_add_part(job, &job->prefill, out);
    proof_add_part(job, &job->decode, out);
    if (first->has_proof)
        out->reused_tokens = first->proof.reused_tokens;
    out->prompt_tokens = job->order.n_prompt;
    gen_handle_proof(&job->handle, out);
}
