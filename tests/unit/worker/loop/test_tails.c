/* SPDX-License-Identifier: Apache-2.0 */
/* Tails of answers, with two routers over scripted links,
 * and no engine thread: which router receives which tokens. */
#include "worker/loop/spending_priv.h"
#include "tests/unit/check.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "worker/loop/tails_priv.h"

struct link {
    const struct link_events *events;
    void *arg;
    uint32_t number;
    char said
        [4096]; /* messages sent: "R" resumed, "-" not here, "A" accepted, "7" a token, ".", "M", "F" ends */
};

static struct worker worker;
static unsigned n_beats[2];
static struct worker_conf conf;
static struct link *links[2];
static unsigned n_links, n_cancels;
static uint64_t last_cancel;
static char has_tail;

/* ---- the scripted routers ---- */

int link_dial(const struct link_opts *opts, const char *address, struct fault *fault, struct link **out)
{
    struct link *link = calloc(1, sizeof(*link));

    link->events = opts->events;
    link->arg = opts->events_arg;
    links[n_links++] = *out = link;
    return 0;
}

size_t link_queued_bytes(const struct link *link)
{
    return 0;
}

void link_beat(struct link *link)
{
    n_beats[link == links[0] ? 0 : 1]++;
    ev_loop_stop(worker.loop);
}

static void say(struct link *link, const char *text)
{
    strncat(link->said, text, sizeof(link->said) - strlen(link->said) - 1);
}

static void put_id(struct link *link, uint32_t id)
{
    char text[16];

    snprintf(text, sizeof(text), "%u ", id);
    say(link, text);
}

int link_send(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    const Baton__Tokens *tokens = (const Baton__Tokens *)message;

    if (type == FRAME_RESUMED)
        say(link, ((const Baton__Resumed *)message)->is_here ? "R " : "- ");
    if (type != FRAME_TOKENS)
        return 0;
    for (size_t at = 0; at < tokens->singles.len; at += FRAME_SINGLE_BYTES)
        put_id(link, frame_single_unpack(tokens->singles.data + at).id);
    for (size_t i = 0; i < tokens->n_answers; i++) {
        const Baton__Answer *answer = tokens->answers[i];

        say(link, answer->is_accepted ? "A " : "");
        for (size_t k = 0; k < answer->n_ids; k++)
            put_id(link, answer->ids[k]);
        say(link, answer->finish == BATON__FINISH__FINISH_STOP     ? ". "
                  : answer->finish == BATON__FINISH__FINISH_MOVED  ? "M "
                  : answer->finish == BATON__FINISH__FINISH_FAILED ? "F "
                                                                   : "");
    }
    return 0;
}

int worker_engine_send(struct worker_engine *engine, struct command *command)
{
    if (command->kind == COMMAND_CANCEL) {
        n_cancels++;
        last_cancel = command->key.request;
    }
    if (command->kind == COMMAND_SUBMIT)
        has_tail = command->as.submit.has_tail;
    command_free(command);
    return 0;
}

uint32_t worker_peer_for(struct worker *self, const Baton__Peer *peer)
{
    return 0;
}

bool worker_peers_have_room(const struct worker *self)
{
    return true;
}

/* ---- the rig ---- */

static void message(unsigned router, enum frame_type type, const ProtobufCMessage *content)
{
    assert_int_equal(links[router]->events->on_message(links[router]->arg, links[router], type, content), 0);
}

static void hello(unsigned router, uint64_t epoch)
{
    Baton__Hello content = BATON__HELLO__INIT;
    struct fault fault = {0};

    content.role = BATON__ROLE__ROLE_ROUTER;
    content.node = (char *)"r";
    content.epoch = epoch;
    assert_int_equal(
        links[router]->events->on_hello(links[router]->arg, links[router], &content.base, &fault), 0);
    links[router]->events->on_up(links[router]->arg, links[router]);
}

static void down(unsigned router)
{
    static const struct fault why;

    links[router]->events->on_down(links[router]->arg, links[router], &why);
}

static uint8_t digest[32] = {7};

static void submit(unsigned router, uint64_t request, const char *id, const char *tenant)
{
    Baton__Submit content = BATON__SUBMIT__INIT;
    Baton__Sampling sampling = BATON__SAMPLING__INIT;
    Baton__ResumeNote note = BATON__RESUME_NOTE__INIT;
    static uint8_t tokens[8] = {1, 0, 0, 0, 2, 0, 0, 0};

    content.request = request;
    content.request_id = (char *)id;
    content.tenant = (char *)tenant;
    content.tokens = (ProtobufCBinaryData){.data = tokens, .len = sizeof(tokens)};
    content.n_prompt = 2;
    content.sampling = &sampling;
    content.resume = &note;
    note.message_id = (char *)"msg_1";
    note.body_digest = (ProtobufCBinaryData){.data = digest, .len = sizeof(digest)};
    message(router, FRAME_SUBMIT, &content.base);
}

static void resume(unsigned router, uint64_t request, const char *id, const char *tenant)
{
    Baton__Resume content = BATON__RESUME__INIT;

    content.request = request;
    content.request_id = (char *)id;
    content.tenant = (char *)tenant;
    content.body_digest = (ProtobufCBinaryData){.data = digest, .len = sizeof(digest)};
    message(router, FRAME_RESUME, &content.base);
}

static void cancel(unsigned router, uint64_t request, bool is_complete)
{
    Baton__Cancel content = BATON__CANCEL__INIT;

    content.request = request;
    content.is_complete = is_complete;
    message(router, FRAME_CANCEL, &content.base);
}

/* The answer is complete with so many tokens. */
static void complete(unsigned router, uint64_t request, uint32_t n_tokens, token_id last)
{
    Baton__Cancel content = BATON__CANCEL__INIT;

    content.request = request;
    content.is_complete = true;
    content.n_tokens = n_tokens;
    content.last_token = last;
    message(router, FRAME_CANCEL, &content.base);
}

/* Reports n tokens for router 0's job, as the engine thread would; ids from 10 + index on. */
static void answer(uint64_t request, uint32_t index, uint32_t n, Baton__Finish finish)
{
    struct report *report = report_new(REPORT_ANSWERS, 0);

    for (uint32_t i = 0; i < n; i++) {
        token_id id = 10 + index + i;
        struct task_answer *one = report_answer(report, &id, 1);

        one->router_epoch = 5;
        one->request = request;
        one->first_index = index + i;
        one->is_accepted = index + i == 0;
    }
    if (finish != BATON__FINISH__FINISH_NONE) {
        struct task_answer *last = report_answer(report, NULL, 0);

        last->router_epoch = 5;
        last->request = request;
        last->finish = finish;
    }
    worker_routers_answers(&worker, report);
    report_free(report);
}

static void assert_sent(unsigned router, const char *text)
{
    assert_string_equal(links[router]->said, text);
    links[router]->said[0] = '\0';
}

static int open_worker(void **state)
{
    static char *addresses[2] = {(char *)"127.0.0.1:1", (char *)"127.0.0.1:2"};
    struct fault fault = {0};

    log_set_level(LOG_LEVEL_ERROR);
    memset(&worker, 0, sizeof(worker));
    conf.routers = (struct config_list){.items = addresses, .n = 2};
    conf.tails_grace_ns = 50 * NS_PER_MS;
    conf.tails_bytes = 1 << 20;
    worker.conf = &conf;
    worker.router_link_opts.events_arg = &worker;
    n_links = n_cancels = 0;
    if (ev_loop_new(&worker.loop) < 0 || metrics_new(&worker.metrics) < 0 || worker_tails_open(&worker) < 0 ||
        worker_notices_open(&worker) < 0 || worker_routers_open(&worker, &fault) < 0)
        return -1;
    hello(0, 5);
    hello(1, 6);
    return 0;
}

static int close_worker(void **state)
{
    worker_routers_close(&worker);
    worker_tails_close(&worker);
    worker_notices_close(&worker);
    metrics_free(worker.metrics);
    ev_loop_free(worker.loop);
    return 0;
}

static size_t n_tails(void)
{
    return hashmap_count(worker.tails->by_id);
}

static void until_no_tail(void)
{
    uint64_t end_ns = clock_now_ns() + 10 * NS_PER_S;

    while (n_tails() > 0 && clock_now_ns() < end_ns)
        event_base_loop(ev_loop_base(worker.loop), EVLOOP_ONCE);
    assert_int_equal(n_tails(), 0);
}

/* ---- the tests ---- */

static void a_tail_goes_to_the_router_that_asks(void **state)
{
    submit(0, 9, "req_1", "t");
    assert_true(has_tail);
    answer(9, 0, 3, BATON__FINISH__FINISH_NONE);
    assert_sent(0, "A 10 11 12 ");
    assert_sent(1, "");
}

static void an_orphan_goes_on_elsewhere(void **state)
{
    submit(0, 9, "req_1", "t");
    answer(9, 0, 1, BATON__FINISH__FINISH_NONE);
    answer(9, 1, 1, BATON__FINISH__FINISH_NONE);
    assert_sent(0, "A 10 11 ");
    down(0);
    answer(9, 2, 1, BATON__FINISH__FINISH_NONE);
    assert_sent(0, "");
    resume(1, 77, "req_1", "t");
    assert_sent(1, "R ");
    answer(9, 3, 1, BATON__FINISH__FINISH_NONE); /* waits after the tail */
    assert_sent(1, "");
    tails_replay(&worker);
    assert_sent(1, "A 10 11 12 13 ");
    answer(9, 4, 1, BATON__FINISH__FINISH_NONE);
    assert_sent(1, "14 ");
    answer(9, 5, 0, BATON__FINISH__FINISH_STOP);
    assert_sent(1, ". ");
    down(1); /* that one too: the end is kept for a third router */
    hello(0, 8);
    resume(0, 1, "req_1", "t");
    tails_replay(&worker);
    assert_sent(0, "R A 10 11 12 13 14 . ");
    assert_int_equal(n_cancels, 0);
    until_no_tail();
}

/* RESUMED came too late for a client: its router tells the worker to keep the tail, and another resume finds it. */
static void a_released_tail_waits_for_its_client(void **state)
{
    Baton__Cancel late = BATON__CANCEL__INIT;

    submit(0, 9, "req_1", "t");
    answer(9, 0, 1, BATON__FINISH__FINISH_NONE);
    assert_sent(0, "A 10 ");
    down(0);
    resume(1, 77, "req_1", "t");
    assert_sent(1, "R ");
    late.request = 77;
    late.keeps_tail = true;
    message(1, FRAME_CANCEL, &late.base);
    answer(9, 1, 1, BATON__FINISH__FINISH_NONE);
    tails_replay(&worker);
    assert_sent(1, "");
    assert_int_equal(n_cancels, 0);
    down(1); /* the link is lost for a moment: the tail is no longer this router's */
    hello(1, 6);
    resume(1, 78, "req_1", "t");
    tails_replay(&worker);
    assert_sent(1, "R A 10 11 ");
    late.request = 79; /* not a job here */
    message(1, FRAME_CANCEL, &late.base);
    assert_int_equal(n_tails(), 1);
    down(1);
    until_no_tail();
}

static void a_tail_is_its_owners(void **state)
{
    submit(0, 9, "req_1", "t");
    resume(1, 1, "req_1", "u");
    resume(1, 1, "req_2", "t");
    digest[0]++;
    resume(1, 1, "req_1", "t");
    digest[0]--;
    assert_sent(1, "- - - ");
    submit(1, 4, "req_1", "u"); /* another tenant's request with this id gets no tail, and takes none away */
    assert_false(has_tail);
    resume(1, 1, "req_1", "t");
    assert_sent(1, "R ");
    assert_sent(0, "M ");
}

static void a_client_that_left_leaves_nothing(void **state)
{
    submit(0, 9, "req_1", "t");
    cancel(0, 9, false);
    assert_int_equal(n_tails(), 0);
    assert_int_equal(last_cancel, 9);
    submit(0, 10, "req_2", "t");
    answer(10, 0, 2, BATON__FINISH__FINISH_NONE);
    resume(1, 77, "req_2", "t"); /* a cancel of the new job names the engine thread's task */
    cancel(1, 77, false);
    assert_int_equal(last_cancel, 10);
    assert_int_equal(n_tails(), 0);
}

static void an_answer_that_ended_in_its_text_is_kept(void **state)
{
    submit(0, 9, "req_1", "t");
    answer(9, 0, 2, BATON__FINISH__FINISH_NONE);
    cancel(0, 9, true);
    assert_int_equal(n_cancels, 1);
    down(0);
    resume(1, 3, "req_1", "t");
    tails_replay(&worker);
    assert_sent(1, "R A 10 11 . ");
    until_no_tail();
}

/* The router found the stop in the first token, which it received from the prefill worker before this one did. */
static void an_answer_that_ended_in_its_first_token_is_kept(void **state)
{
    submit(0, 9, "req_1", "t");
    complete(0, 9, 1, 77);
    assert_int_equal(n_cancels, 1);
    submit(0, 10, "req_2", "t");
    answer(10, 0, 2, BATON__FINISH__FINISH_NONE);
    complete(0, 10, 2, 11);
    submit(0, 11, "req_3", "t");
    complete(0, 11, 3, 77); /* two are missing */
    submit(0, 12, "req_4", "t");
    cancel(0, 12, true); /* an older router does not name it */
    assert_int_equal(n_tails(), 2);
    down(0);
    resume(1, 3, "req_1", "t");
    tails_replay(&worker);
    assert_sent(1, "R 77 . ");
    resume(1, 4, "req_2", "t");
    tails_replay(&worker);
    assert_sent(1, "R A 10 11 . ");
    until_no_tail();
}

static void work_ends_with_the_grace(void **state)
{
    submit(0, 9, "req_1", "t");
    down(0);
    assert_int_equal(n_cancels, 0);
    until_no_tail();
    assert_int_equal(n_cancels, 1);
    assert_int_equal(last_cancel, 9);
}

/* A router in the same life has placed the job elsewhere; in a new life its client may return. */
static void a_link_that_comes_back_ends_orphans(void **state)
{
    submit(0, 9, "req_1", "t");
    down(0);
    hello(0, 5);
    assert_int_equal(n_cancels, 1);
    submit(0, 10, "req_2", "t");
    down(0);
    hello(0, 8);
    assert_int_equal(n_cancels, 1);
    assert_int_equal(n_tails(), 1);
}

static void memory_is_bounded_and_shared(void **state)
{
    char id[16];

    conf.tails_bytes = 65536;
    submit(0, 1, "req_small", "small");
    for (unsigned i = 2; i < 300; i++) {
        snprintf(id, sizeof(id), "req_%u", i);
        submit(0, i, id, "large");
        answer(i, 0, 20, BATON__FINISH__FINISH_NONE);
        assert_true(worker.tails->n_bytes <= conf.tails_bytes);
    }
    links[0]->said[0] = '\0';
    resume(1, 1, "req_2", "large");
    assert_sent(1, "- ");
    resume(1, 1, "req_299", "large");
    assert_sent(1, "R ");
    resume(1, 2, "req_small", "small");
    assert_sent(1, "R ");
    down(0); /* answers without a tail end with their router */
    assert_true(n_cancels > 100);
}

/* A dispatch of one router reaches the other at once; the engine's next report takes its place. */
static void a_dispatch_is_reported_to_the_other_router(void **state)
{
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;
    uint64_t until_ns;

    memset(n_beats, 0, sizeof(n_beats));
    submit(0, 1, "req_1", "t");
    submit(0, 2, "req_2", "t");
    ev_loop_run(worker.loop);
    assert_int_equal(n_beats[0], 0);
    assert_int_equal(n_beats[1], 1);
    load.prompt_token_s = 0.5;
    worker_notices_correct(&worker, &load);
    assert_int_equal(load.waiting, 2);
    assert_int_equal(load.queued_prefill_tokens, 4);
    assert_true(load.queued_prefill_s == 2);

    worker.load.notice = 1;
    worker_notices_reported(&worker);
    load = (Baton__LoadReport)BATON__LOAD_REPORT__INIT;
    worker_notices_correct(&worker, &load);
    assert_int_equal(load.waiting, 1);
    assert_int_equal(load.queued_prefill_tokens, 2);

    for (unsigned i = 0; i < 1000; i++) /* bounded */
        submit(1, 10 + i, "req_3", "t");
    load = (Baton__LoadReport)BATON__LOAD_REPORT__INIT;
    worker_notices_correct(&worker, &load);
    assert_int_equal(load.waiting, 256);
    worker.load.notice = UINT64_MAX;
    worker_notices_reported(&worker);
    load = (Baton__LoadReport)BATON__LOAD_REPORT__INIT;
    load.queued_prefill_s = 1e-9; /* computed since */
    load.queued_prefill_tokens = 100;
    until_ns = clock_now_ns() + NS_PER_MS;
    while (clock_now_ns() < until_ns)
        ;
    worker_notices_correct(&worker, &load);
    assert_int_equal(load.waiting, 0);
    assert_int_equal(load.queued_prefill_tokens, 0);
}

/* What has ended since the engine took its figures is not running, whether they count it or not. */
static void an_end_is_reported_before_the_engine_counts_again(void **state)
{
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;

    submit(0, 1, "req_1", "t");
    submit(0, 2, "req_2", "t");
    worker.load.notice = UINT64_MAX;
    worker_notices_reported(&worker); /* counts both */
    submit(0, 3, "req_3", "t");
    submit(0, 4, "req_4", "t");
    answer(3, 0, 1, BATON__FINISH__FINISH_NONE);
    load.running = 2;
    worker_notices_correct(&worker, &load);
    assert_int_equal(load.running, 3);
    assert_int_equal(load.waiting, 1);

    struct report *unknown =
        report_new(REPORT_ANSWERS, 0); /* PROCEED for a task that is gone: no second end */
    *report_answer(unknown, NULL, 0) = (struct task_answer){
        .router_epoch = 5, .request = 99, .finish = BATON__FINISH__FINISH_FAILED, .error = E_NOT_FOUND};
    worker_routers_answers(&worker, unknown);
    report_free(unknown);
    answer(1, 0, 1, BATON__FINISH__FINISH_STOP);
    answer(3, 1, 1, BATON__FINISH__FINISH_STOP);
    load = (Baton__LoadReport)BATON__LOAD_REPORT__INIT;
    load.running = 1;
    load.waiting = 1;
    worker_notices_correct(&worker, &load);
    assert_int_equal(load.running, 0);
    assert_int_equal(load.waiting, 2);

    answer(2, 0, 1, BATON__FINISH__FINISH_STOP);
    load = (Baton__LoadReport)BATON__LOAD_REPORT__INIT;
    load.running = 1;
    load.waiting = 1; /* one of the two was admitted */
    worker_notices_correct(&worker, &load);
    assert_int_equal(load.running, 0);
    assert_int_equal(load.waiting, 1);

    worker_notices_reported(&worker); /* counts the last one alone */
    load = (Baton__LoadReport)BATON__LOAD_REPORT__INIT;
    load.running = 1;
    worker_notices_correct(&worker, &load);
    assert_int_equal(load.running, 1);
    assert_int_equal(load.waiting, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_tail_goes_to_the_router_that_asks, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(an_orphan_goes_on_elsewhere, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(a_released_tail_waits_for_its_client, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(a_tail_is_its_owners, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(a_client_that_left_leaves_nothing, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(an_answer_that_ended_in_its_text_is_kept, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(an_answer_that_ended_in_its_first_token_is_kept, open_worker,
                                        close_worker),
        cmocka_unit_test_setup_teardown(work_ends_with_the_grace, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(a_link_that_comes_back_ends_orphans, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(an_end_is_reported_before_the_engine_counts_again, open_worker,
                                        close_worker),
        cmocka_unit_test_setup_teardown(a_dispatch_is_reported_to_the_other_router, open_worker,
                                        close_worker),
        cmocka_unit_test_setup_teardown(memory_is_bounded_and_shared, open_worker, close_worker),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
