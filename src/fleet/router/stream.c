/* SPDX-License-Identifier: Apache-2.0 */
/* Workers' messages about running jobs: tokens, ends, failures; and lost workers.
 *
 *      frame of a step -> records -> on_answer -> accepted, tokens (tokens.c), end or failure
 *                                                 serving stats (serving.c)
 *
 * In a pair the prefill worker sends the first token. The decode worker sends all tokens, the first one
 * again; the earlier copy counts. The two links are independent, so each may overtake the other. Tokens
 * wait for the prefill worker's report on the prompt, and an end waits for its serving stats; both waits
 * are short and bounded. */
#include "fleet/router/admission_priv.h"
#include "fleet/router/ahead_priv.h"
#include "fleet/router/stream_priv.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "compute/order/submit.h"
#include "fleet/router/decisions_priv.h"
#include "fleet/router/streams_priv.h"

#define SERVING_WAIT_NS (500 * NS_PER_MS)
#define GROWTH_TOKENS   32 /* the ledger follows an answer in these steps */

static struct job_part *job_part_of(struct job *job, uint32_t slot)
{
    if (job->decode.slot == slot)
        return &job->decode;
    return job->prefill.slot == slot ? &job->prefill : NULL;
}

/* ---- one worker's message about one job ---- */

static void job_accept(struct job *job, uint32_t cached_tokens)
{
    if (!job_is_in(job, JOB_UNACCEPTED))
        return;
    router_job_enter(job, job_is_in(job, JOB_REPORTS) ? JOB_REPORTING : JOB_ANSWERING);
    router_ahead_leave(job);
    gen_handle_accept(&job->handle,
                      cached_tokens < job->order.n_prompt ? cached_tokens : job->order.n_prompt);
}

static void job_on_accepted(struct job *job, uint32_t slot, uint32_t cached_tokens)
{
    /* In a pair the prefill worker knows how much was reused. */
    if (job->prefill.state == PART_RUNNING && slot != job->prefill.slot)
        return;
    job_accept(job, cached_tokens);
}

/* True if the decode worker's tokens overtook the prefill
 * worker's report on the prompt, which comes on another link. */
static bool is_overtaken(const struct job *job, const struct job_part *part)
{
    return job_is_in(job, JOB_UNACCEPTED) && part == &job->decode && job->prefill.state == PART_RUNNING;
}

void router_job_release(struct job *job)
{
    job_accept(job, job->decode.has_serving ? job->decode.serving.reused_tokens : 0);
}

/* Called when the prefill worker's serving stats have arrived or will not. */
static void job_stop_proving(struct job *job)
{
    router_job_end(job, job->end);
}

static void job_check_proving(struct job *job)
{
    if (job_is_in(job, JOB_REPORTS) && job->prefill.has_serving)
        job_stop_proving(job);
}

/* No KV comes from the prefill worker.  The decode worker has the request and computes the missing blocks. */
static void without_prefill(struct job *job)
{
    Baton__Proceed proceed = BATON__PROCEED__INIT;
    int rc;

    proceed.request = job->number;
    rc = router_part_is_lost(job, &job->decode)
             ? E_CLOSED
             : router_send(job->router, job->decode.slot, FRAME_PROCEED, &proceed.base);
    if (rc < 0)
        router_job_replace(job, job->decode.slot, rc);
    else if (job_is_in(job, JOB_HOLDS))
        router_job_release(job);
}

/* Another worker would report the same error. */
static bool is_error_of_request(int error)
{
    return error == E_FORMAT || error == E_CONSTRAINT || error == E_LIMIT;
}

/* The decode worker computes the prompt.  A refusal of the decode worker and an error of the request are no failures of
 * the prefill worker. */
static void on_prefill_failed(struct job *job, const Baton__Answer *answer)
{
    struct router *router = job->router;

    if (answer->is_handoff_refused) {
        log_warn("handoff_refused", LOG_STR("request_id", job->order.work.request_id),
                 LOG_STR("worker", router->workers[job->decode.slot].node), LOG_ERR(answer->error));
    } else {
        log_warn("prefill_failed", LOG_STR("request_id", job->order.work.request_id),
                 LOG_STR("worker", router->workers[job->prefill.slot].node), LOG_ERR(answer->error));
        if (!is_error_of_request(answer->error))
            router_worker_failed(router, job->prefill.slot, answer->error);
    }
    without_prefill(job);
}

static void on_prefill_finish(struct job *job, const Baton__Answer *answer)
{
    enum work_end end;

    router_job_uncharge(job, &job->prefill);
    if (job_is_in(job, JOB_REPORTS)) {
        job_stop_proving(job);
        return;
    }
    if (answer->finish == BATON__FINISH__FINISH_HANDED_OFF)
        return;
    if (work_end_of(answer->finish, &end)) { /* by its first token: there is nothing to hand off */
        job->first_finish = answer->finish;
        if (job->handle.ended_unix_s == 0) /* a prefill worker keeps no tail, and no time */
            job->handle.ended_unix_s = clock_unix_ns() / NS_PER_S;
        router_job_end(job, end);
        return;
    }
    on_prefill_failed(job, answer);
}

static void on_decode_finish(struct job *job, const Baton__Answer *answer)
{
    const struct job_part *first = &job->prefill;
    enum work_end end;
    bool is_end = work_end_of(answer->finish, &end);

    router_job_uncharge(job, &job->decode);
    if (answer->ended_unix_s > 0)
        job->handle.ended_unix_s = answer->ended_unix_s;
    if (is_end && first->state == PART_RUNNING && !first->has_serving) {
        /* A short answer overtook the prefill worker's last message on the other link:
         * wait for its serving stats. */
        job->end = end;
        router_job_enter(job, job->state == JOB_PLACED    ? JOB_REPORTING_PLACED
                              : job->state == JOB_HOLDING ? JOB_REPORTING_HOLDING
                                                          : JOB_REPORTING);
        return;
    }
    if (is_end) {
        router_job_end(job, end);
        return;
    }
    if (answer->finish == BATON__FINISH__FINISH_MOVED) {
        router_streams_moved(job);
        router_job_fail(job, 409, "conflict_error", "The stream was resumed on another connection", 0);
        return;
    }
    if (answer->error == E_LIMIT && router_job_answered(job) > 0) {
        router_job_end(job, WORK_END_CONTEXT); /* its tokens so far fill the worker */
        return;
    }
    if (answer->error == E_LIMIT) {
        router_job_fail(job, 400, "invalid_request_error",
                        "The prompt does not fit the workers' KV memory; a larger kv.memory would hold it",
                        0);
        return;
    }
    /* Logits that are not finite count too if there is no other worker. */
    if (is_error_of_request(answer->error) ||
        (answer->error == E_NUMERICS && !router_job_has_other(job, job->decode.slot))) {
        const char *text = answer->error_text[0] != '\0' ? answer->error_text : err_text(answer->error);

        if (answer->error == E_FORMAT)
            router_job_fail(job, 400, "invalid_request_error", text, 0);
        else
            router_job_fail(job, 500, "api_error", text, 0);
        return;
    }
    router_job_replace(job, job->decode.slot, answer->error);
}

/* Updates the ledger after new tokens: the part has begun, and the expected rest of its answer has changed. */
static void job_book_growth(struct job *job, struct job_part *part, uint32_t n_before)
{
    bool is_first = part->booking.charge.context_tokens > 0;

    if (is_first) /* else a call would change nothing, and each token would read the clock */
        picker_booking_started(job->router->fleet, &part->booking, clock_now_ns());
    if (part == &job->decode &&
        (is_first || router_job_answered(job) / GROWTH_TOKENS != n_before / GROWTH_TOKENS)) {
        picker_booking_grows(job->router->fleet, &part->booking, router_admission_answer(job));
        router_admission_wrote(job);
    }
}

/* E_PROTO, E_NOMEM: the worker failed the job. */
static int job_take_tokens(struct job *job, struct job_part *part, const Baton__Answer *answer)
{
    uint32_t n_before = router_job_answered(job);
    int rc;

    if (is_overtaken(job, part)) {
        if (job->state == JOB_PLACED)
            router_job_enter(job, JOB_HOLDING);
    } else { /* otherwise its prefill worker was lost before it reported */
        job_accept(job, part->has_serving ? part->serving.reused_tokens : 0);
    }
    rc = answer->is_prompt_logprobs ? router_scores_accept(job, answer) : router_tokens_accept(job, answer);
    if (rc == 0 && job->predicted_s > 0 && router_job_answered(job) > 0)
        router_admission_first_token(job);
    if (rc == 0)
        job_book_growth(job, part, n_before);
    return rc;
}

static void job_on_answer(struct router *router, uint32_t slot, const Baton__Answer *answer)
{
    struct job *job = hashmap_get(router->by_number, &answer->request);
    struct job_part *part = job ? job_part_of(job, slot) : NULL;
    int rc;

    router_decisions_times(router, slot, answer);
    if (part == NULL || part->state != PART_RUNNING)
        return; /* of an earlier attempt, or cancelled meanwhile */
    if (answer->serving != NULL)
        router_part_serving(part, answer->serving);
    if (answer->is_accepted)
        job_on_accepted(job, slot, answer->cached_tokens);
    rc = answer->n_ids > 0 ? job_take_tokens(job, part, answer) : 0;
    if (rc < 0)
        router_job_replace(job, slot, rc);
    else if (answer->finish == BATON__FINISH__FINISH_NONE)
        job_check_proving(job);
    else if (part == &job->prefill)
        on_prefill_finish(job, answer);
    else
        on_decode_finish(job, answer);
}

/* Passes on the events of one answer while the job's lines are in the CPU cache. */
static void router_stream_answer(struct router *router, uint32_t slot, const Baton__Answer *answer)
{
    gen_outbox_begin(&router->outbox);
    job_on_answer(router, slot, answer);
    gen_outbox_flush(&router->outbox);
}

/* ---- prefetch ---- */

/* Ten thousand jobs do not fit in a cache, so at its next token a job's lines are gone from it. A frame
 * names its jobs early. The code prefetches them while it answers others, in steps, because the address of
 * the next lines is in those before.
 *
 *       records of the frame   now . . . . . . . 8 . . . 12
 *                                    <- soon ->  job     its place in the map */
#define AHEAD_MAP  12
#define AHEAD_JOB  8
#define AHEAD_SOON 2 /* records from one step of on_soon to the next, and from the last one to now */

struct ahead {
    struct job *jobs[AHEAD_JOB]; /* of the records, by number modulo AHEAD_JOB; NULL: none */
    uint64_t n_freed;            /* router.n_freed at the look-up */
};

static bool record_number(const ProtobufCBinaryData *singles, size_t record, uint64_t *out)
{
    if ((record + 1) * FRAME_SINGLE_BYTES > singles->len)
        return false;
    *out = frame_single_unpack(singles->data + record * FRAME_SINGLE_BYTES).request;
    return true;
}

static void fetch_job(const struct job *job)
{
    mem_prefetch(job, offsetof(struct job, prefill));
    mem_prefetch(&job->decode, offsetof(struct job_part, serving));
}

/* Called before each record: the next prefetch steps for those that follow. */
static void fetch_ahead(const struct router *router, struct ahead *ahead, const ProtobufCBinaryData *singles,
                        size_t record)
{
    struct job *job = NULL;
    uint64_t number;

    if (ahead->n_freed != router->n_freed)
        memset(ahead->jobs, 0, sizeof(ahead->jobs));
    ahead->n_freed = router->n_freed;
    if (record_number(singles, record + AHEAD_MAP, &number))
        hashmap_prefetch(router->by_number, &number);
    if (record_number(singles, record + AHEAD_JOB, &number))
        job = hashmap_get(router->by_number, &number);
    ahead->jobs[record % AHEAD_JOB] = job;
    if (job != NULL)
        fetch_job(job);
    for (unsigned step = 0; step < GEN_SOON_STEPS; step++) {
        job = ahead->jobs[(record + (GEN_SOON_STEPS - step) * AHEAD_SOON) % AHEAD_JOB];
        if (job != NULL && job->handle.events->on_soon != NULL)
            job->handle.events->on_soon(job->handle.arg, step);
        if (job != NULL && step == 0)
            __builtin_prefetch(job->order.tokens + job->order.n_tokens, 1);
    }
}

int router_stream_tokens(struct router *router, uint32_t slot, const Baton__Tokens *tokens)
{
    Baton__Answer answer = BATON__ANSWER__INIT;
    struct frame_single single;
    struct ahead ahead = {.n_freed = router->n_freed};

    answer.ids = &single.id;
    answer.n_ids = 1;
    for (size_t at = 0; at < tokens->singles.len; at += FRAME_SINGLE_BYTES) {
        fetch_ahead(router, &ahead, &tokens->singles, at / FRAME_SINGLE_BYTES);
        single = frame_single_unpack(tokens->singles.data + at);
        answer.request = single.request;
        answer.first_index = single.index;
        router_stream_answer(router, slot, &answer);
    }
    for (size_t i = 0; i < tokens->n_answers; i++)
        router_stream_answer(router, slot, tokens->answers[i]);
    return 0;
}

/* ---- a worker is gone ---- */

bool router_part_is_lost(const struct job *job, const struct job_part *part)
{
    return part->state == PART_RUNNING && part->life != job->router->workers[part->slot].n_lost;
}

static void job_lost_worker(struct job *job)
{
    struct router *router = job->router;

    if (router_part_is_lost(job, &job->decode)) {
        router_job_replace(job, job->decode.slot, E_CLOSED);
    } else if (router_part_is_lost(job, &job->prefill)) {
        router_job_uncharge(job, &job->prefill);
        if (job_is_in(job, JOB_REPORTS)) {
            job_stop_proving(job);
        } else {
            router_worker_failed(router, job->prefill.slot, E_CLOSED);
            without_prefill(job);
        }
    }
}

/* Restarted workers may be tried again, and may keep the stream that the job resumes.  A job that was submitted later has
 * asked the worker already. */
static void job_met_workers(struct job *job)
{
    struct router *router = job->router;
    const struct picker_slots *up = &router->slices.up;

    for (uint32_t i = 0; i < sizeof(up->words) / sizeof(up->words[0]); i++)
        job->excluded.words[i] &= ~up->words[i];
    for (uint32_t slot = 0; job->state == JOB_RESUMING && slot < PICKER_MAX_WORKERS; slot++)
        if (picker_slots_has(up, slot) && job->submitted_ns <= router->workers[slot].up_ns)
            router_resume_worker_up(job, slot);
}

bool router_stream_sweep_step(struct router *router)
{
    struct router_slices *slices = &router->slices;
    bool is_first = slices->jobs.next == NULL;
    struct list *node = router_walk_step(&slices->jobs, &router->jobs);

    if (is_first) {
        slices->up = slices->came;
        slices->came = (struct picker_slots){{0}};
    }
    if (node == NULL) {
        for (uint32_t i = 0; i < router->n_models && !router_slices_is_asked(router, SLICE_SWEEP); i++)
            router->models[i].is_losing = false;
        return false;
    }
    job_lost_worker(container_of(node, struct job, all));
    job_met_workers(container_of(node, struct job, all));
    return true;
}

void router_stream_worker_lost(struct router *router)
{
    router_slices_ask(router, SLICE_SWEEP);
    router_slices_ask(router, SLICE_PLACE);
}

void router_stream_worker_up(struct router *router, uint32_t slot)
{
    router->workers[slot].up_ns = clock_now_ns();
    picker_slots_add(&router->slices.came, slot);
    router_slices_ask(router, SLICE_SWEEP);
}

/* ---- waits that took too long ---- */

bool router_stream_timed_step(struct router *router)
{
    uint64_t now_ns = clock_now_ns();
    struct list *node = router_walk_step(&router->slices.timed, &router->timed);
    struct job *job = node != NULL ? container_of(node, struct job, timed) : NULL;

    if (job == NULL)
        return false;
    if (job->state == JOB_RESUMING)
        router_resume_tick(job, now_ns);
    else if (job_is_in(job, JOB_HOLDS) && now_ns - job->held_ns > SERVING_WAIT_NS)
        router_job_release(job);
    else if (job_is_in(job, JOB_REPORTS) && now_ns - job->ended_ns > SERVING_WAIT_NS)
        job_stop_proving(job);
    return true;
}

void router_stream_tick(struct router *router)
{
    router_slices_ask(router, SLICE_TIMED);
}
