/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars on a real engine thread (over the simulated engine): compiled once for equal texts, cached, waited
 * for, refused, resumed.  The test acts as the loop: it compiles the thread's orders when it chooses. */
#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "compute/engine/engine_sim.h"
#include "cache/prefix/tenant.h"
#include "tests/unit/text/grammar/grammar_help.h"
#include "worker/runner/engine_thread.h"

#define BLOCKS    64
#define WAIT_S    10
#define MAX_QUEUE 24

#define OBJECT                                                                                               \
    "{\"json\": {\"type\": \"object\", \"properties\": {\"abc\": {\"type\": \"integer\"}, \"xy\": "          \
    "{\"type\": "                                                                                            \
    "\"boolean\"}}, \"required\": [\"abc\", \"xy\"], \"additionalProperties\": false}}"

static struct tokenizer *tokenizer;
static struct grammar_vocab *vocab;
static struct worker_engine *engine;
static struct metrics *metrics;
static struct report *waiting; /* a grammar that is not compiled yet */
static uint32_t n_asked;

struct heard { /* reports about one request */
    token_id ids[64];
    uint32_t n;
    Baton__Finish finish;
    int32_t error;
    char text[200];
};
static struct heard heard[64];

/* ---- the loop ---- */

static void take_report(const struct report *report)
{
    for (uint32_t i = 0; i < report->n_answers; i++) {
        const struct task_answer *answer = &report->answers[i];
        struct heard *of = &heard[answer->request];

        for (uint32_t k = 0; k < answer->n_ids; k++)
            of->ids[of->n++] = report->ids[answer->ids_at + k];
        if (answer->finish == BATON__FINISH__FINISH_NONE)
            continue;
        of->finish = answer->finish;
        of->error = answer->error;
        str_copy(of->text, sizeof(of->text), answer->error_text ? answer->error_text : "");
    }
}

/* Takes reports until a grammar is ordered, or until all of requests [from, to) have ended. */
static void listen_until(bool wants_grammar, uint32_t from, uint32_t to)
{
    uint64_t end_ns = clock_now_ns() + WAIT_S * NS_PER_S;

    while (clock_now_ns() < end_ns) {
        struct report *report = mailbox_receive(worker_engine_reports(engine));
        uint32_t n_ended = 0;

        if (report == NULL)
            mailbox_wait(worker_engine_reports(engine), 10 * NS_PER_MS);
        if (report != NULL && report->kind == REPORT_ANSWERS)
            take_report(report);
        if (report != NULL && report->kind == REPORT_GRAMMAR) {
            n_asked++;
            assert_null(waiting);
            waiting = report;
            report = NULL;
        }
        report_free(report);
        for (uint32_t i = from; i < to; i++)
            n_ended += heard[i].finish != BATON__FINISH__FINISH_NONE;
        if (wants_grammar ? waiting != NULL : n_ended == to - from)
            return;
    }
    fail_msg("nothing more is heard");
}

static void compile(void)
{
    struct command *command = command_new(COMMAND_GRAMMAR, 0);
    struct fault fault = {0};

    command->as.compiled.number = waiting->grammar_number;
    command->as.compiled.code =
        grammar_new(vocab, buf_view(&waiting->constraint), &fault, &command->as.compiled.grammar);
    str_copy(command->as.compiled.reason, sizeof(command->as.compiled.reason), fault.text);
    report_free(waiting);
    waiting = NULL;
    assert_int_equal(worker_engine_send(engine, command), 0);
}

static const char *tenant = "";

/* answered: [n] tokens from another worker. */
static void submit(uint32_t request, const char *grammar, const token_id *answered, uint32_t n)
{
    struct command *command = command_new(COMMAND_SUBMIT, ORIGIN_LOCAL);
    struct task_spec *spec = &command->as.submit;

    heard[request] = (struct heard){0};
    spec->key.request = request;
    str_copy(spec->order.work.tenant, sizeof(spec->order.work.tenant), tenant);
    spec->origin = ORIGIN_LOCAL;
    spec->peer = PEER_NONE;
    spec->order.n_prompt = 20;
    spec->order.n_tokens = 20 + n;
    spec->order.work.max_new_tokens = 40 - n;
    spec->order.tokens = calloc(spec->order.n_tokens, sizeof(*spec->order.tokens));
    for (uint32_t i = 0; i < 20; i++)
        spec->order.tokens[i] = 40 + i;
    for (uint32_t i = 0; i < n; i++)
        spec->order.tokens[20 + i] = answered[i];
    spec->order.work.sample.seed = 9;
    spec->order.work.sample.top_p = 1;
    buf_append_str(&spec->order.constraint, grammar);
    assert_int_equal(worker_engine_send(engine, command), 0);
}

static void cancel(uint32_t request)
{
    struct command *command = command_new(COMMAND_CANCEL, ORIGIN_LOCAL);

    command->key.request = request;
    assert_int_equal(worker_engine_send(engine, command), 0);
}

static int open_engine(void **state)
{
    struct worker_engine_opts opts = {.arena = {.fd = -1},
                                      .n_blocks = BLOCKS,
                                      .max_seqs = 8,
                                      .max_queue = MAX_QUEUE,
                                      .chunk_tokens = 64,
                                      .draft_tokens = 8,
                                      .speculate = SPECULATE_ALWAYS,
                                      .grant_timeout_ns = NS_PER_S};
    struct engine_sim_opts sim = {
        .first_text_id = 0,
        .stop_id = TOKEN_NONE,
        .context_length = 256,
        .max_batch_tokens = 128,
        .n_blocks = BLOCKS,
        .layout = {
            .n_layers = 2, .n_kv_heads = 1, .k_dim = 8, .v_dim = 8, .block_tokens = 16, .type = KV_F16}};
    struct fault fault = {0};

    log_set_level(LOG_LEVEL_ERROR);
    n_asked = 0;
    vocab = small_vocab(&tokenizer);
    sim.vocab_size = tokenizer_vocab_size(tokenizer);
    if (metrics_new(&metrics) < 0 ||
        mem_region_open(BLOCKS * kv_layout_block_bytes(&sim.layout), true, false, "test", &opts.arena) < 0)
        return -1;
    sim.kv_arena = opts.arena.base;
    if (engine_sim_new(&sim, &opts.engine) < 0)
        return -1;
    opts.metrics = metrics;
    opts.transport.node = "test";
    opts.stop_ids = tokenizer_stop_ids(tokenizer, &opts.n_stop_ids);
    return worker_engine_new(&opts, &fault, &engine);
}

static int close_engine(void **state)
{
    worker_engine_free(engine);
    report_free(waiting);
    waiting = NULL;
    metrics_free(metrics);
    grammar_vocab_unref(vocab);
    tokenizer_unref(tokenizer);
    return 0;
}

/* ---- the tests ---- */

static void assert_grammatical(const struct heard *of, const char *constraint)
{
    struct grammar *grammar = grammar_must(vocab, constraint);
    struct grammar_run *run;

    assert_int_equal(of->finish, BATON__FINISH__FINISH_STOP);
    assert_true(of->n > 0);
    assert_int_equal(grammar_run_new(grammar, &run), 0);
    for (uint32_t i = 0; i < of->n; i++)
        assert_int_equal(grammar_accept(run, of->ids[i]), 0);
    assert_true(grammar_is_complete(run));
    grammar_run_free(run);
    grammar_unref(grammar);
}

static void a_grammar_is_compiled_once_for_all(void **state)
{
    submit(1, OBJECT, NULL, 0);
    submit(2, OBJECT, NULL, 0);
    listen_until(true, 0, 0);
    submit(3, OBJECT, NULL, 0); /* while it is being compiled */
    compile();
    listen_until(false, 1, 4);
    submit(4, OBJECT, NULL, 0); /* it is compiled already */
    listen_until(false, 4, 5);
    assert_int_equal(n_asked, 1);
    assert_grammatical(&heard[1], OBJECT);
    for (uint32_t i = 2; i < 5; i++) {
        assert_int_equal(heard[i].n, heard[1].n);
        assert_memory_equal(heard[i].ids, heard[1].ids, heard[1].n * sizeof(token_id));
    }
}

static void an_answer_goes_on_in_its_grammar(void **state)
{
    submit(1, OBJECT, NULL, 0);
    listen_until(true, 0, 0);
    compile();
    listen_until(false, 1, 2);
    for (uint32_t n = 1; n < heard[1].n; n++) {
        submit(2, OBJECT, heard[1].ids, n);
        listen_until(false, 2, 3);
        assert_int_equal(heard[2].finish, heard[1].finish);
        assert_int_equal(heard[2].n, heard[1].n - n);
        assert_memory_equal(heard[2].ids, heard[1].ids + n, heard[2].n * sizeof(token_id));
    }
    submit(3, OBJECT, (const token_id[]){'q', 'q'}, 2); /* tokens that the grammar cannot have allowed */
    listen_until(false, 3, 4);
    assert_int_equal(heard[3].finish, BATON__FINISH__FINISH_FAILED);
    assert_int_equal(heard[3].error, E_CONSTRAINT);
    assert_true(heard[3].text[0] != '\0');
}

static void a_grammar_that_does_not_compile_fails_with_the_reason(void **state)
{
    submit(1, "{\"json\": {\"type\": \"nonsense\"}}", NULL, 0);
    listen_until(true, 0, 0);
    submit(2, "{\"json\": {\"type\": \"nonsense\"}}", NULL, 0);
    compile();
    listen_until(false, 1, 2);
    assert_int_equal(heard[1].finish, BATON__FINISH__FINISH_FAILED);
    assert_int_equal(heard[1].error, E_FORMAT);
    assert_non_null(strstr(heard[1].text, "type"));
    if (heard[2].finish == BATON__FINISH__FINISH_NONE) { /* it may have come too late: try again */
        listen_until(true, 0, 0);
        compile();
        listen_until(false, 2, 3);
    }
    assert_string_equal(heard[2].text, heard[1].text);
}

static void a_waiting_task_may_be_cancelled(void **state)
{
    submit(1, OBJECT, NULL, 0);
    submit(2, OBJECT, NULL, 0);
    listen_until(true, 0, 0);
    cancel(1);
    compile();
    listen_until(false, 2, 3);
    assert_grammatical(&heard[2], OBJECT);
    assert_int_equal(heard[1].n, 0);
    assert_int_equal(heard[1].finish, BATON__FINISH__FINISH_NONE);
    submit(1, OBJECT, NULL, 0); /* its number is free again */
    listen_until(false, 1, 2);
    assert_grammatical(&heard[1], OBJECT);
}

/* More grammars than fit: the oldest is evicted, the latest are not. */
static void only_the_latest_grammar_are_kept(void **state)
{
    char grammar[64];

    for (uint32_t i = 0; i < 41; i++) {
        uint32_t number = i < 40 ? i : 39;

        snprintf(grammar, sizeof(grammar), "{\"text\": \"abc%u\"}", number);
        submit(1, grammar, NULL, 0);
        if (i < 40) {
            listen_until(true, 0, 0);
            compile();
        }
        listen_until(false, 1, 2);
        assert_grammatical(&heard[1], grammar);
    }
    assert_int_equal(n_asked, 40);
    submit(1, "{\"text\": \"abc0\"}", NULL, 0);
    listen_until(true, 0, 0);
    compile();
    listen_until(false, 1, 2);
    assert_grammatical(&heard[1], "{\"text\": \"abc0\"}");
}

static void ask_for(uint32_t number, const char *whose, bool is_new)
{
    uint32_t n_before = n_asked;
    char grammar[64];

    tenant = whose;
    snprintf(grammar, sizeof(grammar), "{\"text\": \"%s%u\"}", whose, number);
    submit(1, grammar, NULL, 0);
    if (is_new) {
        listen_until(true, 0, 0);
        assert_int_equal(waiting->grammar_tenant, tenant_number(whose));
        compile();
    }
    listen_until(false, 1, 2);
    assert_grammatical(&heard[1], grammar);
    assert_int_equal(n_asked, n_before + is_new);
    tenant = "";
}

/* A tenant with many different grammars evicts its own, not another tenant's. */
static void a_tenant_s_many_grammar_leave_others_theirs(void **state)
{
    for (uint32_t i = 0; i < 4; i++)
        ask_for(i, "bob", true);
    for (uint32_t i = 0; i < 80; i++)
        ask_for(i, "ann", true);
    for (uint32_t i = 0; i < 4; i++)
        ask_for(i, "bob", false);
    ask_for(79, "ann", false);
    ask_for(0, "ann", true);
}

/* More tasks wait than may: the excess is refused at once, as by a full queue, and the others continue. */
static void as_many_wait_as_a_queue_takes(void **state)
{
    uint32_t n_refused = 0;

    for (uint32_t i = 0; i < 40; i++)
        submit(i, OBJECT, NULL, 0);
    listen_until(true, 0, 0);
    listen_until(false, MAX_QUEUE, 40);
    for (uint32_t i = 0; i < 40; i++) {
        n_refused += heard[i].finish == BATON__FINISH__FINISH_FAILED;
        assert_true(heard[i].finish == BATON__FINISH__FINISH_NONE || heard[i].error == E_OVERLOADED);
    }
    assert_int_equal(n_refused, 40 - MAX_QUEUE);
    for (uint32_t i = 0; i < MAX_QUEUE; i++)
        cancel(i);
    compile();
    submit(1, OBJECT, NULL, 0);
    listen_until(false, 1, 2);
    assert_grammatical(&heard[1], OBJECT);
    assert_int_equal(n_asked, 1);
}

/* Beyond that, a tenant with fewer replaces the newest of one with more; equal tenants replace none. */
static void a_tenant_that_fills_it_makes_room(void **state)
{
    tenant = "ann";
    for (uint32_t i = 0; i < MAX_QUEUE; i++)
        submit(i, OBJECT, NULL, 0);
    listen_until(true, 0, 0);
    tenant = "bob";
    for (uint32_t i = MAX_QUEUE; i < 2 * MAX_QUEUE; i++)
        submit(i, OBJECT, NULL, 0);
    listen_until(false, MAX_QUEUE / 2, MAX_QUEUE);
    listen_until(false, MAX_QUEUE + MAX_QUEUE / 2, 2 * MAX_QUEUE);
    for (uint32_t i = 0; i < MAX_QUEUE; i++) { /* the first half of each waits */
        bool waits = i < MAX_QUEUE / 2;

        assert_int_equal(heard[i].finish, waits ? BATON__FINISH__FINISH_NONE : BATON__FINISH__FINISH_FAILED);
        assert_int_equal(heard[MAX_QUEUE + i].finish,
                         waits ? BATON__FINISH__FINISH_NONE : BATON__FINISH__FINISH_FAILED);
    }
    for (uint32_t i = 0; i < MAX_QUEUE / 2; i++) {
        cancel(i);
        cancel(MAX_QUEUE + i);
    }
    compile();
    submit(1, OBJECT, NULL, 0);
    listen_until(false, 1, 2);
    tenant = "";
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_engine, close_engine)
    static const struct CMUnitTest tests[] = {
        T(a_grammar_is_compiled_once_for_all),
        T(an_answer_goes_on_in_its_grammar),
        T(a_grammar_that_does_not_compile_fails_with_the_reason),
        T(a_waiting_task_may_be_cancelled),
        T(only_the_latest_grammar_are_kept),
        T(a_tenant_s_many_grammar_leave_others_theirs),
        T(as_many_wait_as_a_queue_takes),
        T(a_tenant_that_fills_it_makes_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
