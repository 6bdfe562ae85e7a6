/* SPDX-License-Identifier: Apache-2.0 */
/* Sends a tail to the router whose client returned: RESUMED with the SUBMIT, then TOKENS with the whole
 * answer.
 *
 *      RESUME --> found --> its former router: MOVED
 *                   '-----> the requesting router: RESUMED, slices of the tail, one a turn, then new tokens
 *
 * Slices bound the work of one turn here and at the router, for an answer of any length.  New tokens wait in
 * the tail until the slices reach them, which keeps the order. */
#include "worker/loop/tails_priv.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#define SLICE_TOKENS 256u
#define SLICE_DRAWS  64u /* fewer, because log probabilities take more room */

static void tail_report_moved(struct tail *tail)
{
    struct worker_router *router = &tail->worker->routers[tail->router];
    Baton__Tokens tokens = BATON__TOKENS__INIT;
    Baton__Answer answer = BATON__ANSWER__INIT, *list = &answer;

    if (router->epoch != tail->job.router_epoch || tail->has_end ||
        (tail->state != TAIL_STREAMING && tail->state != TAIL_REPLAYING))
        return;
    answer.request = tail->job.request;
    answer.finish = BATON__FINISH__FINISH_MOVED;
    tokens.n_answers = 1;
    tokens.answers = &list;
    (void)link_send(router->link, FRAME_TOKENS, &tokens.base);
}

/* False if an earlier worker sampled tokens whose log probabilities this worker does not have. */
static bool tail_is_whole(const struct tail *tail)
{
    return tail->state != TAIL_BARE && (!tail->wants_draws || tail->first_index == 0);
}

static struct tail *tail_find(const struct worker *worker, const Baton__Resume *resume)
{
    char key[TAIL_ID_BYTES] = {0};
    struct tail *tail;

    memcpy(key, resume->request_id, strnlen(resume->request_id, sizeof(key) - 1));
    tail = hashmap_get(worker->tails->by_id, key);
    if (tail == NULL || strcmp(tail->tenant, resume->tenant) != 0 || !tail_is_whole(tail) ||
        (tail->is_partial && !resume->has_prompt) || resume->body_digest.len != sizeof(tail->body_digest) ||
        memcmp(resume->body_digest.data, tail->body_digest, sizeof(tail->body_digest)) != 0)
        return NULL;
    return tail;
}

static int tail_send_resumed(struct worker_router *router, const struct tail *tail, uint64_t request)
{
    Baton__Resumed resumed = BATON__RESUMED__INIT;
    int rc;

    resumed.request = request;
    resumed.is_here = tail != NULL;
    if (tail != NULL) {
        resumed.submit = baton__submit__unpack(NULL, tail->submit.len_bytes, tail->submit.data);
        if (resumed.submit == NULL)
            return E_NOMEM;
        resumed.prompt_hash = tail->prompt_hash;
        resumed.ended_unix_s = tail->has_end ? tail->end.ended_unix_s : 0;
    }
    rc = link_send(router->link, FRAME_RESUMED, &resumed.base);
    if (resumed.submit != NULL)
        baton__submit__free_unpacked(resumed.submit, NULL);
    return rc;
}

/* Assigns the tail to this job.  E_NOMEM. */
static int tail_assign(struct tail *tail, const struct task_key *job, uint32_t router)
{
    struct tails *tails = tail->worker->tails;

    if (hashmap_put(tails->by_job, job, tail, NULL) < 0)
        return E_NOMEM;
    tail_report_moved(tail);
    if (memcmp(&tail->job, job, sizeof(*job)) != 0)
        hashmap_remove(tails->by_job, &tail->job);
    tail->job = *job;
    tail->router = router;
    return 0;
}

void worker_tails_resume(struct worker_router *router, const Baton__Resume *resume)
{
    struct worker *worker = router->worker;
    const struct task_key job = {.router_epoch = router->epoch, .request = resume->request};
    struct tail *tail = tail_find(worker, resume);

    if (tail != NULL && tail_send_resumed(router, tail, resume->request) < 0)
        tail = NULL;
    else if (tail == NULL)
        (void)tail_send_resumed(router, NULL, resume->request);
    if (tail == NULL || tail_assign(tail, &job, (uint32_t)(router - worker->routers)) < 0)
        return;
    log_info("stream_resumed", LOG_STR("request_id", tail->id), LOG_STR("router", router->node),
             LOG_U64("tokens", tail->n_ids));
    metric_add(worker->tails->m_resumed, 1);
    tail->n_replayed = 0;
    tail->resumed_ns = clock_now_ns();
    tail_enter(tail, TAIL_REPLAYING);
    ev_timer_start(worker->tails->replay, 0);
}

/* Adds a slice to the report, and after the last slice the end.  E_NOMEM. */
static int tail_fill_report(struct tail *tail, struct report *report)
{
    uint32_t most = tail->wants_draws ? SLICE_DRAWS : SLICE_TOKENS, left = tail->n_ids - tail->n_replayed;
    uint32_t n = left < most ? left : most;
    struct task_answer *answer =
        n > 0 || tail->is_accepted ? report_answer(report, tail->ids + tail->n_replayed, n) : NULL;

    if (n > 0 && answer == NULL)
        return E_NOMEM;
    if (answer != NULL) {
        answer->first_index = tail->first_index + tail->n_replayed;
        answer->is_accepted = tail->is_accepted;
        answer->cached_tokens = tail->cached_tokens;
        if (n > 0 && tail->wants_draws && report_draws(report, tail->draws + tail->n_replayed) < 0)
            return E_NOMEM;
    }
    tail->n_replayed += n;
    if (tail->n_replayed == tail->n_ids && tail->has_end) {
        answer = report_answer(report, NULL, 0);
        if (answer == NULL)
            return E_NOMEM;
        *answer = tail->end;
        answer->ids_at = report->n_ids;
        answer->error_text = tail->end.error_text != NULL ? strdup(tail->end.error_text) : NULL;
    }
    for (uint32_t i = 0; i < report->n_answers; i++) {
        report->answers[i].router_epoch = tail->job.router_epoch;
        report->answers[i].request = tail->job.request;
        report->answers[i].to = tail->router;
    }
    return 0;
}

/* Sends the next slice.  False: no memory. */
static bool tail_replay_slice(struct tail *tail)
{
    struct report *report = report_new(REPORT_ANSWERS, tail->router);
    int rc = report == NULL ? E_NOMEM : tail_fill_report(tail, report);

    if (rc == 0)
        worker_routers_send(tail->worker, report);
    report_free(report);
    if (rc == 0 && tail->n_replayed == tail->n_ids)
        tail_enter(tail, tail->has_end ? TAIL_ENDED : TAIL_STREAMING);
    return rc == 0;
}

void tails_replay(void *arg)
{
    struct worker *worker = arg;
    bool has_more = false;

    list_for_each_safe (node, spare, &worker->tails->all) {
        struct tail *tail = container_of(node, struct tail, node);

        if (tail->state != TAIL_REPLAYING)
            continue;
        if (!tail_replay_slice(tail)) {
            log_error("out_of_memory", LOG_STR("lost", "the tail of an answer"));
            worker_routers_refuse(&worker->routers[tail->router], tail->job.request, E_NOMEM);
            tail_cancel_task(tail);
            tail_free(tail);
            continue;
        }
        has_more |= tail->state == TAIL_REPLAYING;
    }
    if (has_more)
        ev_timer_start(worker->tails->replay, 0);
}
