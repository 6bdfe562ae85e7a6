/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the engine thread's answers to a router as TOKENS frames.
 *
 * Most answers are one token and nothing else.  These travel as compact records (Tokens.singles), which the
 * router reads before the other answers of the frame.  If the frame already has an answer of the same
 * request, a single token would overtake it, so it travels as a full answer too.
 *
 * One frame usually has all answers of a step for one router.  After a pause a report covers many steps, and
 * with log probabilities a token takes two hundred bytes.  So frames are cut well below the limit of their
 * type.  Log probabilities are flat lists of an answer (proto/control.proto), so answers without them pay
 * nothing. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "worker/loop/spending_priv.h"
#include "worker/loop/worker_priv.h"

#define FRAME_BYTES  (128u << 10) /* a router takes a millisecond for a frame full of logprobs */
#define ANSWER_BYTES 384u         /* upper bound of an answer with its serving stats, without tokens */
#define TOKEN_BYTES  11u          /* upper bound of an id, its logprob and its count of top tokens */
#define TOP_BYTES    9u
/* A number of an embedding has four bytes but counts as more here.  Otherwise a whole frame of numbers would block
 * the router's loop for milliseconds. */
#define EMBEDDING_BYTES 32u
#define MAX_LOOK        8u /* how many answers of a frame a single token is compared with */

struct lists { /* arrays of all answers of a report, which the messages point into */
    Baton__Answer *answers;
    Baton__Answer **pointers;
    Baton__Serving *servings;
    Baton__TaskTimes *times;
    float *logprobs;
    uint32_t *n_tops;
    uint32_t *top_ids;
    float *top_logprobs;
    uint32_t n_draws, n_top; /* used */
    uint8_t *singles;
};

struct frame { /* the frame being filled, with parts of the arrays */
    Baton__Answer **answers;
    size_t n, n_singles;
    size_t n_bytes; /* upper bound */
};

static int lists_init(struct lists *lists, const struct report *report)
{
    size_t n = report->n_answers, n_draws = report->n_draws, n_top = 0;

    for (uint32_t i = 0; i < report->n_draws; i++)
        n_top += report->draws[i].n_top;
    *lists = (struct lists){.answers = calloc(n, sizeof(*lists->answers)),
                            .pointers = calloc(n, sizeof(Baton__Answer *)),
                            .servings = calloc(n, sizeof(*lists->servings)),
                            .times = calloc(n, sizeof(*lists->times)),
                            .logprobs = calloc(n_draws + 1, sizeof(float)),
                            .n_tops = calloc(n_draws + 1, sizeof(uint32_t)),
                            .top_ids = calloc(n_top + 1, sizeof(uint32_t)),
                            .top_logprobs = calloc(n_top + 1, sizeof(float)),
                            .singles = calloc(n, FRAME_SINGLE_BYTES)};
    return lists->answers && lists->pointers && lists->servings && lists->times && lists->logprobs &&
                   lists->n_tops && lists->top_ids && lists->top_logprobs && lists->singles
               ? 0
               : E_NOMEM;
}

static void lists_fini(struct lists *lists)
{
    free(lists->answers);
    free(lists->pointers);
    free(lists->servings);
    free(lists->times);
    free(lists->logprobs);
    free(lists->n_tops);
    free(lists->top_ids);
    free(lists->top_logprobs);
    free(lists->singles);
}

void worker_answer_serving(const struct task_answer *from, Baton__Serving *out)
{
    baton__serving__init(out);
    out->computed = from->stats.n_computed;
    out->reused = from->stats.n_reused;
    out->transferred = from->stats.n_transferred;
    out->drawn = from->stats.n_drawn;
    out->preempted = from->stats.n_preempted;
    out->drafted = from->stats.n_drafted;
    out->accepted = from->stats.n_accepted;
    out->queue_ns = from->stats.queue_ns;
    out->prefill_ns = from->stats.prefill_ns;
    out->decode_ns = from->stats.decode_ns;
    out->transfer_ns = from->figures.transfer_ns;
    out->exposed_ns = from->figures.exposed_ns;
    out->attention_bytes = from->figures.attention_bytes;
    out->recurrent_bytes = from->figures.recurrent_bytes;
    out->index_bytes = from->figures.index_bytes;
    out->mtp_bytes = from->figures.mtp_bytes;
    out->transport = (char *)from->figures.transport;
}

static uint64_t answers_after(const struct task_times *times, uint64_t at_ns)
{
    return at_ns > times->submitted_ns ? at_ns - times->submitted_ns : 0;
}

static void fill_times(const struct task_times *from, Baton__TaskTimes *to)
{
    baton__task_times__init(to);
    to->submitted_unix_ns = from->submitted_ns + from->wall_ns;
    to->fetched_ns = answers_after(from, from->fetched_ns);
    to->admitted_ns = answers_after(from, from->admitted_ns);
    to->first_ns = answers_after(from, from->first_ns);
    to->transfer_began_ns = answers_after(from, from->transfer_began_ns);
    to->transfer_ended_ns = answers_after(from, from->transfer_ended_ns);
    to->ended_ns = answers_after(from, from->ended_ns);
    to->transfer_bytes = from->transfer_bytes;
}

static void fill_draws(struct lists *lists, const struct sample_result *draws, uint32_t n, Baton__Answer *to)
{
    to->logprobs = lists->logprobs + lists->n_draws;
    to->n_tops = lists->n_tops + lists->n_draws;
    to->top_ids = lists->top_ids + lists->n_top;
    to->top_logprobs = lists->top_logprobs + lists->n_top;
    to->n_logprobs = to->n_n_tops = n;
    lists->n_draws += n;
    for (uint32_t i = 0; i < n; i++) {
        to->logprobs[i] = draws[i].logprob;
        to->n_tops[i] = draws[i].n_top;
        for (uint32_t k = 0; k < draws[i].n_top; k++) {
            to->top_ids[to->n_top_ids++] = draws[i].top[k].id;
            to->top_logprobs[to->n_top_logprobs++] = draws[i].top[k].logprob;
        }
    }
    lists->n_top += (uint32_t)to->n_top_ids;
}

static void fill_answer(const struct report *report, const struct task_answer *from, struct lists *lists,
                        uint32_t at)
{
    Baton__Answer *to = &lists->answers[at];

    baton__answer__init(to);
    to->request = from->request;
    to->is_accepted = from->is_accepted;
    to->cached_tokens = from->cached_tokens;
    to->first_index = from->first_index;
    to->is_prompt_logprobs = from->is_prompt_logprobs;
    to->ids = report->ids + from->ids_at;
    to->n_ids = from->n_ids;
    to->finish = from->finish;
    to->error = from->error;
    to->is_handoff_refused = from->is_handoff_refused;
    to->ended_unix_s = from->ended_unix_s;
    if (from->error_text != NULL)
        to->error_text = from->error_text;
    if (from->n_draws > 0)
        fill_draws(lists, report->draws + from->draws_at, from->n_draws, to);
    to->embedding = report->embeddings + from->embedding_at;
    to->n_embedding = from->n_embedding;
    if (from->has_serving) {
        worker_answer_serving(from, &lists->servings[at]);
        to->serving = &lists->servings[at];
        if (from->times != NULL) {
            fill_times(from->times, &lists->times[at]);
            to->serving->times = &lists->times[at];
        }
    }
}

static size_t answers_bytes_of_answer(const Baton__Answer *answer)
{
    return ANSWER_BYTES + TOKEN_BYTES * answer->n_ids + TOP_BYTES * answer->n_top_ids +
           EMBEDDING_BYTES * answer->n_embedding + strlen(answer->error_text);
}

/* True if the answer is one token and nothing else,
 * and the router may read it before the rest of the frame. */
static bool is_single(const struct task_answer *answer, const struct frame *frame)
{
    if (answer->n_ids != 1 || answer->is_accepted || answer->is_prompt_logprobs || answer->n_draws > 0 ||
        answer->n_embedding > 0 || answer->has_serving || answer->error != 0 ||
        answer->finish != BATON__FINISH__FINISH_NONE || frame->n > MAX_LOOK)
        return false;
    for (size_t i = 0; i < frame->n; i++)
        if (frame->answers[i]->request == answer->request)
            return false;
    return true;
}

static void add_single(const struct report *report, const struct task_answer *from, const struct lists *lists,
                       struct frame *frame)
{
    const struct frame_single single = {
        .request = from->request, .index = from->first_index, .id = report->ids[from->ids_at]};

    frame_single_pack(&single, lists->singles + frame->n_singles++ * FRAME_SINGLE_BYTES);
    frame->n_bytes += FRAME_SINGLE_BYTES;
}

/* Sends the frame's content, if any, and continues with the rest of the arrays. */
static void answers_send_frame(struct worker_router *router, const struct lists *lists, struct frame *frame)
{
    Baton__Tokens tokens = BATON__TOKENS__INIT;

    tokens.answers = frame->answers;
    tokens.n_answers = frame->n;
    tokens.singles.data = lists->singles;
    tokens.singles.len = frame->n_singles * FRAME_SINGLE_BYTES;
    if (frame->n > 0 || frame->n_singles > 0) /* if the link is down, its requests are being cancelled */
        (void)link_send(router->link, FRAME_TOKENS, &tokens.base);
    *frame = (struct frame){.answers = frame->answers + frame->n};
}

/* Sends this router's answers; frame is empty. */
static void answers_send_to(struct worker_router *router, const struct report *report, struct lists *lists,
                            struct frame *frame)
{
    uint32_t number = (uint32_t)(router - router->worker->routers);

    for (uint32_t i = 0; i < report->n_answers; i++) {
        const struct task_answer *answer = &report->answers[i];

        if (answer->to != number || answer->router_epoch != router->epoch)
            continue; /* an earlier life of the router submitted it; the same number now names another
                       * request */
        if (frame->n_bytes + FRAME_SINGLE_BYTES > FRAME_BYTES)
            answers_send_frame(router, lists, frame);
        if (is_single(answer, frame)) {
            add_single(report, answer, lists, frame);
            continue;
        }
        fill_answer(report, answer, lists, i);
        if (frame->n_bytes + answers_bytes_of_answer(&lists->answers[i]) > FRAME_BYTES)
            answers_send_frame(router, lists, frame);
        frame->n_bytes += answers_bytes_of_answer(&lists->answers[i]);
        frame->answers[frame->n++] = &lists->answers[i];
    }
    answers_send_frame(router, lists, frame);
}

void worker_routers_send(struct worker *worker, const struct report *report)
{
    struct lists lists;
    struct frame frame;
    uint32_t routers = 0; /* a bit for each router */

    _Static_assert(WORKER_MAX_ROUTERS <= 32, "routers has a bit for each");
    if (lists_init(&lists, report) < 0) {
        log_error("out_of_memory", LOG_STR("lost", "answers"));
        lists_fini(&lists);
        return;
    }
    for (uint32_t i = 0; i < report->n_answers; i++)
        if (report->answers[i].to < worker->n_routers)
            routers |= UINT32_C(1) << report->answers[i].to;
    frame = (struct frame){.answers = lists.pointers};
    for (uint32_t i = 0; i < worker->n_routers; i++)
        if (routers >> i & 1)
            answers_send_to(&worker->routers[i], report, &lists, &frame);
    lists_fini(&lists);
}

void worker_routers_answers(struct worker *worker, struct report *report)
{
    worker_notices_answers(worker, report);
    worker_tails_report(worker, report);
    worker_routers_send(worker, report);
}
