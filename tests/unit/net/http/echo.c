/* SPDX-License-Identifier: Apache-2.0 */
/* echo.h describes the paths.
 * The handler runs on the server's loop; tests read the counters from their own thread. */
#include "echo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"

static void reply_text(struct http_exchange *x, int status, const char *text)
{
    http_reply(x, status, NULL, bytes_str(text));
}

static void on_head(void *arg, struct http_exchange *x)
{
    if (bytes_is(http_exchange_path(x), "/no"))
        reply_text(x, 401, "no");
    else
        http_exchange_prove(x);
}

static void flood(struct rig *rig)
{
    static char piece[8192];

    memset(piece, 'f', sizeof(piece));
    for (int i = 0; i < 20 && rig->flooding != NULL; i++) {
        if (http_reply_write(rig->flooding, bytes_of(piece, sizeof(piece))) < 0)
            break;
        rig->flooded_bytes += sizeof(piece);
    }
}

static void on_late(void *arg)
{
    struct rig *rig = arg;
    struct http_exchange *x = rig->waiting;

    rig->waiting = NULL;
    if (x == NULL)
        return;
    if (!bytes_is(http_exchange_path(x), "/two")) {
        http_reply(x, 200, NULL, http_exchange_body(x));
        return;
    }
    http_reply_write(x, bytes_str("two"));
    http_reply_end(x);
}

static void on_request(void *arg, struct http_exchange *x)
{
    struct rig *rig = arg;
    struct bytes path = http_exchange_path(x);

    rig->n_requests++;
    if (bytes_is(path, "/echo")) {
        http_reply(x, 200, NULL, http_exchange_body(x));
    } else if (bytes_is(path, "/late")) {
        rig->waiting = x;
        ev_timer_start(rig->late, 20 * NS_PER_MS);
    } else if (bytes_is(path, "/two")) {
        rig->waiting = x;
        http_reply_begin(x, 200, NULL);
        http_reply_write(x, bytes_str("one"));
        ev_timer_start(rig->late, NS_PER_MS);
    } else if (bytes_is(path, "/hang")) {
        rig->waiting = x;
    } else if (bytes_is(path, "/stream")) {
        http_reply_begin(x, 200, NULL);
        for (int i = 0; i < 10; i++)
            http_reply_write(x, bytes_str("piece "));
        http_reply_end(x);
    } else if (bytes_is(path, "/flood")) {
        rig->flooding = x;
        http_reply_begin(x, 200, NULL);
        flood(rig);
    } else if (bytes_is(path, "/burst")) {
        char *piece = calloc(1, BURST_BYTES);

        http_reply_begin(x, 200, NULL);
        rig->burst_rc = http_reply_write(x, bytes_of(piece, BURST_BYTES));
        http_reply_end(x);
        free(piece);
    } else if (bytes_is(path, "/big")) {
        char *big = calloc(1, 4 << 20);

        http_reply(x, 200, NULL, bytes_of(big, 4 << 20));
        free(big);
    } else {
        reply_text(x, 404, "what?");
    }
}

static void on_refused(void *arg, struct http_exchange *x, int status, const char *why)
{
    reply_text(x, status, why);
}

static void on_abort(void *arg, struct http_exchange *x, enum http_abort why)
{
    struct rig *rig = arg;

    rig->abort_why = (int)why;
    if (rig->waiting == x)
        rig->waiting = NULL;
    if (rig->flooding == x)
        rig->flooding = NULL;
    rig->n_aborts++;
}

static void on_pause(void *arg, struct http_exchange *x, bool is_paused)
{
    struct rig *rig = arg;

    if (is_paused) {
        rig->n_pauses++;
    } else {
        rig->n_resumes++;
        flood(rig);
    }
}

static const struct http_handler handler = {on_head, on_request, on_refused, on_abort, on_pause};

void rig_begin(struct rig *rig, const struct http_limits *limits)
{
    rig_begin_with(rig, limits, NULL, NULL);
}

void rig_begin_with(struct rig *rig, const struct http_limits *limits, rig_change change, void *arg)
{
    struct http_server_opts opts = {.handler = &handler, .handler_arg = rig};

    memset(rig, 0, sizeof(*rig));
    raw_loop_init(&rig->raw);
    opts.loop = rig->raw.loop;
    if (limits != NULL)
        opts.limits = *limits;
    if (change != NULL)
        change(&opts, arg);
    assert_int_equal(ev_timer_new(rig->raw.loop, on_late, rig, &rig->late), 0);
    assert_int_equal(http_server_new(&opts, &rig->server), 0);
    assert_int_equal(http_server_listen(rig->server, "127.0.0.1:0", NULL), 0);
    rig->port = http_server_port(rig->server);
    raw_loop_run(&rig->raw);
}

void rig_end(struct rig *rig)
{
    raw_loop_stop(&rig->raw);
    http_server_free(rig->server);
    ev_timer_free(rig->late);
    ev_loop_free(rig->raw.loop);
}

bool reaches(atomic_int *counter, int value)
{
    for (int i = 0; i < 400 && *counter < value; i++)
        clock_sleep_ns(5 * NS_PER_MS);
    return *counter >= value;
}

static void count_conns(void *arg)
{
    uint32_t *n = ((void **)arg)[1];

    *n = http_server_n_conns(((void **)arg)[0]);
}

bool conns_become(struct rig *rig, uint32_t want)
{
    uint32_t n = 0;
    void *args[2] = {rig->server, &n};

    for (int i = 0; i < 400; i++) {
        raw_loop_call(&rig->raw, count_conns, args);
        if (n == want)
            return true;
        clock_sleep_ns(5 * NS_PER_MS);
    }
    return false;
}
