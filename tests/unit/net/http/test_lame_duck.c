/* SPDX-License-Identifier: Apache-2.0 */
/* A server before its stop: it serves requests, and closes each connection after the answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "echo.h"
#include "h2peer.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

static void lame_duck(void *arg)
{
    http_server_set_lame_duck(((struct rig *)arg)->server, true);
}

static void serve_again(void *arg)
{
    http_server_set_lame_duck(((struct rig *)arg)->server, false);
}

static void a_lame_duck_serves_and_says_so(void **state)
{
    struct buf in = {0};
    struct rig rig;
    int old, fresh;

    rig_begin(&rig, NULL);
    old = raw_connect(rig.port);
    raw_send_str(old, GET("/echo"));
    assert_int_equal(raw_read_answer(old, &in, NULL), 200);
    assert_false(raw_holds(&in, "connection: close"));
    raw_loop_call(&rig.raw, lame_duck, &rig);
    assert_false(raw_is_closed(old, 50)); /* the client may be about to use it */
    for (int i = 0; i < 2; i++) {
        fresh = i == 0 ? old : raw_connect(rig.port);
        raw_send_str(fresh, GET("/late"));
        buf_clear(&in);
        assert_int_equal(raw_read_answer(fresh, &in, NULL), 200);
        assert_true(raw_holds(&in, "connection: close"));
        assert_true(raw_is_closed(fresh, 500));
        close(fresh);
    }
    raw_loop_call(&rig.raw, serve_again, &rig);
    fresh = raw_connect(rig.port);
    raw_send_str(fresh, GET("/echo"));
    buf_clear(&in);
    assert_int_equal(raw_read_answer(fresh, &in, NULL), 200);
    assert_false(raw_holds(&in, "connection: close"));
    close(fresh);
    assert_true(conns_become(&rig, 0));
    buf_fini(&in);
    rig_end(&rig);
}

static void with_h2c(struct http_server_opts *opts, void *arg)
{
    opts->has_h2c = true;
}

static void http2_hears_of_it_and_is_served(void **state)
{
    struct h2_peer idle, busy, fresh;
    struct h2_frame frame;
    struct rig rig;

    rig_begin_with(&rig, NULL, with_h2c, NULL);
    h2_peer_open(&idle, rig.port);
    h2_ask(&idle, 1, "GET /echo", true, NULL);
    assert_int_equal(h2_answer(&idle, 1, NULL), 200);
    h2_peer_open(&busy, rig.port);
    h2_ask(&busy, 1, "GET /hang", true, NULL); /* keeps the connection open for the next requests */
    assert_true(reaches(&rig.n_requests, 2));
    raw_loop_call(&rig.raw, lame_duck, &rig);
    h2_ask(&busy, 3, "GET /echo", true, NULL); /* it was on its way when lame duck began */
    assert_int_equal(h2_answer(&busy, 3, NULL), 200);
    assert_true(h2_await(&idle, NGHTTP2_GOAWAY, 0, NULL, &frame));
    assert_int_equal(h2_error_of(&frame), NGHTTP2_NO_ERROR);
    h2_peer_open(&fresh, rig.port);
    h2_ask(&fresh, 1, "GET /echo", true, NULL);
    assert_int_equal(h2_answer(&fresh, 1, NULL), 200);
    h2_peer_close(&idle);
    h2_peer_close(&busy);
    h2_peer_close(&fresh);
    assert_true(conns_become(&rig, 0));
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lame_duck_serves_and_says_so),
        cmocka_unit_test(http2_hears_of_it_and_is_served),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
