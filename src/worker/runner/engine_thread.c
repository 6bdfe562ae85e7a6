/* SPDX-License-Identifier: Apache-2.0 */
/* The thread's loop: run commands, run a step, send reports, tick; sleep only when there is no work.
 *
 *      for (;;) { commands; step; reports; every 5 ms: hand-off timers; every 100 ms: load }
 *
 * A report that the loop's mailbox refuses stays pending and is sent again: no report is lost, and the
 * loop catches up. */
#include "worker/runner/engine_thread_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/err.h"
#include "base/log.h"
#include "worker/runner/disk_priv.h"
#include "worker/runner/block_map_priv.h"
#include "worker/runner/remote_priv.h"
#include "worker/runner/transfers_priv.h"

#define MAILBOX_MESSAGES   65536
#define MAX_PENDING_EVENTS (1u << 18) /* peers' block events that wait for the map, of 17 bytes */
#define TICK_NS            (5 * NS_PER_MS)
#define LOAD_NS            (100 * NS_PER_MS)
#define IDLE_WAIT_NS       (100 * NS_PER_MS)
#define STEPS_PER_TIMEOUT  3 /* a single long step must not time out a hand-off that waits for this thread */

/* ---- accessors ---- */

struct tr_node *worker_engine_transport(struct worker_engine *engine)
{
    return engine->transport;
}

struct mailbox *worker_engine_reports(struct worker_engine *engine)
{
    return engine->reports;
}

uint64_t worker_engine_beats(const struct worker_engine *engine)
{
    return atomic_load_explicit(&((struct worker_engine *)engine)->beats, memory_order_relaxed);
}

bool worker_engine_is_busy(const struct worker_engine *engine)
{
    return atomic_load_explicit(&((struct worker_engine *)engine)->is_busy, memory_order_acquire);
}

const struct engine_info *worker_engine_info(const struct worker_engine *engine)
{
    return &engine->opts.engine.info;
}

uint32_t worker_engine_n_blocks(const struct worker_engine *engine)
{
    return engine->opts.n_blocks;
}

const char *worker_engine_tcp_address(const struct worker_engine *engine)
{
    return tr_node_tcp_address(engine->transport);
}

const char *worker_engine_unix_path(const struct worker_engine *engine)
{
    return tr_node_unix_path(engine->transport);
}

const char *worker_engine_rdma_text(const struct worker_engine *engine)
{
    return tr_node_rdma_text(engine->transport);
}

unsigned worker_engine_rdma_rails(const struct worker_engine *engine)
{
    return tr_node_rdma_rails(engine->transport);
}

unsigned worker_engine_rdma_opened(const struct worker_engine *engine)
{
    return tr_node_rdma_opened(engine->transport);
}

struct transport_offer worker_engine_offer(const struct worker_engine *engine)
{
    return (struct transport_offer){.is_auto = engine->opts.is_auto,
                                    .preferred = engine->opts.preferred,
                                    .has_unix = worker_engine_unix_path(engine)[0] != '\0',
                                    .rdma_rails = worker_engine_rdma_rails(engine)};
}

const struct peer_facts *worker_engine_peer(const struct worker_engine *engine, uint32_t peer)
{
    return peer < WORKER_MAX_PEERS && engine->peer_is_up[peer] ? &engine->peers[peer] : NULL;
}

enum tr_kind worker_engine_kind_for(const struct worker_engine *engine, uint32_t peer)
{
    static const struct peer_facts unknown;
    const struct peer_facts *facts = worker_engine_peer(engine, peer);
    struct transport_offer own = worker_engine_offer(engine);
    const char *why;

    return worker_choose_transport(&own, facts != NULL ? facts : &unknown, &why);
}

/* ---- reports ---- */

struct task_answer *worker_engine_answer(struct worker_engine *engine, uint32_t origin, const token_id *ids,
                                         uint32_t n_ids)
{
    uint32_t slot = origin == ORIGIN_LOCAL ? WORKER_MAX_ROUTERS : origin;
    struct task_answer *answer;

    thread_owner_check(&engine->engine_thread);
    if (engine->pending[slot] == NULL)
        engine->pending[slot] = report_new(REPORT_ANSWERS, origin);
    answer = engine->pending[slot] ? report_answer(engine->pending[slot], ids, n_ids) : NULL;
    if (answer == NULL)
        log_error("out_of_memory", LOG_STR("lost", "an answer"));
    return answer;
}

void worker_engine_draws(struct worker_engine *engine, uint32_t origin, const struct sample_result *draws)
{
    struct report *report = engine->pending[origin == ORIGIN_LOCAL ? WORKER_MAX_ROUTERS : origin];

    if (report_draws(report, draws) < 0)
        log_error("out_of_memory", LOG_STR("lost", "log probabilities"));
}

void worker_engine_embedding(struct worker_engine *engine, uint32_t origin, const float *embedding)
{
    struct report *report = engine->pending[origin == ORIGIN_LOCAL ? WORKER_MAX_ROUTERS : origin];

    if (report_embedding(report, embedding, engine->opts.engine.info.hidden) < 0)
        log_error("out_of_memory", LOG_STR("lost", "an embedding"));
}

static void engine_thread_flush(struct worker_engine *engine)
{
    worker_publish_flush(engine);
    worker_remote_publish_changes(engine);
    for (uint32_t i = 0; i < N_ORIGINS; i++)
        if (engine->pending[i] != NULL && mailbox_send(engine->reports, engine->pending[i]) == 0)
            engine->pending[i] = NULL;
}

static void *engine_thread_copy(const void *from, size_t len_bytes)
{
    void *to = malloc(len_bytes);

    if (to != NULL)
        memcpy(to, from, len_bytes);
    return to;
}

void worker_engine_to_peer(struct worker_engine *engine, uint32_t peer, const struct kvxfer_message *message)
{
    struct report *report = report_new(REPORT_PEER_MESSAGE, peer);
    size_t len_bytes = message->n_blocks * sizeof(*message->blocks);
    size_t hash_bytes = message->n_hashes * sizeof(*message->hashes);

    thread_owner_check(&engine->engine_thread);
    if (report == NULL)
        return; /* the hand-off's timers detect the lost event */
    report->peer = *message;
    report->peer.blocks = NULL;
    report->peer.hashes = NULL;
    if ((message->blocks != NULL && len_bytes > 0 &&
         (report->peer.blocks = engine_thread_copy(message->blocks, len_bytes)) == NULL) ||
        (message->hashes != NULL && hash_bytes > 0 &&
         (report->peer.hashes = engine_thread_copy(message->hashes, hash_bytes)) == NULL)) {
        report_free(report);
        return;
    }
    if (mailbox_send(engine->reports, report) < 0)
        report_free(report);
}

/* Adds to the metrics.
 * The scheduler counts from its start, so this adds the increase since the last call. */
static void count_steps(struct worker_engine *engine, const struct sched_load *load)
{
    const struct sched_load *before = &engine->counted;

    metric_add(engine->m_steps, (double)(load->n_steps - before->n_steps));
    metric_add(engine->m_draft_steps, (double)(load->n_draft_steps - before->n_draft_steps));
    for (unsigned i = 0; i < SCHED_DRAFTS; i++) {
        uint64_t n_drafted = load->n_drafted[i] - before->n_drafted[i];
        uint64_t n_right = load->n_accepted[i] - before->n_accepted[i];

        metric_add(engine->m_draft_right[i], (double)n_right);
        metric_add(engine->m_draft_wrong[i], (double)(n_drafted - n_right));
    }
    engine->counted = *load;
}

static void report_load(struct worker_engine *engine)
{
    struct report *report = report_new(REPORT_LOAD, 0);

    if (report == NULL)
        return;
    report->load.taken_ns = clock_now_ns();
    sched_load(engine->sched, &report->load.sched);
    worker_hashing_load(engine, &report->load.sched); /* the scheduler does not have these prompts yet */
    worker_tasks_load(engine, &report->load.sched);
    count_steps(engine, &report->load.sched);
    kv_pool_counts(engine->pool, &report->load.blocks);
    report->load.blocks_available = kv_available(engine->pool);
    report->load.blocks_total = engine->opts.n_blocks;
    report->load.n_tasks = engine->n_tasks;
    report->load.notice = engine->notice;
    worker_disk_report(engine, &report->load);
    worker_remote_report(engine, &report->load);
    worker_map_report(engine, &report->load);
    worker_measure_age(engine, clock_now_ns());
    report->load.transfer_bytes_per_s = engine->transfer_bytes_per_s;
    report->load.push_bytes_per_s = engine->push_bytes_per_s;
    report->load.read_bytes_per_s = report->load.disk.read_bytes_per_s;
    report->load.is_unfit = engine->health.state == HEALTH_UNFIT;
    report->load.n_spoilt_in_row = engine->health.n_spoilt_in_row;
    if (mailbox_send(engine->reports, report) < 0)
        report_free(report);
}

/* ---- the thread ---- */

static void engine_thread_tick(struct worker_engine *engine)
{
    uint64_t now_ns = clock_now_ns();

    if (now_ns - engine->ticked_ns >= TICK_NS) {
        engine->ticked_ns = now_ns;
        worker_transfers_tick(engine, now_ns);
        worker_disk_tick(engine, now_ns);
        worker_remote_tick(engine, now_ns);
        worker_health_tick(engine, now_ns);
    }
    if (now_ns - engine->expired_ns >= NS_PER_S) {
        engine->expired_ns = now_ns;
        kv_expire(engine->pool);
    }
    if (now_ns - engine->reported_ns >= LOAD_NS) {
        engine->reported_ns = now_ns;
        worker_grammars_tick(engine, now_ns);
        report_load(engine);
    }
}

static void note_busy(struct worker_engine *engine)
{
    atomic_store_explicit(&engine->is_busy, engine->n_tasks > 0, memory_order_release);
}

static void *engine_thread_run(void *arg)
{
    struct worker_engine *engine = arg;

    thread_owner_claim(&engine->engine_thread);
    while (!engine->is_stopping) {
        bool has_pending, has_events;
        int n_fed;

        worker_commands_run(engine);
        has_events = worker_map_turn(engine);
        has_events |= worker_hashing_turn(engine);
        worker_disk_turn(engine);
        worker_remote_turn(engine);
        note_busy(engine); /* before a step that may take long, because a drain reads it */
        n_fed = sched_run_step(engine->sched);
        if (n_fed < 0 && !atomic_load_explicit(&engine->is_given_up, memory_order_relaxed))
            log_error("step_failed", LOG_ERR(n_fed));
        atomic_fetch_add_explicit(&engine->beats, 1, memory_order_relaxed);
        engine_thread_flush(engine);
        worker_disk_turn(engine);
        worker_remote_turn(engine);
        engine_thread_tick(engine);
        engine_thread_flush(engine);
        note_busy(engine);
        has_pending = worker_commands_wait(engine);
        for (uint32_t i = 0; i < N_ORIGINS; i++)
            has_pending |= engine->pending[i] != NULL;
        if (n_fed <= 0 && !has_events) {
            bool has_timers = worker_transfers_count(engine) > 0 || worker_disk_is_waited_for(engine) ||
                              worker_remote_is_waited_for(engine);

            if (!has_timers && !has_pending)
                worker_measure_idle(engine, clock_now_ns());
            mailbox_wait(engine->commands, has_pending ? NS_PER_MS : has_timers ? TICK_NS : IDLE_WAIT_NS);
        }
    }
    worker_remote_flush(engine);
    return NULL;
}

static void on_transport_event(void *arg, const struct tr_event *event)
{
    struct worker_engine *engine = arg;
    struct command *command = command_new(COMMAND_TRANSPORT, 0);
    bool is_progress = event->kind == TR_PIECES_ARRIVED || event->kind == TR_PUSH_SENT;
    int rc;

    if (command == NULL)
        return;
    command->as.transport = *event;
    /* A progress event may be lost, because a later one includes it.  The last event of a ticket or push must
     * arrive, because it frees leases. */
    while ((rc = mailbox_send(engine->commands, command)) == E_FULL && !is_progress)
        clock_sleep_ns(NS_PER_MS); /* the engine thread empties its mailbox between steps */
    if (rc < 0)
        command_free(command); /* full, or closed: the engine thread has ended */
}

/* ---- building ---- */

static void declare_speculation(struct worker_engine *engine)
{
    struct metrics *m = engine->opts.metrics;
    struct metric_family *drafts = metric_family(
        m, METRIC_COUNTER, "baton_worker_drafted_tokens_total",
        "Draft tokens verified, by their source and by whether they equal the sample.", "source was");

    for (unsigned i = 0; i < SCHED_DRAFTS; i++) {
        engine->m_draft_right[i] = metric_series(drafts, (const char *const[]){sched_draft_name(i), "right"});
        engine->m_draft_wrong[i] = metric_series(drafts, (const char *const[]){sched_draft_name(i), "wrong"});
    }
    engine->m_steps = metric_single(m, METRIC_COUNTER, "baton_worker_steps_total", "Steps of the engine.");
    engine->m_draft_steps = metric_single(m, METRIC_COUNTER, "baton_worker_draft_steps_total",
                                          "Steps of the engine that verified draft tokens.");
}

static void declare_metrics(struct worker_engine *engine)
{
    struct metrics *m = engine->opts.metrics;
    struct metric_family *tokens = metric_family(m, METRIC_COUNTER, "baton_worker_prompt_tokens_total",
                                                 "Prompt tokens by what was done for them.", "how");

    engine->m_computed = metric_series(tokens, (const char *const[]){"computed"});
    engine->m_reused = metric_series(tokens, (const char *const[]){"reused"});
    engine->m_transferred = metric_series(tokens, (const char *const[]){"transferred"});
    engine->m_drawn =
        metric_single(m, METRIC_COUNTER, "baton_worker_drawn_tokens_total", "Answer tokens drawn here.");
    engine->m_preempted = metric_single(m, METRIC_COUNTER, "baton_worker_preemptions_total",
                                        "Sequences that gave their blocks back.");
    declare_speculation(engine);
    worker_health_open(engine);
}

static int engine_thread_open_parts(struct worker_engine *engine, struct fault *fault)
{
    const struct engine_info *info = &engine->opts.engine.info;
    struct kv_pool_opts pool = {.n_blocks = engine->opts.n_blocks,
                                .block_tokens = info->layout.block_tokens,
                                .lifetime_ns = engine->opts.kv_lifetime_ns,
                                .on_block = worker_publish_block,
                                .on_block_arg = engine,
                                .has_tier = engine->opts.disk.path != NULL && engine->opts.disk.path[0],
                                .has_remote = engine->opts.remote.url != NULL && engine->opts.remote.url[0]};
    struct sched_opts sched = {.engine = &engine->opts.engine,
                               .max_seqs = engine->opts.max_seqs,
                               .max_queue = engine->opts.max_queue,
                               .chunk_tokens = engine->opts.chunk_tokens,
                               .itl_ns = engine->opts.itl_ns,
                               .max_step_ns = engine->opts.grant_timeout_ns / STEPS_PER_TIMEOUT,
                               .speculate = engine->opts.speculate,
                               .max_drafts = engine->opts.draft_tokens,
                               .draft_engine = engine->opts.draft.ops != NULL ? &engine->opts.draft : NULL,
                               .draft_blocks = engine->opts.draft_blocks,
                               .is_given_up = &engine->is_given_up,
                               .events = worker_task_events(),
                               .events_arg = engine};
    struct tr_opts *tr = &engine->opts.transport;
    int rc;

    if (mailbox_new(MAILBOX_MESSAGES, &engine->commands) < 0 ||
        mailbox_new(MAILBOX_MESSAGES, &engine->reports) < 0 || worker_tasks_open(engine) < 0 ||
        worker_transfers_open(engine) < 0 || worker_map_open(engine) < 0 ||
        kv_pool_new(&pool, &engine->pool) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    sched.pool = engine->pool;
    rc = sched_new(&sched, &engine->sched);
    if (rc < 0)
        return fault_set(fault, rc, rc == E_NOMEM ? "out of memory" : "sched.draft_model does not fit: %s",
                         err_text(rc));
    tr->arena = engine->opts.arena;
    tr->geometry = (struct tr_geometry){.n_layers = info->layout.n_layers,
                                        .n_blocks = engine->opts.n_blocks,
                                        .piece_bytes = kv_layout_layer_block_bytes(&info->layout)};
    tr->layout = kv_layout_fingerprint(&info->layout, info->numerics_id);
    tr->on_event = on_transport_event;
    tr->on_event_arg = engine;
    if (tr_node_new(tr, fault, &engine->transport) < 0)
        return fault->code;
    if (!engine->opts.is_auto && engine->opts.preferred == TR_RDMA && worker_engine_rdma_rails(engine) == 0)
        return fault_set(fault, E_UNSUPPORTED, "kv.transport = rdma, and no rail can be used: %.400s",
                         worker_engine_rdma_text(engine));
    return 0;
}

int worker_engine_new(const struct worker_engine_opts *opts, struct fault *fault, struct worker_engine **out)
{
    struct worker_engine *engine = calloc(1, sizeof(*engine));
    int rc;

    if (engine == NULL) {
        struct worker_engine_opts taken = *opts;
        worker_engine_opts_free(&taken);
        return fault_set(fault, E_NOMEM, "out of memory");
    }
    engine->opts = *opts;
    declare_metrics(engine);
    rc = engine_thread_open_parts(engine, fault);
    if (rc == 0) {
        worker_measure_start(engine);
        kv_clear(engine->pool); /* the warm-up's blocks belong to no prompt */
        worker_disk_open(engine);
        worker_remote_open(engine);
        if (pthread_create(&engine->thread, NULL, engine_thread_run, engine) != 0)
            rc = fault_set(fault, E_NOMEM, "cannot start the engine thread");
    }
    if (rc < 0) {
        worker_engine_free(engine);
        return rc;
    }
    engine->is_started = true;
    *out = engine;
    return 0;
}

void worker_engine_opts_free(struct worker_engine_opts *opts)
{
    engine_free(&opts->engine);
    engine_free(&opts->draft);
    mem_region_close(&opts->draft_arena);
    team_free(opts->team);
    mem_region_close(&opts->arena);
}

static void empty_mailboxes(struct worker_engine *engine)
{
    struct command *command;
    struct report *report;

    while (engine->commands && (command = worker_commands_take(engine)) != NULL)
        command_free(command);
    while (engine->reports && (report = mailbox_receive(engine->reports)) != NULL)
        report_free(report);
    for (uint32_t i = 0; i < N_ORIGINS; i++)
        report_free(engine->pending[i]);
    mailbox_free(engine->commands);
    mailbox_free(engine->reports);
}

/* Closes transport and disk first.  From then on only this thread reads or writes the arena. */
void worker_engine_free(struct worker_engine *engine)
{
    if (engine == NULL)
        return;
    if (engine->is_started) {
        struct command *stop = command_new(COMMAND_STOP, 0);

        atomic_store_explicit(&engine->is_given_up, true, memory_order_relaxed);
        while (stop != NULL && mailbox_send(engine->commands, stop) == E_FULL)
            clock_sleep_ns(NS_PER_MS);
        pthread_join(engine->thread, NULL);
        thread_owner_release(&engine->engine_thread);
        mailbox_close(engine->commands);
    }
    tr_node_free(engine->transport);
    worker_disk_close(engine);
    worker_remote_close(engine);
    worker_transfers_close(engine);
    worker_map_close(engine);
    sched_free(engine->sched);
    worker_tasks_close(engine);
    worker_grammars_close(engine);
    kv_pool_free(engine->pool);
    block_log_fini(&engine->block_log);
    empty_mailboxes(engine);
    worker_engine_opts_free(&engine->opts);
    free(engine);
}

int worker_engine_send(struct worker_engine *engine, struct command *command)
{
    int rc;

    thread_owner_claim(&engine->loop_thread);
    rc = mailbox_send(engine->commands, command);
    if (rc < 0)
        command_free(command);
    return rc;
}

int worker_engine_send_peer_blocks(struct worker_engine *engine, struct block_list *blocks)
{
    struct command *command = command_new(COMMAND_PEER_BLOCKS, blocks->source);
    uint32_t n = blocks->n + 1;
    int rc;

    if (command == NULL ||
        (blocks->n > 0 &&
         atomic_load_explicit(&engine->n_pending_events, memory_order_relaxed) + n > MAX_PENDING_EVENTS)) {
        command_free(command);
        free(blocks);
        return command == NULL ? E_NOMEM : E_FULL;
    }
    command->as.blocks = blocks;
    atomic_fetch_add_explicit(&engine->n_pending_events, n, memory_order_relaxed);
    rc = worker_engine_send(engine, command);
    if (rc < 0)
        atomic_fetch_sub_explicit(&engine->n_pending_events, n, memory_order_relaxed);
    return rc;
}
