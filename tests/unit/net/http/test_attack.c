/* SPDX-License-Identifier: Apache-2.0 */
/* Raw requests that parsers have disagreed about, over a socket to a listening server, whole and byte by
 * byte.  Prints the table for docs/http.md, which compares it with another server's.
 *
 * A second request follows each one.  After a framing error it must not be served, because that would be
 * request smuggling.  After a valid request it must be served. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/http/chunked_priv.h"
#include "net/http/server.h"
#include "raw.h"

#define H             "Host: a\r\n"
#define PROBE         "GET /probe HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
#define POST          "POST / HTTP/1.1\r\n" H
#define CHUNK         POST "Transfer-Encoding: chunked\r\n\r\n"
#define TEXT(literal) literal, sizeof(literal) - 1
#define MAX_ANSWERS   4

/* Expected statuses; includes the probe's 204 if it is to be served. */
struct row {
    const char *name;
    const char *text;
    size_t len_bytes;
    int want[MAX_ANSWERS];
};

static const struct row rows[] = {
    {"a plain GET", TEXT("GET / HTTP/1.1\r\n" H "\r\n"), {200, 204}},
    /* how long is the body */
    {"Content-Length + Transfer-Encoding",
     TEXT(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
     {400}},
    {"Transfer-Encoding + Content-Length",
     TEXT(POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
     {400}},
    {"two different Content-Length", TEXT(POST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), {400}},
    {"two equal Content-Length", TEXT(POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"), {400}},
    {"Content-Length: 3, 3", TEXT(POST "Content-Length: 3, 3\r\n\r\nabc"), {400}},
    {"Content-Length: +3", TEXT(POST "Content-Length: +3\r\n\r\nabc"), {400}},
    {"Content-Length: -1", TEXT(POST "Content-Length: -1\r\n\r\n"), {400}},
    {"Content-Length: 0x3", TEXT(POST "Content-Length: 0x3\r\n\r\nabc"), {400}},
    {"Content-Length: 3 3", TEXT(POST "Content-Length: 3 3\r\n\r\nabc"), {400}},
    {"Content-Length empty", TEXT(POST "Content-Length:\r\n\r\n"), {400}},
    {"Content-Length 2^64 + 3", TEXT(POST "Content-Length: 18446744073709551619\r\n\r\nabc"), {400}},
    {"Content-Length 2^63", TEXT(POST "Content-Length: 9223372036854775808\r\n\r\nabc"), {400}},
    {"Content-Length over the limit", TEXT(POST "Content-Length: 999999999\r\n\r\nabc"), {413}},
    {"Content-Length : 3 (blank before the colon)", TEXT(POST "Content-Length : 3\r\n\r\nabc"), {400}},
    {"Content-Length with blanks around it", TEXT(POST "Content-Length: \t3 \r\n\r\nabc"), {200, 204}},
    {"Transfer-Encoding: gzip", TEXT(POST "Transfer-Encoding: gzip\r\n\r\nabc"), {501}},
    {"Transfer-Encoding: xchunked", TEXT(POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"), {501}},
    {"Transfer-Encoding: chunked, gzip (chunked not last)",
     TEXT(POST "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
     {501}},
    {"Transfer-Encoding: gzip, chunked",
     TEXT(POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
     {501}},
    {"Transfer-Encoding: chunked, chunked",
     TEXT(POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
     {501}},
    {"Transfer-Encoding twice",
     TEXT(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
     {400}},
    {"Transfer-Encoding, second one identity",
     TEXT(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"),
     {400}},
    {"Transfer-Encoding: \\vchunked", TEXT(POST "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n"), {400}},
    {"Transfer-Encoding empty", TEXT(POST "Transfer-Encoding:\r\n\r\n0\r\n\r\n"), {400}},
    {"Transfer-Encoding : chunked", TEXT(POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"), {400}},
    {"Transfer-Encoding: CHUNKED", TEXT(POST "Transfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n"), {200, 204}},
    {"Transfer_Encoding (another field)",
     TEXT(POST "Transfer_Encoding: chunked\r\n\r\n0\r\n\r\n"),
     {200, 400}},
    {"Transfer-Encoding in HTTP/1.0",
     TEXT("POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
     {400}},
    /* chunks */
    {"chunk size +3", TEXT(CHUNK "+3\r\nabc\r\n0\r\n\r\n"), {400}},
    {"chunk size 0x3", TEXT(CHUNK "0x3\r\nabc\r\n0\r\n\r\n"), {400}},
    {"chunk size -1", TEXT(CHUNK "-1\r\nabc\r\n0\r\n\r\n"), {400}},
    {"chunk size empty", TEXT(CHUNK "\r\nabc\r\n0\r\n\r\n"), {400}},
    {"chunk size 2^64 + 3", TEXT(CHUNK "10000000000000003\r\nabc\r\n0\r\n\r\n"), {400}},
    {"chunk size over the limit", TEXT(CHUNK "fffffffffffffff\r\nabc"), {413}},
    {"chunk data without CRLF", TEXT(CHUNK "3\r\nabc0\r\n\r\n"), {400}},
    {"chunk data longer than its size", TEXT(CHUNK "3\r\nabcdef\r\n0\r\n\r\n"), {400}},
    {"chunk size ended by LF", TEXT(CHUNK "3\nabc\r\n0\r\n\r\n"), {400}},
    {"chunk extension", TEXT(CHUNK "3;name=value;x\r\nabc\r\n0;last\r\n\r\n"), {200, 204}},
    {"chunk extension with LF", TEXT(CHUNK "3;a\nb\r\nabc\r\n0\r\n\r\n"), {400}},
    {"trailers", TEXT(CHUNK "3\r\nabc\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\n\r\n"), {200, 204}},
    {"trailer folded", TEXT(CHUNK "0\r\nX-Sum: 1\r\n more\r\n\r\n"), {400}},
    {"trailer without colon", TEXT(CHUNK "0\r\nnothing\r\n\r\n"), {400}},
    {"last chunk 000", TEXT(CHUNK "000\r\n\r\n"), {200, 204}},
    /* header lines */
    {"NUL in a header value", TEXT("GET / HTTP/1.1\r\n" H "X: a\0b\r\n\r\n"), {400}},
    {"control byte in a header name", TEXT("GET / HTTP/1.1\r\n" H "X\x01: a\r\n\r\n"), {400}},
    {"NUL in a header name", TEXT("GET / HTTP/1.1\r\n" H "X\0Y: a\r\n\r\n"), {400}},
    {"empty header name", TEXT("GET / HTTP/1.1\r\n" H ": a\r\n\r\n"), {400}},
    {"high byte in a header name", TEXT("GET / HTTP/1.1\r\n" H "X\xe9: a\r\n\r\n"), {400}},
    {"high bytes in a header value", TEXT("GET / HTTP/1.1\r\n" H "X: \xc3\xa9\xff\r\n\r\n"), {200, 204}},
    {"DEL in a header value", TEXT("GET / HTTP/1.1\r\n" H "X: a\x7f\r\n\r\n"), {400}},
    {"header line without colon", TEXT("GET / HTTP/1.1\r\n" H "nothing\r\n\r\n"), {400}},
    {"folded header line", TEXT("GET / HTTP/1.1\r\n" H "X: a\r\n b\r\n\r\n"), {400}},
    {"folded first line", TEXT("GET / HTTP/1.1\r\n X: a\r\n" H "\r\n"), {400}},
    {"folded Transfer-Encoding", TEXT(POST "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"), {400}},
    {"bare LF after a header", TEXT("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"), {400}},
    {"bare LF after the request line", TEXT("GET / HTTP/1.1\n" H "\r\n"), {400}},
    {"bare LF as the empty line", TEXT("GET / HTTP/1.1\r\n" H "\n"), {400}},
    {"bare CR in a header value", TEXT("GET / HTTP/1.1\r\n" H "X: a\rY: b\r\n\r\n"), {400}},
    {"CR CR LF", TEXT("GET / HTTP/1.1\r\n" H "X: a\r\r\n\r\n"), {400}},
    {"no Host", TEXT("GET / HTTP/1.1\r\n\r\n"), {400}},
    {"two Hosts", TEXT("GET / HTTP/1.1\r\n" H H "\r\n"), {400}},
    {"Host: a, b", TEXT("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"), {400}},
    {"Host: user@a", TEXT("GET / HTTP/1.1\r\nHost: user@a\r\n\r\n"), {400}},
    {"Expect: something", TEXT("GET / HTTP/1.1\r\n" H "Expect: something\r\n\r\n"), {417}},
    /* request lines */
    {"HTTP/2.0 on this connection", TEXT("GET / HTTP/2.0\r\n" H "\r\n"), {505}},
    {"HTTP/2 preface", TEXT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), {505}},
    {"HTTP/0.9 request", TEXT("GET /\r\n"), {400}},
    {"HTTP/1.10", TEXT("GET / HTTP/1.10\r\n" H "\r\n"), {400}},
    {"http/1.1", TEXT("GET / http/1.1\r\n" H "\r\n"), {400}},
    {"leading CRLFs", TEXT("\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n"), {200, 204}},
    {"leading CRLF, then CR", TEXT("\r\n\rGET / HTTP/1.1\r\n" H "\r\n"), {400}},
    {"leading LF", TEXT("\nGET / HTTP/1.1\r\n" H "\r\n"), {400}},
    {"leading blank", TEXT(" GET / HTTP/1.1\r\n" H "\r\n"), {400}},
    {"two blanks in the request line", TEXT("GET  / HTTP/1.1\r\n" H "\r\n"), {400}},
    {"tabs in the request line", TEXT("GET\t/\tHTTP/1.1\r\n" H "\r\n"), {400}},
    {"blank after the version", TEXT("GET / HTTP/1.1 \r\n" H "\r\n"), {400}},
    {"blank in the target", TEXT("GET /a b HTTP/1.1\r\n" H "\r\n"), {400}},
    {"NUL in the target", TEXT("GET /a\0b HTTP/1.1\r\n" H "\r\n"), {400}},
    {"high byte in the target", TEXT("GET /\xc3\xa9 HTTP/1.1\r\n" H "\r\n"), {400}},
    {"fragment in the target", TEXT("GET /#a HTTP/1.1\r\n" H "\r\n"), {400}},
    {"lower-case method", TEXT("get / HTTP/1.1\r\n" H "\r\n"), {405, 204}},
    {"method with a bad byte", TEXT("G(T / HTTP/1.1\r\n" H "\r\n"), {400}},
    {"absolute-form", TEXT("GET http://b/ HTTP/1.1\r\n" H "\r\n"), {200, 204}},
    {"absolute-form of another scheme", TEXT("GET ftp://b/ HTTP/1.1\r\n" H "\r\n"), {400}},
    {"authority-form with GET", TEXT("GET a:80 HTTP/1.1\r\n" H "\r\n"), {400}},
    {"* with GET", TEXT("GET * HTTP/1.1\r\n" H "\r\n"), {400}},
    {"OPTIONS *", TEXT("OPTIONS * HTTP/1.1\r\n" H "\r\n"), {404, 204}},
    {"CONNECT", TEXT("CONNECT a:80 HTTP/1.1\r\n" H "\r\n"), {405, 204}},
    {"TLS ClientHello in cleartext", TEXT("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n"), {400}},
    /* sequences */
    {"GET with a body, then another request",
     TEXT("GET / HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabc"),
     {200, 204}},
    {"body that looks like a request",
     TEXT(POST "Content-Length: 38\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\nX: yy"),
     {200, 204}},
    {"smuggled behind Content-Length + chunked",
     TEXT(POST "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n1a\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
     {400}},
    {"smuggled behind a bad chunk", TEXT(CHUNK "3\r\nabcX\r\nGET /smuggled HTTP/1.1\r\n" H "\r\n"), {400}},
};

static atomic_int n_smuggled;

static void on_head(void *arg, struct http_exchange *x)
{
}

static void on_request(void *arg, struct http_exchange *x)
{
    enum http_method method = http_exchange_method(x);
    struct bytes path = http_exchange_path(x);
    int status = 404;

    if (method == HTTP_OTHER)
        status = 405;
    else if (bytes_is(path, "/"))
        status = 200;
    else if (bytes_is(path, "/probe"))
        status = 204;
    else if (bytes_is(path, "/smuggled"))
        n_smuggled++;
    http_reply(x, status, NULL, status == 200 ? http_exchange_body(x) : bytes_of(NULL, 0));
}

static void on_refused(void *arg, struct http_exchange *x, int status, const char *why)
{
    http_reply(x, status, NULL, bytes_str(why));
}

static void on_abort(void *arg, struct http_exchange *x, enum http_abort why)
{
}

static void on_pause(void *arg, struct http_exchange *x, bool is_paused)
{
}

static const struct http_handler handler = {on_head, on_request, on_refused, on_abort, on_pause};

struct world {
    struct raw_loop raw;
    struct http_server *server;
    uint16_t port;
};

static int begin(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    struct http_server_opts opts = {.handler = &handler, .handler_arg = world};

    raw_loop_init(&world->raw);
    opts.loop = world->raw.loop;
    opts.limits.max_conns_per_address = 10000;
    assert_int_equal(http_server_new(&opts, &world->server), 0);
    assert_int_equal(http_server_listen(world->server, "127.0.0.1:0", NULL), 0);
    world->port = http_server_port(world->server);
    raw_loop_run(&world->raw);
    *state = world;
    return 0;
}

static int end(void **state)
{
    struct world *world = *state;

    raw_loop_stop(&world->raw);
    http_server_free(world->server);
    ev_loop_free(world->raw.loop);
    free(world);
    return 0;
}

/* Statuses of the answers in text, at most MAX_ANSWERS; is_head: the first has no body. */
static void read_statuses(struct bytes text, bool is_head, int *out)
{
    struct http_head head;

    for (int n = 0; n < MAX_ANSWERS && http_parse_response(text, is_head && n == 0, &head) == 1; n++) {
        size_t len = head.len_bytes;

        out[n] = head.status;
        if (head.framing == HTTP_BODY_LENGTH)
            len += (size_t)head.content_length;
        assert_int_not_equal(head.framing, HTTP_BODY_CHUNKED); /* no answer is streamed here */
        assert_true(len <= text.len_bytes);
        text = bytes_of(text.data + len, text.len_bytes - len);
    }
}

static void ask(const struct world *world, const struct row *row, size_t piece, int *statuses)
{
    struct buf text = {0};
    struct buf answer = {0};
    int fd = raw_connect(world->port);

    memset(statuses, 0, MAX_ANSWERS * sizeof(*statuses));
    buf_append(&text, row->text, row->len_bytes);
    buf_append_str(&text, PROBE);
    for (size_t at = 0; at < text.len_bytes; at += piece)
        if (!raw_send(fd, text.data + at, at + piece > text.len_bytes ? text.len_bytes - at : piece))
            break;
    assert_true(raw_read_until(fd, NULL, 5000, &answer)); /* it closes in any case */
    close(fd);
    if (answer.len_bytes > 0)
        read_statuses(buf_view(&answer), row->len_bytes > 4 && memcmp(row->text, "HEAD", 4) == 0, statuses);
    buf_fini(&text);
    buf_fini(&answer);
}

static bool is_as_wanted(const struct world *world, const struct row *row)
{
    bool is_good = true;
    int got[MAX_ANSWERS];

    for (int round = 0; round < 2; round++) {
        ask(world, row, round == 0 ? SIZE_MAX / 2 : 1, got);
        if (memcmp(got, row->want, sizeof(got)) != 0)
            is_good = false;
        if (round == 0 || !is_good) {
            printf("%-52s %3d%s%s\n", row->name, got[0],
                   got[1] == 0     ? ", closed"
                   : got[1] == 204 ? ", next served"
                                   : ", then refused",
                   is_good ? "" : "   <-- NOT AS WANTED");
            if (!is_good)
                printf("    got %d %d %d, want %d %d %d (%s)\n", got[0], got[1], got[2], row->want[0],
                       row->want[1], row->want[2], round == 0 ? "whole" : "byte by byte");
        }
        if (row->len_bytes > 2000)
            break;
    }
    return is_good;
}

static void every_row_is_as_wanted(void **state)
{
    unsigned n_bad = 0;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        n_bad += !is_as_wanted(*state, &rows[i]);
    printf("%zu rows, %u not as wanted\n", sizeof(rows) / sizeof(rows[0]), n_bad);
    assert_int_equal(n_bad, 0);
    assert_int_equal(n_smuggled, 0);
}

static void oversized_heads_are_refused(void **state)
{
    const struct {
        const char *name, *before, *unit, *after;
        unsigned n;
        int want[MAX_ANSWERS];
    } big[] = {
        {"request line of 9 KiB", "GET /", "aaaaaaaaaaaaaaaa", " HTTP/1.1\r\n" H "\r\n", 576, {414}},
        {"method of 9 KiB", "", "AAAAAAAAAAAAAAAA", " / HTTP/1.1\r\n" H "\r\n", 576, {414}},
        {"head of 70 KiB", "GET / HTTP/1.1\r\n" H "X: ", "aaaaaaaaaaaaaaaa", "\r\n\r\n", 4480, {431}},
        {"101 header fields", "GET / HTTP/1.1\r\n", "X: a\r\n", H "\r\n", 100, {431}},
        {"99 header fields and Host", "GET / HTTP/1.1\r\n", "X: a\r\n", H "\r\n", 99, {200, 204}},
        {"chunk extensions of 5 KiB", CHUNK "3;", "aaaaaaaaaaaaaaaa", "\r\nabc\r\n0\r\n\r\n", 320, {400}},
        {"trailers of 9 KiB", CHUNK "0\r\nX: ", "aaaaaaaaaaaaaaaa", "\r\n\r\n", 576, {400}},
        {"5 leading CRLFs", "", "\r\n", "GET / HTTP/1.1\r\n" H "\r\n", 5, {400}},
    };

    for (size_t i = 0; i < sizeof(big) / sizeof(big[0]); i++) {
        struct buf text = {0};
        struct row row = {.name = big[i].name};

        buf_append_str(&text, big[i].before);
        for (unsigned n = 0; n < big[i].n; n++)
            buf_append_str(&text, big[i].unit);
        buf_append_str(&text, big[i].after);
        row.text = (const char *)text.data;
        row.len_bytes = text.len_bytes;
        memcpy(row.want, big[i].want, sizeof(row.want));
        assert_true(is_as_wanted(*state, &row));
        buf_fini(&text);
    }
}

static void head_with_a_body_keeps_step(void **state)
{
    static const struct row row = {"HEAD with a body, then another request",
                                   TEXT("HEAD / HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabc"),
                                   {200, 204}};

    assert_true(is_as_wanted(*state, &row));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_as_wanted),
        cmocka_unit_test(oversized_heads_are_refused),
        cmocka_unit_test(head_with_a_body_keeps_step),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
