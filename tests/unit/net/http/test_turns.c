/* SPDX-License-Identifier: Apache-2.0 */
/* How many requests the server takes in one turn of its loop.
 *
 * The linker replaces the clock (--wrap): it stands still, and each request moves it by WORK_NS. So the
 * budget of a turn allows an exact number of requests, at any speed of the machine. All input has arrived
 * before the loop may read it, and fits in one read of each connection. */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "echo.h"
#include "h2peer.h"

#define GET       "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"
#define WORK_NS   (200 * NS_PER_US)
#define N_BURST   100
#define N_CLIENTS 8
/* A connection stops after the request that exceeds its half of a millisecond. */
#define PER_TURN 3

static atomic_ullong now_ns = NS_PER_S;

uint64_t __wrap_clock_now_ns(void);

uint64_t __wrap_clock_now_ns(void)
{
    return now_ns;
}

static struct {
    struct rig rig;
    sem_t may_go;
    int taken[N_BURST * N_CLIENTS]; /* requests in each turn */
    int n_turns;
    uint64_t last_turn;
} seen;

static void on_head(void *arg, struct http_exchange *x)
{
    (void)arg;
    http_exchange_prove(x);
}

static void on_request(void *arg, struct http_exchange *x)
{
    struct rig *rig = arg;
    uint64_t turn = ev_loop_turns(rig->raw.loop);

    if (rig->n_requests == 0 || turn != seen.last_turn)
        seen.n_turns++;
    seen.last_turn = turn;
    seen.taken[seen.n_turns - 1]++;
    now_ns += WORK_NS;
    http_reply(x, 200, NULL, bytes_of(NULL, 0));
    rig->n_requests++;
}

static void on_refused(void *arg, struct http_exchange *x, int status, const char *why)
{
    (void)arg;
    http_reply(x, status, NULL, bytes_str(why));
}

static void on_abort(void *arg, struct http_exchange *x, enum http_abort why)
{
    struct rig *rig = arg;

    (void)x;
    (void)why;
    rig->n_aborts++;
}

static void on_pause(void *arg, struct http_exchange *x, bool is_paused)
{
    (void)arg;
    (void)x;
    (void)is_paused;
}

static const struct http_handler counting = {on_head, on_request, on_refused, on_abort, on_pause};

static void count_requests(struct http_server_opts *opts, void *arg)
{
    (void)arg;
    opts->handler = &counting;
    opts->has_h2c = true;
}

static void wait_for_input(void *arg)
{
    (void)arg;
    while (sem_wait(&seen.may_go) != 0)
        ;
}

/* From here to let_go() the loop reads no input. */
static void hold(void)
{
    assert_int_equal(sem_init(&seen.may_go, 0, 0), 0);
    assert_int_equal(ev_post(seen.rig.raw.loop, wait_for_input, NULL), 0);
}

static void let_go(int n_requests)
{
    clock_sleep_ns(20 * NS_PER_MS); /* loopback has delivered */
    sem_post(&seen.may_go);
    assert_true(reaches(&seen.rig.n_requests, n_requests));
}

static void begin(void)
{
    memset(&seen, 0, sizeof(seen));
    rig_begin_with(&seen.rig, NULL, count_requests, NULL);
}

static void end(void)
{
    rig_end(&seen.rig);
    assert_int_equal(seen.rig.n_aborts, 0);
    sem_destroy(&seen.may_go);
}

static struct buf burst(void)
{
    struct buf text = {0};

    for (int i = 0; i < N_BURST; i++)
        buf_append_str(&text, GET);
    assert_true(text.len_bytes <= 4096);
    return text;
}

static void a_connection_has_half_a_millisecond_of_a_turn(void **state)
{
    struct buf text = burst();
    int fd;

    (void)state;
    begin();
    fd = raw_connect(seen.rig.port);
    assert_true(conns_become(&seen.rig, 1));
    hold();
    assert_true(raw_send(fd, text.data, text.len_bytes));
    let_go(N_BURST);
    assert_int_equal(seen.n_turns, (N_BURST + PER_TURN - 1) / PER_TURN);
    for (int i = 0; i < seen.n_turns; i++)
        assert_in_range(seen.taken[i], 1, PER_TURN);
    close(fd);
    end();
    buf_fini(&text);
}

/* Connections share a turn: once they have used half a millisecond, no further connection begins in it. */
static void connections_share_a_turn(void **state)
{
    struct buf text = burst();
    int fds[N_CLIENTS];

    (void)state;
    begin();
    for (int i = 0; i < N_CLIENTS; i++)
        fds[i] = raw_connect(seen.rig.port);
    assert_true(conns_become(&seen.rig, N_CLIENTS));
    hold();
    for (int i = 0; i < N_CLIENTS; i++)
        assert_true(raw_send(fds[i], text.data, text.len_bytes));
    let_go(N_BURST * N_CLIENTS);
    for (int i = 0; i < seen.n_turns; i++)
        assert_in_range(seen.taken[i], 1, 2 * PER_TURN - 1);
    for (int i = 0; i < N_CLIENTS; i++)
        close(fds[i]);
    end();
    buf_fini(&text);
}

/* HTTP/2 takes its input in pieces of 256 bytes, which hold a few requests. */
static void streams_have_half_a_millisecond_of_a_turn(void **state)
{
    const char *const pairs[] = {":method", "GET",        ":path", "/echo", ":scheme",
                                 "http",    ":authority", "a",     NULL};
    struct buf block = {0}, text = {0};
    struct h2_peer peer;
    int per_piece;

    (void)state;
    begin();
    h2_peer_open(&peer, seen.rig.port);
    assert_true(conns_become(&seen.rig, 1));
    h2_put_block(&block, pairs);
    for (int i = 0; i < N_BURST; i++) {
        const uint8_t head[9] = {0, 0, (uint8_t)block.len_bytes,    NGHTTP2_HEADERS,     5,
                                 0, 0, (uint8_t)((2 * i + 1) >> 8), (uint8_t)(2 * i + 1)};

        buf_append(&text, head, sizeof(head));
        buf_append(&text, block.data, block.len_bytes);
    }
    per_piece = 256 / (int)(text.len_bytes / N_BURST) + 1;
    hold();
    assert_true(raw_send(peer.fd, text.data, text.len_bytes));
    let_go(N_BURST);
    assert_true(seen.n_turns >= N_BURST / (PER_TURN + per_piece));
    for (int i = 0; i < seen.n_turns; i++)
        assert_in_range(seen.taken[i], 1, PER_TURN - 1 + per_piece);
    h2_peer_close(&peer);
    end();
    buf_fini(&block);
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_has_half_a_millisecond_of_a_turn),
        cmocka_unit_test(connections_share_a_turn),
        cmocka_unit_test(streams_have_half_a_millisecond_of_a_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
