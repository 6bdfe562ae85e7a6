/* SPDX-License-Identifier: Apache-2.0 */
/* Links to routers with the link layer and the engine thread scripted: what passes on, what must not. */
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/log.h"
#include "worker/worker_priv.h"

struct link {
    const struct link_events *events;
    void *arg, *user;
};

static struct worker worker;
static struct worker_conf conf;
static struct link *dialled;
static struct command *last_command;
static uint32_t n_frames, n_answers;
static uint64_t first_request;
static int32_t first_error;

/* ---- what is scripted ---- */

int link_dial(const struct link_opts *opts, const char *address, struct fault *fault, struct link **out)
{
    dialled = calloc(1, sizeof(*dialled));
    dialled->events = opts->events;
    dialled->arg = opts->events_arg;
    *out = dialled;
    return 0;
}

void link_close(struct link *link)
{
    free(link);
}

size_t link_queued_bytes(const struct link *link)
{
    return 7;
}

const char *link_peer_address(const struct link *link)
{
    return "test";
}

int link_send(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    const Baton__Tokens *tokens = (const Baton__Tokens *)message;

    if (type != FRAME_TOKENS)
        return 0;
    n_frames++;
    n_answers = (uint32_t)tokens->n_answers;
    first_request = tokens->answers[0]->request;
    first_error = tokens->answers[0]->error;
    return 0;
}

int worker_engine_send(struct worker_engine *engine, struct command *command)
{
    command_free(last_command);
    last_command = command;
    return 0;
}

uint32_t worker_peer_for(struct worker *self, const Baton__Peer *peer)
{
    return PEER_NONE;
}

/* ---- the tests ---- */

static int hello(uint64_t epoch)
{
    Baton__Hello message = BATON__HELLO__INIT;
    struct fault fault = {0};

    message.role = BATON__ROLE__ROLE_ROUTER;
    message.node = (char *)"r";
    message.epoch = epoch;
    return dialled->events->on_hello(dialled->arg, dialled, &message.base, &fault);
}

static int submit(const uint32_t *tokens, size_t len_bytes, uint32_t n_prompt)
{
    Baton__Submit message = BATON__SUBMIT__INIT;
    uint32_t before = n_frames;

    message.request = 9;
    message.tokens.data = (uint8_t *)tokens;
    message.tokens.len = len_bytes;
    message.n_prompt = n_prompt;
    assert_int_equal(dialled->events->on_message(dialled->arg, dialled, FRAME_SUBMIT, &message.base), 0);
    return n_frames > before ? first_error : 0;
}

static int open_worker(void **state)
{
    static char *addresses[1];
    struct fault fault = {0};

    log_set_level(LOG_LEVEL_ERROR);
    memset(&worker, 0, sizeof(worker));
    addresses[0] = strdup("127.0.0.1:1");
    conf.routers = (struct config_list){.items = addresses, .n = 1};
    worker.conf = &conf;
    worker.router_link_opts.events_arg = &worker;
    n_frames = 0;
    last_command = NULL;
    if (worker_routers_open(&worker, &fault) < 0)
        return -1;
    memset(addresses[0], 'x', strlen(addresses[0])); /* a reload frees what was configured */
    free(addresses[0]);
    return hello(5);
}

static int close_worker(void **state)
{
    worker_routers_close(&worker);
    command_free(last_command);
    return 0;
}

static void addresses_outlive_the_configuration(void **state)
{
    assert_string_equal(worker.routers[0].address, "127.0.0.1:1");
    assert_int_equal(worker_routers_queued_bytes(&worker), 7);
}

static void answers_for_a_former_life_stay_here(void **state)
{
    struct report *report = report_new(REPORT_ANSWERS, 0);
    token_id id = 1;

    report_answer(report, &id, 1)->request = 1;
    report_answer(report, &id, 1)->request = 2;
    report->answers[0].router_epoch = 4; /* asked before the router restarted */
    report->answers[1].router_epoch = 5;
    worker_routers_answers(&worker, report);
    assert_int_equal(n_answers, 1);
    assert_int_equal(first_request, 2);
    report->answers[1].router_epoch = 4;
    worker_routers_answers(&worker, report);
    assert_int_equal(n_frames, 1);
    report_free(report);
}

static void a_new_life_ends_what_the_old_one_asked_for(void **state)
{
    dialled->events->on_up(dialled->arg, dialled);
    assert_non_null(last_command);
    assert_int_equal(last_command->kind, COMMAND_ROUTER_DOWN);
    assert_int_equal(last_command->key.router_epoch, 5);
}

static void a_router_has_an_epoch(void **state)
{
    assert_int_equal(hello(0), E_PROTO); /* 0 names the worker's own requests */
}

static void absurd_submits_are_refused(void **state)
{
    static const uint32_t tokens[3] = {1, 2, 3};

    assert_int_equal(submit(tokens, 0, 0), E_PROTO);
    assert_int_equal(submit(tokens, 11, 2), E_PROTO);
    assert_int_equal(submit(tokens, 12, 4), E_PROTO);
    assert_int_equal(submit(tokens, 12, 3), 0);
    assert_int_equal(last_command->as.submit.n_tokens, 3);
    assert_int_equal(submit(tokens, 12, 2), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_worker, close_worker)
    static const struct CMUnitTest tests[] = {
        T(addresses_outlive_the_configuration),
        T(answers_for_a_former_life_stay_here),
        T(a_new_life_ends_what_the_old_one_asked_for),
        T(a_router_has_an_epoch),
        T(absurd_submits_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
