/* SPDX-License-Identifier: Apache-2.0 */
/* The outbox is a list of handles that may have an event.  A flush takes the first handle, makes one call,
 * then looks at the list again, because the call may have freed any handle.  A freed handle is no longer in
 * the list.  The flush removes a handle that has no event.  A handle that has more goes to the end of the list, so
 * that the others have their turn. */
#include "serve/endpoint/handle.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/event/work.h"

#define MOST_TOKENS 128u /* of one event */
#define MOST_DRAWS  16u /* of one event, with logprobs: a token with its likeliest tokens takes up to 15 us */
#define EVENT_UNITS 4u  /* work of an event beside its tokens: a write to the client */
#define DRAW_UNITS  4u  /* work of a token with its logprobs, in plain tokens */
#define END_UNITS   64u /* work of an end or a failure: the answer goes to the cache */
#define BEGIN_UNITS 8u  /* work of an acceptance */
#define CLOCK_UNITS 64u /* units of work from one look at the clock to the next */

/* ---- the outbox ---- */

static void gen_outbox_on_turn(void *arg)
{
    struct gen_outbox *outbox = arg;

    outbox->is_spent = false;
    gen_outbox_flush(outbox);
}

/* Counts work of this turn.  The clock is read seldom, because most events carry one token. */
static void gen_outbox_count(struct gen_outbox *outbox, uint32_t n_units)
{
    outbox->n_unmeasured += n_units;
    if (outbox->n_unmeasured < CLOCK_UNITS || outbox->turn == NULL)
        return;
    outbox->n_unmeasured = 0;
    if (outbox->is_spent || ev_work_age_ns() <= GEN_PIECE_NS)
        return;
    outbox->is_spent = true;
    ev_timer_start(outbox->turn, 0); /* only here: each start would put the timer off again */
}

int gen_outbox_open(struct gen_outbox *outbox, struct ev_loop *loop, gen_close close)
{
    *outbox = (struct gen_outbox){.close = close};
    list_init(&outbox->due);
    return loop != NULL ? ev_timer_new(loop, gen_outbox_on_turn, outbox, &outbox->turn) : 0;
}

void gen_outbox_close(struct gen_outbox *outbox)
{
    ev_timer_free(outbox->turn);
    outbox->turn = NULL;
}

void gen_outbox_begin(struct gen_outbox *outbox)
{
    outbox->is_open = true;
}

static void gen_handle_due(struct gen_handle *handle)
{
    struct gen_outbox *outbox = handle->outbox;

    if (!list_is_empty(&handle->due))
        return;
    if (!outbox->is_open && outbox->turn != NULL && list_is_empty(&outbox->due))
        ev_timer_start(outbox->turn, 0);
    list_push_back(&outbox->due, &handle->due);
}

/* ---- events of the backend ---- */

void gen_handle_init(struct gen_handle *handle, struct gen_outbox *outbox, struct work_order *order,
                     const struct gen_events *events, void *arg)
{
    *handle = (struct gen_handle){.outbox = outbox,
                                  .order = order,
                                  .events = events,
                                  .arg = arg,
                                  .cap_tokens = order->cap_tokens > order->n_tokens ? order->cap_tokens
                                                                                    : order->n_tokens,
                                  .submitted_ns = clock_now_ns()};
    list_init(&handle->due);
}

void gen_handle_fini(struct gen_handle *handle)
{
    list_remove(&handle->due);
    free(handle->draws);
    free(handle->embedding);
    free(handle->failure_text);
    scores_fini(&handle->scores);
}

void gen_handle_resume(struct gen_handle *handle, bool is_anew)
{
    handle->is_anew = is_anew;
    handle->has_resumption = handle->events->on_resumed != NULL;
    gen_handle_due(handle);
}

void gen_handle_accept(struct gen_handle *handle, uint32_t cached_tokens)
{
    handle->has_acceptance = true;
    handle->cached_tokens = cached_tokens;
    gen_handle_due(handle);
}

int gen_handle_token(struct gen_handle *handle, token_id id)
{
    struct work_order *order = handle->order;

    if (order->n_tokens == handle->cap_tokens) {
        uint32_t cap = handle->cap_tokens + handle->cap_tokens / 4 + 256;
        token_id *grown = realloc(order->tokens, (size_t)cap * sizeof(*grown));

        if (grown == NULL)
            return E_NOMEM;
        order->tokens = grown;
        handle->cap_tokens = cap;
    }
    order->tokens[order->n_tokens++] = id;
    gen_handle_due(handle);
    return 0;
}

struct sample_result *gen_handle_draw(struct gen_handle *handle)
{
    uint32_t n = gen_handle_answered(handle) - handle->n_delivered, at = handle->first_draw + n;

    if (at >= handle->cap_draws && handle->first_draw > n) { /* no more is moved than was delivered */
        memmove(handle->draws, handle->draws + handle->first_draw, n * sizeof(*handle->draws));
        handle->first_draw = 0;
        at = n;
    }
    if (at >= handle->cap_draws) {
        uint32_t cap = 2 * at + 8;
        struct sample_result *grown = realloc(handle->draws, (size_t)cap * sizeof(*grown));

        if (grown == NULL)
            return NULL;
        handle->draws = grown;
        handle->cap_draws = cap;
    }
    return &handle->draws[at];
}

int gen_handle_embedding(struct gen_handle *handle, const float *embedding, uint32_t n_dims)
{
    float *copy = n_dims > 0 ? malloc(n_dims * sizeof(*copy)) : NULL;

    if (copy == NULL)
        return E_NOMEM;
    memcpy(copy, embedding, n_dims * sizeof(*copy));
    free(handle->embedding);
    handle->embedding = copy;
    handle->n_dims = n_dims;
    return 0;
}

int gen_handle_scores(struct gen_handle *handle, const struct sample_result *scores, uint32_t n)
{
    int rc;

    scores_reserve(&handle->scores, handle->order->n_prompt);
    rc = scores_add(&handle->scores, scores, n);

    if (rc == 0)
        gen_handle_due(handle);
    return rc;
}

void gen_handle_stop_score(struct gen_handle *handle, const struct sample_result *score)
{
    handle->scores.stop = *score;
    handle->scores.has_stop = true;
    gen_handle_due(handle);
}

void gen_handle_end(struct gen_handle *handle, enum work_end end)
{
    ASSERT(handle->outcome == GEN_RUNNING);
    handle->outcome = GEN_ENDED;
    handle->end = end;
    gen_handle_due(handle);
}

void gen_handle_fail(struct gen_handle *handle, const struct gen_failure *failure)
{
    ASSERT(handle->outcome == GEN_RUNNING);
    handle->outcome = GEN_FAILED;
    handle->failure = *failure;
    handle->failure_text = strdup(failure->message);
    handle->failure.message = handle->failure_text != NULL ? handle->failure_text : "Out of memory";
    gen_handle_due(handle);
}

void gen_handle_pause(struct gen_handle *handle, bool is_paused)
{
    handle->is_paused = is_paused;
    if (!is_paused)
        gen_handle_due(handle);
}

void gen_handle_hold(struct gen_handle *handle, bool is_held)
{
    if (handle->is_held && !is_held)
        gen_handle_due(handle);
    handle->is_held = is_held;
}

void gen_handle_serving(const struct gen_handle *handle, struct gen_serving *serving)
{
    serving->drawn_tokens = handle->n_delivered;
    serving->ttft_ns = handle->first_token_ns ? handle->first_token_ns - handle->submitted_ns : 0;
    serving->total_ns = clock_now_ns() - handle->submitted_ns;
    serving->ended_unix_s = handle->ended_unix_s;
}

/* ---- delivery: each call may free the handle ---- */

/* The handle may have more events.  The other handles go first. */
static void gen_handle_yield(struct gen_handle *handle)
{
    list_remove(&handle->due);
    list_push_back(&handle->outbox->due, &handle->due);
}

static void gen_handle_deliver_scores(struct gen_handle *handle, const struct sample_result *scores,
                                      uint32_t n)
{
    const struct gen_tokens tokens = {.draws = scores, .n = n, .is_prompt_logprobs = true};

    gen_outbox_count(handle->outbox, n * DRAW_UNITS);
    gen_handle_yield(handle);
    handle->events->on_tokens(handle->arg, &tokens);
}

static void gen_handle_deliver_prompt(struct gen_handle *handle)
{
    struct scores *scores = &handle->scores;
    uint32_t from = scores->n_given, n = scores->n - from;

    if (n > MOST_DRAWS)
        n = MOST_DRAWS;
    scores->n_given += n;
    if (scores->n_given == scores->n)
        scores->n_given = scores->n = 0;
    gen_handle_deliver_scores(handle, scores->held + from, n);
}

static void gen_handle_deliver_tokens(struct gen_handle *handle, uint32_t n_held)
{
    uint32_t most = handle->draws != NULL ? MOST_DRAWS : MOST_TOKENS, n = n_held < most ? n_held : most;
    uint32_t first_draw = handle->first_draw;
    const struct gen_tokens tokens = {.ids = handle->order->tokens + handle->order->n_prompt +
                                             handle->n_delivered,
                                      .n = n,
                                      .embedding = handle->embedding,
                                      .n_dims = handle->n_dims,
                                      .draws = handle->draws != NULL ? handle->draws + first_draw : NULL};

    handle->first_draw = n < n_held ? first_draw + n : 0;
    handle->n_delivered += n;
    gen_outbox_count(handle->outbox, EVENT_UNITS + (handle->draws != NULL ? n * DRAW_UNITS : n));
    if (handle->first_token_ns == 0)
        handle->first_token_ns = clock_now_ns();
    if (n < n_held)
        gen_handle_yield(handle);
    else if (handle->outcome == GEN_RUNNING)
        list_remove(&handle->due); /* no other event is due: removing it here spares the flush one look per
                                    * token */
    handle->events->on_tokens(handle->arg, &tokens);
}

static void gen_handle_deliver_end(struct gen_handle *handle)
{
    const struct gen_events *events = handle->events;
    struct gen_serving serving = {0};
    enum work_end end = handle->end;
    void *arg = handle->arg;

    gen_outbox_count(handle->outbox, END_UNITS);
    handle->outbox->close(handle, &serving);
    events->on_end(arg, end, &serving);
}

static void gen_handle_deliver_failure(struct gen_handle *handle)
{
    const struct gen_events *events = handle->events;
    struct gen_failure failure = handle->failure;
    struct gen_serving serving = {0};
    char *text = handle->failure_text;
    void *arg = handle->arg;

    handle->failure_text = NULL;
    gen_outbox_count(handle->outbox, END_UNITS);
    handle->outbox->close(handle, &serving);
    events->on_failure(arg, &failure, &serving);
    free(text);
}

/* Makes one call, or removes the handle from the list if no event is due. */
static void gen_handle_deliver(struct gen_handle *handle)
{
    bool is_open = !handle->is_paused && !handle->is_held;
    uint32_t n = gen_handle_answered(handle) - handle->n_delivered;

    if (handle->has_resumption) {
        handle->has_resumption = false;
        handle->events->on_resumed(handle->arg, handle->order, handle->is_anew);
    } else if (handle->has_acceptance && !handle->is_paused) {
        handle->has_acceptance = false;
        gen_outbox_count(handle->outbox, BEGIN_UNITS);
        handle->events->on_accepted(handle->arg, handle->cached_tokens);
    } else if (is_open && handle->scores.n > 0) {
        gen_handle_deliver_prompt(handle);
    } else if (is_open && n > 0) {
        gen_handle_deliver_tokens(handle, n);
    } else if (is_open && handle->scores.has_stop && handle->outcome == GEN_ENDED) {
        handle->scores.has_stop = false;
        gen_handle_deliver_scores(handle, &handle->scores.stop, 1);
    } else if (handle->outcome == GEN_FAILED) {
        gen_handle_deliver_failure(handle);
    } else if (is_open && handle->outcome == GEN_ENDED) {
        gen_handle_deliver_end(handle);
    } else {
        list_remove(&handle->due);
    }
}

void gen_outbox_flush(struct gen_outbox *outbox)
{
    outbox->is_open = true;
    while (!outbox->is_spent && !list_is_empty(&outbox->due))
        gen_handle_deliver(container_of(outbox->due.next, struct gen_handle, due));
    outbox->is_open = false;
}
