/* SPDX-License-Identifier: Apache-2.0 */
/* A job's tokens, from the workers' messages to the front.
 *
 *      received, of the prompt   scores.held ........... logprobs of given tokens
 *      received, of the answer   order.tokens[n_prompt .. n_tokens), and draws where they are wanted
 *                                [n_prompt + n_delivered .. n_tokens) are not delivered yet
 *
 * Tokens carry their index in the answer. A token that was received already, from an earlier worker or
 * from the other one of a pair, is dropped. A gap is refused: no order of honest messages can make one.
 * Received tokens wait here while the client is paused, or until the prefill worker has reported on the
 * prompt (stream.c). */
#include "fleet/router/stream_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"

uint32_t router_job_answered(const struct gen_handle *job)
{
    return job->order.n_tokens - job->order.n_prompt;
}

/* ---- received ---- */

static int keep_token(struct gen_handle *job, token_id id)
{
    if (job->order.n_tokens == job->cap_tokens) {
        uint32_t cap = job->cap_tokens + job->cap_tokens / 4 + 256;
        token_id *grown = realloc(job->order.tokens, (size_t)cap * sizeof(*grown));

        if (grown == NULL)
            return E_NOMEM;
        job->order.tokens = grown;
        job->cap_tokens = cap;
    }
    job->order.tokens[job->order.n_tokens++] = id;
    return 0;
}

/* The sampling result of ids[i]; `top` is the position of its most likely tokens. */
static void read_draw(const Baton__Answer *answer, size_t i, size_t top, struct sample_result *out)
{
    *out = (struct sample_result){.id = answer->ids[i], .logprob = answer->logprobs[i]};
    for (; out->n_top < answer->n_tops[i] && out->n_top < SAMPLE_MAX_TOP; out->n_top++, top++)
        out->top[out->n_top] =
            (struct sample_top){.id = answer->top_ids[top], .logprob = answer->top_logprobs[top]};
}

/* Keeps the sampling result until its token is delivered. A worker that sends none although it was asked
 * does not know the field. */
static int keep_draw(struct gen_handle *job, const Baton__Answer *answer, size_t i, size_t top)
{
    uint32_t at = router_job_answered(job) - job->n_delivered;

    if (answer->n_logprobs == 0 || (job->score_next > 0 && job->score_next < job->order.n_prompt))
        return E_PROTO;
    if (at >= job->cap_draws) {
        uint32_t cap = 2 * at + 8;
        struct sample_result *grown = realloc(job->draws, (size_t)cap * sizeof(*grown));

        if (grown == NULL)
            return E_NOMEM;
        job->draws = grown;
        job->cap_draws = cap;
    }
    read_draw(answer, i, top, &job->draws[at]);
    return 0;
}

static bool has_right_tops(const Baton__Answer *answer, uint32_t vocab_size)
{
    for (size_t i = 0; i < answer->n_top_ids; i++)
        if (answer->top_ids[i] >= vocab_size)
            return false;
    return true;
}

int router_tokens_accept(struct gen_handle *job, const Baton__Answer *answer)
{
    uint32_t vocab_size = tokenizer_vocab_size(job->model->gen.tokenizer);
    size_t top = 0;

    if (!has_right_tops(answer, vocab_size))
        return E_PROTO;

    for (size_t i = 0; i < answer->n_ids; top += i < answer->n_n_tops ? answer->n_tops[i] : 0, i++) {
        uint64_t index = (uint64_t)answer->first_index + i;
        int rc = 0;

        if (index < router_job_answered(job))
            continue; /* received before */
        if (index > router_job_answered(job) || index >= job->order.work.max_new_tokens ||
            answer->ids[i] >= vocab_size)
            return E_PROTO;
        if (job->order.work.sample.wants_logprob)
            rc = keep_draw(job, answer, i, top);
        if (rc == 0)
            rc = keep_token(job, answer->ids[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int router_scores_accept(struct gen_handle *job, const Baton__Answer *answer)
{
    struct sample_result score;
    size_t top = 0;
    int rc = 0;

    if (job->score_next == 0 || answer->n_logprobs == 0 ||
        !has_right_tops(answer, tokenizer_vocab_size(job->model->gen.tokenizer)))
        return E_PROTO;
    for (size_t i = 0; i < answer->n_ids && rc == 0; top += answer->n_tops[i], i++) {
        uint64_t index = (uint64_t)answer->first_index + i;

        read_draw(answer, i, top, &score);
        if (index < job->score_next)
            continue; /* received before */
        if (index == job->order.n_tokens && job->score_next == job->order.n_prompt &&
            score.id < tokenizer_vocab_size(job->model->gen.tokenizer)) {
            job->scores.stop = score;
            job->scores.has_stop = true;
            continue;
        }
        if (index != job->score_next || index >= job->order.n_prompt || score.id != job->order.tokens[index])
            return E_PROTO;
        rc = scores_add(&job->scores, &score, 1);
        job->score_next += rc == 0;
    }
    return rc;
}

/* ---- delivered ---- */

/* Delivers prompt logprobs. False: the job is gone. */
static bool job_deliver_scores(struct gen_handle *job, const struct sample_result *scores, uint32_t n)
{
    struct router *router = job->router;
    uint64_t n_freed = router->n_freed;
    uint64_t number = job->number;

    if (n == 0)
        return true;
    job->events.on_tokens(job->arg,
                          &(struct gen_tokens){.draws = scores, .n = n, .is_prompt_logprobs = true});
    return !router_job_is_gone(router, job, number, n_freed);
}

void router_tokens_deliver(struct gen_handle *job)
{
    uint32_t n = router_job_answered(job) - job->n_delivered, n_scores = job->scores.n;
    struct gen_events events = job->events;

    if (job->is_paused || job_is_in(job, JOB_HOLDS))
        return;
    job->scores.n = 0;
    if (!job_deliver_scores(job, job->scores.held, n_scores))
        return;
    if (n > 0) {
        uint32_t from = job->order.n_prompt + job->n_delivered;
        struct router *router = job->router;
        uint64_t n_freed = router->n_freed;
        uint64_t number = job->number;

        job->n_delivered += n;
        if (job->first_token_ns == 0)
            job->first_token_ns = clock_now_ns();
        events.on_tokens(job->arg,
                         &(struct gen_tokens){.ids = job->order.tokens + from, .n = n, .draws = job->draws});
        if (router_job_is_gone(router, job, number, n_freed))
            return; /* the callback cancelled it */
    }
    if (job->scores.has_stop) {
        job->scores.has_stop = false;
        if (!job_deliver_scores(job, &job->scores.stop, 1))
            return;
    }
    if (job_is_in(job, JOB_HAS_END))
        router_job_end(job, job->end);
}
