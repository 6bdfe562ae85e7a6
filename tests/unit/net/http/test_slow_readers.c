/* SPDX-License-Identifier: Apache-2.0 */
/* The server over real sockets: clients that read slowly or not at all, and long pieces for those that read. */
#include "net/http/server.h"

#include <signal.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "echo.h"
#include "raw.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

static void slow_readers_are_paused_and_then_cut(void **state)
{
    struct http_limits limits = {.max_queue_bytes = 64 << 10, .stall_ns = NS_PER_S};
    struct buf in = {0};
    struct rig rig;
    int fd;

    rig_begin(&rig, &limits);
    /* Reads after a while: paused, resumed, and no byte lost. */
    fd = raw_connect_middling(rig.port);
    raw_send_str(fd, GET("/flood"));
    assert_true(reaches(&rig.n_pauses, 1));
    while (rig.n_resumes < 3 && rig.n_aborts == 0) {
        buf_clear(&in);
        raw_read_until(fd, "never", 1, &in);
    }
    assert_true(rig.n_resumes >= 3);
    assert_int_equal(rig.n_aborts, 0);
    close(fd);
    assert_true(reaches(&rig.n_aborts, 1));
    assert_int_equal(rig.abort_why, HTTP_ABORT_CLIENT);

    /* Never reads: cut at the deadline, and no more than the limit was queued. */
    rig.flooded_bytes = 0;
    fd = raw_connect_small(rig.port);
    raw_send_str(fd, GET("/flood"));
    assert_true(reaches(&rig.n_aborts, 2));
    assert_int_equal(rig.abort_why, HTTP_ABORT_SLOW_READER);
    assert_true(rig.flooded_bytes < 4 << 20);
    close(fd);
    assert_true(conns_become(&rig, 0));
    buf_fini(&in);
    rig_end(&rig);
}

static void a_long_piece_cuts_no_client(void **state)
{
    struct http_limits limits = {.max_queue_bytes = 64 << 10};
    struct buf in = {0};
    struct rig rig;
    int fd;

    rig_begin(&rig, &limits);
    fd = raw_connect(rig.port);
    raw_send_str(fd, GET("/burst"));
    assert_true(raw_read_until(fd, "\r\n0\r\n\r\n", 5000, &in));
    assert_true(in.len_bytes > BURST_BYTES);
    assert_int_equal(rig.burst_rc, 1); /* the handler shall write no more */
    assert_int_equal(rig.n_aborts, 0);
    close(fd);
    buf_fini(&in);
    rig_end(&rig);
}

static void pipelining_without_reading_is_bounded(void **state)
{
    struct http_limits limits = {.max_queue_bytes = 32 << 10, .stall_ns = 200 * NS_PER_MS};
    struct rig rig;
    int fd;

    rig_begin(&rig, &limits);
    fd = raw_connect_small(rig.port);
    for (int i = 0; i < 20; i++)
        raw_send_str(fd, GET("/big"));
    assert_true(conns_become(&rig, 1) || rig.n_requests > 0);
    assert_true(conns_become(&rig, 0));
    assert_true(rig.n_requests <= 2);
    close(fd);
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_readers_are_paused_and_then_cut),
        cmocka_unit_test(a_long_piece_cuts_no_client),
        cmocka_unit_test(pipelining_without_reading_is_bounded),
    };

    signal(SIGPIPE, SIG_IGN); /* as daemons have it */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
