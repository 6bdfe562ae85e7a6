/* SPDX-License-Identifier: Apache-2.0 */
/* A job's tokens, from the workers' messages to the front.
 *
 *      of the prompt   logprobs of given tokens --------------------------+
 *      of the answer   tokens, and sampling results where they are wanted --+--> job.handle --> the front
 *
 * Tokens carry their index in the answer. A token that was received already, from an earlier worker or from
 * the other one of a pair, is dropped. A gap is refused, because correct workers cannot cause one. Received
 * tokens wait in the handle (serve/endpoint/handle.h) while the client is paused, or until the prefill worker
 * has reported on the prompt (stream.c). */
#include "fleet/router/stream_priv.h"

#include "base/err.h"

uint32_t router_job_answered(const struct job *job)
{
    return job->order.n_tokens - job->order.n_prompt;
}

void router_tokens_end(const struct job *job, Baton__Cancel *out)
{
    out->is_complete = job->handle.is_complete;
    if (!out->is_complete)
        out->finish = job->first_finish;
    if (!out->is_complete && out->finish == BATON__FINISH__FINISH_NONE)
        return;
    out->ended_unix_s = job->handle.ended_unix_s;
    if (router_job_answered(job) == 0)
        return;
    out->n_tokens = router_job_answered(job);
    out->last_token = job->order.tokens[job->order.n_tokens - 1];
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
static int keep_draw(struct job *job, const Baton__Answer *answer, size_t i, size_t top)
{
    struct sample_result *draw;

    if (answer->n_logprobs == 0 || (job->score_next > 0 && job->score_next < job->order.n_prompt))
        return E_PROTO;
    draw = gen_handle_draw(&job->handle);
    if (draw == NULL)
        return E_NOMEM;
    read_draw(answer, i, top, draw);
    return 0;
}

static bool has_right_tops(const Baton__Answer *answer, uint32_t vocab_size)
{
    for (size_t i = 0; i < answer->n_top_ids; i++)
        if (answer->top_ids[i] >= vocab_size)
            return false;
    return true;
}

int router_tokens_accept(struct job *job, const Baton__Answer *answer)
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
        if (job->order.work.wants_embedding)
            rc = answer->n_embedding > 0
                     ? gen_handle_embedding(&job->handle, answer->embedding, (uint32_t)answer->n_embedding)
                     : E_PROTO;
        if (rc == 0)
            rc = gen_handle_token(&job->handle, answer->ids[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int router_scores_accept(struct job *job, const Baton__Answer *answer)
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
            gen_handle_stop_score(&job->handle, &score);
            continue;
        }
        if (index != job->score_next || index >= job->order.n_prompt || score.id != job->order.tokens[index])
            return E_PROTO;
        rc = gen_handle_scores(&job->handle, &score, 1);
        job->score_next += rc == 0;
    }
    return rc;
}
