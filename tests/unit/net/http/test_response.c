/* SPDX-License-Identifier: Apache-2.0 */
/* Heads that the server writes: no client input can end one of their lines. */
#include "net/http/response.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "net/http/parse.h"

static void fields_refuse_bytes_that_could_split_a_head(void **state)
{
    struct http_fields fields = {0};

    for (int c = 0; c < 256; c++) {
        uint8_t value[3] = {'a', (uint8_t)c, 'b'};
        bool is_bad = (c < ' ' && c != '\t') || c == 0x7f;
        int rc = http_fields_add(&fields, "x", bytes_of(value, 3));

        assert_int_equal(rc, is_bad ? E_INVAL : 0);
    }
    assert_int_equal(http_fields_add_str(&fields, "", "v"), E_INVAL);
    assert_int_equal(http_fields_add_str(&fields, "a b", "v"), E_INVAL);
    assert_int_equal(http_fields_add_str(&fields, "a:b", "v"), E_INVAL);
    assert_int_equal(http_fields_add_str(&fields, "a\r\nb", "v"), E_INVAL);
    assert_int_equal(http_fields_addf(&fields, "a", "%2000d", 1), E_INVAL);
    http_fields_fini(&fields);
}

static void a_head_reads_back(void **state)
{
    struct http_fields fields = {0};
    struct http_fields extra = {0};
    struct http_head head;
    struct buf text = {0};

    assert_int_equal(http_fields_add_str(&fields, "content-type", "application/json"), 0);
    assert_int_equal(http_fields_addf(&extra, "content-length", "%d", 7), 0);
    assert_int_equal(http_put_response_head(&text, 529, &fields, &extra), 0);
    assert_int_equal(http_parse_response(buf_view(&text), false, &head), 1);
    assert_int_equal(head.status, 529);
    assert_int_equal(head.content_length, 7);
    assert_int_equal(head.len_bytes, text.len_bytes);
    assert_true(bytes_is(http_head_get(&head, buf_view(&text), "content-type", NULL), "application/json"));
    http_fields_fini(&fields);
    http_fields_fini(&extra);
    buf_fini(&text);
}

static void dates_are_as_http_wants_them(void **state)
{
    char text[30];

    http_date(784111777, text);
    assert_string_equal(text, "Sun, 06 Nov 1994 08:49:37 GMT");
    http_date(0, text);
    assert_string_equal(text, "Thu, 01 Jan 1970 00:00:00 GMT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_refuse_bytes_that_could_split_a_head),
        cmocka_unit_test(a_head_reads_back),
        cmocka_unit_test(dates_are_as_http_wants_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
