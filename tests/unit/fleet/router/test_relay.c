/* SPDX-License-Identifier: Apache-2.0 */
/* Router messages through workers: which workers get them, and that a message counts once however often it comes. */
#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "fleet/router/margins_priv.h"
#include "fleet/router/router_message_priv.h"
#include "fleet/router/relay_priv.h"
#include "rig.h"

#define N_WORKERS 6

static struct rig rig;
static struct link *workers[N_WORKERS];
static unsigned n_sent[N_WORKERS];
static uint64_t last_number;

static void on_send(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    for (unsigned i = 0; i < N_WORKERS && type == FRAME_ROUTER_MESSAGE; i++)
        n_sent[i] += workers[i] == link;
    if (type == FRAME_ROUTER_MESSAGE)
        last_number = ((const Baton__RouterMessage *)message)->number;
}

static void report_routers(unsigned i, uint32_t n_routers)
{
    Baton__LoadReport load = BATON__LOAD_REPORT__INIT;

    load.blocks_free = load.blocks_total = 100;
    load.n_routers = n_routers;
    rig_beat(&rig, workers[i], &load);
}

static int open_relay(void **state)
{
    struct fault fault = {0};
    char node[8];

    if (rig_open(&rig) < 0 || router_relay_open(&rig.router, &fault) < 0)
        return -1;
    rig.router.epoch = 77;
    rig.capabilities = capabilities_own();
    memset(n_sent, 0, sizeof(n_sent));
    for (unsigned i = 0; i < N_WORKERS; i++) {
        snprintf(node, sizeof(node), "d%u", i);
        workers[i] = rig_worker(&rig, node, PICKER_DECODE, i + 1, 100);
    }
    rig_on_send = on_send;
    return 0;
}

static int close_relay(void **state)
{
    rig_on_send = NULL;
    router_relay_close(&rig.router);
    rig_close(&rig);
    return 0;
}

static double n_received(const char *series)
{
    struct buf text = {0};
    const char *at;
    double n;

    metrics_render(rig.router.metrics, &text);
    buf_append_byte(&text, '\0');
    at = strstr((const char *)text.data, series);
    assert_non_null(at);
    n = strtod(at + strlen(series), NULL);
    buf_fini(&text);
    return n;
}

static void receive(uint64_t epoch, uint64_t number)
{
    struct buf text = {0};
    Baton__RouterMessage received = BATON__ROUTER_MESSAGE__INIT;

    router_message_begin(&text, epoch, "other");
    router_message_put(&text, ROUTER_MESSAGE_FORGET, bytes_str("t"));
    received.text = (ProtobufCBinaryData){.data = text.data, .len = text.len_bytes};
    received.number = number;
    router_relay_receive(&rig.router, &received);
    buf_fini(&text);
}

static void four_workers_get_each_message(void **state)
{
    unsigned n = 0;

    for (unsigned k = 1; k <= 3; k++) {
        router_relay_send(&rig.router, bytes_str("news"));
        assert_int_equal(last_number, k);
    }
    for (unsigned i = 0; i < N_WORKERS; i++) {
        assert_true(n_sent[i] == 0 || n_sent[i] == 3); /* the same four each time */
        n += n_sent[i] == 3;
    }
    assert_int_equal(n, 4);
}

static void there_are_others_where_a_worker_says_so(void **state)
{
    assert_false(router_relay_has_others(&rig.router));
    report_routers(2, 1);
    assert_false(router_relay_has_others(&rig.router));
    report_routers(2, 2);
    assert_true(router_relay_has_others(&rig.router));
    rig_lose(&rig, workers[2]);
    workers[2] = NULL;
    assert_false(router_relay_has_others(&rig.router));
}

static void a_message_counts_once(void **state)
{
    static const uint64_t numbers[] = {5, 5, 3, 5, 4, 3, 80, 5, 17, 17, 79, 80};
    static const unsigned received[] = {1, 1, 2, 2, 3, 3,
                                        4, 4, 5, 5, 6, 6}; /* 5: too old to know, beside 80 */

    for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        receive(9, numbers[i]);
        assert_int_equal(n_received("baton_relay_messages_total{direction=\"in\"} "), received[i]);
    }
    receive(10, 5); /* another router's */
    assert_int_equal(n_received("baton_relay_messages_total{direction=\"in\"} "), 7);
    receive(77, 6); /* this router's own */
    assert_int_equal(n_received("baton_relay_messages_total{direction=\"in\"} "), 7);
}

static void garbage_and_floods_are_ignored(void **state)
{
    Baton__RouterMessage received = BATON__ROUTER_MESSAGE__INIT;

    received.text = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t) "garbage", .len = 7};
    received.number = 1;
    router_relay_receive(&rig.router, &received);
    assert_int_equal(n_received("baton_relay_messages_total{direction=\"in\"} "), 0);
    for (uint64_t number = 1; number <= 20000; number++)
        receive(9, number);
    assert_true(n_received("\nbaton_relay_ignored_total ") > 0);
    assert_true(n_received("baton_relay_messages_total{direction=\"in\"} ") >= 1024);
}

/* A router's margins go half of the way and more to those of another one, and no further. */
static void margins_of_two_routers_meet(void **state)
{
    struct router_model *model = &rig.router.models[0];
    struct buf section = {0}, moves = {0};

    margins_pack(&rig.router, &section, &moves);
    assert_int_equal(section.len_bytes + moves.len_bytes, 0); /* it has learned nothing */
    model->late = (struct picker_lateness){.share = 0.6, .n_seen = 1};
    model->itl_late = (struct picker_lateness){.share = -0.2, .least = PICKER_ITL_LEAST, .n_seen = 1};
    margins_pack(&rig.router, &section, &moves);
    assert_int_equal(section.len_bytes, MARGINS_ROW_BYTES);
    model->late.share = 0.2;
    model->itl_late.share = 0.2;
    for (unsigned i = 0; i < 3; i++)
        margins_receive(&rig.router, buf_view(&section));
    assert_true(model->late.share > 0.4 && model->late.share < 0.6);
    assert_true(model->itl_late.share < 0 && model->itl_late.share > -0.2);
    section.len_bytes = 0;
    margins_pack(&rig.router, &section, &moves);
    assert_int_equal(section.len_bytes, 0); /* margins of others are not passed on */
    buf_fini(&section);
    buf_fini(&moves);
}

/* What one router learns moves the margins of all of them as far, once. */
static void samples_of_one_router_move_the_others(void **state)
{
    struct router_model *model = &rig.router.models[0];
    struct buf section = {0}, moves = {0};

    model->late = (struct picker_lateness){0};
    for (unsigned i = 0; i < 3; i++)
        picker_lateness_learn(&model->late, 0.1, 2, 1);
    margins_pack(&rig.router, &section, &moves);
    assert_int_equal(moves.len_bytes, MARGINS_ROW_BYTES);
    model->late = (struct picker_lateness){.share = 0.2};
    margins_receive_moves(&rig.router, buf_view(&moves));
    assert_float_equal(model->late.share, 0.2 + 3 * 0.05 * 0.98, 1e-4);
    moves.len_bytes = 0;
    model->late.n_seen = 1;
    margins_pack(&rig.router, &section, &moves);
    assert_int_equal(get_u32(moves.data + 8), 1000000); /* moves of others are not passed on */
    put_u32(moves.data + 8, UINT32_MAX);
    put_u32(moves.data + 12, 0);
    margins_receive_moves(&rig.router, buf_view(&moves));
    assert_float_equal(model->late.share, 0.2 + 3 * 0.05 * 0.98, 1e-4); /* no router moves so far */
    put_u32(moves.data + 8, 2000000);
    margins_receive_moves(&rig.router, buf_view(&moves));
    assert_float_equal(model->late.share, 0.75, 1e-9); /* within the bounds of any margin */
    assert_float_equal(model->itl_late.share, PICKER_ITL_LEAST, 1e-9);
    buf_fini(&section);
    buf_fini(&moves);
}

/* What a router learned while it reached no other one moves none afterwards: each of them learned the same. */
static void moves_of_an_outage_are_forgotten(void **state)
{
    struct router_model *model = &rig.router.models[0];
    struct buf section = {0}, moves = {0};

    model->late = (struct picker_lateness){0};
    picker_lateness_learn(&model->late, 0.1, 2, 1);
    margins_skip(&rig.router);
    margins_pack(&rig.router, &section, &moves);
    assert_int_equal(get_u32(moves.data + 8), 1000000);
    assert_true(get_u32(section.data + 8) > 1000000); /* the margin itself is told */
    buf_fini(&section);
    buf_fini(&moves);
}

static void margins_that_cannot_be_are_ignored(void **state)
{
    static const uint32_t hostile[] = {0, 499999, 1750001, UINT32_MAX};
    struct router_model *model = &rig.router.models[0];
    struct buf section = {0}, moves = {0};

    model->late = (struct picker_lateness){.share = 0.3, .n_seen = 1};
    margins_pack(&rig.router, &section, &moves);
    for (unsigned i = 0; i < ARRAY_LEN(hostile); i++) {
        put_u32(section.data + 8, hostile[i]);
        put_u32(section.data + 12, hostile[i]);
        margins_receive(&rig.router, buf_view(&section));
    }
    put_u64(section.data, 1); /* of a model that is not served here */
    put_u32(section.data + 8, 1700000);
    margins_receive(&rig.router, buf_view(&section));
    margins_receive(&rig.router, bytes_of(section.data, section.len_bytes - 1));
    assert_true(model->late.share > 0.299 && model->late.share < 0.301);
    assert_true(model->itl_late.share == 0);
    buf_fini(&section);
    buf_fini(&moves);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_relay, close_relay)
    static const struct CMUnitTest tests[] = {T(four_workers_get_each_message),
                                              T(there_are_others_where_a_worker_says_so),
                                              T(a_message_counts_once),
                                              T(garbage_and_floods_are_ignored),
                                              T(margins_of_two_routers_meet),
                                              T(moves_of_an_outage_are_forgotten),
                                              T(margins_that_cannot_be_are_ignored),
                                              T(samples_of_one_router_move_the_others)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
