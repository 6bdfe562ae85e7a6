/* SPDX-License-Identifier: Apache-2.0 */
/* The client with a server that sends exactly the given bytes, whole or in small pieces, valid or not; and
 * with our own server. */
#include "net/http/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "net/http/server.h"
#include "script.h"
#include "tests/unit/check.h"

/* ---- a client that records its events ---- */

struct rig {
    struct ev_loop *loop;
    struct http_client *client;
    struct script script;
    struct ev_timer *guard;
};

struct seen {
    struct rig *rig;
    struct http_call *call;
    int status;
    struct buf body;
    unsigned n_heads, n_pieces, n_ends;
    int result;
    struct fault fault;
    char kind[32]; /* content-type */
    bool cancels_at_head, cancels_at_body;
    unsigned n_more; /* calls to begin in on_end */
};

static void on_guard(void *arg)
{
    fail_msg("the loop did not end");
}

static struct rig *rig_new(size_t piece_bytes)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    char address[32];
    struct http_client_opts opts = {.address = address};

    rig->script.piece_bytes = piece_bytes;
    script_listen(&rig->script);
    snprintf(address, sizeof(address), "127.0.0.1:%u", rig->script.port);
    assert_int_equal(ev_loop_new(&rig->loop), 0);
    opts.loop = rig->loop;
    assert_int_equal(http_client_new(&opts, NULL, &rig->client), 0);
    assert_int_equal(ev_timer_new(rig->loop, on_guard, NULL, &rig->guard), 0);
    return rig;
}

static void rig_free(struct rig *rig)
{
    http_client_free(rig->client); /* closes its connections, so the server's thread reads their end */
    script_end(&rig->script);
    ev_timer_free(rig->guard);
    ev_loop_free(rig->loop);
    free(rig);
}

static void begin(struct seen *seen, const struct http_call_opts *opts);

static void on_head(void *arg, const struct http_head *head, struct bytes text)
{
    struct seen *seen = arg;
    struct bytes kind = http_head_get(head, text, "content-type", NULL);

    seen->n_heads++;
    seen->status = head->status;
    snprintf(seen->kind, sizeof(seen->kind), "%.*s", (int)kind.len_bytes, (const char *)kind.data);
    if (seen->cancels_at_head) {
        http_call_cancel(seen->call);
        ev_loop_stop(seen->rig->loop);
    }
}

static void on_body(void *arg, struct bytes piece)
{
    struct seen *seen = arg;

    assert_true(piece.len_bytes > 0);
    seen->n_pieces++;
    buf_append(&seen->body, piece.data, piece.len_bytes);
    if (seen->cancels_at_body) {
        http_call_cancel(seen->call);
        ev_loop_stop(seen->rig->loop);
    }
}

static void on_end(void *arg, int result, const struct fault *fault)
{
    struct seen *seen = arg;

    seen->n_ends++;
    seen->result = result;
    if (result < 0)
        seen->fault = *fault;
    if (seen->n_more > 0) {
        seen->n_more--;
        begin(seen, &(struct http_call_opts){0});
    } else if (http_client_n_calls(seen->rig->client) == 0) {
        ev_loop_stop(seen->rig->loop);
    }
}

static const struct http_call_events events = {.on_head = on_head, .on_body = on_body, .on_end = on_end};

static void begin(struct seen *seen, const struct http_call_opts *opts)
{
    struct http_call_opts full = *opts;

    if (full.path == NULL)
        full.path = "/x";
    full.events = &events;
    full.arg = seen;
    assert_int_equal(http_client_start(seen->rig->client, &full, &seen->call), 0);
    assert_int_equal(seen->n_heads + seen->n_ends, seen->n_ends * 2); /* callbacks never come from inside */
}

static void run(struct rig *rig)
{
    ev_timer_start(rig->guard, 20 * NS_PER_S);
    assert_int_equal(ev_loop_run(rig->loop), 0);
    ev_timer_stop(rig->guard);
}

/* Makes one call, with one scripted answer. */
static struct seen ask(const char *answer, enum after after, size_t piece_bytes, struct http_call_opts opts)
{
    struct rig *rig = rig_new(piece_bytes);
    struct seen seen = {.rig = rig};

    rig->script.lines[0] = (struct line){answer, after};
    script_serve(&rig->script);
    begin(&seen, &opts);
    run(rig);
    rig_free(rig);
    return seen;
}

static void expect(struct seen seen, int status, const char *body)
{
    if (seen.result != 0)
        print_message("%s\n", seen.fault.text);
    assert_int_equal(seen.result, 0);
    assert_int_equal(seen.n_heads, 1);
    assert_int_equal(seen.n_ends, 1);
    assert_int_equal(seen.status, status);
    assert_true(bytes_is(buf_view(&seen.body), body));
    buf_fini(&seen.body);
}

static void expect_failure(struct seen seen, int result)
{
    assert_int_equal(seen.result, result);
    assert_int_equal(seen.n_ends, 1);
    assert_int_equal(seen.fault.code, result);
    assert_true(strncmp(seen.fault.text, "127.0.0.1:", 10) == 0);
    buf_fini(&seen.body);
}

#define GET ((struct http_call_opts){.method = HTTP_GET})

/* ---- valid answers ---- */

static void bodies_of_every_framing(void **state)
{
    static const size_t pieces[] = {0, 1, 7};

    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        expect(ask("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", STAY, pieces[i], GET), 200, "hello");
        expect(ask("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nt: "
                   "u\r\n\r\n",
                   STAY, pieces[i], GET),
               200, "hello");
        expect(ask("HTTP/1.0 200 OK\r\n\r\nhello", CLOSE, pieces[i], GET), 200, "hello");
        expect(ask("HTTP/1.1 204 No Content\r\n\r\n", STAY, pieces[i], GET), 204, "");
        expect(ask("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", STAY, pieces[i], GET), 404, "");
    }
}

static void interim_answers_are_skipped(void **state)
{
    expect(ask("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n"
               "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
               STAY, 0, GET),
           200, "ok");
}

static void an_answer_to_head_has_no_body(void **state)
{
    expect(ask("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", STAY, 0,
               (struct http_call_opts){.method = HTTP_HEAD}),
           200, "");
}

static void fields_of_the_answer_can_be_read(void **state)
{
    struct seen seen = ask(
        "HTTP/1.1 200 OK\r\nContent-Type:  text/event-stream \r\ncontent-length: 0\r\n\r\n", STAY, 0, GET);

    assert_string_equal(seen.kind, "text/event-stream");
}

static void the_request_is_sent_as_told(void **state)
{
    struct rig *rig = rig_new(0);
    struct seen seen = {.rig = rig};
    struct http_fields fields = {0};
    char want[512];

    http_fields_add_str(&fields, "x-api-key", "sk-1");
    rig->script.lines[0] = (struct line){"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", STAY};
    script_serve(&rig->script);
    begin(&seen, &(struct http_call_opts){.method = HTTP_POST,
                                          .path = "/v1/messages?beta=true",
                                          .fields = &fields,
                                          .body = bytes_str("{}")});
    http_fields_fini(&fields);
    run(rig);
    snprintf(want, sizeof(want),
             "POST /v1/messages?beta=true HTTP/1.1\r\nhost: 127.0.0.1:%u\r\nx-api-key: "
             "sk-1\r\ncontent-length: 2\r\n\r\n{}",
             rig->script.port);
    assert_string_equal(rig->script.request, want);
    rig_free(rig);
}

/* ---- connections ---- */

static void a_connection_is_used_again(void **state)
{
    struct rig *rig = rig_new(0);
    struct seen seen = {.rig = rig, .n_more = 4};

    for (int i = 0; i < 5; i++)
        rig->script.lines[i] =
            (struct line){"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", STAY};
    script_serve(&rig->script);
    begin(&seen, &GET);
    run(rig);
    assert_int_equal(seen.n_ends, 5);
    assert_true(bytes_is(buf_view(&seen.body), "aaaaa"));
    assert_int_equal(rig->script.n_conns, 1);
    assert_int_equal(http_client_n_idle(rig->client), 1);
    buf_fini(&seen.body);
    rig_free(rig);
}

static void a_connection_that_ends_is_not_used_again(void **state)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok and more than was announced",
    };

    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        struct rig *rig = rig_new(0);
        struct seen seen = {.rig = rig};

        rig->script.lines[0] = (struct line){answers[i], HANG};
        script_serve(&rig->script);
        begin(&seen, &GET);
        run(rig);
        assert_int_equal(seen.result, 0);
        assert_int_equal(http_client_n_idle(rig->client), 0);
        buf_fini(&seen.body);
        rig_free(rig);
    }
}

/* The server closes a kept connection just as the next request arrives. */
static void a_dead_connection_is_replaced_once(void **state)
{
    for (int may_repeat = 0; may_repeat < 2; may_repeat++) {
        struct rig *rig = rig_new(0);
        struct seen first = {.rig = rig};
        struct seen second = {.rig = rig};

        rig->script.lines[0] = (struct line){"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1", STAY};
        rig->script.lines[1] = (struct line){NULL, CLOSE};
        rig->script.lines[2] = (struct line){"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n2", STAY};
        script_serve(&rig->script);
        begin(&first, &GET);
        run(rig);
        begin(&second, &(struct http_call_opts){.may_repeat = may_repeat});
        run(rig);
        if (may_repeat)
            expect(second, 200, "2");
        else
            expect_failure(second, E_CLOSED);
        assert_int_equal(rig->script.n_conns, may_repeat ? 2 : 1);
        buf_fini(&first.body);
        rig_free(rig);
    }
}

static void nobody_listens(void **state)
{
    struct rig *rig = rig_new(0);
    struct seen seen = {.rig = rig};

    close(rig->script.listener);
    rig->script.listener = -1;
    begin(&seen, &GET);
    run(rig);
    expect_failure(seen, E_IO);
    assert_non_null(strstr(seen.fault.text, strerror(ECONNREFUSED)));
    rig_free(rig);
}

static void addresses_and_paths_are_checked(void **state)
{
    struct rig *rig = rig_new(0);
    struct seen seen = {.rig = rig};
    struct http_client_opts opts = {.loop = rig->loop};
    struct http_client *client;
    struct fault fault;
    static const char *const paths[] = {"", "x", "/a b", "/a\r\nx: y", "/\x7f", "/\xc3\xa4"};

    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        assert_int_equal(
            http_client_start(rig->client,
                              &(struct http_call_opts){.path = paths[i], .events = &events, .arg = &seen},
                              &seen.call),
            E_INVAL);
    assert_int_equal(http_client_n_calls(rig->client), 0);
    opts.address = "no port here";
    assert_int_equal(http_client_new(&opts, &fault, &client), E_FORMAT);
    rig_free(rig);
}

/* ---- invalid answers ---- */

static void cut_answers_are_failures(void **state)
{
    expect_failure(ask(NULL, CLOSE, 0, GET), E_CLOSED);
    expect_failure(ask("HTTP/1.1 200 OK\r\ncontent-le", CLOSE, 0, GET), E_CLOSED);
    expect_failure(ask("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello", CLOSE, 0, GET), E_TRUNCATED);
    expect_failure(ask("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", CLOSE, 0, GET),
                   E_TRUNCATED);
    expect_failure(
        ask("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", CLOSE, 0, GET),
        E_TRUNCATED);
}

static void hostile_answers_are_failures(void **state)
{
    static const char *const answers[] = {
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 200 OK\ncontent-length: 0\nx : y\n\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\nx",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhello\r\n",
    };

    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        struct seen seen = ask(answers[i], HANG, i % 2, GET);

        if (seen.result != E_FORMAT)
            print_message("taken: %s\n", answers[i]);
        expect_failure(seen, E_FORMAT);
    }
}

static void an_endless_head_is_a_failure(void **state)
{
    size_t cap = 300 * 1024;
    char *answer = malloc(cap);
    size_t n = (size_t)snprintf(answer, cap, "HTTP/1.1 200 OK\r\n");

    while (n + 64 < cap)
        n += (size_t)snprintf(answer + n, cap - n, "x: %040d\r\n", 0);
    expect_failure(ask(answer, HANG, 0, GET), E_FORMAT);
    free(answer);
}

/* ---- time and cancelling ---- */

static void deadlines_end_calls(void **state)
{
    struct http_call_opts opts = {.timeout_ns = 50 * NS_PER_MS};

    expect_failure(ask(NULL, HANG, 0, opts), E_TIMEOUT);
    expect_failure(ask("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello", HANG, 0, opts), E_TIMEOUT);
}

static void a_cancelled_call_is_silent(void **state)
{
    for (int at_body = 0; at_body < 2; at_body++) {
        struct rig *rig = rig_new(0);
        struct seen seen = {.rig = rig, .cancels_at_head = !at_body, .cancels_at_body = at_body};

        rig->script.lines[0] = (struct line){
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\nx\r\n0\r\n\r\n", STAY};
        script_serve(&rig->script);
        begin(&seen, &GET);
        run(rig);
        assert_int_equal(seen.n_heads, 1);
        assert_int_equal(seen.n_pieces, at_body);
        assert_int_equal(seen.n_ends, 0);
        assert_int_equal(http_client_n_calls(rig->client), 0);
        assert_int_equal(http_client_n_idle(rig->client), 0);
        for (int i = 0; i < 200 && rig->script.n_closed_by_client == 0; i++)
            usleep(5000);
        assert_int_equal(rig->script.n_closed_by_client, 1);
        buf_fini(&seen.body);
        rig_free(rig);
    }
}

static void calls_end_with_their_client(void **state)
{
    struct rig *rig = rig_new(0);
    struct seen seen[3] = {{.rig = rig}, {.rig = rig}, {.rig = rig}};

    for (size_t i = 0; i < ARRAY_LEN(seen); i++)
        begin(&seen[i], &GET);
    rig_free(rig);
    for (size_t i = 0; i < ARRAY_LEN(seen); i++)
        assert_int_equal(seen[i].n_ends, 0);
}

/* ---- our own server ---- */

static void echo_head(void *arg, struct http_exchange *exchange)
{
    if (bytes_is(http_exchange_path(exchange), "/no"))
        http_reply(exchange, 401, NULL, bytes_str("no"));
}

static void echo_request(void *arg, struct http_exchange *exchange)
{
    struct bytes body = http_exchange_body(exchange);

    if (http_exchange_method(exchange) == HTTP_GET) {
        http_reply_begin(exchange, 200, NULL);
        for (int i = 0; i < 10; i++)
            http_reply_write(exchange, bytes_str("piece "));
        http_reply_end(exchange);
        return;
    }
    http_reply(exchange, 200, NULL, body);
}

static void echo_refused(void *arg, struct http_exchange *exchange, int status, const char *why)
{
    http_reply(exchange, status, NULL, bytes_str(why));
}

static void echo_abort(void *arg, struct http_exchange *exchange, enum http_abort why)
{
    /* nothing is kept */
}

static void echo_pause(void *arg, struct http_exchange *exchange, bool is_paused)
{
    /* answers are short */
}

static void our_own_server_is_understood(void **state)
{
    static const struct http_handler handler = {.on_head = echo_head,
                                                .on_request = echo_request,
                                                .on_refused = echo_refused,
                                                .on_abort = echo_abort,
                                                .on_pause = echo_pause};
    struct rig *rig = rig_new(0);
    struct http_server_opts server_opts = {.loop = rig->loop, .handler = &handler};
    struct http_client_opts opts = {.loop = rig->loop, .max_idle_conns = 8};
    struct http_server *server;
    struct seen seen[64] = {0};
    static char large[200000];
    char address[32];

    memset(large, 'e', sizeof(large) - 1);
    assert_int_equal(http_server_new(&server_opts, &server), 0);
    assert_int_equal(http_server_listen(server, "127.0.0.1:0", NULL), 0);
    snprintf(address, sizeof(address), "localhost:%u", http_server_port(server));
    opts.address = address;
    http_client_free(rig->client);
    assert_int_equal(http_client_new(&opts, NULL, &rig->client), 0);
    for (size_t i = 0; i < ARRAY_LEN(seen); i++) {
        seen[i].rig = rig;
        if (i % 2 == 0)
            begin(&seen[i], &(struct http_call_opts){.method = HTTP_POST, .body = bytes_str(large)});
        else
            begin(&seen[i], &(struct http_call_opts){.method = HTTP_GET, .path = i % 4 == 1 ? "/x" : "/no"});
    }
    run(rig);
    for (size_t i = 0; i < ARRAY_LEN(seen); i++)
        expect(seen[i], i % 4 == 3 ? 401 : 200,
               i % 2 == 0   ? large
               : i % 4 == 1 ? "piece piece piece piece piece piece piece piece piece piece "
                            : "no");
    assert_in_range(http_client_n_idle(rig->client), 1, 8);
    http_client_free(rig->client);
    rig->client = NULL;
    http_server_free(server);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_of_every_framing),
        cmocka_unit_test(interim_answers_are_skipped),
        cmocka_unit_test(an_answer_to_head_has_no_body),
        cmocka_unit_test(fields_of_the_answer_can_be_read),
        cmocka_unit_test(the_request_is_sent_as_told),
        cmocka_unit_test(a_connection_is_used_again),
        cmocka_unit_test(a_connection_that_ends_is_not_used_again),
        cmocka_unit_test(a_dead_connection_is_replaced_once),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(addresses_and_paths_are_checked),
        cmocka_unit_test(cut_answers_are_failures),
        cmocka_unit_test(hostile_answers_are_failures),
        cmocka_unit_test(an_endless_head_is_a_failure),
        cmocka_unit_test(deadlines_end_calls),
        cmocka_unit_test(a_cancelled_call_is_silent),
        cmocka_unit_test(calls_end_with_their_client),
        cmocka_unit_test(our_own_server_is_understood),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
