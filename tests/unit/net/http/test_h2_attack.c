/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile HTTP/2 peers: floods of frames that are cheap for them, and frames that break the rules.  The
 * server disconnects each after a bounded number of frames, with the error of RFC 9113, and answers the next
 * client. Honest clients that look similar stay connected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "echo.h"
#include "h2peer.h"
#include "net/http/h2_budget_priv.h"

#define CALM NGHTTP2_ENHANCE_YOUR_CALM
#define ANY  0xffffffffu /* error: the connection may also just end */

static void add_h2c(struct http_server_opts *opts, void *arg)
{
    opts->has_h2c = true;
}

/* ---- one step of each flood; n counts from 0.  False: the server has closed. ---- */

static bool reset_rapidly(struct h2_peer *peer, int n)
{
    return h2_ask(peer, 2 * n + 1, "GET /hang", true, NULL) &&
           h2_send_u32(peer, NGHTTP2_RST_STREAM, 2 * n + 1, NGHTTP2_CANCEL);
}

static bool make_it_reset(struct h2_peer *peer, int n)
{
    return h2_ask(peer, 2 * n + 1, "GET /hang", true, NULL) &&
           h2_send_u32(peer, NGHTTP2_WINDOW_UPDATE, 2 * n + 1, 0x7fffffff);
}

static bool open_too_many(struct h2_peer *peer, int n)
{
    return h2_ask(peer, 2 * n + 1, "GET /hang", true, NULL);
}

static bool ping(struct h2_peer *peer, int n)
{
    return h2_send(peer, NGHTTP2_PING, 0, 0, bytes_str("12345678"));
}

static bool set(struct h2_peer *peer, int n)
{
    return h2_send_setting(peer, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1000 + (uint32_t)n % 2);
}

static bool prioritise(struct h2_peer *peer, int n)
{
    return h2_send(peer, NGHTTP2_PRIORITY, 0, 3 + 2 * (n % 50), bytes_of("\0\0\0\0\x10", 5));
}

static bool send_nothing(struct h2_peer *peer, int n)
{
    return (n > 0 || h2_ask(peer, 1, "POST /echo", false, NULL)) &&
           h2_send(peer, NGHTTP2_DATA, 0, 1, bytes_of(NULL, 0));
}

static bool open_windows(struct h2_peer *peer, int n)
{
    return h2_send_u32(peer, NGHTTP2_WINDOW_UPDATE, 0, 1);
}

static bool continue_for_ever(struct h2_peer *peer, int n)
{
    return n == 0 ? h2_send(peer, NGHTTP2_HEADERS, 0, 1, bytes_of("\x83\x86", 2))
                  : h2_send(peer, NGHTTP2_CONTINUATION, 0, 1, bytes_of("\0\1a\1b", 5));
}

/* One entry of 4000 bytes in the dynamic table, then many references of one byte each. */
static bool inflate_headers(struct h2_peer *peer, int n)
{
    static char value[4000];
    struct buf block = {0};
    const char *const pairs[] = {":method", "GET", ":path", "/", ":scheme", "http", ":authority", "a", NULL};
    bool is_sent;

    memset(value, 'v', sizeof(value));
    h2_put_block(&block, pairs);
    if (n == 0) {
        buf_append(&block, "\x40\1x\x7f", 4);
        buf_append_byte(&block, (uint8_t)((4000 - 127) % 128 + 128));
        buf_append_byte(&block, (uint8_t)((4000 - 127) / 128));
        buf_append(&block, value, sizeof(value));
    }
    for (int i = 0; i < 8000; i++)
        buf_append_byte(&block, 0xbe);
    is_sent = h2_send(peer, NGHTTP2_HEADERS, 5, 2 * n + 1, buf_view(&block));
    buf_fini(&block);
    return is_sent;
}

/* ---- one frame that breaks a rule ---- */

static bool send_large(struct h2_peer *peer, int n)
{
    static char block[16385];

    return h2_send(peer, NGHTTP2_DATA, 0, 1, bytes_of(block, sizeof(block)));
}

static bool send_data_nowhere(struct h2_peer *peer, int n)
{
    return h2_send(peer, NGHTTP2_DATA, 0, 0, bytes_str("abc"));
}

static bool open_even(struct h2_peer *peer, int n)
{
    return h2_ask(peer, 2, "GET /echo", true, NULL);
}

static bool overflow_window(struct h2_peer *peer, int n)
{
    return h2_send_u32(peer, NGHTTP2_WINDOW_UPDATE, 0, 0x7fffffff);
}

static bool set_badly(struct h2_peer *peer, int n)
{
    return h2_send_setting(peer, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0x80000000u);
}

static bool push(struct h2_peer *peer, int n)
{
    return h2_send(peer, NGHTTP2_PUSH_PROMISE, 4, 1, bytes_of("\0\0\0\2\x82", 5));
}

static bool garble_headers(struct h2_peer *peer, int n)
{
    return h2_send(peer, NGHTTP2_HEADERS, 5, 1, bytes_of("\xff\xff\xff\xff\xff\xff", 6));
}

static bool interleave(struct h2_peer *peer, int n)
{
    return h2_send(peer, NGHTTP2_HEADERS, 0, 1, bytes_of("\x83\x86", 2)) &&
           h2_send(peer, NGHTTP2_PING, 0, 0, bytes_str("12345678"));
}

static bool talk_http1(struct h2_peer *peer, int n)
{
    return raw_send_str(peer->fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
}

static const struct attack {
    const char *name;
    bool (*step)(struct h2_peer *peer, int n);
    int max_steps; /* it must have ended by then */
    uint32_t error;
} attacks[] = {
    {"streams opened and reset (CVE-2023-44487)", reset_rapidly, 2000, CALM},
    {"streams that the server is made to reset", make_it_reset, 2000, CALM},
    {"streams beyond the limit", open_too_many, 2000, CALM},
    {"PING", ping, 4000, CALM},
    {"SETTINGS", set, 4000, CALM},
    {"PRIORITY", prioritise, 4000, CALM},
    {"empty DATA", send_nothing, 4000, CALM},
    {"WINDOW_UPDATE of one byte", open_windows, 4000, CALM},
    {"CONTINUATION without end (CVE-2024-28182)", continue_for_ever, 1000, ANY},
    {"compressed header bomb", inflate_headers, 50, CALM},
    {"a frame over the size limit", send_large, 1, NGHTTP2_FRAME_SIZE_ERROR},
    {"DATA on stream 0", send_data_nowhere, 1, NGHTTP2_PROTOCOL_ERROR},
    {"a stream of even number", open_even, 1, NGHTTP2_PROTOCOL_ERROR},
    {"a window over 2^31", overflow_window, 1, NGHTTP2_FLOW_CONTROL_ERROR},
    {"an impossible setting", set_badly, 1, NGHTTP2_FLOW_CONTROL_ERROR},
    {"PUSH_PROMISE from a client", push, 1, NGHTTP2_PROTOCOL_ERROR},
    {"a header block that is none", garble_headers, 1, NGHTTP2_COMPRESSION_ERROR},
    {"another frame inside a header block", interleave, 1, NGHTTP2_PROTOCOL_ERROR},
    {"HTTP/1.1 in the middle", talk_http1, 1, NGHTTP2_FRAME_SIZE_ERROR},
};

/* Sends until the server disconnects.  Returns the number of steps, or -1. */
static int run_attack(struct h2_peer *peer, const struct attack *attack, struct h2_frame *goaway)
{
    bool is_over = false;
    int n;

    memset(goaway, 0, sizeof(*goaway));
    for (n = 0; n < attack->max_steps && !is_over; n++) {
        is_over = !attack->step(peer, n);
        while (!is_over && n % 8 == 7 && h2_next(peer, 1, goaway))
            is_over = goaway->type == NGHTTP2_GOAWAY;
    }
    while (goaway->type != NGHTTP2_GOAWAY && h2_next(peer, 3000, goaway))
        ;
    return n;
}

static void attackers_are_sent_away(void **state)
{
    /* Without lingering, a reset would lose data that the peer has not read, GOAWAY included. */
    const struct http_limits limits = {.linger_ns = 2 * NS_PER_S};

    for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
        struct h2_frame frame;
        struct h2_peer peer;
        struct rig rig;
        uint64_t began = clock_now_ns();
        int n;

        rig_begin_with(&rig, &limits, add_h2c, NULL);
        h2_peer_open(&peer, rig.port);
        n = run_attack(&peer, &attacks[i], &frame);
        print_message("%-45s over after %4d steps, %3.0f ms: %s\n", attacks[i].name, n,
                      (double)(clock_now_ns() - began) / 1e6,
                      frame.type == NGHTTP2_GOAWAY ? nghttp2_http2_strerror(h2_error_of(&frame)) : "closed");
        if (attacks[i].error != ANY) {
            assert_int_equal(frame.type, NGHTTP2_GOAWAY);
            assert_int_equal(h2_error_of(&frame), attacks[i].error);
        }
        while (h2_next(&peer, 3000, &frame))
            ;
        h2_peer_close(&peer);
        assert_true(conns_become(&rig, 0));
        assert_int_equal(raw_ask(rig.port, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", NULL), 200);
        rig_end(&rig);
    }
}

static void honest_clients_are_not(void **state)
{
    struct h2_frame frame;
    struct h2_peer peer;
    struct rig rig;
    int32_t id = 1;

    rig_begin_with(&rig, NULL, add_h2c, NULL);
    h2_peer_open(&peer, rig.port);
    /* A full connection, and all streams cancelled at once. */
    for (int i = 0; i < 100; i++, id += 2)
        h2_ask(&peer, id, "GET /hang", true, NULL);
    assert_true(reaches(&rig.n_requests, 100));
    for (int32_t at = 1; at < id; at += 2)
        h2_send_u32(&peer, NGHTTP2_RST_STREAM, at, NGHTTP2_CANCEL);
    assert_true(reaches(&rig.n_aborts, 100));
    /* 1,000 requests with their windows, a ping for every tenth. */
    for (int i = 0; i < 1000; i++, id += 2) {
        h2_ask(&peer, id, "GET /stream", true, NULL);
        if (i % 10 == 0)
            ping(&peer, 0);
        if (h2_answer(&peer, id, NULL) != 200)
            fail_msg("request %d", i);
        h2_send_u32(&peer, NGHTTP2_WINDOW_UPDATE, 0, 60);
    }
    while (h2_next(&peer, 50, &frame))
        assert_int_not_equal(frame.type, NGHTTP2_GOAWAY);
    h2_peer_close(&peer);
    assert_true(conns_become(&rig, 0));
    rig_end(&rig);
}

static void the_budget_fills_with_time_and_work(void **state)
{
    struct h2_budget budget;
    uint64_t now = NS_PER_S;

    h2_budget_init(&budget, now);
    for (int i = 0; i < H2_BUDGET_TOKENS / H2_COST_RESET; i++)
        assert_true(h2_budget_take(&budget, now, H2_COST_RESET));
    assert_false(h2_budget_take(&budget, now, H2_COST_FRAME));
    now += NS_PER_S / H2_BUDGET_TOKENS_PER_S;
    assert_true(h2_budget_take(&budget, now, H2_COST_FRAME));
    assert_false(h2_budget_take(&budget, now, H2_COST_FRAME));
    h2_budget_give(&budget, 2);
    assert_true(h2_budget_take(&budget, now, 2));
    now += 3600 * NS_PER_S;
    assert_true(h2_budget_take(&budget, now, H2_BUDGET_TOKENS)); /* no more than full */
    assert_false(h2_budget_take(&budget, now, 1));
    for (int i = 0; i < 16; i++)
        assert_true(h2_budget_take_window_update(&budget, now));
    assert_false(h2_budget_take_window_update(&budget, now));
    h2_budget_sent_data(&budget);
    assert_true(h2_budget_take_window_update(&budget, now));
    assert_true(h2_budget_take_window_update(&budget, now));
    assert_false(h2_budget_take_window_update(&budget, now));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attackers_are_sent_away),
        cmocka_unit_test(honest_clients_are_not),
        cmocka_unit_test(the_budget_fills_with_time_and_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
