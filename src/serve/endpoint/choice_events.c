/* SPDX-License-Identifier: Apache-2.0 */
/* The backend's events for a choice: accepted, tokens, end, failure, and the hint that tokens come soon.
 *
 *     on_tokens -> report -> logprobs -> answer (detok, calls, stop strings) -> sink (output.c)
 *                                       '-> tokens used: usage, transcript; a stop: choice_end.c
 *
 * All events run on the loop's thread.  An event may end the request; afterwards neither the request nor its
 * choices exist. */
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "serve/endpoint/admit_priv.h"
#include "serve/endpoint/output_priv.h"

#define MAX_WHOLE_LOGPROBS 2000000u /* limit on sampled tokens and their top logprobs, over all choices */

/* ---- log probabilities ---- */

static uint32_t n_prompt_tokens(const struct choice *choice)
{
    return (uint32_t)choice->prompt->ids.n;
}

/* Adds a prompt token, or the stop id that ended the answer. */
static int push_prompt_logprob(struct choice *choice, const struct sample_result *score)
{
    int rc = logprobs_push_prompt(choice->logprobs, score, choice->n_prompt_logprobs == 0);

    if (rc == 0 && ++choice->n_prompt_logprobs == n_prompt_tokens(choice))
        logprobs_end_prompt(choice->logprobs, buf_view(&choice->prompt->text));
    return rc;
}

int choice_begin_logprobs(struct choice *choice)
{
    const struct request *request = choice->request;
    const struct gen_request *gen = &request->gen;
    int rc;

    if (!gen->work.sample.wants_logprob || choice->logprobs != NULL)
        return 0;
    rc = logprobs_new(request->model->tokenizer, gen->work.sample.n_top,
                      gen->n_prompts > 0 || gen->prefill.len_bytes > 0, &choice->logprobs);
    if (rc < 0 || !choice_scores_prompt(choice))
        return rc;
    if (gen->prompts[choice->index / choices_per_prompt(request)].tokens == NULL)
        logprobs_begin_text(choice->logprobs);
    if (!gen->is_stream && logprobs_reserve(choice->logprobs, n_prompt_tokens(choice) + 16) < 0)
        return E_NOMEM;
    choice->has_logprobs = true;
    return push_prompt_logprob(choice, &(struct sample_result){.id = choice->prompt->ids.ids[0]});
}

/* A stream sends logprobs at once.
 * A whole answer keeps all of them until its end, so their number is limited. */
static int count_logprobs(struct request *request, size_t n)
{
    request->n_logprobs += (1 + request->gen.work.sample.n_top) * n;
    return !request->gen.is_stream && request->n_logprobs > MAX_WHOLE_LOGPROBS ? E_LIMIT : 0;
}

/* Adds prompt logprobs.  Adds the logprob of a stop id only if the request wanted tokens: clients expect
 * one entry for each token. */
static int push_scores(struct choice *choice, const struct gen_tokens *tokens)
{
    int rc = count_logprobs(choice->request, tokens->n);

    for (size_t i = 0; i < tokens->n && rc == 0; i++) {
        if (choice->n_prompt_logprobs < n_prompt_tokens(choice)) {
            rc = push_prompt_logprob(choice, &tokens->draws[i]);
        } else if (choice->request->gen.work.max_new_tokens > 0) {
            choice->stop_score = tokens->draws[i];
            choice->has_stop_score = true;
        }
    }
    if (rc == 0 && choice->request->is_stream && logprobs_is_ready(choice->logprobs))
        choice->request->dialect->scores(choice);
    return rc;
}

/* Pushes a resumable stream's tokens one by one,
 * so that its events do not depend on how tokens were grouped. */
static int push_plain(struct choice *choice, const struct gen_tokens *tokens)
{
    size_t n_at_once = choice->request->resume.is_kept ? 1 : tokens->n;
    int rc = 0;

    for (size_t i = 0; i < tokens->n && rc == 0; i += n_at_once)
        rc = answer_push(choice->answer, tokens->ids + i, n_at_once);
    return rc;
}

/* Pushes tokens into the answer.  With logprobs it pushes each token alone, to know which text it made. */
static int choice_events_push(struct choice *choice, const struct gen_tokens *tokens)
{
    int rc = 0;

    choice->has_logprobs |= choice->logprobs != NULL && tokens->draws != NULL;
    if (!choice->has_logprobs || tokens->draws == NULL)
        return push_plain(choice, tokens);
    if (count_logprobs(choice->request, tokens->n) < 0)
        return E_LIMIT;
    for (size_t i = 0; i < tokens->n && rc == 0; i++) {
        rc = logprobs_push(choice->logprobs, &tokens->draws[i]);
        if (rc == 0)
            rc = answer_push(choice->answer, &tokens->ids[i], 1);
    }
    return rc;
}

/* ---- the backend's events ---- */

static void choice_events_account(struct choice *choice, uint32_t cached_tokens)
{
    struct request *request = choice->request;
    struct api_usage usage = {0};

    prompt_account(choice->prompt, cached_tokens, request->model->block_tokens, &usage);
    api_usage_add(&request->usage, &usage);
}

static void on_accepted(void *arg, uint32_t cached_tokens)
{
    struct choice *choice = arg;
    struct request *request = choice->request;

    if (choice->state != CHOICE_PLACED)
        return;
    choice->state = CHOICE_RUNNING;
    cached_tokens = resume_accept(request, cached_tokens);
    if (!choice_is_repeated(choice)) /* a prompt shared by choices is billed once */
        choice_events_account(choice, cached_tokens);
    if (request->state == REQUEST_PLACED) {
        request_enter(request, REQUEST_PREFILLING);
        if (request->gen.is_stream) {
            request->status = 200;
            output_begin_stream(request);
            ev_timer_start(request->ping, request->front->opts.ping_ns);
        }
    }
    output_begin_choice(choice);
}

static void fail_too_likely(struct request *request)
{
    struct api_error error;

    api_fail(&error, 400, "logprobs: more than %u in one answer; ask for fewer, or for a stream",
             MAX_WHOLE_LOGPROBS);
    request_fail(request, &error);
}

static void on_pushed(struct choice *choice, int rc)
{
    struct request *request = choice->request;

    output_flush(request);
    if (rc == E_LIMIT)
        fail_too_likely(request);
    else if (rc < 0)
        request_fail_no_memory(request);
    else if (rc == 1)
        choice_finish_early(choice);
}

static void on_tokens(void *arg, const struct gen_tokens *tokens)
{
    struct choice *choice = arg;
    struct request *request = choice->request;
    uint64_t now = clock_now_ns();
    uint32_t n_before = answer_tokens(choice->answer), n_used;
    int rc;

    on_accepted(choice, 0); /* the backend did not call it before the first tokens */
    if (tokens->is_prompt_logprobs) {
        on_pushed(choice, push_scores(choice, tokens));
        return;
    }
    if (request->gen.work.max_new_tokens == 0) {
        choice_withdraw(choice);
        choice_finish(choice, GEN_STOP_MAX_TOKENS, bytes_of(NULL, 0));
        return;
    }
    if (request->dialect->take == NULL)
        report_tokens(choice, now, tokens->n);
    if (request->state == REQUEST_PREFILLING) {
        request->first_ns = now;
        request_enter(request, REQUEST_STREAMING);
    }
    if (choice->last_ns == 0 && request->n_waiting > 0)
        ev_timer_start(request->later, 0);
    choice->last_ns = request->last_ns = now;
    if (request->dialect->take != NULL) {
        request->dialect->take(choice, tokens);
        return;
    }
    rc = choice_events_push(choice, tokens);
    /* Tokens after a stop string came in the same report by chance: the usage does not depend on it. */
    n_used = answer_tokens(choice->answer) - n_before;
    request->n_output += n_used;
    if (choice->transcript != NULL)
        transcript_tokens(choice->transcript, tokens->ids, n_used);
    on_pushed(choice, rc);
}

static void choice_events_on_end(void *arg, enum work_end end, const struct gen_serving *serving)
{
    struct choice *choice = arg;
    struct request *request = choice->request;
    enum gen_stop why = GEN_STOP_END_TURN;

    choice->handle = NULL;
    choice->serving = *serving;
    on_accepted(choice, 0);
    if (end == WORK_END_CONTEXT || (end == WORK_END_LENGTH && choice->is_clamped))
        why = GEN_STOP_CONTEXT;
    else if (end == WORK_END_LENGTH)
        why = GEN_STOP_MAX_TOKENS;
    if (request->gen.work.max_new_tokens == 0)
        why = GEN_STOP_MAX_TOKENS;
    if (request->dialect->take != NULL)
        why = GEN_STOP_END_TURN;
    choice->stop = why; /* for the sink, which closes the last block */
    if (answer_finish(choice->answer, why) < 0) {
        request_fail_no_memory(request);
        return;
    }
    output_flush(request);
    if (answer_stop(choice->answer) == GEN_STOP_SEQUENCE) {
        choice_finish_early(choice);
        return;
    }
    choice_remember(choice, answer_stop(choice->answer), false);
    choice_finish(choice, answer_stop(choice->answer), bytes_of(NULL, 0));
}

static void on_failure(void *arg, const struct gen_failure *failure, const struct gen_serving *serving)
{
    struct choice *choice = arg;

    choice->handle = NULL;
    choice->serving = *serving;
    choices_fail(choice->request, failure);
}

/* Each step prefetches lines whose addresses lie in the lines that the previous step prefetched. */
static void on_soon(const void *arg, unsigned step)
{
    const struct choice *choice = arg;

    if (step == 0) {
        mem_prefetch(choice, offsetof(struct choice, prompt));
        return;
    }
    if (step == 1) {
        mem_prefetch(choice->request, offsetof(struct request, node));
        mem_prefetch(&choice->request->gen.work.max_new_tokens, 1);
        answer_fetch(choice->answer, false);
        transcript_fetch(choice->transcript, false);
        return;
    }
    http_exchange_fetch(choice->request->exchange);
    answer_fetch(choice->answer, true);
    transcript_fetch(choice->transcript, true);
}

static void on_resumed(void *arg, const struct work_order *order, bool is_anew)
{
    struct choice *choice = arg;
    const struct backend *backend = request_backend(choice->request);
    struct api_error error;

    if (resume_on_found(choice->request, order) < 0)
        request_fail_no_memory(choice->request);
    else if (is_anew && admit_anew(choice->request, &error) < 0)
        choices_refuse(choice->request, &error);
    else if (is_anew)
        backend->ops->restart(backend->self, choice->handle);
}

const struct gen_events choice_events = {.on_accepted = on_accepted,
                                         .on_tokens = on_tokens,
                                         .on_soon = on_soon,
                                         .on_end = choice_events_on_end,
                                         .on_failure = on_failure,
                                         .on_resumed = on_resumed};
