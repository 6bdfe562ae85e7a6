/* SPDX-License-Identifier: Apache-2.0 */
/* The head parser with requests on which servers and proxies disagree.  Every request is also fed byte by
 * byte, and must get the same verdict. */
#include "net/http/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"

static const struct http_head_limits limits = {8192, 65536, 100};

struct verdict {
    int rc;
    int status;
    struct http_head head;
};

static struct verdict judge(struct bytes text)
{
    struct verdict v = {0};
    struct http_refusal refusal = {0};

    v.rc = http_parse_request(text, &limits, &v.head, &refusal);
    v.status = refusal.status;
    assert_true(v.rc != E_FORMAT || (refusal.status >= 400 && refusal.why != NULL));
    return v;
}

/* Returns the verdict on the whole text.
 * Each longer prefix must give "more" until one gives the same verdict. */
static struct verdict judge_all_ways(struct bytes text)
{
    struct verdict whole = judge(text);

    for (size_t n = 0; n <= text.len_bytes; n++) {
        uint8_t *copy = malloc(n + 1); /* exact size, so that a sanitizer detects reads past the end */
        struct verdict part;

        assert_non_null(copy);
        memcpy(copy, text.data, n);
        part = judge(bytes_of(copy, n));
        free(copy);
        if (part.rc == 0)
            continue;
        assert_int_equal(part.rc, whole.rc);
        assert_int_equal(part.status, whole.status);
        return whole;
    }
    assert_int_equal(whole.rc, 0);
    return whole;
}

#define OK(body_kind, text)                                                                                  \
    {                                                                                                        \
        text, sizeof(text) - 1, 0, body_kind                                                                 \
    }
#define NO(code, text)                                                                                       \
    {                                                                                                        \
        text, sizeof(text) - 1, code, HTTP_BODY_NONE                                                         \
    }
#define H "Host: a\r\n"

static const struct {
    const char *text;
    size_t len;
    int status; /* 0: accepted */
    enum http_framing framing;
} requests[] = {
    /* the "wanted" column */
    NO(400, "POST / HTTP/1.1\r\n" H "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
    NO(400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"),
    NO(400, "POST / HTTP/1.1\r\n" H "Content-Length: 3\r\nContent-Length: 4\r\n\r\n"),
    NO(400, "POST / HTTP/1.1\r\n" H "Content-Length: 3\r\nContent-Length: 3\r\n\r\n"),
    NO(400, "POST / HTTP/1.1\r\n" H "Content-Length: +3\r\n\r\n"),
    NO(400, "POST / HTTP/1.1\r\n" H "Content-Length: -3\r\n\r\n"),
    NO(400, "POST / HTTP/1.1\r\n" H "Content-Length: 0x3\r\n\r\n"),
    NO(400, "POST / HTTP/1.1\r\n" H "Content-Length: 3, 3\r\n\r\n"),
    NO(400, "POST / HTTP/1.1\r\n" H "Content-Length: 3 3\r\n\r\n"),
    NO(400, "POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\n"),
    NO(400, "POST / HTTP/1.1\r\n" H "Content-Length: 99999999999999999999\r\n\r\n"),
    NO(400, "POST / HTTP/1.1\r\n" H "Content-Length : 3\r\n\r\n"),
    NO(400, "POST / HTTP/1.1\r\n" H "Content-Length\t: 3\r\n\r\n"),
    NO(501, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip\r\n\r\n"),
    NO(501, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n"),
    NO(501, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n"),
    NO(501, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: identity\r\n\r\n"),
    NO(501, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, chunked\r\n\r\n"),
    NO(400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
    NO(400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n\r\n"),
    NO(400, "POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n"),
    NO(400, "GET / HTTP/1.1\r\n" H "X: a\0b\r\n\r\n"),
    NO(400, "GET / HTTP/1.1\r\n" H "X\x01: a\r\n\r\n"),
    NO(400, "GET / HTTP/1.1\r\n" H "X: a\x7f\r\n\r\n"),
    NO(400, "GET / HTTP/1.1\r\n" H "X: a\rb\r\n\r\n"),
    NO(400, "GET / HTTP/1.1\r\n" H ": a\r\n\r\n"),
    NO(400, "GET / HTTP/1.1\r\n" H "no colon\r\n\r\n"),
    NO(400, "GET / HTTP/1.1\r\n" H "X: a\r\n folded\r\n\r\n"),
    NO(400, "GET / HTTP/1.1\r\n folded: at once\r\n" H "\r\n"),
    NO(400, "GET / HTTP/1.1\n" H "\r\n"),
    NO(400, "GET / HTTP/1.1\r\nHost: a\n\r\n"),
    NO(400, "GET / HTTP/1.1\r\nHost: a\r\n\n"),
    NO(400, "\nGET / HTTP/1.1\r\n" H "\r\n"),
    NO(400, "\r\r\nGET / HTTP/1.1\r\n" H "\r\n"),
    NO(400, "GET / HTTP/1.1\r\n\r\n"),
    NO(400, "GET / HTTP/1.1\r\n" H H "\r\n"),
    NO(400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    NO(400, "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
    NO(505, "GET / HTTP/2.0\r\n" H "\r\n"),
    NO(505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    NO(505, "GET / HTTP/0.9\r\n" H "\r\n"),
    OK(HTTP_BODY_NONE, "\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n"),
    OK(HTTP_BODY_LENGTH, "HEAD / HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n" H "\r\n"),
    /* request lines */
    NO(400, "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n"),
    NO(400, "GET  / HTTP/1.1\r\n" H "\r\n"),
    NO(400, "GET /  HTTP/1.1\r\n" H "\r\n"),
    NO(400, "GET /a b HTTP/1.1\r\n" H "\r\n"),
    NO(400, " GET / HTTP/1.1\r\n" H "\r\n"),
    NO(400, "GET\t/ HTTP/1.1\r\n" H "\r\n"),
    NO(400, "GET / HTTP/1.1 \r\n" H "\r\n"),
    NO(400, "GET / http/1.1\r\n" H "\r\n"),
    NO(400, "GET / HTTP/1.10\r\n" H "\r\n"),
    NO(400, "GET / HTTP/11\r\n" H "\r\n"),
    NO(400, "GET /\r\n" H "\r\n"),
    NO(400, "GET\r\n" H "\r\n"),
    NO(400, "GET \r\n" H "\r\n"),
    NO(400, "GET  HTTP/1.1\r\n" H "\r\n"),
    NO(400, "/ HTTP/1.1\r\n" H "\r\n"),
    NO(400, "G(T / HTTP/1.1\r\n" H "\r\n"),
    NO(400, "GET a HTTP/1.1\r\n" H "\r\n"),
    NO(400, "GET * HTTP/1.1\r\n" H "\r\n"),
    NO(400, "GET /a#b HTTP/1.1\r\n" H "\r\n"),
    NO(400, "GET /\x80 HTTP/1.1\r\n" H "\r\n"),
    NO(400, "GET http:// HTTP/1.1\r\n" H "\r\n"),
    NO(400, "GET http:///x HTTP/1.1\r\n" H "\r\n"),
    NO(400, "GET ftp://a/x HTTP/1.1\r\n" H "\r\n"),
    NO(400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n"),
    OK(HTTP_BODY_NONE, "OPTIONS * HTTP/1.1\r\n" H "\r\n"),
    OK(HTTP_BODY_NONE, "CONNECT a:443 HTTP/1.1\r\n" H "\r\n"),
    OK(HTTP_BODY_NONE, "BREW / HTTP/1.1\r\n" H "\r\n"),
    OK(HTTP_BODY_NONE, "GET / HTTP/1.2\r\n" H "\r\n"),
    OK(HTTP_BODY_NONE, "GET / HTTP/1.0\r\n\r\n"),
    OK(HTTP_BODY_NONE, "GET / HTTP/1.1\r\nhOST:a\r\n\r\n"),
    OK(HTTP_BODY_NONE, "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"),
    OK(HTTP_BODY_NONE, "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
    /* fields */
    OK(HTTP_BODY_NONE, "GET / HTTP/1.1\r\n" H "X:\r\nY: \t \r\nZ:\xff\xfe\r\n\r\n"),
    OK(HTTP_BODY_NONE, "POST / HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n"),
    OK(HTTP_BODY_LENGTH, "POST / HTTP/1.1\r\n" H "Content-Length: 007\r\n\r\n"),
    OK(HTTP_BODY_CHUNKED, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: CHUNKED\r\n\r\n"),
    NO(417, "POST / HTTP/1.1\r\n" H "Expect: 200-ok\r\n\r\n"),
    NO(417, "POST / HTTP/1.1\r\n" H "Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n"),
};

static void requests_get_the_wanted_verdict(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        struct verdict v = judge_all_ways(bytes_of(requests[i].text, requests[i].len));

        if (v.status != requests[i].status || (v.status == 0 && v.rc != 1))
            fail_msg("request %zu: %d instead of %d: %.60s", i, v.status, requests[i].status,
                     requests[i].text);
        if (v.rc == 1)
            assert_int_equal(v.head.framing, requests[i].framing);
    }
}

static void an_unfinished_head_wants_more(void **state)
{
    static const char *const parts[] = {"",
                                        "\r",
                                        "\r\n",
                                        "G",
                                        "GET / HTTP/1.1",
                                        "GET / HTTP/1.1\r",
                                        "GET / HTTP/1.1\r\n",
                                        "GET / HTTP/1.1\r\nHost: a\r\n\r"};

    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        assert_int_equal(judge(bytes_str(parts[i])).rc, 0);
}

static void assert_span(struct http_span span, struct bytes text, const char *want)
{
    struct bytes got = http_span_of(span, text);

    assert_int_equal(got.len_bytes, strlen(want));
    assert_memory_equal(got.data, want, strlen(want));
}

static void parts_are_where_they_are(void **state)
{
    struct bytes text =
        bytes_str("\r\nPOST /v1/messages?beta=true&x HTTP/1.1\r\nhost:a\r\nX-Api-Key: \t k e y \t\r\n"
                  "Connection: foo , CLOSE,\r\nExpect: 100-Continue\r\nContent-Length: 12\r\n\r\nbody");
    struct verdict v = judge_all_ways(text);

    assert_int_equal(v.rc, 1);
    assert_int_equal(v.head.method, HTTP_POST);
    assert_int_equal(v.head.len_bytes, text.len_bytes - 4);
    assert_int_equal(v.head.content_length, 12);
    assert_int_equal(v.head.n_fields, 5);
    assert_false(v.head.keeps_alive);
    assert_true(v.head.expects_continue);
    assert_span(v.head.path, text, "/v1/messages");
    assert_span(v.head.query, text, "beta=true&x");
    assert_true(bytes_is(http_head_get(&v.head, text, "x-api-key", NULL), "k e y"));
    assert_true(http_head_lists(&v.head, text, "connection", "foo"));
    assert_false(http_head_lists(&v.head, text, "connection", "fo"));
    assert_false(http_head_lists(&v.head, text, "connection", ""));
}

static void targets_lose_their_authority(void **state)
{
    static const struct {
        const char *target, *path, *query;
    } table[] = {{"/", "/", ""},
                 {"/a?", "/a", ""},
                 {"/?a?b", "/", "a?b"},
                 {"http://h/a/b?c", "/a/b", "c"},
                 {"HTTP://h:1?c", "/", "c"},
                 {"https://h", "/", ""},
                 {"//x/y", "//x/y", ""}};

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        char text[200];
        struct verdict v;

        snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", table[i].target);
        v = judge_all_ways(bytes_str(text));
        assert_int_equal(v.rc, 1);
        assert_span(v.head.path, bytes_str(text), table[i].path);
        assert_span(v.head.query, bytes_str(text), table[i].query);
    }
}

static void keep_alive_follows_version_and_connection(void **state)
{
    static const struct {
        const char *text;
        bool keeps_alive;
    } table[] = {{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true},
                 {"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false},
                 {"GET / HTTP/1.1\r\nHost: a\r\nConnection: x\r\nConnection: Close\r\n\r\n", false},
                 {"GET / HTTP/1.0\r\n\r\n", false},
                 {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true},
                 {"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", false}};

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_int_equal(judge(bytes_str(table[i].text)).head.keeps_alive, table[i].keeps_alive);
}

static struct verdict judge_big(const char *line_filler, size_t n_filler, unsigned n_fields, size_t value_len)
{
    struct buf text = {0};
    struct verdict v;

    buf_append_str(&text, "GET /");
    for (size_t i = 0; i < n_filler; i++)
        buf_append_str(&text, line_filler);
    buf_append_str(&text, " HTTP/1.1\r\nHost: a\r\n");
    for (unsigned i = 0; i < n_fields; i++) {
        buf_append_str(&text, "x: ");
        for (size_t k = 0; k < value_len; k++)
            buf_append_byte(&text, 'v');
        buf_append_str(&text, "\r\n");
    }
    buf_append_str(&text, "\r\n");
    v = judge(buf_view(&text));
    if (v.rc != 1) {
        /* Also detected early, without the end. */
        struct verdict part = judge(bytes_of(text.data, text.len_bytes - 2));

        assert_int_equal(part.status, v.status);
    }
    buf_fini(&text);
    return v;
}

static void limits_have_their_own_status(void **state)
{
    assert_int_equal(judge_big("a", 8192 - 17, 0, 0).rc, 1); /* "GET /" + " HTTP/1.1\r\n" are 16 */
    assert_int_equal(judge_big("a", 8192, 0, 0).status, 414);
    assert_int_equal(judge_big("a", 70000, 0, 0).status, 414);
    assert_int_equal(judge_big("a", 1, 99, 10).rc, 1);
    assert_int_equal(judge_big("a", 1, 100, 10).status, 431);
    assert_int_equal(judge_big("a", 1, 60, 1000).rc, 1);
    assert_int_equal(judge_big("a", 1, 70, 1000).status, 431);
    assert_int_equal(judge_big("a", 1, 1, 66000).status, 431);
}

static void an_endless_line_is_refused_before_its_end(void **state)
{
    uint8_t *text = malloc(8193);

    assert_non_null(text);
    memset(text, 'G', 8193);
    assert_int_equal(judge(bytes_of(text, 8192)).rc, 0);
    assert_int_equal(judge(bytes_of(text, 8193)).status, 414);
    free(text);
}

static void answers_are_framed(void **state)
{
    static const struct {
        const char *text;
        bool is_for_head;
        int rc;
        enum http_framing framing;
        bool keeps_alive;
    } table[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, 1, HTTP_BODY_LENGTH, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, 1, HTTP_BODY_NONE, true},
        {"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n", false, 1, HTTP_BODY_CHUNKED, true},
        {"HTTP/1.1 200 OK\r\n\r\n", false, 1, HTTP_BODY_TO_CLOSE, false},
        {"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false, 1, HTTP_BODY_NONE, false},
        {"HTTP/1.1 204 No Content\r\n\r\n", false, 1, HTTP_BODY_NONE, true},
        {"HTTP/1.1 100 Continue\r\n\r\n", false, 1, HTTP_BODY_NONE, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5", false, 0, HTTP_BODY_NONE, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", false, E_FORMAT, 0,
         false},
        {"HTTP/2 200 OK\r\n\r\n", false, E_FORMAT, 0, false},
        {"HTTP/1.1 20 OK\r\n\r\n", false, E_FORMAT, 0, false},
        {"HTTP/1.1 2000 OK\r\n\r\n", false, E_FORMAT, 0, false},
        {"HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\n", false, E_FORMAT, 0, false},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct http_head head;
        int rc = http_parse_response(bytes_str(table[i].text), table[i].is_for_head, &head);

        assert_int_equal(rc, table[i].rc);
        if (rc != 1)
            continue;
        assert_int_equal(head.framing, table[i].framing);
        assert_int_equal(head.keeps_alive, table[i].keeps_alive);
    }
}

static void queries_are_decoded(void **state)
{
    struct bytes query = bytes_str("limit=20&after_id=a%2Fb%20c&flag&bad=%zz&nul=%00&limit=3");
    char out[16];

    assert_true(http_query_get(query, "limit", out, sizeof(out)));
    assert_string_equal(out, "20");
    assert_true(http_query_get(query, "after_id", out, sizeof(out)));
    assert_string_equal(out, "a/b c");
    assert_true(http_query_get(query, "flag", out, sizeof(out)));
    assert_string_equal(out, "");
    assert_false(http_query_get(query, "bad", out, sizeof(out)));
    assert_false(http_query_get(query, "nul", out, sizeof(out)));
    assert_false(http_query_get(query, "lim", out, sizeof(out)));
    assert_false(http_query_get(query, "after_id", out, 5));
    assert_false(http_query_get(bytes_str(""), "x", out, sizeof(out)));
    assert_int_equal(http_percent_decode(bytes_str("%4"), out, sizeof(out)), E_FORMAT);
    assert_int_equal(http_percent_decode(bytes_str("%"), out, sizeof(out)), E_FORMAT);
    assert_int_equal(http_percent_decode(bytes_str("a%41"), out, sizeof(out)), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_get_the_wanted_verdict),
        cmocka_unit_test(an_unfinished_head_wants_more),
        cmocka_unit_test(parts_are_where_they_are),
        cmocka_unit_test(targets_lose_their_authority),
        cmocka_unit_test(keep_alive_follows_version_and_connection),
        cmocka_unit_test(limits_have_their_own_status),
        cmocka_unit_test(an_endless_line_is_refused_before_its_end),
        cmocka_unit_test(answers_are_framed),
        cmocka_unit_test(queries_are_decoded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
