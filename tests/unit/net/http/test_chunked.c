/* SPDX-License-Identifier: Apache-2.0 */
/* The chunked decoder: accepted and refused bodies, in one piece and in every split. */
#include "net/http/chunked_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"

/* Decodes text in pieces of piece bytes.  Returns the last rc; *rest_out: bytes after the body. */
static int decode(struct bytes text, size_t piece, struct buf *out, size_t *rest_out)
{
    struct http_chunked chunked = {0};
    size_t at = 0;
    size_t end = piece;
    int rc = 0;

    buf_clear(out);
    while (rc == 0 && at < text.len_bytes) {
        struct bytes data;
        size_t used;

        if (end > text.len_bytes)
            end = text.len_bytes;
        rc = http_chunked_take(&chunked, bytes_of(text.data + at, end - at), &used, &data);
        if (rc < 0)
            return rc;
        assert_true(used <= end - at);
        if (data.len_bytes > 0)
            buf_append(out, data.data, data.len_bytes);
        at += used;
        if (at == end)
            end += piece;
    }
    *rest_out = text.len_bytes - at;
    return rc;
}

#define TEXT(t) t, sizeof(t) - 1

static const struct {
    const char *text;
    size_t len;
    int rc;
    const char *body;
    size_t rest;
} bodies[] = {
    {TEXT("3\r\nabc\r\n0\r\n\r\n"), 1, "abc", 0},
    {TEXT("3\r\nabc\r\n0\r\n\r\nGET /"), 1, "abc", 5},
    {TEXT("0\r\n\r\n"), 1, "", 0},
    {TEXT("00003\r\nabc\r\n000\r\n\r\n"), 1, "abc", 0},
    {TEXT("A\r\n0123456789\r\nb\r\n0123456789a\r\n0\r\n\r\n"), 1, "01234567890123456789a", 0},
    {TEXT("3;x=y\r\nabc\r\n0;z\r\n\r\n"), 1, "abc", 0},
    {TEXT("3 ; x=\"a b\"\r\nabc\r\n0\r\n\r\n"), 1, "abc", 0},
    {TEXT("3\r\nabc\r\n0\r\nX-T: v\r\nY:\r\n\r\n"), 1, "abc", 0},
    {TEXT("3\r\n\r\n\n\r\n0\r\n\r\n"), 1, "\r\n\n", 0},
    {TEXT("3\r\nab"), 0, "ab", 0},
    {TEXT("+3\r\nabc\r\n0\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT("-3\r\nabc\r\n0\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT("0x3\r\nabc\r\n0\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT(" 3\r\nabc\r\n0\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT("\r\nabc\r\n0\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT(";x\r\nabc\r\n0\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT("3\nabc\r\n0\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT("3\r\nabc0\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT("3\r\nabcd\r\n0\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT("3\r\nabc\n0\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT("3\r\nabc\r\n0\r\n\n"), E_FORMAT, NULL, 0},
    {TEXT("3;a\nb\r\nabc\r\n0\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT("3;a\0b\r\nabc\r\n0\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT("3\r\nabc\r\n0\r\n folded\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT("3\r\nabc\r\n0\r\nno colon\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT("3\r\nabc\r\n0\r\nx : y\r\n\r\n"), E_FORMAT, NULL, 0},
    {TEXT("1000000000000000\r\nabc"), E_FORMAT, NULL, 0},
    {TEXT("ffffffffffffffff\r\nabc"), E_FORMAT, NULL, 0},
    {TEXT("fffffffffffffff\r\nabc"), 0, "abc", 0},
};

static void bodies_decode_the_same_in_any_split(void **state)
{
    struct buf out = {0};

    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        for (size_t piece = 1; piece <= bodies[i].len; piece++) {
            size_t rest = 0;
            int rc = decode(bytes_of(bodies[i].text, bodies[i].len), piece, &out, &rest);

            if (rc != bodies[i].rc)
                fail_msg("body %zu in pieces of %zu: %d", i, piece, rc);
            if (rc < 0)
                continue;
            assert_int_equal(out.len_bytes, strlen(bodies[i].body));
            assert_memory_equal(out.data == NULL ? (const void *)"" : out.data, bodies[i].body,
                                out.len_bytes);
            assert_int_equal(rest, bodies[i].rest);
        }
    }
    buf_fini(&out);
}

static void endless_lines_are_refused(void **state)
{
    struct buf text = {0};
    struct buf out = {0};
    size_t rest;

    buf_append_str(&text, "3;");
    for (int i = 0; i < 5000; i++)
        buf_append_byte(&text, 'e');
    assert_int_equal(decode(buf_view(&text), 100, &out, &rest), E_LIMIT);

    buf_clear(&text);
    buf_append_str(&text, "0\r\n");
    for (int i = 0; i < 2000; i++)
        buf_append_str(&text, "a: b\r\n");
    assert_int_equal(decode(buf_view(&text), 100, &out, &rest), E_LIMIT);
    buf_fini(&text);
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_decode_the_same_in_any_split),
        cmocka_unit_test(endless_lines_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
