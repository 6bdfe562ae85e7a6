/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks on the engine thread: one for each submitted job.
 *
 *    SUBMIT --> NEW --a peer has blocks--> FETCHING
 *                |                            | blocks arrived, or will not
 *                +----------------------------+--grammar not compiled--> COMPILING
 *                                             |                             |
 *                +----------------------------+-----------------------------+
 *                |
 *                +--blocks on disk--> READING --read, or too late--+
 *                |      ^               |                          |
 *                |      +--more blocks--+                          |
 *                +-------------------------------------------------+--> SCHEDULED --token--> ANSWERING
 *
 *    every state --done, cancelled, failed--> OVER --> freed
 *
 * A task ends with its sequence. Its mode determines the sequence:
 *
 *    LOCAL     prefill and decode here
 *    PREFILL   KV send: first token here, then the KV goes to the peer (kv_send.c)
 *    DECODE    KV receive: the KV comes from a peer (kv_receive.c); without blocks for it now, or without a
 *              peer in time, it becomes a local sequence and waits its turn
 *
 * prefix_fetch.c, grammars.c and disk.c implement the waits.  A waiting task is not in the scheduler.
 *
 * task_events.c makes answers of the scheduler's events. */
#include "worker/runner/transfers_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "cache/prefix/tenant.h"
#include "worker/runner/disk_priv.h"
#include "worker/runner/remote_priv.h"

static const char *const task_states[] = {"new",     "hashing",   "fetching",  "compiling",
                                          "reading", "scheduled", "answering", "over"};
CHECK_ROWS(task_states, TASK_OVER + 1);

void worker_tasks_set_state(struct worker_engine *engine, struct task *task, enum task_state state)
{
    log_debug("task_state", LOG_STR("request_id", task->spec.order.work.request_id),
              LOG_STR("from", task_states[task->state]), LOG_STR("to", task_states[state]));
    task->state = state;
}

static bool task_is_waiting(const struct task *task)
{
    return task->state < TASK_SCHEDULED;
}

struct task *worker_engine_task(struct worker_engine *engine, const struct task_key *key)
{
    return hashmap_get(engine->by_key, key);
}

struct task *worker_engine_task_of(struct seq *seq)
{
    return seq_spec(seq)->user;
}

/* ---- answers ---- */

struct task_answer *worker_tasks_answer(struct worker_engine *engine, const struct task_spec *spec,
                                        const token_id *ids, uint32_t n_ids)
{
    struct task_answer *answer = worker_engine_answer(engine, spec->origin, ids, n_ids);

    if (answer != NULL) {
        answer->router_epoch = spec->key.router_epoch;
        answer->request = spec->key.request;
    }
    return answer;
}

/* reason: text for people, may be empty.  NULL: out of memory. */
static struct task_answer *task_answer_failed_for(struct worker_engine *engine, const struct task_spec *spec,
                                                  int error, const char *reason)
{
    struct task_answer *answer = worker_tasks_answer(engine, spec, NULL, 0);

    if (answer == NULL)
        return NULL;
    answer->finish = BATON__FINISH__FINISH_FAILED;
    answer->error = error;
    if (reason[0] != '\0')
        answer->error_text = strdup(reason);
    for (char *at = answer->error_text; at != NULL && *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?'; /* it may quote a client; messages carry printable text only */
    return answer;
}

static struct task_answer *task_answer_failed(struct worker_engine *engine, const struct task_spec *spec,
                                              int error)
{
    return task_answer_failed_for(engine, spec, error, "");
}

/* ---- begin and end ---- */

/* Before its transfers begin, a task needs the links to the peers that its router named. */
static void task_count_peers(struct worker_engine *engine, const struct task_spec *spec,
                             void (*count)(struct worker_engine *engine, uint32_t peer))
{
    if (spec->mode == TASK_PREFILL)
        count(engine, spec->peer);
    count(engine, spec->owner);
}

static void task_stop_waiting(struct worker_engine *engine, struct task *task)
{
    worker_hashing_leave(engine, task);
    worker_prefix_fetch_leave(engine, task);
    if (task->state == TASK_COMPILING) {
        fair_leave(engine->grammar_waits, &task->grammar_wait);
        fair_drop(engine->grammar_waits, task->grammar_flow);
    }
    task->grammar_number = 0;
    worker_disk_stop_waiting(engine, task);
    worker_remote_stop_waiting(engine, task);
    grammar_unref(task->grammar);
    task->grammar = NULL;
    if (task_is_waiting(task) && task->state != TASK_NEW)
        worker_tasks_set_state(engine, task, TASK_NEW);
}

void worker_tasks_free(struct worker_engine *engine, struct task *task)
{
    task_stop_waiting(engine, task);
    worker_tasks_set_state(engine, task, TASK_OVER);
    worker_task_put_spans(engine, task);
    worker_task_log(engine, task);
    hashmap_remove(engine->by_key, &task->spec.key);
    list_remove(&task->all);
    engine->n_tasks--;
    task_count_peers(engine, &task->spec, worker_peer_leave);
    worker_chain_free(task);
    work_order_fini(&task->spec.order);
    free(task);
}

/* Submits the task's sequence.  E_AGAIN: the task waits for blocks from disk. */
static int task_submit_seq(struct worker_engine *engine, struct task *task, struct grammar *grammar)
{
    const struct task_spec *spec = &task->spec;
    const struct work *work = &spec->order.work;
    struct seq_spec seq = {.id = ++engine->next_id,
                           .tokens = spec->order.tokens,
                           .n_tokens = spec->order.n_tokens,
                           .n_prompt = spec->order.n_prompt,
                           .work = *work,
                           .stop_ids = engine->opts.stop_ids,
                           .n_stop_ids = work->ignores_end ? 0 : (uint32_t)engine->opts.n_stop_ids,
                           .grammar = grammar,
                           .fetched_from = task->fetched_from,
                           .fetched_to = task->fetched_to,
                           .tenant = tenant_number(work->tenant),
                           .departs = spec->mode == TASK_PREFILL,
                           .arrives = spec->mode == TASK_DECODE,
                           .user = task};
    int rc = worker_chain_begin(engine, task);

    if (rc < 0)
        return rc;
    if (work->score_from == 0 && (worker_disk_wait(engine, task) || worker_remote_wait(engine, task)))
        return E_AGAIN;
    seq.prefix_key = task->roots.own;
    seq.public_key = task->roots.open;
    seq.hashes = task->chain.hashes;
    seq.n_hashes = (uint32_t)task->chain.n;
    rc = sched_submit(engine->sched, &seq, &task->seq);
    if ((rc == E_KV_FULL || rc == E_OVERLOADED) && spec->mode == TASK_DECODE) {
        task->spec.mode = TASK_LOCAL; /* no room for KV from a peer: compute when there is room */
        seq.arrives = false;
        rc = sched_submit(engine->sched, &seq, &task->seq);
    }
    return rc;
}

static void task_refuse(struct worker_engine *engine, struct task *task, int error, const char *reason)
{
    task->times.is_failed = true;
    task_answer_failed_for(engine, &task->spec, error, reason);
    worker_tasks_free(engine, task);
}

/* Submits the task to the scheduler.  Its grammar, if any, is compiled by now. */
static void task_begin(struct worker_engine *engine, struct task *task, struct grammar *grammar)
{
    int rc;

    if (grammar != NULL)
        grammar = grammar_ref(grammar);
    task_stop_waiting(engine, task);
    rc = task_submit_seq(engine, task, grammar);
    if (rc == E_AGAIN) {
        worker_tasks_set_state(engine, task, TASK_READING);
        task->grammar = grammar;
        return;
    }
    grammar_unref(grammar);
    if (rc < 0) {
        task_refuse(engine, task, rc,
                    rc == E_CONSTRAINT ? "what was answered before does not match the answer's constraint"
                                       : "");
        return;
    }
    worker_tasks_set_state(engine, task, TASK_SCHEDULED);
    worker_chain_free(task);
    work_order_free_tokens(&task->spec.order);
    if (task->spec.mode != TASK_DECODE)
        return;
    worker_kv_receive_begin(engine, task);
    if (task->may_proceed)
        worker_kv_receive_proceed(engine, task);
}

void worker_tasks_compiled(struct worker_engine *engine, uint64_t number, struct grammar *grammar,
                           const struct grammar_command *why)
{
    /* E_FORMAT for a faulty grammar; other codes mean that this worker has no room for it now. */
    bool is_fault = why->code == E_FORMAT || why->code == E_UNSUPPORTED || why->code == E_LIMIT;

    list_for_each_safe (node, spare, &engine->tasks) {
        struct task *task = container_of(node, struct task, all);

        if (task->state != TASK_COMPILING || task->grammar_number != number)
            continue;
        if (grammar != NULL)
            task_begin(engine, task, grammar);
        else
            task_refuse(engine, task, is_fault ? E_FORMAT : why->code, why->reason);
    }
}

void worker_tasks_read(struct worker_engine *engine, uint64_t number)
{
    list_for_each_safe (node, spare, &engine->tasks) {
        struct task *task = container_of(node, struct task, all);

        if (task->state == TASK_READING && (task->disk_read == number || task->remote_read == number))
            task_begin(engine, task, task->grammar);
    }
}

/* Makes room for one more task that waits for a grammar.  As many may wait as fit the scheduler's queue.
 * Beyond that, as in that queue, the tenant with the most for its weight loses its newest to a tenant with
 * fewer. */
static bool task_make_grammar_room(struct worker_engine *engine, const struct task_spec *spec)
{
    if (fair_n_waiting(engine->grammar_waits) < engine->opts.max_queue)
        return true;
    if (!fair_is_lighter(engine->grammar_waits, tenant_number(spec->order.work.tenant),
                         spec->order.work.weight))
        return false;
    task_refuse(engine, container_of(fair_heaviest(engine->grammar_waits), struct task, grammar_wait),
                E_OVERLOADED, "");
    return true;
}

/* E_NOMEM. */
static int task_await_grammar(struct worker_engine *engine, struct task *task, uint64_t number)
{
    task->grammar_flow = fair_hold(engine->grammar_waits, tenant_number(task->spec.order.work.tenant));
    if (task->grammar_flow == NULL)
        return E_NOMEM;
    task->grammar_number = number;
    worker_tasks_set_state(engine, task, TASK_COMPILING);
    fair_wait(engine->grammar_waits, task->grammar_flow, &task->grammar_wait, ++engine->n_grammar_waits,
              task->spec.order.work.weight);
    return 0;
}

/* Gets the task's grammar.  E_AGAIN: the task waits for it. */
static int task_get_grammar(struct worker_engine *engine, struct task *task, struct grammar **out)
{
    uint64_t number;
    int rc = worker_grammars_get(engine, &task->spec, out, &number);

    if (rc != E_AGAIN)
        return rc;
    if (!task_make_grammar_room(engine, &task->spec))
        return E_OVERLOADED;
    return task_await_grammar(engine, task, number) < 0 ? E_NOMEM : rc;
}

void worker_tasks_go_on(struct worker_engine *engine, struct task *task)
{
    struct grammar *grammar = NULL;
    int rc = task->spec.order.constraint.len_bytes > 0 ? task_get_grammar(engine, task, &grammar) : 0;

    if (rc == 0)
        task_begin(engine, task, grammar);
    else if (rc != E_AGAIN)
        task_refuse(engine, task, rc, "");
}

static void task_look(struct worker_engine *engine, struct task *task)
{
    if (worker_prefix_fetch_begin(engine, task))
        worker_tasks_set_state(engine, task, TASK_FETCHING);
    else
        worker_tasks_go_on(engine, task);
}

void worker_tasks_hashed(struct worker_engine *engine, struct task *task)
{
    worker_tasks_set_state(engine, task, TASK_NEW);
    task_look(engine, task);
}

void worker_tasks_submit(struct worker_engine *engine, struct task_spec *spec)
{
    struct task *task = calloc(1, sizeof(*task));
    int rc = E_NOMEM;

    if (engine->is_draining)
        rc = E_CLOSED;
    else if (hashmap_get(engine->by_key, &spec->key) != NULL)
        rc = E_EXISTS;
    if (task == NULL || rc != E_NOMEM || hashmap_put(engine->by_key, &spec->key, task, NULL) < 0) {
        task_answer_failed(engine, spec, rc);
        free(task);
        return;
    }
    task->spec = *spec;
    *spec = (struct task_spec){.key = task->spec.key};
    task->times = (struct task_times){
        .mode = task->spec.mode, .submitted_ns = clock_now_ns(), .transfer_peer = PEER_NONE};
    task->n_begun = task->n_answered = task->spec.order.n_tokens - task->spec.order.n_prompt;
    list_push_back(&engine->tasks, &task->all);
    list_init(&task->in_fetch);
    list_init(&task->in_hashing);
    fair_item_init(&task->grammar_wait);
    engine->n_tasks++;
    task_count_peers(engine, &task->spec, worker_peer_use);
    rc = worker_hashing_begin(engine, task);
    if (rc == E_OVERLOADED)
        task_refuse(engine, task, rc, "");
    else if (rc == 0)
        task_look(engine, task);
}

void worker_tasks_load(const struct worker_engine *engine, struct sched_load *load)
{
    list_for_each (node, &engine->tasks) {
        const struct task *task = container_of(node, struct task, all);

        load->n_waiting += task_is_waiting(task) && task->state != TASK_HASHING;
    }
}

static void task_cancel(struct worker_engine *engine, struct task *task)
{
    if (task_is_waiting(task))
        worker_tasks_free(engine, task); /* the scheduler does not have it */
    else
        sched_cancel(engine->sched, task->seq);
}

void worker_tasks_cancel(struct worker_engine *engine, const struct task_key *key)
{
    struct task *task = worker_engine_task(engine, key);

    if (task != NULL)
        task_cancel(engine, task);
}

void worker_tasks_proceed(struct worker_engine *engine, uint32_t origin, const struct task_key *key)
{
    struct task *task = worker_engine_task(engine, key);
    struct task_spec unknown = {.key = *key, .origin = origin};

    if (task == NULL)
        task_answer_failed(engine, &unknown, E_NOT_FOUND); /* without an answer the router would wait for
                                                            * ever */
    else if (task_is_waiting(task))
        task->may_proceed = true;
    else if (task->spec.mode == TASK_DECODE)
        worker_kv_receive_proceed(engine, task);
}

void worker_tasks_router_down(struct worker_engine *engine, uint32_t router, uint64_t except_epoch)
{
    list_for_each_safe (node, spare, &engine->tasks) {
        struct task *task = container_of(node, struct task, all);

        if (task->spec.origin == router && task->spec.key.router_epoch != except_epoch &&
            !task->spec.has_tail)
            task_cancel(engine, task);
    }
}

/* Blocks of the answers so far stay cached, and the worker that continues an answer fetches them. */
void worker_tasks_move(struct worker_engine *engine)
{
    list_for_each_safe (node, spare, &engine->tasks) {
        struct task *task = container_of(node, struct task, all);

        if (task->spec.origin == ORIGIN_LOCAL)
            continue; /* only this worker's endpoint knows the job */
        if (task_is_waiting(task))
            task_refuse(engine, task, E_CLOSED, "");
        else
            worker_engine_fail_task(engine, task, E_CLOSED);
    }
}

void worker_engine_fail_task(struct worker_engine *engine, struct task *task, int error)
{
    struct task_answer *answer = task_answer_failed(engine, &task->spec, error);

    task->times.is_failed = true;
    if (answer != NULL)
        answer->is_handoff_refused = task->is_handoff_refused;
    sched_cancel(engine->sched, task->seq);
}

int worker_tasks_open(struct worker_engine *engine)
{
    list_init(&engine->tasks);
    list_init(&engine->grammars);
    list_init(&engine->hashing);
    if (fair_new(0, &engine->grammar_waits) < 0)
        return E_NOMEM;
    return hashmap_new(sizeof(struct task_key), &engine->by_key);
}

void worker_tasks_close(struct worker_engine *engine)
{
    while (engine->by_key != NULL && !list_is_empty(&engine->tasks))
        worker_tasks_free(engine, container_of(engine->tasks.next, struct task, all));
    hashmap_free(engine->by_key);
    fair_free(engine->grammar_waits);
}
