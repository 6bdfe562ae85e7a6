/* SPDX-License-Identifier: Apache-2.0 */
/* Submits a request's choices to the backend and withdraws them.
 *
 *     WAITING ──submit──> PLACED ──on_accepted──> RUNNING ──stop string, on_end──> OVER
 *
 * Most requests have one choice.  With n > 1, submit one choice first.  Submit the rest when its first token
 * comes: by then the prompt's KV is in a prefix cache and is computed only once.  If the backend refuses a
 * later choice while another one runs, the choice keeps waiting.  It is submitted again when a running choice
 * ends.
 *
 * choice_events.c handles the backend's events, choice_end.c the ends.  If one choice fails, the whole
 * request fails and its other choices are withdrawn.  Choices are never submitted inside the backend's
 * events. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "serve/endpoint/handle.h"
#include "serve/endpoint/output_priv.h"

#define MAX_TURN_BYTES ((size_t)4 << 20) /* submitted in one turn, because links bound their queues */
#define MAX_TURN_NS    NS_PER_MS
#define NEXT_TURN_NS   (10 * NS_PER_MS)
/* Choices of a request at the backend at a time.  This bounds the events of one turn. */
#define MAX_AT_ONCE 128
/* Bytes of a request's constraints at the backend, where each choice has its copy. */
#define MAX_CONSTRAINT_BYTES ((size_t)8 << 20)

/* ---- submitting ---- */

bool choice_is_repeated(const struct choice *choice)
{
    return choice->index > 0 && choice[-1].prompt == choice->prompt;
}

/* True if the answer cache or a conversation may keep the answer. */
static bool is_remembered(const struct choice *choice)
{
    const struct request *request = choice->request;

    return request->front->answer_cache != NULL &&
           (choice->prompt->base_tokens > 0 || request->gen.thread != GEN_THREAD_NONE);
}

/* Submits one choice.  Returns 1 after one slice of its order; call it again in a later turn. */
static int submit_one(struct choice *choice, struct gen_failure *failure)
{
    struct request *request = choice->request;
    const struct backend *backend = request_backend(request);
    const struct answer_sink *sink =
        request->gen.is_stream ? request->dialect->stream_sink : &output_whole_sink;
    const struct answer_opts opts = {.scratch = &request->front->scratch,
                                     .model = request->model,
                                     .request = &request->gen,
                                     .id_seed = request->resume.is_kept ? request->message_id : NULL,
                                     .stops = request->stops,
                                     .begins_thinking = choice->prompt->opens_thinking};
    const struct gen_start start = {request->model, &choice->order, &choice_events, choice, &choice->serving};
    int rc;

    if (is_remembered(choice) && choice->transcript == NULL)
        transcript_new(sink, choice, &choice->transcript); /* after a failure the answer is not kept */
    if (choice->transcript != NULL)
        sink = &transcript_sink;
    *failure = (struct gen_failure){
        .status = 503, .type = "api_error", .message = "the request could not be placed"};
    void *arg = choice->transcript != NULL ? (void *)choice->transcript : choice;
    rc = choice_order_work(choice);
    if (rc == 0)
        return 1;
    if (rc < 0 || (choice->answer == NULL && answer_new(&opts, sink, arg, &choice->answer) < 0) ||
        choice_begin_logprobs(choice) < 0) {
        failure->message = "out of memory";
        return E_NOMEM;
    }
    rc = (request->resume.is_again ? backend->ops->resume : backend->ops->submit)(backend->self, &start,
                                                                                  &choice->handle, failure);
    choice->order = (struct work_order){0};
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

void choices_fail(struct request *request, const struct gen_failure *failure)
{
    struct api_error error;

    request->resume.has_moved |= failure->status == 409; /* another connection resumed the stream */
    api_fail(&error, failure->status, "%s", failure->message);
    error.type = failure->type;
    error.retry_after_s = failure->retry_after_s;
    request_fail(request, &error);
}

/* True if the first choice with the same prompt has computed it.  Also true for that first choice itself. */
static bool is_prompt_known(const struct choice *choice)
{
    if (!choice_is_repeated(choice))
        return true;
    while (choice_is_repeated(choice))
        choice--;
    return choice->last_ns > 0 || choice->state == CHOICE_OVER;
}

static bool is_running(const struct request *request)
{
    return request->n_waiting + request->n_over < request->n_choices;
}

/* True if as many choices are at the backend as may be; the end of a choice calls on_later() again. */
static bool are_enough(const struct request *request)
{
    size_t n = request->n_choices - request->n_waiting - request->n_over;

    return n == MAX_AT_ONCE ||
           (n > 0 && (n + 1) * request->prompt.constraint.len_bytes > MAX_CONSTRAINT_BYTES);
}

static void on_later(void *arg)
{
    struct request *request = arg;
    uint64_t begun_ns = clock_now_ns();
    struct gen_failure failure;
    size_t n_bytes = 0;

    if (request->n_over == request->n_choices) {
        if (request->dialect->render_part != NULL)
            request->dialect->render_part(request);
        return;
    }
    for (uint32_t i = 0; i < request->n_choices; i++) {
        struct choice *choice = &request->choices[i];
        int rc;

        if (choice->state != CHOICE_WAITING || !is_prompt_known(choice))
            continue;
        if (are_enough(request))
            return;
        if (n_bytes > MAX_TURN_BYTES || clock_now_ns() - begun_ns > MAX_TURN_NS) {
            ev_timer_start(request->later, n_bytes > MAX_TURN_BYTES ? NEXT_TURN_NS : 0);
            return;
        }
        n_bytes += choice->prompt->ids.n * sizeof(token_id) + request->prompt.constraint.len_bytes;
        rc = submit_one(choice, &failure);
        if (rc == 1) {
            ev_timer_start(request->later, 0);
            return;
        }
        if (rc == 0 && request->state < REQUEST_PLACED)
            request_enter(request, REQUEST_PLACED);
        if (rc == 0)
            continue;
        if (rc != E_OVERLOADED || !is_running(request))
            choices_fail(request, &failure);
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
    return n > 1 || request->prompt.ids.n > CHOICE_SLICE_TOKENS || request->dialect->render_part != NULL
               ? ev_timer_new(request->front->opts.loop, on_later, request, &request->later)
               : 0;
}

void choices_submit(struct request *request)
{
    uint32_t n = count_choices(request);
    struct gen_failure failure = {.status = 529,
                                  .type = "overloaded_error",
                                  .message = "Overloaded: too many answers are being written"};
    int rc;

    if (n > 1 && n - 1 > request->front->opts.max_requests - request->front->n_running) {
        choices_fail(request, &failure);
        return;
    }
    if (make_choices(request) < 0) {
        request_fail_no_memory(request);
        return;
    }
    request->submitted_ns = clock_now_ns();
    rc = submit_one(&request->choices[0], &failure);
    if (rc < 0) {
        choices_fail(request, &failure);
        return;
    }
    if (rc == 0)
        request_enter(request, REQUEST_PLACED);
    if (rc == 1 || request_n_prompts(request) > 1) /* submits the other prompts, a few per turn */
        ev_timer_start(request->later, 0);
}

/* ---- withdrawing ---- */

void choice_withdraw(struct choice *choice)
{
    const struct backend *backend = request_backend(choice->request);
    struct gen_handle *handle = choice->handle;

    choice->handle = NULL;
    if (handle != NULL)
        backend->ops->cancel(backend->self, handle, &choice->serving);
}

void choices_withdraw(struct request *request)
{
    if (request->choices == NULL)
        return;
    for (uint32_t i = 0; i < request->n_choices; i++)
        choice_withdraw(&request->choices[i]);
    choices_sum_serving(request);
}

void choices_leave(struct request *request)
{
    for (uint32_t i = 0; i < request->n_choices; i++)
        if (request->choices[i].handle != NULL)
            request->choices[i].handle->is_left = true;
    choices_withdraw(request);
}

void choices_refuse(struct request *request, const struct api_error *error)
{
    for (uint32_t i = 0; i < request->n_choices; i++)
        if (request->choices[i].handle != NULL)
            request->choices[i].handle->keeps_order = true;
    request_fail(request, error);
}

void choices_pause(struct request *request, bool is_paused)
{
    const struct backend *backend = request_backend(request);

    if (request->choices == NULL || request->is_paused == is_paused)
        return;
    request->is_paused = is_paused;
    for (uint32_t i = 0; i < request->n_choices; i++)
        if (request->choices[i].handle != NULL)
            backend->ops->pause(backend->self, request->choices[i].handle, is_paused);
}

void choices_fini(struct request *request)
{
    if (request->choices == NULL)
        return;
    ev_timer_free(request->later);
    request->front->n_running -= request->n_choices - 1;
    for (uint32_t i = 0; i < request->n_choices; i++) {
        answer_free(request->choices[i].answer);
        transcript_free(request->choices[i].transcript);
        logprobs_free(request->choices[i].logprobs);
        free(request->choices[i].embedding);
        output_fini_choice(&request->choices[i]);
        work_order_fini(&request->choices[i].order);
    }
    free(request->choices);
    request->choices = NULL;
}
