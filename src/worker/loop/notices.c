/* SPDX-License-Identifier: Apache-2.0 */
/* Notices: new load that the engine thread has not reported yet, sent to the other routers.
 *
 *    router A --SUBMIT--> notice --2 ms--> HEARTBEAT with it to routers B, C
 *                           '--> the engine thread --its next report includes it--> dropped
 *                                               |----its first token is sent------> its prompt is not counted
 *                                               '----it ends----------------------> not counted
 *
 * A router knows its own dispatches at once, and those of other routers from heartbeats.  With one heartbeat a
 * second, two routers send their prompts to the same worker, and mean TTFT grows by a third.  So a worker that
 * takes a job from one router reports the added load to the other routers at once.
 *
 * The engine's figures are up to 100 ms old.  So a report subtracts the time since then from the queued prompts, and
 * the sequences of routers that have ended since then: an idle worker that seems busy gets no prompts. */
#include "worker/loop/worker_priv.h"
#include "worker/loop/spending_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"

#define MAX_NOTICES 256 /* at the limit, the oldest are dropped; the engine's next report has them */

enum notice_state {
    NOTICE_WAITING, /* no token was sent yet */
    NOTICE_RUNNING, /* its first token was sent */
    NOTICE_ENDED,   /* its end was sent */
};

struct load_notice {
    uint64_t number;
    struct task_key key;
    uint32_t tokens; /* of a prompt to compute */
    enum notice_state state;
};

struct notices {
    struct load_notice ring[MAX_NOTICES];
    uint32_t first, n;
    uint32_t n_ended; /* sequences that the engine's report counts, and which have ended since */
    uint64_t next_number, reported_ns;
    uint32_t unsent; /* a bit for each router that still has to get it */
    struct ev_timer *timer;
};

static void notices_send(void *arg)
{
    struct worker *worker = arg;
    uint32_t unsent = worker->notices->unsent;

    worker->notices->unsent = 0;
    for (uint32_t i = 0; i < worker->n_routers; i++)
        if ((unsent >> i & 1) != 0 && worker_router_is_up(&worker->routers[i]))
            link_beat(worker->routers[i].link);
}

int worker_notices_open(struct worker *worker)
{
    worker->notices = calloc(1, sizeof(*worker->notices));
    if (worker->notices == NULL)
        return E_NOMEM;
    worker->notices->next_number = 1;
    return ev_timer_new(worker->loop, notices_send, worker, &worker->notices->timer);
}

void worker_notices_close(struct worker *worker)
{
    if (worker->notices != NULL)
        ev_timer_free(worker->notices->timer);
    free(worker->notices);
    worker->notices = NULL;
}

void worker_notices_add(struct worker_router *router, struct task_spec *spec, uint32_t compute_tokens)
{
    struct worker *worker = router->worker;
    struct notices *notices = worker->notices;
    struct load_notice *notice = &notices->ring[(notices->first + notices->n) % MAX_NOTICES];
    uint32_t others = ((1u << worker->n_routers) - 1) & ~(1u << (router - worker->routers));

    spec->notice = notices->next_number++;
    notice->number = spec->notice;
    notice->key = spec->key;
    notice->state = NOTICE_WAITING;
    notice->tokens = spec->mode == TASK_DECODE ? 0
                     : compute_tokens > 0      ? compute_tokens
                                               : spec->order.n_tokens;
    if (notices->n < MAX_NOTICES)
        notices->n++;
    else
        notices->first = (notices->first + 1) % MAX_NOTICES;
    if (others == 0)
        return;
    if (notices->unsent == 0)
        ev_timer_start(notices->timer, LOAD_NOTICE_NS);
    notices->unsent |= others;
}

void worker_notices_reported(struct worker *worker)
{
    struct notices *notices = worker->notices;

    if (notices == NULL) /* the engine starts first */
        return;
    notices->reported_ns = clock_now_ns();
    notices->n_ended = 0;
    while (notices->n > 0 && notices->ring[notices->first].number <= worker->load.notice) {
        notices->first = (notices->first + 1) % MAX_NOTICES;
        notices->n--;
    }
}

/* A task without a notice is in the engine's report.  Cancelled tasks send no end: the next report lacks them.
 * may_be_unknown: perhaps an order came for a task that had ended before, so only a notice proves that it counts. */
static void notices_advance(struct notices *notices, const struct task_key *key, enum notice_state state,
                            bool may_be_unknown)
{
    bool is_noticed = false;

    for (uint32_t i = 0; i < notices->n; i++) {
        struct load_notice *notice = &notices->ring[(notices->first + i) % MAX_NOTICES];

        if (notice->key.router_epoch != key->router_epoch || notice->key.request != key->request)
            continue;
        is_noticed = true;
        if (state > notice->state)
            notice->state = state;
    }
    notices->n_ended += state == NOTICE_ENDED && !is_noticed && !may_be_unknown;
}

void worker_notices_answers(struct worker *worker, const struct report *report)
{
    for (uint32_t i = 0; worker->notices != NULL && i < report->n_answers; i++) {
        const struct task_answer *answer = &report->answers[i];
        const struct task_key key = {.router_epoch = answer->router_epoch, .request = answer->request};
        bool is_first = answer->n_ids > 0 && answer->first_index == 0 && !answer->is_prompt_logprobs;

        if (answer->finish != BATON__FINISH__FINISH_NONE)
            notices_advance(worker->notices, &key, NOTICE_ENDED, answer->error == E_NOT_FOUND);
        else if (is_first)
            notices_advance(worker->notices, &key, NOTICE_RUNNING, false);
    }
}

/* Subtracts the sequences that have ended since the engine's report. */
static void notices_subtract_ended(const struct notices *notices, Baton__LoadReport *load)
{
    uint32_t n_ran = notices->n_ended < load->running ? notices->n_ended : load->running;
    uint32_t n_waited = notices->n_ended - n_ran;

    load->running -= n_ran;
    load->waiting -= n_waited < load->waiting ? n_waited : load->waiting;
}

/* Subtracts the prompts that were computed since the engine's report. */
static void notices_age(const struct notices *notices, Baton__LoadReport *load)
{
    double passed_s = (double)(clock_now_ns() - notices->reported_ns) / 1e9;
    double left;

    if (notices->reported_ns == 0 || load->queued_prefill_s <= 0)
        return;
    left = load->queued_prefill_s > passed_s ? load->queued_prefill_s - passed_s : 0;
    load->queued_prefill_tokens =
        (uint64_t)((double)load->queued_prefill_tokens * left / load->queued_prefill_s);
    load->queued_prefill_s = left;
}

void worker_notices_correct(struct worker *worker, Baton__LoadReport *load)
{
    struct notices *notices = worker->notices;
    uint64_t tokens = 0;

    if (notices == NULL)
        return;
    notices_age(notices, load);
    notices_subtract_ended(notices, load);
    for (uint32_t i = 0; i < notices->n; i++) {
        const struct load_notice *notice = &notices->ring[(notices->first + i) % MAX_NOTICES];

        tokens += notice->state == NOTICE_WAITING ? notice->tokens : 0;
        load->waiting += notice->state == NOTICE_WAITING;
        load->running += notice->state == NOTICE_RUNNING;
    }
    load->queued_prefill_tokens += tokens;
    if (load->prompt_token_s > 0)
        load->queued_prefill_s += (double)tokens * load->prompt_token_s;
}
