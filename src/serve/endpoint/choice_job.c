/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the job of one choice: the tokens, the answer's maximum, the pinned and the shared part of the
 * prompt, the sampling options and the constraint. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "serve/endpoint/choice_priv.h"

uint32_t choices_per_prompt(const struct request *request)
{
    return request->n_choices / (uint32_t)request_n_prompts(request);
}

/* Returns the choice's number among the choices with its prompt. */
static uint32_t number_of(const struct choice *choice)
{
    return choice->index % choices_per_prompt(choice->request);
}

static uint64_t seed_of(const struct choice *choice)
{
    const struct gen_request *gen = &choice->request->gen;
    uint64_t seed;

    /* The same request with the same seed gives the same choices; the choices differ from each other. */
    if (gen->has_seed)
        return gen->seed + number_of(choice) * UINT64_C(0x9e3779b97f4a7c15);
    rng_system(&seed, sizeof(seed));
    return seed;
}

bool choice_scores_prompt(const struct choice *choice)
{
    const struct gen_request *gen = &choice->request->gen;

    return gen->echoes && gen->wants_logprobs;
}

int choice_job(struct choice *choice, struct gen_job *job)
{
    const struct request *request = choice->request;
    const struct gen_request *gen = &request->gen;
    uint32_t n = (uint32_t)choice->prompt->ids.n;
    uint32_t room = request->model->context_length - n;
    double temperature =
        isnan(gen->temperature) ? request->front->opts.default_temperature : gen->temperature;

    memset(job, 0, sizeof(*job));
    memcpy(job->request_id, request->id, sizeof(request->id));
    memcpy(job->tenant, request->owner, sizeof(job->tenant));
    job->weight = limits_weight(request->lease.account);
    job->tokens = malloc((size_t)n * sizeof(*job->tokens));
    if (job->tokens == NULL)
        return E_NOMEM;
    memcpy(job->tokens, choice->prompt->ids.ids, (size_t)n * sizeof(*job->tokens));
    job->n_tokens = n;
    job->keep_tokens = choice->prompt->mark_tokens;
    job->keep_1h_tokens = choice->prompt->mark_1h_tokens;
    if (request->front->public_prefix != NULL)
        job->public_tokens =
            public_prefix_tokens(request->front->public_prefix, request->model, &choice->prompt->ids);
    choice->is_clamped = gen->max_tokens > room;
    job->max_new_tokens = choice->is_clamped ? room : gen->max_tokens;
    if (job->max_new_tokens == 0)
        job->max_new_tokens = 1; /* a prompt-only request samples one token and drops it */
    job->scores_prompt = choice_scores_prompt(choice);
    job->sample = (struct sample_opts){.temperature = (float)temperature,
                                       .top_p = (float)gen->top_p,
                                       .min_p = (float)gen->min_p,
                                       .top_k = gen->top_k,
                                       .wants_logprob = gen->wants_logprobs,
                                       .n_top = gen->wants_logprobs ? gen->n_top_logprobs : 0,
                                       .frequency_penalty = gen->frequency_penalty,
                                       .presence_penalty = gen->presence_penalty,
                                       .repetition_penalty = gen->repetition_penalty,
                                       .bias = request->bias,
                                       .n_bias = (uint32_t)gen->n_bias,
                                       .seed = seed_of(choice)};
    if (buf_append(&job->constraint, choice->prompt->constraint.data, choice->prompt->constraint.len_bytes) ==
        0)
        return 0;
    free(job->tokens);
    return E_NOMEM;
}

int choices_make_bias(struct request *request)
{
    struct gen_request *gen = &request->gen;

    if (gen->n_bias == 0)
        return 0;
    request->bias = arena_take(&gen->arena, gen->n_bias * sizeof(*request->bias));
    if (request->bias == NULL)
        return E_NOMEM;
    for (size_t i = 0; i < gen->n_bias; i++)
        request->bias[i] = (struct sample_bias){.id = gen->bias[i].token, .bias = gen->bias[i].bias};
    return 0;
}
