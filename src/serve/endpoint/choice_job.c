/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the work order of one choice: a copy of the request's work description, the values of this choice,
 * its prompt and its constraint.
 *
 * Copying a long prompt takes milliseconds, mostly page faults, so each turn of the loop copies one slice. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"
#include "serve/endpoint/choice_priv.h"

uint32_t choices_per_prompt(const struct request *request)
{
    return request->n_choices / (uint32_t)request_n_prompts(request);
}

/* Returns the choice's index among the choices with the same prompt. */
static uint32_t choice_job_number_of(const struct choice *choice)
{
    return choice->index % choices_per_prompt(choice->request);
}

static uint64_t seed_of(const struct choice *choice)
{
    const struct gen_request *gen = &choice->request->gen;
    uint64_t seed;

    /* The same request with the same seed gives the same choices; the choices differ from each other. */
    if (gen->has_seed)
        return gen->work.sample.seed + choice_job_number_of(choice) * UINT64_C(0x9e3779b97f4a7c15);
    rng_system(&seed, sizeof(seed));
    return seed;
}

bool choice_scores_prompt(const struct choice *choice)
{
    const struct gen_request *gen = &choice->request->gen;

    return gen->echoes && gen->work.sample.wants_logprob;
}

/* Sets the values that the request's work description lacks:
 * those of this choice, of its prompt and of its tenant. */
static void choice_job_work(struct choice *choice, struct work *work)
{
    const struct request *request = choice->request;
    uint32_t room = request->model->context_length - (uint32_t)choice->prompt->ids.n;

    memcpy(work->request_id, request->id, sizeof(request->id));
    memcpy(work->tenant, request->owner, sizeof(work->tenant));
    request_trace_children(request, &work->trace);
    work->received_ns = request->received_ns;
    work->weight = limits_weight(request->lease.account);
    str_copy(work->class_allowed, sizeof(work->class_allowed), limits_class(request->lease.account));
    request_take_class(request->gen.service_tier, work->class_wanted);
    if (request->class_wanted[0] != '\0')
        memcpy(work->class_wanted, request->class_wanted, sizeof(work->class_wanted));
    choice->is_clamped = work->max_new_tokens > room;
    if (choice->is_clamped)
        work->max_new_tokens = room;
    if (work->sample.min_tokens > work->max_new_tokens)
        work->sample.min_tokens = work->max_new_tokens;
    if (work->max_new_tokens == 0)
        work->max_new_tokens = 1; /* a prompt-only request samples one token and drops it */
    if (isnan(work->sample.temperature))
        work->sample.temperature = (float)request->front->opts.default_temperature;
    work->sample.seed = seed_of(choice);
    memcpy(work->pin_tokens, choice->prompt->mark_tokens, sizeof(work->pin_tokens));
    work->public_tokens = choice->prompt->public_tokens;
    resume_fill_work(request, &work->resume);
    work->score_from = choice_scores_prompt(choice) ? 1 : 0;
}

static int choice_order_new(struct choice *choice)
{
    const struct sample_opts *asked = &choice->request->gen.work.sample;
    const struct prompt *prompt = choice->prompt;
    const struct buf *constraint = &choice->request->prompt.constraint;
    struct work_order *order = &choice->order;
    size_t cap = prompt->ids.n;

    *order = (struct work_order){.work = choice->request->gen.work, .n_prompt = (uint32_t)prompt->ids.n};
    choice_job_work(choice, &order->work);
    if (cap > CHOICE_SLICE_TOKENS) /* leaves room for the answer: growing the array later would copy the
                                    * prompt again */
        cap += order->work.max_new_tokens;
    order->tokens = malloc(cap * sizeof(*order->tokens));
    order->cap_tokens = (uint32_t)cap;
    if (work_order_copy_bias(order, asked->bias, asked->n_bias) == 0 && order->tokens != NULL &&
        buf_append(&order->constraint, constraint->data, constraint->len_bytes) == 0)
        return 0;
    work_order_fini(order);
    return E_NOMEM;
}

int choice_order_work(struct choice *choice)
{
    struct work_order *order = &choice->order;
    const struct token_ids *ids = &choice->prompt->ids;
    size_t n;

    if (order->tokens == NULL && choice_order_new(choice) < 0)
        return E_NOMEM;
    n = ids->n - order->n_tokens;
    if (n > CHOICE_SLICE_TOKENS)
        n = CHOICE_SLICE_TOKENS;
    memcpy(order->tokens + order->n_tokens, ids->ids + order->n_tokens, n * sizeof(*order->tokens));
    order->n_tokens += (uint32_t)n;
    return order->n_tokens == ids->n;
}
