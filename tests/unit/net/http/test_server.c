/* SPDX-License-Identifier: Apache-2.0 */
/* The server over real sockets: framing, keep-alive,
 * pipelining, limits, deadlines, aborts, drain. Readers that are slow: test_slow_readers.c. */
#include "net/http/server.h"

#include <signal.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/http/response.h"
#include "echo.h"
#include "raw.h"

#define GET(path)     "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"
#define POST(path, n) "POST " path " HTTP/1.1\r\nHost: a\r\nContent-Length: " n "\r\n\r\n"

/* Sends text in pieces of piece bytes.  Expects the statuses, then that the connection stays open or not. */
static void converse(struct rig *rig, const char *text, size_t piece, const int *statuses, bool stays_open)
{
    struct buf in = {0};
    int fd = raw_connect(rig->port);
    size_t len = strlen(text);

    for (size_t at = 0; at < len; at += piece)
        if (!raw_send(fd, text + at, at + piece > len ? len - at : piece))
            break;
    for (; *statuses != 0; statuses++) {
        struct buf body = {0};
        struct http_head head;
        size_t end;

        assert_int_equal(raw_read_answer(fd, &in, &body), *statuses);
        assert_int_equal(http_parse_response(buf_view(&in), false, &head), 1);
        end = head.framing == HTTP_BODY_CHUNKED ? bytes_find(buf_view(&in), bytes_str("\r\n0\r\n\r\n"), 0) + 7
                                                : head.len_bytes + (size_t)head.content_length;
        buf_consume(&in, end);
        buf_fini(&body);
    }
    assert_int_equal(in.len_bytes, 0);
    assert_int_equal(raw_is_closed(fd, stays_open ? 30 : 1000), !stays_open);
    close(fd);
    buf_fini(&in);
}

static void requests_and_answers_stay_in_step(void **state)
{
    static const struct {
        const char *text;
        int statuses[5];
        bool stays_open;
    } talks[] = {
        {GET("/echo"), {200}, true},
        {POST("/echo", "3") "abc", {200}, true},
        {POST("/echo", "3") "abc" GET("/x") GET("/stream") POST("/late", "2") "xx",
         {200, 404, 200, 200},
         true},
        {"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\n\r\n" GET(
             "/x"),
         {200, 404},
         true},
        {"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" GET("/echo"), {200}, false},
        {"GET /echo HTTP/1.0\r\n\r\n", {200}, false},
        {"GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", {200}, true},
        /* answered from the head: a small body is skipped, a large one ends the connection */
        {POST("/no", "3") "abc" GET("/x"), {401, 404}, true},
        {POST("/no", "3000000") "abc", {401}, false},
        {"POST /no HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", {401}, false},
        /* framing errors end the connection, also after good requests */
        {GET("/x") "GET / HTTP/1.1\r\n\r\n" GET("/x"), {404, 400}, false},
        {"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
         {400},
         false},
        {"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n", {400}, false},
        {POST("/echo", "99999999"), {413}, false},
        {"GET / HTTP/2.0\r\n\r\n", {505}, false},
    };
    struct rig rig;

    rig_begin(&rig, NULL);
    for (size_t i = 0; i < sizeof(talks) / sizeof(talks[0]); i++) {
        converse(&rig, talks[i].text, 100000, talks[i].statuses, talks[i].stays_open);
        if (strlen(talks[i].text) < 80)
            converse(&rig, talks[i].text, 1, talks[i].statuses, talks[i].stays_open);
    }
    assert_true(conns_become(&rig, 0));
    rig_end(&rig);
}

static void head_gets_no_body(void **state)
{
    struct buf in = {0};
    struct rig rig;
    int fd;

    rig_begin(&rig, NULL);
    fd = raw_connect(rig.port);
    raw_send_str(fd, "HEAD /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcHEAD /stream "
                     "HTTP/1.1\r\nHost: a\r\n\r\n" GET("/x"));
    assert_true(raw_read_until(fd, "what?", 2000, &in));
    assert_true(raw_holds(&in, "content-length: 3\r\n\r\nHTTP/1.1 200"));
    assert_false(raw_holds(&in, "piece"));
    close(fd);
    buf_fini(&in);
    rig_end(&rig);
}

static void continue_comes_only_when_the_head_is_accepted(void **state)
{
    struct buf in = {0};
    struct rig rig;
    int fd;

    rig_begin(&rig, NULL);
    fd = raw_connect(rig.port);
    raw_send_str(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_true(raw_read_until(fd, "HTTP/1.1 100 Continue\r\n\r\n", 2000, &in));
    raw_send_str(fd, "abc");
    assert_true(raw_read_until(fd, "\r\n\r\nabc", 2000, &in));
    close(fd);

    buf_clear(&in);
    fd = raw_connect(rig.port);
    raw_send_str(fd, "POST /no HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_true(raw_read_until(fd, NULL, 2000, &in));
    assert_false(raw_holds(&in, "100 Continue"));
    assert_true(raw_holds(&in, "401"));
    assert_true(raw_holds(&in, "connection: close"));
    close(fd);

    buf_clear(&in);
    fd = raw_connect(rig.port);
    raw_send_str(
        fd, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n");
    assert_int_equal(raw_read_answer(fd, &in, NULL), 413);
    close(fd);
    buf_fini(&in);
    rig_end(&rig);
}

static void an_upload_over_the_limit_can_read_its_413(void **state)
{
    struct http_limits limits = {.max_body_bytes = 1 << 20};
    static char block[65536];
    struct buf in = {0};
    struct rig rig;

    rig_begin(&rig, &limits);
    for (int is_chunked = 0; is_chunked < 2; is_chunked++) {
        int fd = raw_connect(rig.port);

        raw_send_str(fd, is_chunked ? "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                                    : "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 16777216\r\n\r\n");
        for (int i = 0; i < 256; i++) { /* 16 MiB, all sent before reading */
            if (is_chunked)
                assert_true(raw_send_str(fd, "10000\r\n"));
            assert_true(raw_send(fd, block, sizeof(block)));
            if (is_chunked)
                assert_true(raw_send_str(fd, "\r\n"));
        }
        buf_clear(&in);
        assert_true(raw_read_until(fd, NULL, 3000, &in));
        assert_true(raw_holds(&in, "HTTP/1.1 413"));
        close(fd);
    }
    buf_fini(&in);
    rig_end(&rig);
}

static void a_client_that_leaves_is_noticed_at_once(void **state)
{
    struct linger reset = {1, 0};
    struct rig rig;
    int fd;

    rig_begin(&rig, NULL);
    for (int way = 0; way < 3; way++) {
        fd = raw_connect(rig.port);
        raw_send_str(fd, GET("/hang"));
        assert_true(reaches(&rig.n_requests, way + 1));
        if (way == 0)
            shutdown(fd, SHUT_WR); /* half a close counts as a close */
        if (way == 2)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        if (way > 0)
            close(fd);
        assert_true(reaches(&rig.n_aborts, way + 1));
        assert_int_equal(rig.abort_why, HTTP_ABORT_CLIENT);
        if (way == 0)
            close(fd);
    }
    /* Also with a pipelined request after it. */
    fd = raw_connect(rig.port);
    raw_send_str(fd, GET("/hang") GET("/echo"));
    assert_true(reaches(&rig.n_requests, 4));
    close(fd);
    assert_true(reaches(&rig.n_aborts, 4));
    assert_int_equal(rig.n_requests, 4);
    /* And in the middle of a body. */
    fd = raw_connect(rig.port);
    raw_send_str(fd, POST("/echo", "10") "abc");
    clock_sleep_ns(20 * NS_PER_MS);
    close(fd);
    assert_true(reaches(&rig.n_aborts, 5));
    assert_true(conns_become(&rig, 0));
    rig_end(&rig);
}

static void an_answer_survives_half_a_close_behind_it(void **state)
{
    struct buf in = {0};
    struct rig rig;
    int fd;

    rig_begin(&rig, NULL);
    fd = raw_connect(rig.port);
    raw_send_str(fd, GET("/big") GET("/echo"));
    shutdown(fd, SHUT_WR);
    assert_true(raw_read_until(fd, NULL, 5000, &in));
    assert_true(in.len_bytes > 4 << 20);
    close(fd);
    buf_fini(&in);
    assert_true(conns_become(&rig, 0));
    rig_end(&rig);
}

static void slow_heads_and_bodies_meet_a_deadline(void **state)
{
    struct http_limits limits = {.head_ns = 150 * NS_PER_MS,
                                 .body_ns = 150 * NS_PER_MS,
                                 .idle_ns = 150 * NS_PER_MS,
                                 .linger_ns = 50 * NS_PER_MS};
    static const char *const slow[] = {
        "GET / HTTP/1.1\r\n", POST("/echo", "1000"),
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;"};
    struct rig rig;

    rig_begin(&rig, &limits);
    for (size_t i = 0; i < 3; i++) {
        struct buf in = {0};
        int fd = raw_connect(rig.port);
        uint64_t began = clock_now_ns();

        raw_send_str(fd, slow[i]);
        /* A byte every 20 ms does not extend the time. */
        while (!raw_read_until(fd, "408 Request Timeout", 20, &in) && clock_now_ns() - began < 10 * NS_PER_S)
            raw_send_str(fd, "a");
        assert_true(raw_holds(&in, "408 Request Timeout"));
        close(fd);
        buf_fini(&in);
    }
    /* Silence: before the first request and after one. */
    for (int n = 0; n < 2; n++) {
        struct buf in = {0};
        int fd = raw_connect(rig.port);

        if (n == 1) {
            raw_send_str(fd, GET("/echo"));
            assert_int_equal(raw_read_answer(fd, &in, NULL), 200);
        }
        assert_true(raw_is_closed(fd, 1000));
        close(fd);
        buf_fini(&in);
    }
    assert_true(conns_become(&rig, 0));
    rig_end(&rig);
}

static void large_bodies_have_more_time(void **state)
{
    struct http_limits limits = {.body_ns = 100 * NS_PER_MS, .body_ns_per_mib = 100 * NS_PER_MS};
    struct buf in = {0};
    struct rig rig;
    uint64_t began;
    int fd;

    rig_begin(&rig, &limits);
    fd = raw_connect(rig.port);
    began = clock_now_ns();
    raw_send_str(fd, POST("/echo", "8388608") "abc"); /* 8 MiB: 900 ms */
    assert_int_equal(raw_read_answer(fd, &in, NULL), 408);
    assert_true(clock_now_ns() - began >= 880 * NS_PER_MS);
    close(fd);
    buf_fini(&in);
    rig_end(&rig);
}

/* Builds a body of n bytes, with another request right after it.  Each byte encodes its place. */
static void put_long_request(struct buf *out, size_t n)
{
    buf_printf(out, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", n);
    for (size_t i = 0; i < n; i++)
        buf_append_byte(out, (uint8_t)('a' + (i ^ i >> 8 ^ i >> 16) % 26));
    buf_append_str(out, POST("/echo", "6") "behind");
}

/* Bodies that arrive faster than the input buffer takes them bypass it. */
static void long_bodies_come_whole_and_end_where_they_should(void **state)
{
    static const size_t sizes[] = {8191, 100001, 3000017};
    static const size_t pieces[] = {70001, SIZE_MAX};
    struct rig rig;

    rig_begin(&rig, NULL);
    for (size_t k = 0; k < 2 * (sizeof(sizes) / sizeof(sizes[0])); k++) {
        size_t n = sizes[k / 2], piece = pieces[k % 2];
        struct buf request = {0}, in = {0}, body = {0};
        int fd = raw_connect(rig.port);

        put_long_request(&request, n);
        for (size_t at = 0; at < request.len_bytes; at += piece) {
            size_t left = request.len_bytes - at;

            assert_true(raw_send(fd, request.data + at, left < piece ? left : piece));
            if (left <= piece)
                break;
            clock_sleep_ns(NS_PER_MS);
        }
        assert_int_equal(raw_read_answer(fd, &in, &body), 200);
        assert_int_equal(body.len_bytes, n);
        assert_memory_equal(body.data,
                            request.data + bytes_find(buf_view(&request), bytes_str("\r\n\r\n"), 0) + 4, n);
        assert_true(raw_read_until(fd, "\r\n\r\nbehind", 2000, &in));
        close(fd);
        buf_fini(&body);
        buf_fini(&in);
        buf_fini(&request);
    }
    assert_int_equal(rig.n_requests, 4 * (sizeof(sizes) / sizeof(sizes[0])));
    rig_end(&rig);
}

static void a_long_body_that_ends_early_is_no_request(void **state)
{
    struct buf request = {0};
    struct rig rig;

    rig_begin(&rig, NULL);
    put_long_request(&request, 3000017);
    for (size_t n = 500000; n < request.len_bytes; n += 1000000) {
        int fd = raw_connect(rig.port);

        assert_true(raw_send(fd, request.data, n));
        shutdown(fd, SHUT_WR);
        assert_true(raw_is_closed(fd, 2000));
        close(fd);
    }
    assert_true(conns_become(&rig, 0));
    assert_int_equal(rig.n_requests, 0);
    buf_fini(&request);
    rig_end(&rig);
}

static void connections_are_limited(void **state)
{
    struct http_limits limits = {.max_conns = 6, .max_conns_per_address = 4};
    struct buf in = {0};
    struct rig rig;
    int fds[4];
    int fd;

    rig_begin(&rig, &limits);
    for (int i = 0; i < 4; i++) { /* none is a stranger */
        fds[i] = raw_connect(rig.port);
        raw_send_str(fds[i], GET("/echo"));
        assert_int_equal(raw_read_answer(fds[i], &in, NULL), 200);
        buf_clear(&in);
    }
    assert_true(conns_become(&rig, 4));
    fd = raw_connect(rig.port);
    assert_true(raw_read_until(fd, NULL, 1000, &in));
    assert_true(raw_holds(&in, "HTTP/1.1 503"));
    close(fd);
    close(fds[0]);
    assert_true(conns_become(&rig, 3));
    assert_int_equal(raw_ask(rig.port, GET("/echo"), NULL), 200);
    for (int i = 1; i < 4; i++)
        close(fds[i]);
    assert_true(conns_become(&rig, 0));
    buf_fini(&in);
    rig_end(&rig);
}

static void requests_per_connection_are_limited(void **state)
{
    struct http_limits limits = {.max_requests_per_conn = 3};
    static const int statuses[] = {200, 200, 200, 0};
    struct rig rig;

    rig_begin(&rig, &limits);
    converse(&rig, GET("/echo") GET("/echo") GET("/echo") GET("/echo"), 1000, statuses, false);
    rig_end(&rig);
}

static void bodies_together_are_limited(void **state)
{
    struct http_limits limits = {.max_bodies_bytes = 100000};
    static char block[90000];
    struct buf in = {0};
    struct rig rig;
    int a, b;

    rig_begin(&rig, &limits);
    a = raw_connect(rig.port);
    raw_send_str(a, POST("/echo", "1000000"));
    raw_send(a, block, sizeof(block));
    clock_sleep_ns(50 * NS_PER_MS);
    b = raw_connect(rig.port);
    raw_send_str(b, POST("/echo", "90000"));
    raw_send(b, block, sizeof(block));
    assert_int_equal(raw_read_answer(b, &in, NULL), 503);
    close(a);
    close(b);
    assert_true(conns_become(&rig, 0));
    buf_fini(&in);
    /* The account is settled. */
    a = raw_connect(rig.port);
    raw_send_str(a, POST("/echo", "90000"));
    raw_send(a, block, sizeof(block));
    assert_int_equal(raw_read_answer(a, &in, NULL), 200);
    close(a);
    buf_fini(&in);
    rig_end(&rig);
}

static void on_drained(void *arg)
{
    ((struct rig *)arg)->n_drained++;
}

static void drain(void *arg)
{
    struct rig *rig = arg;

    http_server_drain(rig->server, on_drained, rig);
}

static void draining_finishes_what_runs(void **state)
{
    struct buf in = {0};
    struct rig rig;
    int idle, busy;

    rig_begin(&rig, NULL);
    idle = raw_connect(rig.port);
    raw_send_str(idle, GET("/echo"));
    assert_int_equal(raw_read_answer(idle, &in, NULL), 200);
    buf_clear(&in);
    busy = raw_connect(rig.port);
    raw_send_str(busy, GET("/late"));
    assert_true(reaches(&rig.n_requests, 2));
    raw_loop_call(&rig.raw, drain, &rig);
    assert_true(raw_is_closed(idle, 500));
    assert_int_equal(rig.n_drained, 0);
    assert_int_equal(raw_read_answer(busy, &in, NULL), 200);
    assert_true(raw_holds(&in, "connection: close"));
    assert_true(raw_is_closed(busy, 500));
    close(idle);
    close(busy);
    assert_true(reaches(&rig.n_drained, 1));
    buf_fini(&in);
    rig_end(&rig);
}

static void freeing_aborts_what_runs(void **state)
{
    struct rig rig;
    int fd;

    rig_begin(&rig, NULL);
    fd = raw_connect(rig.port);
    raw_send_str(fd, GET("/hang"));
    assert_true(reaches(&rig.n_requests, 1));
    rig_end(&rig);
    assert_int_equal(rig.n_aborts, 1);
    assert_int_equal(rig.abort_why, HTTP_ABORT_SERVER);
    close(fd);
}

static void bad_addresses_are_explained(void **state)
{
    struct rig rig;
    struct fault fault = {0};
    char taken[32];

    rig_begin(&rig, NULL);
    raw_loop_stop(&rig.raw);
    assert_int_equal(http_server_listen(rig.server, "127.0.0.1", &fault), E_FORMAT);
    assert_int_equal(http_server_listen(rig.server, "nowhere.invalid:1", &fault), E_FORMAT);
    snprintf(taken, sizeof(taken), "127.0.0.1:%u", rig.port);
    assert_int_equal(http_server_listen(rig.server, taken, &fault), E_IO);
    assert_non_null(strstr(fault.text, taken));
    assert_int_equal(http_server_listen(rig.server, "[::1]:0", NULL), 0);
    http_server_free(rig.server);
    ev_timer_free(rig.late);
    ev_loop_free(rig.raw.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_and_answers_stay_in_step),
        cmocka_unit_test(head_gets_no_body),
        cmocka_unit_test(continue_comes_only_when_the_head_is_accepted),
        cmocka_unit_test(an_upload_over_the_limit_can_read_its_413),
        cmocka_unit_test(a_client_that_leaves_is_noticed_at_once),
        cmocka_unit_test(an_answer_survives_half_a_close_behind_it),
        cmocka_unit_test(slow_heads_and_bodies_meet_a_deadline),
        cmocka_unit_test(large_bodies_have_more_time),
        cmocka_unit_test(long_bodies_come_whole_and_end_where_they_should),
        cmocka_unit_test(a_long_body_that_ends_early_is_no_request),
        cmocka_unit_test(connections_are_limited),
        cmocka_unit_test(requests_per_connection_are_limited),
        cmocka_unit_test(bodies_together_are_limited),
        cmocka_unit_test(draining_finishes_what_runs),
        cmocka_unit_test(freeing_aborts_what_runs),
        cmocka_unit_test(bad_addresses_are_explained),
    };

    signal(SIGPIPE, SIG_IGN); /* as daemons have it */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
