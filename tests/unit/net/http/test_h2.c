/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/2 over real sockets, frame by frame: exchanges, heads, limits, back-pressure, aborts, deadlines,
 * drain. test_h2_attack.c has the hostile peers. */
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

static void add_h2c(struct http_server_opts *opts, void *arg)
{
    opts->has_h2c = true;
}

static void begin(struct rig *rig, struct h2_peer *peer, const struct http_limits *limits)
{
    rig_begin_with(rig, limits, add_h2c, NULL);
    h2_peer_open(peer, rig->port);
}

static void end(struct rig *rig, struct h2_peer *peer)
{
    h2_peer_close(peer);
    assert_true(conns_become(rig, 0));
    rig_end(rig);
}

static void streams_are_exchanges(void **state)
{
    const char *const length[] = {"content-length", "5", NULL};
    struct buf body = {0};
    struct h2_frame frame;
    struct h2_peer peer;
    struct rig rig;

    begin(&rig, &peer, NULL);
    /* Two at once, the first finished last. */
    h2_ask(&peer, 1, "POST /echo", false, length);
    h2_ask(&peer, 3, "GET /stream", true, NULL);
    assert_int_equal(h2_answer(&peer, 3, &body), 200);
    assert_true(raw_holds(&body, "piece piece"));
    buf_clear(&body);
    h2_send(&peer, NGHTTP2_DATA, 0, 1, bytes_str("hel"));
    h2_send(&peer, NGHTTP2_DATA, 1, 1, bytes_str("lo"));
    assert_int_equal(h2_answer(&peer, 1, &body), 200);
    assert_true(bytes_is(buf_view(&body), "hello"));
    buf_clear(&body);
    h2_ask(&peer, 5, "HEAD /stream", true, NULL);
    assert_int_equal(h2_answer(&peer, 5, &body), 200);
    assert_int_equal(body.len_bytes, 0);
    h2_ask(&peer, 7, "GET /late", true, NULL);
    assert_int_equal(h2_answer(&peer, 7, NULL), 200);
    h2_ask(&peer, 9, "GET /nothing", true, NULL);
    assert_int_equal(h2_answer(&peer, 9, NULL), 404);
    h2_ask(&peer, 11, "GET /big", true, NULL);
    h2_send_u32(&peer, NGHTTP2_WINDOW_UPDATE, 0, 8 << 20);
    h2_send_u32(&peer, NGHTTP2_WINDOW_UPDATE, 11, 8 << 20);
    buf_clear(&body);
    assert_int_equal(h2_answer(&peer, 11, &body), 200);
    assert_int_equal(body.len_bytes, 4 << 20);
    /* Refused from the head: the answer is complete, and the rest of the body is not read. */
    h2_ask(&peer, 13, "POST /no", false, NULL);
    assert_int_equal(h2_answer(&peer, 13, NULL), 401);
    assert_true(h2_await(&peer, NGHTTP2_RST_STREAM, 13, NULL, &frame));
    assert_int_equal(h2_error_of(&frame), NGHTTP2_NO_ERROR);
    assert_int_equal(rig.n_aborts, 0);
    buf_fini(&body);
    end(&rig, &peer);
}

static void continue_comes_only_when_the_head_is_accepted(void **state)
{
    const char *const expect[] = {"expect", "100-continue", NULL};
    struct h2_frame frame;
    struct h2_peer peer;
    struct rig rig;

    begin(&rig, &peer, NULL);
    h2_ask(&peer, 1, "POST /echo", false, expect);
    assert_true(h2_await(&peer, NGHTTP2_HEADERS, 1, NULL, &frame));
    assert_int_equal(frame.status, 100);
    h2_send(&peer, NGHTTP2_DATA, 1, 1, bytes_str("x"));
    assert_int_equal(h2_answer(&peer, 1, NULL), 200);
    h2_ask(&peer, 3, "POST /no", false, expect);
    assert_true(h2_await(&peer, NGHTTP2_HEADERS, 3, NULL, &frame));
    assert_int_equal(frame.status, 401);
    end(&rig, &peer);
}

/* A head is checked as in HTTP/1.  Errors of the frame layer reset the stream; the connection continues. */
static void heads_are_judged_strictly(void **state)
{
    static char long_value[3000];
    const struct {
        const char *request;
        const char *more[5];
        int status;     /* or */
        uint32_t error; /* of RST_STREAM */
    } rows[] = {
        {"GET /a b", {NULL}, 0, NGHTTP2_PROTOCOL_ERROR},
        {"GET a", {NULL}, 0, NGHTTP2_PROTOCOL_ERROR},
        {"GET /a#b", {NULL}, 400, 0},
        {"GET /\xc3\xa9", {NULL}, 400, 0},
        {"G(T /a", {NULL}, 0, NGHTTP2_PROTOCOL_ERROR},
        {"GET /echo", {"host", "a", NULL}, 200, 0},
        {"GET /echo", {"host", "b", NULL}, 400, 0},
        {"GET /echo", {"x", "a\x01", NULL}, 400, 0},
        {"GET /echo", {"x", "a\r\nhost: b", NULL}, 400, 0},
        {"GET /echo", {"x y", "a", NULL}, 400, 0},
        {"GET /echo", {"X", "a", NULL}, 0, NGHTTP2_PROTOCOL_ERROR},
        {"GET /echo", {"connection", "close", NULL}, 0, NGHTTP2_PROTOCOL_ERROR},
        {"GET /echo", {"transfer-encoding", "chunked", NULL}, 0, NGHTTP2_PROTOCOL_ERROR},
        {"GET /echo", {"te", "trailers", NULL}, 200, 0},
        {"GET /echo", {"te", "gzip", NULL}, 0, NGHTTP2_PROTOCOL_ERROR},
        {"GET /echo", {":path", "/b", NULL}, 0, NGHTTP2_PROTOCOL_ERROR},
        {"GET /echo", {"content-length", "3", NULL}, 0, NGHTTP2_PROTOCOL_ERROR},
        {"GET /echo", {"content-length", "+0", NULL}, 0, NGHTTP2_PROTOCOL_ERROR},
        {"GET /echo", {"content-length", "0", "content-length", "0", NULL}, 0, NGHTTP2_PROTOCOL_ERROR},
        {"GET /echo", {"x", long_value, NULL}, 200, 0},
        {"GET /echo", {"x", long_value, "y", long_value, NULL}, 431, 0},
    };
    const struct http_limits limits = {.max_head_bytes = 4096};
    struct h2_frame frame;
    struct h2_peer peer;
    int32_t stream = 1;
    struct rig rig;

    memset(long_value, 'v', sizeof(long_value) - 1);
    begin(&rig, &peer, &limits);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++, stream += 2) {
        int status = 0;

        h2_ask(&peer, stream, rows[i].request, true, rows[i].more);
        while (h2_next(&peer, 5000, &frame))
            if (frame.stream == stream && (frame.type == NGHTTP2_RST_STREAM || frame.type == NGHTTP2_HEADERS))
                break;
        status = frame.type == NGHTTP2_HEADERS ? frame.status : 0;
        if (status != rows[i].status || (status == 0 && h2_error_of(&frame) != rows[i].error))
            fail_msg("row %zu, %s %s: status %d, error %u", i, rows[i].request,
                     rows[i].more[0] != NULL ? rows[i].more[0] : "", status,
                     status == 0 ? h2_error_of(&frame) : 0);
    }
    end(&rig, &peer);
}

static void fields_are_counted(void **state)
{
    enum { MANY = 101 };
    const char *many[2 * MANY + 1] = {NULL};
    struct h2_peer peer;
    struct rig rig;

    for (int n = 0; n < MANY; n++) {
        many[2 * n] = "x";
        many[2 * n + 1] = "y";
    }
    begin(&rig, &peer, NULL);
    h2_ask(&peer, 1, "GET /echo", true, many);
    assert_int_equal(h2_answer(&peer, 1, NULL), 431);
    end(&rig, &peer);
}

static void bodies_are_limited(void **state)
{
    const struct http_limits limits = {.max_body_bytes = 10000};
    const char *const length[] = {"content-length", "10001", NULL};
    static char block[6000];
    struct h2_peer peer;
    struct rig rig;

    begin(&rig, &peer, &limits);
    h2_ask(&peer, 1, "POST /echo", false, length);
    assert_int_equal(h2_answer(&peer, 1, NULL), 413);
    h2_ask(&peer, 3, "POST /echo", false, NULL);
    h2_send(&peer, NGHTTP2_DATA, 0, 3, bytes_of(block, sizeof(block)));
    h2_send(&peer, NGHTTP2_DATA, 0, 3, bytes_of(block, sizeof(block)));
    assert_int_equal(h2_answer(&peer, 3, NULL), 413);
    h2_ask(&peer, 5, "POST /echo", false, NULL);
    h2_send(&peer, NGHTTP2_DATA, 1, 5, bytes_of(block, sizeof(block)));
    assert_int_equal(h2_answer(&peer, 5, NULL), 200);
    end(&rig, &peer);
}

static void resets_and_closes_abort(void **state)
{
    struct h2_peer peer;
    struct rig rig;

    begin(&rig, &peer, NULL);
    h2_ask(&peer, 1, "GET /hang", true, NULL);
    assert_true(reaches(&rig.n_requests, 1));
    h2_send_u32(&peer, NGHTTP2_RST_STREAM, 1, NGHTTP2_CANCEL);
    assert_true(reaches(&rig.n_aborts, 1));
    assert_int_equal(rig.abort_why, HTTP_ABORT_CLIENT);
    h2_ask(&peer, 3, "GET /echo", true, NULL);
    assert_int_equal(h2_answer(&peer, 3, NULL), 200);
    /* In the middle of a body, and while running: both end with the connection. */
    h2_ask(&peer, 5, "POST /echo", false, NULL);
    h2_ask(&peer, 7, "GET /hang", true, NULL);
    assert_true(reaches(&rig.n_requests, 3));
    end(&rig, &peer);
    assert_int_equal(rig.n_aborts, 3);
}

static void streams_at_once_are_limited(void **state)
{
    const struct http_limits limits = {.max_streams = 4};
    struct h2_frame frame;
    struct h2_peer peer;
    struct rig rig;

    begin(&rig, &peer, &limits);
    for (int32_t id = 1; id <= 9; id += 2)
        h2_ask(&peer, id, "GET /hang", true, NULL);
    assert_true(h2_await(&peer, NGHTTP2_RST_STREAM, 9, NULL, &frame));
    assert_int_equal(h2_error_of(&frame), NGHTTP2_REFUSED_STREAM);
    assert_int_equal(rig.n_requests, 4);
    end(&rig, &peer);
}

static void slow_streams_are_paused_and_then_cut(void **state)
{
    const struct http_limits limits = {.max_queue_bytes = 64 << 10, .stall_ns = 300 * NS_PER_MS};
    struct h2_frame frame;
    struct h2_peer peer;
    struct rig rig;
    uint64_t began;

    begin(&rig, &peer, &limits);
    h2_ask(&peer, 1, "GET /flood", true, NULL);
    assert_true(reaches(&rig.n_pauses, 1));
    assert_int_equal(rig.n_resumes, 0);
    /* With a window for it, it continues. */
    h2_send_u32(&peer, NGHTTP2_WINDOW_UPDATE, 0, 1 << 30);
    h2_send_u32(&peer, NGHTTP2_WINDOW_UPDATE, 1, 4 << 20);
    while (rig.n_resumes < 3 && h2_next(&peer, 2000, &frame))
        ;
    assert_true(rig.n_resumes >= 3);
    assert_int_equal(rig.n_aborts, 0);
    /* Without one, only this stream is cut, at the deadline. */
    began = clock_now_ns();
    assert_true(h2_await(&peer, NGHTTP2_RST_STREAM, 1, NULL, &frame));
    assert_int_equal(h2_error_of(&frame), NGHTTP2_CANCEL);
    assert_true(clock_now_ns() - began < 10 * NS_PER_S);
    assert_int_equal(rig.n_aborts, 1);
    assert_int_equal(rig.abort_why, HTTP_ABORT_SLOW_READER);
    assert_true(rig.flooded_bytes < 8 << 20);
    h2_ask(&peer, 3, "GET /stream", true, NULL);
    assert_int_equal(h2_answer(&peer, 3, NULL), 200);
    /* Windows are open but the client reads nothing: the connection is cut. */
    h2_ask(&peer, 5, "GET /flood", true, NULL);
    h2_send_u32(&peer, NGHTTP2_WINDOW_UPDATE, 5, 1 << 30);
    assert_true(reaches(&rig.n_aborts, 2));
    assert_int_equal(rig.abort_why, HTTP_ABORT_SLOW_READER);
    assert_true(conns_become(&rig, 0));
    end(&rig, &peer);
}

static void deadlines_hold_for_streams(void **state)
{
    const struct http_limits limits = {.head_ns = 200 * NS_PER_MS,
                                       .body_ns = 200 * NS_PER_MS,
                                       .idle_ns = 300 * NS_PER_MS,
                                       .linger_ns = 50 * NS_PER_MS};
    struct h2_frame frame;
    struct h2_peer peer;
    struct rig rig;
    uint64_t began;

    begin(&rig, &peer, &limits);
    h2_ask(&peer, 1, "GET /hang", true, NULL);
    h2_ask(&peer, 3, "POST /echo", false, NULL);
    began = clock_now_ns();
    while (!h2_next(&peer, 20, &frame) ||
           frame.type != NGHTTP2_HEADERS) /* a byte now and then does not help */
        h2_send(&peer, NGHTTP2_DATA, 0, 3, bytes_str("a"));
    assert_int_equal(frame.stream, 3);
    assert_int_equal(frame.status, 408);
    assert_true(clock_now_ns() - began < 10 * NS_PER_S);
    /* A header block without an end ends the connection. */
    h2_send(&peer, NGHTTP2_HEADERS, 1, 5, bytes_of("\x83\x86", 2));
    assert_true(conns_become(&rig, 0));
    assert_int_equal(rig.n_aborts, 1); /* the other was refused, not aborted */
    h2_peer_close(&peer);
    /* Idle, before the first request and after one; pings do not count. */
    for (int n = 0; n < 2; n++) {
        began = clock_now_ns();
        h2_peer_open(&peer, rig.port);
        if (n == 1) {
            h2_ask(&peer, 1, "GET /echo", true, NULL);
            assert_int_equal(h2_answer(&peer, 1, NULL), 200);
        }
        while (h2_send(&peer, NGHTTP2_PING, 0, 0, bytes_str("12345678")) &&
               clock_now_ns() - began < 3 * NS_PER_S)
            if (h2_next(&peer, 20, &frame) && frame.type == NGHTTP2_GOAWAY)
                break;
        assert_int_equal(frame.type, NGHTTP2_GOAWAY);
        assert_int_equal(h2_error_of(&frame), NGHTTP2_NO_ERROR);
        assert_true(conns_become(&rig, 0));
        h2_peer_close(&peer);
    }
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

static void draining_finishes_streams(void **state)
{
    struct h2_frame frame;
    struct h2_peer peer, idle;
    struct rig rig;
    bool is_told = false;
    int status = 0;

    begin(&rig, &peer, NULL);
    h2_peer_open(&idle, rig.port);
    h2_ask(&idle, 1, "GET /echo", true, NULL);
    assert_int_equal(h2_answer(&idle, 1, NULL), 200);
    h2_ask(&peer, 1, "GET /late", true, NULL);
    assert_true(reaches(&rig.n_requests, 2));
    raw_loop_call(&rig.raw, drain, &rig);
    h2_ask(&peer, 3, "GET /echo", true, NULL); /* too late, so it is not even refused */
    while (h2_next(&peer, 2000, &frame)) {
        if (frame.type == NGHTTP2_GOAWAY)
            is_told = h2_error_of(&frame) == NGHTTP2_NO_ERROR;
        else if (frame.type == NGHTTP2_HEADERS)
            status = frame.stream == 1 ? frame.status : -1;
    }
    assert_true(is_told);
    assert_int_equal(status, 200);
    assert_true(h2_await(&idle, NGHTTP2_GOAWAY, 0, NULL, &frame));
    h2_peer_close(&idle);
    h2_peer_close(&peer);
    assert_true(reaches(&rig.n_drained, 1));
    assert_int_equal(rig.n_requests, 2);
    rig_end(&rig);
}

static void both_versions_share_a_port(void **state)
{
    struct http_limits limits = {.head_ns = 2 * NS_PER_S};
    struct h2_peer peer;
    struct buf in = {0};
    struct rig rig;
    int fd;

    begin(&rig, &peer, &limits);
    assert_int_equal(raw_ask(rig.port, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", NULL), 200);
    assert_int_equal(raw_ask(rig.port, "PUT /echo HTTP/1.1\r\nHost: a\r\n\r\n", NULL), 200);
    /* The preface, byte by byte; and half of it. */
    fd = raw_connect(rig.port);
    for (size_t i = 0; i < NGHTTP2_CLIENT_MAGIC_LEN; i++)
        raw_send(fd, NGHTTP2_CLIENT_MAGIC + i, 1);
    raw_send(fd, "\0\0\0\4\0\0\0\0\0", 9);
    while (in.len_bytes < 9)
        assert_false(raw_read_until(fd, NULL, 100, &in));
    assert_int_equal(in.data[3], NGHTTP2_SETTINGS);
    close(fd);
    fd = raw_connect(rig.port);
    raw_send_str(fd, "PRI * HTTP/2.0\r\n");
    buf_clear(&in);
    assert_true(raw_read_until(fd, "408", 9000, &in));
    close(fd);
    end(&rig, &peer);
    /* If HTTP/2 is off, it is an unknown version. */
    rig_begin(&rig, NULL);
    assert_int_equal(raw_ask(rig.port, NGHTTP2_CLIENT_MAGIC, NULL), 505);
    rig_end(&rig);
    buf_fini(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_exchanges),
        cmocka_unit_test(continue_comes_only_when_the_head_is_accepted),
        cmocka_unit_test(heads_are_judged_strictly),
        cmocka_unit_test(fields_are_counted),
        cmocka_unit_test(bodies_are_limited),
        cmocka_unit_test(resets_and_closes_abort),
        cmocka_unit_test(streams_at_once_are_limited),
        cmocka_unit_test(slow_streams_are_paused_and_then_cut),
        cmocka_unit_test(deadlines_hold_for_streams),
        cmocka_unit_test(draining_finishes_streams),
        cmocka_unit_test(both_versions_share_a_port),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
