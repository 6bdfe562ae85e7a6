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
#define TAKE(type, member, field) part->serving.member = serving->field;
    GEN_SERVING_COUNTS(TAKE)
    GEN_SERVING_TIMES(TAKE)
#undef TAKE
    part->serving.transport[0] = '\0'; /* answers and headers contain it, so it must be a plain word */
    if (serving->transport[strspn(serving->transport, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0' &&
        strlen(serving->transport) < sizeof(part->serving.transport))
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
#define ADD(type, member, field) sum->member += part->serving.member;
    GEN_SERVING_COUNTS(ADD)
    GEN_SERVING_TIMES(ADD)
#undef ADD
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
    str_copy(out->class_name, sizeof(out->class_name), job->router->classes.all[job->class_at].name);
    gen_handle_serving(&job->handle, out);
}
