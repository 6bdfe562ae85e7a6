/* SPDX-License-Identifier: Apache-2.0 */
/* The state of two engine threads without threads, a prefill worker's and a decode worker's.  The transport
 * moves no bytes and confirms everything.  Tests the whole course of a hand-off, and its failures. */
#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/rng.h"
#include "compute/engine/engine_sim.h"
#include "worker/runner/transfers_priv.h"

#define EPOCH    9
#define N_BLOCKS 64
#define MAX_WORD 4096

struct side {
    struct worker_engine engine;
    struct side *other;
    struct engine sim;
    bool is_spoilt; /* all logits are NaN */
    bool link_is_up;
    struct tr_event events[256]; /* events of the transport, not delivered yet */
    uint32_t n_events;
    struct task_answer answers[MAX_WORD];
    uint32_t n_answers, n_drawn, ids[MAX_WORD];
};

static struct side p, d;
static uint64_t ticket, push, last_ticket;
static uint32_t n_wanted, n_pushed;
static bool refuses_tickets;

/* ---- the transport ---- */

static struct side *side_of(const struct tr_node *node)
{
    return (const void *)node == &p ? &p : &d;
}

static void emit(struct side *side, enum tr_event_kind kind, uint64_t id, uint32_t n_leading)
{
    if (side->n_events == 256)
        abort();
    side->events[side->n_events++] = (struct tr_event){.kind = kind, .id = id, .n_leading = n_leading};
}

int tr_node_new(const struct tr_opts *opts, struct fault *fault, struct tr_node **out)
{
    return E_UNSUPPORTED;
}

void tr_node_free(struct tr_node *node)
{
}

const char *tr_node_tcp_address(const struct tr_node *node)
{
    return "";
}

const char *tr_node_rdma_text(const struct tr_node *node)
{
    return "";
}

unsigned tr_node_rdma_rails(const struct tr_node *node)
{
    return 0;
}

unsigned tr_node_rdma_opened(const struct tr_node *node)
{
    return 0;
}

const char *tr_node_unix_path(const struct tr_node *node)
{
    return "";
}

int tr_open_ticket(struct tr_node *node, uint64_t id, const uint32_t *blocks, uint32_t n_blocks)
{
    last_ticket = id;
    if (refuses_tickets)
        return E_FULL;
    ticket = id;
    n_pushed = 0;
    return 0;
}

int tr_close_ticket(struct tr_node *node, uint64_t id)
{
    emit(side_of(node), TR_TICKET_CLOSED, id, 0);
    return 0;
}

int tr_start_push(struct tr_node *node, uint64_t id, const struct tr_target *target, uint32_t n_pieces)
{
    push = id;
    n_wanted = n_pieces;
    return 0;
}

int tr_push(struct tr_node *node, uint64_t id, const struct tr_pieces *pieces)
{
    n_pushed += pieces->n;
    if (n_pushed == n_wanted)
        emit(&d, TR_TICKET_COMPLETE, ticket, 0);
    return 0;
}

int tr_stop_push(struct tr_node *node, uint64_t id)
{
    emit(side_of(node), TR_PUSH_STOPPED, id, 0);
    return 0;
}

/* ---- two workers ---- */

/* The simulated engine, or one whose logits are not finite. */
static int step(void *self, const struct engine_batch *batch, struct sample_result *results_out)
{
    struct side *side = self;
    int rc = engine_step(&side->sim, batch, results_out);

    for (uint32_t i = 0; i < batch->n_items && rc == 0 && side->is_spoilt; i++) {
        if (batch->items[i].wants_token)
            results_out[0] = (struct sample_result){.id = TOKEN_NONE, .is_spoilt = true};
        results_out += 1 + batch->items[i].n_drafts;
    }
    return rc;
}

static const struct engine_ops engine_ops = {.step = step};

static void open_side(struct side *side, struct side *other, struct metrics *metrics)
{
    struct worker_engine *engine = &side->engine;
    struct engine_sim_opts sim = {.vocab_size = 300,
                                  .stop_id = TOKEN_NONE,
                                  .context_length = 1024,
                                  .max_batch_tokens = 128,
                                  .n_blocks = N_BLOCKS};
    struct kv_pool_opts pool = {.n_blocks = N_BLOCKS, .block_tokens = 16, .lifetime_ns = NS_PER_S};
    struct sched_opts sched = {.engine = &engine->opts.engine,
                               .max_seqs = 8,
                               .max_queue = 8,
                               .chunk_tokens = 32,
                               .events = worker_task_events(),
                               .events_arg = engine};

    memset(side, 0, sizeof(*side));
    side->other = other;
    side->link_is_up = true;
    sim.layout = (struct kv_layout){
        .n_layers = 2, .n_kv_heads = 1, .k_dim = 32, .v_dim = 32, .type = KV_F16, .block_tokens = 16};
    assert_int_equal(engine_sim_new(&sim, &side->sim), 0);
    engine->opts.engine = (struct engine){.ops = &engine_ops, .self = side, .info = side->sim.info};
    engine->opts.grant_timeout_ns = 10 * NS_PER_S;
    engine->opts.metrics = metrics;
    engine->opts.n_blocks = N_BLOCKS;
    engine->opts.preferred = TR_TCP;
    engine->transport = (struct tr_node *)(void *)side;
    engine->peer_is_up[0] = true;
    engine->m_computed = engine->m_reused = engine->m_transferred = engine->m_drawn = engine->m_preempted =
        metric_single(metrics, METRIC_COUNTER, "test_total", "Test.");
    assert_int_equal(mailbox_new(1024, &engine->reports), 0);
    assert_int_equal(mailbox_new(1024, &engine->commands), 0);
    worker_health_open(engine);
    assert_int_equal(worker_tasks_open(engine), 0);
    assert_int_equal(worker_transfers_open(engine), 0);
    assert_int_equal(kv_pool_new(&pool, &engine->pool), 0);
    sched.pool = engine->pool;
    assert_int_equal(sched_new(&sched, &engine->sched), 0);
}

static void close_side(struct side *side)
{
    struct worker_engine *engine = &side->engine;
    struct report *report;

    worker_transfers_close(engine);
    sched_free(engine->sched);
    worker_tasks_close(engine);
    kv_pool_free(engine->pool);
    while ((report = mailbox_receive(engine->reports)) != NULL)
        report_free(report);
    report_free(engine->pending[0]);
    mailbox_free(engine->reports);
    mailbox_free(engine->commands);
    engine_free(&side->sim);
}

static struct metrics *metrics;

static int open_both(void **state)
{
    log_set_level(LOG_LEVEL_ERROR);
    refuses_tickets = false;
    assert_int_equal(metrics_new(&metrics), 0);
    open_side(&p, &d, metrics);
    open_side(&d, &p, metrics);
    return 0;
}

static int close_both(void **state)
{
    close_side(&p);
    close_side(&d);
    metrics_free(metrics);
    return 0;
}

/* ---- turns of both workers ---- */

static void take_answers(struct side *side)
{
    struct report *report = side->engine.pending[0];

    side->engine.pending[0] = NULL;
    for (uint32_t i = 0; report != NULL && i < report->n_answers; i++) {
        const struct task_answer *answer = &report->answers[i];

        for (uint32_t k = 0; k < answer->n_ids; k++)
            side->ids[answer->first_index + k] = report->ids[answer->ids_at + k];
        side->n_drawn += answer->n_ids;
        side->answers[side->n_answers++] = *answer;
        assert_int_equal(answer->router_epoch, EPOCH);
    }
    report_free(report);
}

static uint64_t ahead_ns; /* moves the clock, so that waits time out */

static void turn(struct side *side)
{
    struct worker_engine *engine = &side->engine;
    struct tr_event events[256];
    uint32_t n_events = side->n_events;
    struct report *report;

    memcpy(events, side->events, sizeof(events));
    side->n_events = 0;
    for (uint32_t i = 0; i < n_events; i++)
        worker_transfers_event(engine, &events[i]);
    assert_true(sched_run_step(engine->sched) >= 0);
    worker_transfers_tick(engine, clock_now_ns() + ahead_ns);
    take_answers(side);
    while ((report = mailbox_receive(engine->reports)) != NULL) {
        if (side->link_is_up)
            worker_transfers_message(&side->other->engine, 0, &report->peer);
        report_free(report);
    }
}

static void turn_both(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        turn(&p);
        turn(&d);
    }
}

static void submit(struct side *side, enum task_mode mode, uint64_t request, uint32_t n_tokens,
                   uint32_t max_new_tokens)
{
    struct task_spec spec = {.key = {.router_epoch = EPOCH, .request = request},
                             .mode = mode,
                             .order = {.n_tokens = n_tokens,
                                       .n_prompt = n_tokens,
                                       .work = {.max_new_tokens = max_new_tokens,
                                                .sample = {.temperature = 1, .top_p = 1, .seed = 5}}}};

    spec.order.tokens = calloc(n_tokens, sizeof(*spec.order.tokens));
    for (uint32_t i = 0; i < n_tokens; i++)
        spec.order.tokens[i] = (i * 7 + (uint32_t)request) % 300;
    worker_tasks_submit(&side->engine, &spec);
    free(spec.order.tokens);
}

static const struct task_answer *last_word(const struct side *side, uint64_t request)
{
    for (uint32_t i = side->n_answers; i > 0; i--)
        if (side->answers[i - 1].request == request && side->answers[i - 1].finish != 0)
            return &side->answers[i - 1];
    return NULL;
}

static void assert_quiet(const struct side *side)
{
    const struct worker_engine *engine = &side->engine;
    struct kv_pool_counts counts;

    kv_pool_counts(engine->pool, &counts);
    assert_int_equal(counts.n_leased + counts.n_zombie + counts.n_filling + counts.n_sealed, 0);
    assert_int_equal(engine->n_tasks, 0);
    assert_int_equal(worker_transfers_count(engine), 0);
}

/* ---- tests ---- */

static void a_hand_off(void **state)
{
    submit(&d, TASK_DECODE, 1, 100, 10);
    submit(&p, TASK_PREFILL, 1, 100, 10);
    turn_both(40);
    assert_int_equal(last_word(&p, 1)->finish, BATON__FINISH__FINISH_HANDED_OFF);
    assert_int_equal(last_word(&d, 1)->finish, BATON__FINISH__FINISH_LENGTH);
    assert_int_equal(last_word(&d, 1)->stats.n_transferred, 100);
    assert_int_equal(d.n_drawn, 10);
    assert_int_equal(p.n_drawn, 1);
    assert_int_equal(p.ids[0], d.ids[0]);
    assert_true(last_word(&d, 1)->figures.exposed_ns > 0 && last_word(&p, 1)->figures.exposed_ns == 0);
    assert_quiet(&p);
    assert_quiet(&d);
}

static void an_offer_before_its_request_waits(void **state)
{
    submit(&p, TASK_PREFILL, 1, 100, 10);
    turn(&p);
    submit(&d, TASK_DECODE, 1, 100, 10);
    turn_both(40);
    assert_int_equal(last_word(&d, 1)->stats.n_transferred, 100);
    assert_quiet(&p);
    assert_quiet(&d);
}

static void proceed_then_a_late_offer(void **state)
{
    const struct task_key key = {.router_epoch = EPOCH, .request = 1};

    submit(&d, TASK_DECODE, 1, 100, 10);
    worker_tasks_proceed(&d.engine, 0, &key);
    worker_tasks_proceed(&d.engine, 0, &key);
    submit(&p, TASK_PREFILL, 1, 100, 10);
    turn_both(60);
    assert_int_equal(last_word(&p, 1)->finish, BATON__FINISH__FINISH_FAILED);
    assert_true(last_word(&p, 1)->is_handoff_refused);
    assert_int_equal(last_word(&d, 1)->finish, BATON__FINISH__FINISH_LENGTH);
    assert_int_equal(last_word(&d, 1)->stats.n_computed, 100);
    assert_int_equal(last_word(&d, 1)->figures.exposed_ns, 0);
    assert_quiet(&p);
    assert_quiet(&d);
}

/* Puts D's messages into P's mailbox, after a command that must wait for the step's end. */
static void post_to_p(void)
{
    struct command *drain = command_new(COMMAND_DRAIN, 0), *said;
    struct report *report;

    drain->flag = true;
    assert_int_equal(mailbox_send(p.engine.commands, drain), 0);
    while ((report = mailbox_receive(d.engine.reports)) != NULL) {
        said = command_new(COMMAND_PEER_MESSAGE, 0);
        said->as.peer = report->peer;
        report->peer.blocks = NULL;
        assert_int_equal(mailbox_send(p.engine.commands, said), 0);
        report_free(report);
    }
}

static void a_grant_within_a_step_begins_the_push(void **state)
{
    submit(&d, TASK_DECODE, 1, 200, 10); /* two steps */
    submit(&p, TASK_PREFILL, 1, 200, 10);
    turn(&p); /* the first, and D receives the OFFER */
    post_to_p();
    assert_int_equal(n_pushed, 0);
    assert_true(sched_run_step(p.engine.sched) > 0);
    assert_int_equal(n_pushed, n_wanted); /* both steps' blocks, by the end of the second */
    assert_true(worker_commands_wait(&p.engine));
    worker_commands_run(&p.engine);
    assert_false(worker_commands_wait(&p.engine));
    submit(&p, TASK_LOCAL, 2, 20, 1);
    turn_both(40);
    assert_int_equal(last_word(&d, 1)->stats.n_transferred, 200);
    assert_int_equal(last_word(&p, 2)->error, E_CLOSED); /* the drain took effect later */
    assert_quiet(&p);
    assert_quiet(&d);
}

static void proceed_of_an_unknown_request_is_answered(void **state)
{
    const struct task_key key = {.router_epoch = EPOCH, .request = 4};

    worker_tasks_proceed(&d.engine, 0, &key);
    turn(&d);
    assert_non_null(last_word(&d, 4));
    assert_int_equal(last_word(&d, 4)->error, E_NOT_FOUND);
}

static void a_refused_ticket_leaves_no_trace(void **state)
{
    struct tr_event event = {.kind = TR_TICKET_FAILED};
    const struct task_key key = {.router_epoch = EPOCH, .request = 1};

    refuses_tickets = true;
    submit(&d, TASK_DECODE, 1, 100, 10);
    submit(&p, TASK_PREFILL, 1, 100, 10);
    turn_both(20);
    event.id = last_ticket;
    worker_tasks_proceed(&d.engine, 0, &key);
    turn_both(40);
    submit(&d, TASK_DECODE, 2, 100, 10); /* refused, then offered again */
    worker_transfers_message(&d.engine, 0,
                             &(struct kvxfer_message){.kind = KVXFER_OFFER,
                                                      .transfer = 1,
                                                      .router_epoch = EPOCH,
                                                      .request = 2,
                                                      .n_tokens = 100,
                                                      .n_blocks = 7});
    event.id = last_ticket;
    refuses_tickets = false;
    worker_transfers_message(&d.engine, 0,
                             &(struct kvxfer_message){.kind = KVXFER_OFFER,
                                                      .transfer = 2,
                                                      .router_epoch = EPOCH,
                                                      .request = 2,
                                                      .n_tokens = 100,
                                                      .n_blocks = 7});
    worker_tasks_cancel(&d.engine, &(struct task_key){.router_epoch = EPOCH, .request = 2});
    turn_both(10);
    worker_transfers_event(&d.engine, &event);
    assert_quiet(&d);
    assert_quiet(&p);
}

static void a_peer_cannot_end_an_answer(void **state)
{
    submit(&d, TASK_DECODE, 1, 100, 10);
    worker_transfers_message(&d.engine, 0,
                             &(struct kvxfer_message){.kind = KVXFER_OFFER,
                                                      .transfer = 1,
                                                      .router_epoch = EPOCH,
                                                      .request = 1,
                                                      .n_tokens = 100,
                                                      .n_blocks = 7});
    worker_transfers_message(
        &d.engine, 0,
        &(struct kvxfer_message){.kind = KVXFER_PREFILL_DONE, .transfer = 1, .is_finished = true});
    emit(&d, TR_TICKET_COMPLETE, ticket, 0);
    turn_both(30);
    assert_int_equal(last_word(&d, 1)->finish, BATON__FINISH__FINISH_LENGTH);
    assert_quiet(&d);
}

/* Lets both take turns.  True: the log then has an error of that name. */
static bool turn_and_log(uint32_t n, const char *event)
{
    char log[4096] = "";
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);

    dup2(fileno(file), STDERR_FILENO);
    turn_both(n);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    log[fread(log, 1, sizeof(log) - 1, file)] = '\0';
    fclose(file);
    return strstr(log, event) != NULL;
}

static void assert_spoilt(const struct side *side, uint64_t request)
{
    const struct task_answer *word = last_word(side, request);

    assert_non_null(word);
    assert_int_equal(word->finish, BATON__FINISH__FINISH_FAILED);
    assert_int_equal(word->error, E_NUMERICS);
    assert_true(metric_value(side->engine.health.m_spoilt) == 1);
}

/* The prefill worker's logits are NaN: it reports the error instead of a token, and pushes no KV of its own.
 * The decode worker computes the whole prompt. */
static void spoilt_logits_of_the_first_worker_are_an_error(void **state)
{
    p.is_spoilt = true;
    submit(&d, TASK_DECODE, 1, 100, 10);
    submit(&p, TASK_PREFILL, 1, 100, 10);
    assert_true(turn_and_log(40, "answer_spoilt"));
    assert_spoilt(&p, 1);
    assert_int_equal(p.n_drawn, 0);
    assert_int_equal(last_word(&d, 1)->finish, BATON__FINISH__FINISH_LENGTH);
    assert_int_equal(d.n_drawn, 10);
    assert_int_equal(last_word(&d, 1)->stats.n_transferred, 0);
    assert_quiet(&p);
    assert_quiet(&d);
}

/* The received blocks make the decode worker's logits NaN: the answer ends with the error after the first
 * worker's token, and the next prompt does not find the received blocks. */
static void spoilt_blocks_of_the_first_worker_are_an_error(void **state)
{
    d.is_spoilt = true;
    submit(&d, TASK_DECODE, 1, 100, 10);
    submit(&p, TASK_PREFILL, 1, 100, 10);
    assert_true(turn_and_log(40, "answer_spoilt"));
    assert_int_equal(last_word(&p, 1)->finish, BATON__FINISH__FINISH_HANDED_OFF);
    assert_spoilt(&d, 1);
    assert_int_equal(last_word(&d, 1)->stats.n_transferred, 100);
    d.is_spoilt = false;
    submit(&d, TASK_LOCAL, 301, 100, 10); /* the same tokens */
    turn_both(40);
    assert_int_equal(last_word(&d, 301)->finish, BATON__FINISH__FINISH_LENGTH);
    assert_int_equal(last_word(&d, 301)->stats.n_reused, 0);
    assert_quiet(&p);
    assert_quiet(&d);
}

static void twice_is_refused_and_harmless(void **state)
{
    submit(&d, TASK_LOCAL, 1, 20, 5);
    submit(&d, TASK_LOCAL, 1, 20, 5);
    turn(&d);
    assert_int_equal(last_word(&d, 1)->error, E_EXISTS);
    turn_both(20);
    assert_int_equal(d.n_drawn, 5);
    assert_quiet(&d);
}

static void a_former_life_is_forgotten(void **state)
{
    submit(&d, TASK_LOCAL, 1, 20, 50);
    worker_tasks_router_down(&d.engine, 0, EPOCH);
    assert_int_equal(d.engine.n_tasks, 1);
    worker_tasks_router_down(&d.engine, 0, EPOCH + 1);
    assert_int_equal(d.engine.n_tasks, 0);
}

/* After cancels, losses and proceeds at any moment, both ends come to rest. */
static void anything_ends(void **state)
{
    struct rng dice;

    for (uint64_t seed = 1; seed <= 300; seed++) {
        rng_init(&dice, seed);
        for (uint64_t request = 1; request <= 3; request++) {
            const struct task_key key = {.router_epoch = EPOCH, .request = request + seed * 8};

            submit(&d, TASK_DECODE, key.request, 1 + (uint32_t)rng_below(&dice, 150), 6);
            submit(&p, TASK_PREFILL, key.request, 1 + (uint32_t)rng_below(&dice, 150), 6);
            turn_both((uint32_t)rng_below(&dice, 6));
            if (rng_below(&dice, 3) == 0)
                worker_tasks_cancel(rng_below(&dice, 2) ? &p.engine : &d.engine, &key);
            if (rng_below(&dice, 3) == 0)
                worker_tasks_proceed(&d.engine, 0, &key);
            if (rng_below(&dice, 6) == 0) {
                worker_transfers_peer(&p.engine, 0, false);
                worker_transfers_peer(&d.engine, 0, false);
            }
            turn_both((uint32_t)rng_below(&dice, 4));
            worker_tasks_proceed(&d.engine, 0, &key);
        }
        turn_both(60);
        worker_tasks_router_down(&p.engine, 0, 0);
        worker_tasks_router_down(&d.engine, 0, 0);
        turn_both(4);
        ahead_ns = 5 * NS_PER_S; /* offers of ended requests are kept for a while */
        turn_both(4);
        ahead_ns = 0;
        assert_quiet(&p);
        assert_quiet(&d);
        p.n_answers = d.n_answers = 0;
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_both, close_both)
    static const struct CMUnitTest tests[] = {
        T(a_hand_off),
        T(an_offer_before_its_request_waits),
        T(proceed_then_a_late_offer),
        T(a_grant_within_a_step_begins_the_push),
        T(proceed_of_an_unknown_request_is_answered),
        T(a_refused_ticket_leaves_no_trace),
        T(a_peer_cannot_end_an_answer),
        T(spoilt_logits_of_the_first_worker_are_an_error),
        T(spoilt_blocks_of_the_first_worker_are_an_error),
        T(twice_is_refused_and_harmless),
        T(a_former_life_is_forgotten),
        T(anything_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
