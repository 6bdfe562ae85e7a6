/* SPDX-License-Identifier: Apache-2.0 */
/* Stores the tail of each answer whose stream may outlive its router: its tokens so far, and its end.
 *
 *      SUBMIT with a note --> STREAMING --its router is gone--> ORPHANED --the grace is over--> cancelled
 *                              |  ^  |                            |
 *                     no memory|  |  +----RESUME from any router--+--> REPLAYING --CANCEL: the client will come
 *                              v  |                                       |        back--> ORPHANED or ENDED
 *                            BARE +--------------all tokens were sent-----+
 *
 *      any --the end--> ENDED --RESUME--> REPLAYING --all was sent--> ENDED --the grace is over--> forgotten
 *      any --CANCEL: the client left--> forgotten
 *
 * The engine thread is not involved.  A task keeps the key from its first router, and continues when that router is
 * lost (task_spec.has_tail).  Every answer passes through this file, which sets the router and job that receive it.
 *
 * Of a prompt in pieces the tail keeps only the first.  A client that resumes sends its body again.
 *
 * Only (request id, tenant, digest of the body) finds a tail.  stream.tail_memory bounds all tails: beyond it the tenant
 * that uses the most loses its oldest, ended ones first.  An answer without a tail ends with its router. */
#include "worker/loop/tails_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#define TICK_NS (250 * NS_PER_MS)

static const char *const tail_states[] = {"streaming", "replaying", "orphaned", "bare", "ended"};
CHECK_ROWS(tail_states, TAIL_ENDED + 1);

static struct tails *tails_of(const struct tail *tail)
{
    return tail->worker->tails;
}

void tail_enter(struct tail *tail, enum tail_state state)
{
    log_debug("tail_state", LOG_STR("request_id", tail->id), LOG_STR("from", tail_states[tail->state]),
              LOG_STR("to", tail_states[state]));
    tail->state = state;
    if (state == TAIL_ORPHANED || state == TAIL_ENDED)
        tail->until_ns = clock_now_ns() + tail->worker->conf->tails_grace_ns;
}

/* ---- memory ---- */

size_t tail_bytes(const struct tail *tail)
{
    size_t token_bytes;

    if (tail->state == TAIL_BARE)
        return 0; /* not counted, because its task is much larger */
    token_bytes = sizeof(*tail->ids) + (tail->draws != NULL ? sizeof(*tail->draws) : 0);
    return sizeof(*tail) + tail->submit.len_bytes + tail->cap_ids * token_bytes;
}

static void tails_count(struct tails *tails)
{
    metric_set(tails->m_count, (double)hashmap_count(tails->by_id));
    metric_set(tails->m_bytes, (double)tails->n_bytes);
}

static void tail_drop_content(struct tail *tail)
{
    buf_fini(&tail->submit);
    free(tail->ids);
    free(tail->draws);
    tail->ids = NULL;
    tail->draws = NULL;
    tail->n_ids = tail->cap_ids = 0;
}

void tail_free(struct tail *tail)
{
    struct tails *tails = tails_of(tail);

    tails->n_bytes -= tail_bytes(tail);
    tail_drop_content(tail);
    list_remove(&tail->node);
    if (hashmap_get(tails->by_task, &tail->task) == tail)
        hashmap_remove(tails->by_task, &tail->task);
    if (hashmap_get(tails->by_job, &tail->job) == tail)
        hashmap_remove(tails->by_job, &tail->job);
    if (hashmap_get(tails->by_id, tail->id) == tail)
        hashmap_remove(tails->by_id, tail->id);
    tails_count(tails);
    free(tail->end.error_text);
    free(tail);
}

/* Drops the tail, but not its answer. */
static void tail_drop(struct tail *tail)
{
    struct tails *tails = tails_of(tail);

    metric_add(tails->m_dropped, 1);
    if (tail->state == TAIL_ENDED) {
        tail_free(tail);
        return;
    }
    /* No client could receive the answer any more. */
    if (tail->state == TAIL_ORPHANED || tail->state == TAIL_REPLAYING) {
        if (tail->state == TAIL_REPLAYING)
            worker_routers_refuse(&tail->worker->routers[tail->router], tail->job.request, E_NOMEM);
        tail_cancel_task(tail);
        tail_free(tail);
        return;
    }
    tails->n_bytes -= tail_bytes(tail);
    tail_drop_content(tail);
    tail_enter(tail, TAIL_BARE);
}

static size_t tenant_bytes(const struct tails *tails, const char *tenant)
{
    size_t n = 0;

    list_for_each (node, &tails->all) {
        const struct tail *tail = container_of(node, struct tail, node);

        n += strcmp(tail->tenant, tenant) == 0 && tail->state != TAIL_BARE ? tail_bytes(tail) : 0;
    }
    return n;
}

/* Chooses the tail to drop: the oldest of the tenant that uses the most, preferring ended ones.  It looks at
 * the oldest tails only, because a tenant that uses the most owns many of these. */
static struct tail *tails_victim(struct tails *tails)
{
    const char *largest = NULL;
    struct tail *oldest = NULL;
    size_t most = 0;
    unsigned n_looks = 0;

    list_for_each (node, &tails->all) {
        struct tail *tail = container_of(node, struct tail, node);
        size_t n;

        if (tail->state == TAIL_BARE || tail->state == TAIL_REPLAYING ||
            (largest != NULL && strcmp(tail->tenant, largest) == 0))
            continue;
        if (n_looks++ == 4)
            break;
        n = tenant_bytes(tails, tail->tenant);
        if (n > most) {
            most = n;
            largest = tail->tenant;
        }
    }
    list_for_each (node, &tails->all) {
        struct tail *tail = container_of(node, struct tail, node);

        if (largest == NULL || tail->state == TAIL_BARE || tail->state == TAIL_REPLAYING ||
            strcmp(tail->tenant, largest) != 0)
            continue;
        if (tail->state == TAIL_ENDED)
            return tail;
        oldest = oldest != NULL ? oldest : tail;
    }
    return oldest;
}

/* Frees an eighth more than necessary, so that not every token has to search for a victim. */
static void tails_make_room(struct worker *worker)
{
    struct tails *tails = worker->tails;
    size_t most = worker->conf->tails_bytes;
    struct tail *victim;

    if (tails->n_bytes <= most)
        return;
    while (tails->n_bytes > most - most / 8 && (victim = tails_victim(tails)) != NULL)
        tail_drop(victim);
    tails_count(tails);
}

/* ---- a new answer ---- */

static int tail_pack_submit(const Baton__Submit *submit, struct buf *out)
{
    Baton__Submit plain = *submit;
    size_t n;

    plain.mode = BATON__SUBMIT_MODE__SUBMIT_LOCAL;
    plain.peer = plain.owner = NULL;
    plain.owner_tokens = plain.ask_limit_ms = 0;
    n = protobuf_c_message_get_packed_size(&plain.base);
    if (buf_reserve(out, n) != 0)
        return E_NOMEM;
    protobuf_c_message_pack(&plain.base, out->data);
    out->len_bytes = n;
    return 0;
}

static void id_key(const char *id, char key[TAIL_ID_BYTES])
{
    memset(key, 0, TAIL_ID_BYTES);
    memcpy(key, id, strnlen(id, TAIL_ID_BYTES - 1));
}

static int tail_realloc(struct tail *tail, uint32_t cap)
{
    token_id *ids = realloc(tail->ids, cap * sizeof(*ids));
    struct sample_result *draws;

    if (ids == NULL)
        return E_NOMEM;
    tail->ids = ids;
    if (tail->wants_draws) {
        draws = realloc(tail->draws, cap * sizeof(*draws));
        if (draws == NULL)
            return E_NOMEM;
        tail->draws = draws;
    }
    tail->cap_ids = cap;
    return 0;
}

/* Makes room for n more tokens of a tail that is counted.  E_NOMEM. */
static int tail_grow(struct tail *tail, uint32_t n)
{
    struct tails *tails = tails_of(tail);
    int rc;

    if (tail->n_ids + n <= tail->cap_ids)
        return 0;
    tails->n_bytes -= tail_bytes(tail);
    rc = tail_realloc(tail, tail->cap_ids + tail->cap_ids / 2 + n + 64);
    tails->n_bytes += tail_bytes(tail);
    return rc;
}

static bool tail_is_wanted(const struct worker_router *router, const struct task_spec *spec)
{
    return spec->order.work.resume.is_kept && spec->order.work.request_id[0] != '\0' &&
           router->worker->conf->tails_grace_ns > 0;
}

void worker_tails_pack(const struct worker_router *router, const struct task_spec *spec,
                       const Baton__Submit *submit, struct buf *out)
{
    if (tail_is_wanted(router, spec) && spec->mode != TASK_PREFILL && tail_pack_submit(submit, out) < 0)
        buf_fini(out);
}

/* Completes a SUBMIT whose prompt came in pieces: adds a hash of the prompt, and the answer's tokens of the order.
 * It leaves these out if log probabilities are wanted, because those are lost. */
static int tail_note_pieces(struct tail *tail, const struct work_order *order)
{
    uint32_t n = tail->first_index;

    tail->is_partial = true;
    tail->prompt_hash = work_order_hash_prompt(order);
    if (n == 0 || tail->wants_draws)
        return 0;
    if (tail_realloc(tail, n + 64) < 0)
        return E_NOMEM;
    memcpy(tail->ids, order->tokens + order->n_prompt, n * sizeof(*tail->ids));
    tail->n_ids = n;
    tail->first_index = 0;
    return 0;
}

static struct tail *tail_make(struct worker_router *router, const struct task_spec *spec, struct buf *submit,
                              uint32_t n_later)
{
    struct tail *tail = calloc(1, sizeof(*tail));

    if (tail == NULL)
        return NULL;
    list_init(&tail->node);
    tail->worker = router->worker;
    tail->task = tail->job = spec->key;
    tail->router = spec->origin;
    id_key(spec->order.work.request_id, tail->id);
    memcpy(tail->tenant, spec->order.work.tenant, sizeof(tail->tenant));
    memcpy(tail->body_digest, spec->order.work.resume.body_digest, sizeof(tail->body_digest));
    tail->first_index = spec->order.n_tokens - spec->order.n_prompt;
    tail->wants_draws = spec->order.work.sample.wants_logprob;
    if (n_later > 0 && tail_note_pieces(tail, &spec->order) < 0) {
        free(tail);
        return NULL;
    }
    tail->submit = *submit;
    *submit = (struct buf){0};
    return tail;
}

static struct tail *tail_by_id(const struct worker *worker, const char *id)
{
    char key[TAIL_ID_BYTES];

    id_key(id, key);
    return hashmap_get(worker->tails->by_id, key);
}

bool worker_tails_add(struct worker_router *router, const struct task_spec *spec, struct buf *submit,
                      uint32_t n_later)
{
    struct tails *tails = router->worker->tails;
    struct tail *tail, *earlier;

    if (!tail_is_wanted(router, spec))
        return false;
    if (spec->mode == TASK_PREFILL)
        return true; /* the decode worker has the tail; this prefill part ends by itself */
    if (submit->len_bytes == 0)
        return false; /* there was no memory */
    earlier = tail_by_id(router->worker, spec->order.work.request_id);
    if (earlier != NULL && strcmp(earlier->tenant, spec->order.work.tenant) != 0)
        return false;      /* the id belongs to another tenant, which keeps it */
    if (earlier != NULL) { /* the router placed the same request here again */
        tail_cancel_task(earlier);
        tail_free(earlier);
    }
    tail = tail_make(router, spec, submit, n_later);
    if (tail == NULL)
        return false;
    if (hashmap_put(tails->by_id, tail->id, tail, NULL) < 0 ||
        hashmap_put(tails->by_task, &tail->task, tail, NULL) < 0 ||
        hashmap_put(tails->by_job, &tail->job, tail, NULL) < 0) {
        tails->n_bytes += tail_bytes(tail);
        tail_free(tail);
        return false;
    }
    list_push_back(&tails->all, &tail->node);
    tails->n_bytes += tail_bytes(tail);
    tails_make_room(router->worker);
    tails_count(tails);
    return true;
}

void tail_cancel_task(struct tail *tail)
{
    struct command *command = tail->has_end ? NULL : command_new(COMMAND_CANCEL, tail->router);

    if (command == NULL)
        return;
    command->key = tail->task;
    (void)worker_engine_send(tail->worker->engine, command);
}

/* ---- messages of routers ---- */

struct task_key worker_tails_task(const struct worker *worker, const struct task_key *job)
{
    const struct tail *tail = hashmap_get(worker->tails->by_job, job);

    return tail != NULL ? tail->task : *job;
}

/* True if the tail has all tokens up to the stop that the router found.  Only the last may be missing: the first of an
 * answer, which the prefill worker sends to the router. */
static bool tail_complete(struct tail *tail, const Baton__Cancel *cancel)
{
    uint32_t n_tokens = tail->first_index + tail->n_ids;

    if (cancel->n_tokens == 0) /* without a finish: an older router */
        return tail->n_ids > 0 || cancel->finish != BATON__FINISH__FINISH_NONE;
    if (n_tokens >= cancel->n_tokens)
        return true;
    if (n_tokens + 1 != cancel->n_tokens || tail->wants_draws || tail_grow(tail, 1) < 0)
        return false;
    tail->ids[tail->n_ids++] = cancel->last_token;
    return true;
}

void worker_tails_cancelled(struct worker *worker, const struct task_key *job, const Baton__Cancel *cancel)
{
    struct tail *tail = hashmap_get(worker->tails->by_job, job);
    bool has_stop = cancel->is_complete; /* the router will find it in the text again */

    if (tail == NULL)
        return;
    if ((!has_stop && cancel->finish == BATON__FINISH__FINISH_NONE) || tail->state == TAIL_BARE ||
        !tail_complete(tail, cancel)) {
        tail_free(tail);
        return;
    }
    if (has_stop || !tail->has_end)
        tail->end = (struct task_answer){.finish = has_stop ? BATON__FINISH__FINISH_STOP : cancel->finish,
                                         .ended_unix_s = cancel->ended_unix_s};
    tail->has_end = true;
    if (tail->state != TAIL_REPLAYING)
        tail_enter(tail, TAIL_ENDED);
}

/* The tail is no router's from now on: when the link of its last one comes back, the tail stays. */
static void tail_disown(struct tail *tail)
{
    if (hashmap_get(tails_of(tail)->by_job, &tail->job) == tail)
        hashmap_remove(tails_of(tail)->by_job, &tail->job);
    tail->job = (struct task_key){0};
}

static void tail_orphan(struct tail *tail)
{
    if (tail->state != TAIL_ENDED && tail->state != TAIL_ORPHANED)
        tail_enter(tail, tail->has_end ? TAIL_ENDED : TAIL_ORPHANED);
}

bool worker_tails_release(struct worker *worker, const struct task_key *job)
{
    struct tail *tail = hashmap_get(worker->tails->by_job, job);

    if (tail == NULL || tail->state == TAIL_BARE)
        return false;
    tail_disown(tail);
    tail_orphan(tail);
    return true;
}

/* The link ended so soon after RESUMED that the router may not have received it. */
static bool tail_is_unconfirmed(const struct tail *tail)
{
    return tail->resumed_ns > 0 &&
           clock_now_ns() - tail->resumed_ns < 3 * tail->worker->conf->link_heartbeat_ns;
}

void worker_tails_router_down(struct worker *worker, uint32_t router)
{
    list_for_each_safe (node, spare, &worker->tails->all) {
        struct tail *tail = container_of(node, struct tail, node);

        if (tail->router != router)
            continue;
        if (tail->state == TAIL_BARE) {
            tail_cancel_task(tail);
            tail_free(tail);
            continue;
        }
        if (tail_is_unconfirmed(tail))
            tail_disown(tail);
        tail_orphan(tail);
    }
}

void worker_tails_router_up(struct worker *worker, uint32_t router, uint64_t epoch)
{
    list_for_each_safe (node, spare, &worker->tails->all) {
        struct tail *tail = container_of(node, struct tail, node);

        if (tail->router != router || tail->state != TAIL_ORPHANED || tail->job.router_epoch != epoch)
            continue;
        tail_cancel_task(tail); /* only the link was down: the router has placed the job on another worker */
        tail_free(tail);
    }
}

/* ---- reports of the engine thread ---- */

/* E_NOMEM, E_PROTO: tokens are missing, so the tail cannot be used. */
static int tail_add_tokens(struct tail *tail, const struct report *report, const struct task_answer *answer)
{
    if (answer->first_index != tail->first_index + tail->n_ids ||
        (tail->wants_draws && answer->n_draws != answer->n_ids))
        return E_PROTO;
    if (tail_grow(tail, answer->n_ids) < 0)
        return E_NOMEM;
    memcpy(tail->ids + tail->n_ids, report->ids + answer->ids_at, answer->n_ids * sizeof(*tail->ids));
    if (tail->wants_draws)
        memcpy(tail->draws + tail->n_ids, report->draws + answer->draws_at,
               answer->n_ids * sizeof(*tail->draws));
    tail->n_ids += answer->n_ids;
    return 0;
}

static void tail_note_end(struct tail *tail, struct task_answer *answer)
{
    answer->ended_unix_s = clock_unix_ns() / NS_PER_S;
    tail->has_end = true;
    tail->end = *answer;
    tail->end.n_ids = tail->end.n_draws = 0;
    tail->end.times = NULL; /* the report's */
    tail->end.error_text = answer->error_text != NULL ? strdup(answer->error_text) : NULL;
    hashmap_remove(tails_of(tail)->by_task, &tail->task);
    if (tail->state == TAIL_STREAMING || tail->state == TAIL_ORPHANED)
        tail_enter(tail, TAIL_ENDED);
}

/* Adds the answer to its tail.  True: it goes to the tail's router now. */
static bool tail_note(struct tail *tail, const struct report *report, struct task_answer *answer)
{
    bool is_sent = tail->state == TAIL_STREAMING || tail->state == TAIL_BARE;

    if (answer->is_accepted) {
        tail->is_accepted = true;
        tail->cached_tokens = answer->cached_tokens;
    }
    if (tail->state == TAIL_BARE) {
        if (answer->finish != BATON__FINISH__FINISH_NONE)
            tail_free(tail);
        return true;
    }
    if (tail->has_end)
        return is_sent; /* arrived after the router's own end */
    if (answer->n_ids > 0 && tail_add_tokens(tail, report, answer) < 0) {
        tail_drop(tail);
        return is_sent;
    }
    if (answer->finish == BATON__FINISH__FINISH_FAILED && is_sent)
        tail_free(tail); /* its router places the job on another worker */
    else if (answer->finish != BATON__FINISH__FINISH_NONE)
        tail_note_end(tail, answer);
    return is_sent;
}

void worker_tails_report(struct worker *worker, struct report *report)
{
    for (uint32_t i = 0; i < report->n_answers; i++) {
        struct task_answer *answer = &report->answers[i];
        const struct task_key task = {.router_epoch = answer->router_epoch, .request = answer->request};
        struct tail *tail =
            hashmap_count(worker->tails->by_task) > 0 ? hashmap_get(worker->tails->by_task, &task) : NULL;
        struct task_key job;
        uint32_t router;

        answer->to = report->number;
        if (tail == NULL)
            continue;
        job = tail->job;
        router = tail->router;
        answer->to = tail_note(tail, report, answer) ? router : ANSWER_TO_NONE;
        answer->router_epoch = job.router_epoch;
        answer->request = job.request;
    }
    tails_make_room(worker);
}

/* ---- time ---- */

static void tails_tick(void *arg)
{
    struct worker *worker = arg;
    uint64_t now_ns = clock_now_ns();

    list_for_each_safe (node, spare, &worker->tails->all) {
        struct tail *tail = container_of(node, struct tail, node);

        if ((tail->state != TAIL_ORPHANED && tail->state != TAIL_ENDED) || now_ns < tail->until_ns)
            continue;
        if (tail->state == TAIL_ORPHANED) {
            metric_add(worker->tails->m_expired, 1);
            log_info("orphan_cancelled", LOG_STR("request_id", tail->id), LOG_U64("tokens", tail->n_ids));
            tail_cancel_task(tail);
        }
        tail_free(tail);
    }
    tails_count(worker->tails);
}

int worker_tails_open(struct worker *worker)
{
    struct tails *tails = calloc(1, sizeof(*tails));

    if (tails == NULL)
        return E_NOMEM;
    worker->tails = tails;
    list_init(&tails->all);
    tails->m_count = metric_single(worker->metrics, METRIC_GAUGE, "baton_worker_tails",
                                   "Answers whose streams another router could go on with.");
    tails->m_bytes = metric_single(worker->metrics, METRIC_GAUGE, "baton_worker_tail_bytes",
                                   "Memory of the tails of answers.");
    tails->m_resumed = metric_single(worker->metrics, METRIC_COUNTER, "baton_worker_tails_resumed_total",
                                     "Streams that another router went on with.");
    tails->m_expired = metric_single(worker->metrics, METRIC_COUNTER, "baton_worker_orphans_cancelled_total",
                                     "Answers that ended because their router was gone and no client came "
                                     "back for them.");
    tails->m_dropped = metric_single(worker->metrics, METRIC_COUNTER, "baton_worker_tails_dropped_total",
                                     "Tails that were dropped for lack of memory.");
    if (hashmap_new(sizeof(struct task_key), &tails->by_task) < 0 ||
        hashmap_new(sizeof(struct task_key), &tails->by_job) < 0 ||
        hashmap_new(TAIL_ID_BYTES, &tails->by_id) < 0 ||
        ev_timer_new(worker->loop, tails_tick, worker, &tails->tick) < 0 ||
        ev_timer_new(worker->loop, tails_replay, worker, &tails->replay) < 0)
        return E_NOMEM;
    ev_timer_repeat(tails->tick, TICK_NS);
    return 0;
}

void worker_tails_close(struct worker *worker)
{
    struct tails *tails = worker->tails;

    if (tails == NULL)
        return;
    while (!list_is_empty(&tails->all))
        tail_free(container_of(tails->all.next, struct tail, node));
    ev_timer_free(tails->tick);
    ev_timer_free(tails->replay);
    hashmap_free(tails->by_task);
    hashmap_free(tails->by_job);
    hashmap_free(tails->by_id);
    free(tails);
    worker->tails = NULL;
}
