/* SPDX-License-Identifier: Apache-2.0 */
/* A request's answers in the backend's hands.
 *
 *     WAITING ──submit──> PLACED ──on_accepted──> RUNNING ──stop string, on_end──> OVER
 *
 * Most requests have one choice.  Of several with one prompt the first is handed on alone, and the others
 * when its first token has come: by then the prompt's KV is in a prefix cache, and is not computed once for
 * each. A refusal then is no error while another choice runs: those that wait try again when one ends.
 *
 * A choice that ends (also by a stop string) leaves the others alone; one that fails, fails the request,
 * since half of what was asked for is not an answer.  Handing on and taking back never happen inside the
 * backend's own calls for another choice, except that a failure takes back all. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "front/output_priv.h"

#define MAX_TURN_BYTES     ((size_t)4 << 20) /* handed on in one turn: links bound what they queue */
#define NEXT_TURN_NS       (10 * NS_PER_MS)
#define MAX_WHOLE_LOGPROBS 2000000u /* of tokens and of the likeliest at each, all choices together */

static const struct gen_events events;

/* ---- proof ---- */

static uint64_t later_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void add_proof(const struct gen_proof *one, struct gen_proof *sum)
{
    sum->computed_tokens += one->computed_tokens;
    sum->reused_tokens += one->reused_tokens;
    sum->transferred_tokens += one->transferred_tokens;
    sum->n_redispatched += one->n_redispatched;
    sum->n_preempted += one->n_preempted;
    sum->drafted_tokens += one->drafted_tokens;
    sum->accepted_tokens += one->accepted_tokens;
    sum->queue_ns = later_of(sum->queue_ns, one->queue_ns);
    sum->prefill_ns = later_of(sum->prefill_ns, one->prefill_ns);
    sum->transfer_ns = later_of(sum->transfer_ns, one->transfer_ns);
    sum->exposed_ns = later_of(sum->exposed_ns, one->exposed_ns);
    sum->decode_ns = later_of(sum->decode_ns, one->decode_ns);
    if (sum->prefill_worker[0] == '\0')
        memcpy(sum->prefill_worker, one->prefill_worker, sizeof(sum->prefill_worker));
    if (sum->decode_worker[0] == '\0')
        memcpy(sum->decode_worker, one->decode_worker, sizeof(sum->decode_worker));
    if (sum->transport[0] == '\0')
        memcpy(sum->transport, one->transport, sizeof(sum->transport));
}

/* Tokens are added up, each choice's prompt too, since each was computed or reused; of times, which overlap,
 * the longest counts. */
static void sum_proof(struct request *request)
{
    struct gen_proof sum = {0};

    for (uint32_t i = 0; i < request->n_choices; i++) {
        const struct choice *choice = &request->choices[i];

        add_proof(&choice->proof, &sum);
        if (choice->state != CHOICE_WAITING)
            sum.prompt_tokens += (uint32_t)choice->prompt->ids.n;
    }
    sum.drawn_tokens = request->n_output;
    sum.ttft_ns = request->first_ns > 0 ? request->first_ns - request->received_ns : 0;
    sum.total_ns = clock_now_ns() - request->received_ns;
    request->proof = sum;
}

/* ---- handing on ---- */

/* Has the choice before this one the same prompt? */
static bool is_repeated(const struct choice *choice)
{
    return choice->index > 0 && choice[-1].prompt == choice->prompt;
}

static uint32_t n_given(const struct choice *choice)
{
    return (uint32_t)choice->prompt->ids.n;
}

/* A token of the prompt, or the stop id behind the answer. */
static int push_given(struct choice *choice, const struct sample_result *score)
{
    int rc = logprobs_push_given(choice->logprobs, score, choice->n_scored == 0);

    if (rc == 0 && ++choice->n_scored == n_given(choice))
        logprobs_end_prompt(choice->logprobs, buf_view(&choice->prompt->text));
    return rc;
}

static int make_logprobs(struct choice *choice)
{
    const struct request *request = choice->request;
    const struct gen_request *gen = &request->gen;
    int rc;

    if (!gen->wants_logprobs || choice->logprobs != NULL)
        return 0;
    rc = logprobs_new(request->model->tokenizer, gen->n_top_logprobs,
                      gen->n_prompts > 0 || gen->prefill.len_bytes > 0, &choice->logprobs);
    if (rc < 0 || !choice_scores_prompt(choice))
        return rc;
    if (gen->prompts[choice->index / choices_per_prompt(request)].tokens == NULL)
        logprobs_begin_text(choice->logprobs);
    choice->has_logprobs = true;
    return push_given(choice, &(struct sample_result){.id = choice->prompt->ids.ids[0]});
}

static int submit_one(struct choice *choice, struct gen_failure *failure)
{
    struct request *request = choice->request;
    const struct backend *backend = request_backend(request);
    const struct answer_sink *sink =
        request->gen.is_stream ? request->dialect->stream_sink : &output_whole_sink;
    const struct answer_opts opts = {.scratch = &request->front->scratch,
                                     .model = request->model,
                                     .request = &request->gen,
                                     .begins_thinking = choice->prompt->opens_thinking};
    struct gen_job job;
    int rc;

    if (request->front->memory != NULL && choice->prompt->base_tokens > 0 && choice->record == NULL)
        record_new(sink, choice, &choice->record); /* without one it is not remembered, that is all */
    if (choice->record != NULL)
        sink = &record_sink;
    *failure = (struct gen_failure){
        .status = 503, .type = "api_error", .message = "the request could not be placed"};
    void *arg = choice->record != NULL ? (void *)choice->record : choice;
    if ((choice->answer == NULL && answer_new(&opts, sink, arg, &choice->answer) < 0) ||
        make_logprobs(choice) < 0 || choice_job(choice, &job) < 0) {
        failure->message = "out of memory";
        return E_NOMEM;
    }
    rc = backend->ops->submit(backend->self, request->model, &job, &events, choice, &choice->handle, failure);
    if (rc < 0) {
        choice->handle = NULL;
        return rc;
    }
    choice->state = CHOICE_PLACED;
    request->n_waiting--;
    if (request->is_paused)
        backend->ops->pause(backend->self, choice->handle, true);
    return 0;
}

static void fail_placing(struct request *request, const struct gen_failure *failure)
{
    struct api_error error;

    api_fail(&error, failure->status, "%s", failure->message);
    error.type = failure->type;
    error.retry_after_s = failure->retry_after_s;
    request_fail(request, &error);
}

/* Is the first choice with the same prompt past it? */
static bool is_prompt_known(const struct choice *choice)
{
    while (is_repeated(choice))
        choice--;
    return choice->last_ns > 0 || choice->state == CHOICE_OVER;
}

static bool is_running(const struct request *request)
{
    return request->n_waiting + request->n_over < request->n_choices;
}

static void on_later(void *arg)
{
    struct request *request = arg;
    struct gen_failure failure;
    size_t n_bytes = 0;

    for (uint32_t i = 0; i < request->n_choices; i++) {
        struct choice *choice = &request->choices[i];
        int rc;

        if (choice->state != CHOICE_WAITING || !is_prompt_known(choice))
            continue;
        if (n_bytes > MAX_TURN_BYTES) {
            ev_timer_start(request->later, NEXT_TURN_NS);
            return;
        }
        n_bytes += choice->prompt->ids.n * sizeof(token_id) + choice->prompt->shape.len_bytes;
        rc = submit_one(choice, &failure);
        if (rc == 0)
            continue;
        if (rc != E_OVERLOADED || !is_running(request))
            fail_placing(request, &failure);
        return;
    }
}

static uint32_t count_choices(const struct request *request)
{
    uint32_t n = request->gen.n_choices > 1 ? request->gen.n_choices : 1;

    return n * (uint32_t)request_n_prompts(request);
}

static int make_choices(struct request *request)
{
    uint32_t n = count_choices(request);

    if (choices_make_bias(request) < 0)
        return E_NOMEM;

    request->choices = calloc(n, sizeof(*request->choices));
    if (request->choices == NULL)
        return E_NOMEM;
    request->n_choices = request->n_waiting = n;
    request->front->n_running += n - 1;
    for (uint32_t i = 0; i < n; i++) {
        request->choices[i].request = request;
        request->choices[i].index = i;
        request->choices[i].prompt = request_prompt(request, i / choices_per_prompt(request));
    }
    return n > 1 ? ev_timer_new(request->front->opts.loop, on_later, request, &request->later) : 0;
}

void choices_submit(struct request *request)
{
    uint32_t n = count_choices(request);
    struct gen_failure failure = {.status = 529,
                                  .type = "overloaded_error",
                                  .message = "Overloaded: too many answers are being written"};

    if (n > 1 && n - 1 > request->front->opts.max_requests - request->front->n_running) {
        fail_placing(request, &failure);
        return;
    }
    if (make_choices(request) < 0) {
        request_fail_no_memory(request);
        return;
    }
    request->submitted_ns = clock_now_ns();
    for (uint32_t i = 0; i < request->n_choices; i++) {
        if (is_repeated(&request->choices[i]))
            continue;
        if (submit_one(&request->choices[i], &failure) < 0) {
            fail_placing(request, &failure);
            return;
        }
    }
    request_enter(request, REQUEST_PLACED);
}

/* ---- taking back ---- */

static void withdraw(struct choice *choice)
{
    const struct backend *backend = request_backend(choice->request);
    struct gen_handle *handle = choice->handle;

    choice->handle = NULL;
    if (handle != NULL)
        backend->ops->cancel(backend->self, handle, &choice->proof);
}

void choices_withdraw(struct request *request)
{
    if (request->choices == NULL)
        return;
    for (uint32_t i = 0; i < request->n_choices; i++)
        withdraw(&request->choices[i]);
    sum_proof(request);
}

void choices_pause(struct request *request, bool is_paused)
{
    const struct backend *backend = request_backend(request);

    request->is_paused = is_paused;
    /* What was held back may come from inside, and end the request. */
    request->is_held = true;
    for (uint32_t i = 0; i < request->n_choices; i++)
        if (request->choices[i].handle != NULL)
            backend->ops->pause(backend->self, request->choices[i].handle, is_paused);
    request->is_held = false;
    if (request->state >= REQUEST_DONE)
        request_free(request);
}

void choices_fini(struct request *request)
{
    if (request->choices == NULL)
        return;
    ev_timer_free(request->later);
    request->front->n_running -= request->n_choices - 1;
    for (uint32_t i = 0; i < request->n_choices; i++) {
        answer_free(request->choices[i].answer);
        record_free(request->choices[i].record);
        logprobs_free(request->choices[i].logprobs);
        output_fini_choice(&request->choices[i]);
    }
    free(request->choices);
    request->choices = NULL;
}

/* ---- what the backend says ---- */

static void account(struct choice *choice, uint32_t cached_tokens)
{
    struct request *request = choice->request;
    struct api_usage usage = {0};

    prompt_account(choice->prompt, cached_tokens, request->model->block_tokens, &usage);
    request->usage.input_tokens += usage.input_tokens;
    request->usage.cache_read_tokens += usage.cache_read_tokens;
    request->usage.created_5m_tokens += usage.created_5m_tokens;
    request->usage.created_1h_tokens += usage.created_1h_tokens;
}

static void on_accepted(void *arg, uint32_t cached_tokens)
{
    struct choice *choice = arg;
    struct request *request = choice->request;

    if (choice->state != CHOICE_PLACED)
        return;
    choice->state = CHOICE_RUNNING;
    if (!is_repeated(choice)) /* a prompt is billed once */
        account(choice, cached_tokens);
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

/* Keeps the conversation for whoever continues the thread.  An answer that a limit cut is none to go on from.
 */
static void keep_thread(struct request *request, const struct memory_answer *answer, enum gen_stop why)
{
    struct gen_block *blocks;
    struct buf text = {0};
    size_t n = 0;

    if (request->gen.thread == GEN_THREAD_NONE || request->front->threads == NULL ||
        why == GEN_STOP_MAX_TOKENS || why == GEN_STOP_CONTEXT)
        return;
    blocks = calloc(answer->n_blocks + 1, sizeof(*blocks));
    if (blocks == NULL)
        return;
    if (answer->thinking.len_bytes > 0)
        blocks[n++] = (struct gen_block){.kind = GEN_THINKING, .text = answer->thinking};
    memcpy(blocks + n, answer->blocks, answer->n_blocks * sizeof(*blocks));
    api_put_thread(&text, request->gen.history, blocks, n + answer->n_blocks);
    free(blocks);
    threads_put(request->front->threads, request->message_id, request->owner, &text, clock_now_ns());
}

/* Keeps the answer for when the conversation comes back.  Whatever fails here costs a cache hit. */
static void remember(struct choice *choice, enum gen_stop why, bool is_early)
{
    struct request *request = choice->request;
    const struct record_end end = {.model = request->model,
                                   .prompt = choice->prompt,
                                   .prefill = request->gen.prefill,
                                   .stop = why,
                                   .is_early = is_early};
    struct memory_answer *answer;
    struct gen_message message;
    struct memory_key key;

    if (choice->record == NULL || record_finish(choice->record, &end, &answer) < 0)
        return;
    keep_thread(request, answer, why);
    message =
        (struct gen_message){.role = GEN_ASSISTANT, .blocks = answer->blocks, .n_blocks = answer->n_blocks};
    if (replay_key_of(&request->replay, &message, &key) < 0) {
        memory_answer_unref(answer);
        return;
    }
    replay_key_for(&key, request->owner, request->model->fingerprint, &key);
    memory_put(request->front->memory, &key, answer);
}

/* The choice's answer is complete, and with the last one the request's. */
static void finish(struct choice *choice, enum gen_stop why, struct bytes stop_sequence)
{
    struct request *request = choice->request;

    if (choice->has_logprobs)
        logprobs_skip(choice->logprobs);
    if (choice->has_stop_score) /* without memory it is not listed */
        (void)logprobs_push_given(choice->logprobs, &choice->stop_score, false);
    choice->state = CHOICE_OVER;
    choice->stop = why;
    choice->stop_sequence = stop_sequence;
    request->n_over++;
    request->usage.thinking_tokens += answer_thinking_tokens(choice->answer);
    if (request->n_over == request->n_choices) {
        request->usage.output_tokens = request->n_output;
        sum_proof(request);
        output_end_choice(choice);
        request_finish(request);
        return;
    }
    output_end_choice(choice);
    if (request->n_waiting > 0)
        ev_timer_start(request->later, 0);
}

/* An end that the answer's text brought about. */
static void finish_early(struct choice *choice)
{
    enum gen_stop why = answer_stop(choice->answer);
    const struct gen_request *gen = &choice->request->gen;

    remember(choice, why, true);
    withdraw(choice);
    finish(choice, why,
           why == GEN_STOP_SEQUENCE ? gen->stop_sequences[answer_stop_index(choice->answer)]
                                    : bytes_of(NULL, 0));
}

static void fail_too_likely(struct request *request)
{
    struct api_error error;

    api_fail(&error, 400, "logprobs: more than %u in one answer; ask for fewer, or for a stream",
             MAX_WHOLE_LOGPROBS);
    request_fail(request, &error);
}

/* A stream sends them at once; a whole answer has to hold them all. */
static int count_logprobs(struct request *request, size_t n)
{
    request->n_logprobs += (1 + request->gen.n_top_logprobs) * n;
    return !request->gen.is_stream && request->n_logprobs > MAX_WHOLE_LOGPROBS ? E_LIMIT : 0;
}

/* How likely the prompt's tokens were; and of a stop id that was drawn where something was to be drawn: who
 * counts entries finds one for each token. */
static int push_scores(struct choice *choice, const struct gen_tokens *tokens)
{
    int rc = count_logprobs(choice->request, tokens->n);

    for (size_t i = 0; i < tokens->n && rc == 0; i++) {
        if (choice->n_scored < n_given(choice)) {
            rc = push_given(choice, &tokens->draws[i]);
        } else if (choice->request->gen.max_tokens > 0) {
            choice->stop_score = tokens->draws[i];
            choice->has_stop_score = true;
        }
    }
    if (rc == 0 && choice->request->is_stream && logprobs_is_ready(choice->logprobs))
        choice->request->dialect->scores(choice);
    return rc;
}

/* With log probabilities each token goes alone, so that its text can be told from its neighbours'. */
static int push(struct choice *choice, const struct gen_tokens *tokens)
{
    struct request *request = choice->request;
    int rc = 0;

    choice->has_logprobs |= choice->logprobs != NULL && tokens->draws != NULL;
    if (!choice->has_logprobs || tokens->draws == NULL)
        return answer_push(choice->answer, tokens->ids, tokens->n);
    if (count_logprobs(request, tokens->n) < 0)
        return E_LIMIT;
    for (size_t i = 0; i < tokens->n && rc == 0; i++) {
        rc = logprobs_push(choice->logprobs, &tokens->draws[i]);
        if (rc == 0)
            rc = answer_push(choice->answer, &tokens->ids[i], 1);
    }
    return rc;
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
        finish_early(choice);
}

static void on_tokens(void *arg, const struct gen_tokens *tokens)
{
    struct choice *choice = arg;
    struct request *request = choice->request;
    uint64_t now = clock_now_ns();

    on_accepted(choice, 0); /* a backend that forgot to say so */
    if (tokens->is_scored) {
        on_pushed(choice, push_scores(choice, tokens));
        return;
    }
    if (request->gen.max_tokens == 0) {
        withdraw(choice);
        finish(choice, GEN_STOP_MAX_TOKENS, bytes_of(NULL, 0));
        return;
    }
    report_tokens(choice, now, tokens->n);
    if (request->state == REQUEST_PREFILLING) {
        request->first_ns = now;
        request_enter(request, REQUEST_STREAMING);
    }
    if (choice->last_ns == 0 && request->n_waiting > 0)
        ev_timer_start(request->later, 0);
    choice->last_ns = request->last_ns = now;
    choice->n_output += (uint32_t)tokens->n;
    request->n_output += (uint32_t)tokens->n;
    if (choice->record != NULL)
        record_tokens(choice->record, tokens->ids, tokens->n);
    on_pushed(choice, push(choice, tokens));
}

static void on_end(void *arg, enum gen_end end, const struct gen_proof *proof)
{
    struct choice *choice = arg;
    struct request *request = choice->request;
    enum gen_stop why = GEN_STOP_END_TURN;

    choice->handle = NULL;
    choice->proof = *proof;
    on_accepted(choice, 0);
    if (end == GEN_END_CONTEXT || (end == GEN_END_LENGTH && choice->is_clamped))
        why = GEN_STOP_CONTEXT;
    else if (end == GEN_END_LENGTH)
        why = GEN_STOP_MAX_TOKENS;
    if (request->gen.max_tokens == 0)
        why = GEN_STOP_MAX_TOKENS;
    if (answer_finish(choice->answer, why) < 0) {
        request_fail_no_memory(request);
        return;
    }
    output_flush(request);
    if (answer_stop(choice->answer) == GEN_STOP_SEQUENCE) {
        finish_early(choice);
        return;
    }
    remember(choice, answer_stop(choice->answer), false);
    finish(choice, answer_stop(choice->answer), bytes_of(NULL, 0));
}

static void on_failure(void *arg, const struct gen_failure *failure)
{
    struct choice *choice = arg;

    choice->handle = NULL;
    fail_placing(choice->request, failure);
}

/* Where the next lines are is in those before, so each step takes those that the last one has found. */
static void on_soon(const void *arg, unsigned step)
{
    const struct choice *choice = arg;

    if (step == 0) {
        mem_prefetch(choice, offsetof(struct choice, prompt));
        return;
    }
    if (step == 1) {
        mem_prefetch(choice->request, offsetof(struct request, node));
        mem_prefetch(&choice->request->gen.max_tokens, 1);
        answer_fetch(choice->answer, false);
        record_fetch(choice->record, false);
        return;
    }
    http_exchange_fetch(choice->request->exchange);
    answer_fetch(choice->answer, true);
    record_fetch(choice->record, true);
}

static const struct gen_events events = {on_accepted, on_tokens, on_soon, on_end, on_failure};
