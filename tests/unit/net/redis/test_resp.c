/* SPDX-License-Identifier: Apache-2.0 */
/* RESP: every kind of item, in both versions; replies that are cut anywhere; bytes that are no RESP. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "net/redis/resp.h"

static void items_are_read(void **state)
{
    static const struct {
        const char *image;
        enum resp_kind kind;
        const char *text;
        int64_t number;
    } cases[] = {
        {"+OK\r\n", RESP_TEXT, "OK", 0},
        {"-ERR no\r\n", RESP_ERROR, "ERR no", 0},
        {":-17\r\n", RESP_INTEGER, NULL, -17},
        {":+3\r\n", RESP_INTEGER, NULL, 3},
        {"$5\r\na\r\nbc\r\n", RESP_TEXT, "a\r\nbc", 0},
        {"$0\r\n\r\n", RESP_TEXT, "", 0},
        {"$-1\r\n", RESP_NULL, NULL, 0},
        {"*-1\r\n", RESP_NULL, NULL, 0},
        {"_\r\n", RESP_NULL, NULL, 0},
        {"#t\r\n", RESP_INTEGER, NULL, 1},
        {"#f\r\n", RESP_INTEGER, NULL, 0},
        {",3.5\r\n", RESP_TEXT, "3.5", 0},
        {"(12345678901234567890\r\n", RESP_TEXT, "12345678901234567890", 0},
        {"=7\r\ntxt:abc\r\n", RESP_TEXT, "abc", 0},
        {"!5\r\nERR x\r\n", RESP_ERROR, "ERR x", 0},
        {"*2\r\n", RESP_LIST, NULL, 2},
        {"~3\r\n", RESP_LIST, NULL, 3},
        {"%2\r\n", RESP_MAP, NULL, 4},
        {">1\r\n", RESP_PUSH, NULL, 1},
        {"|1\r\n", RESP_NOTE, NULL, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bytes image = bytes_str(cases[i].image);
        struct resp_item item;
        size_t used;

        assert_int_equal(resp_item_parse(image, &item, &used), 0);
        assert_int_equal(used, image.len_bytes);
        assert_int_equal(item.kind, cases[i].kind);
        if (cases[i].text != NULL)
            assert_true(bytes_is(item.text, cases[i].text));
        else
            assert_true(item.kind == RESP_NULL || item.number == cases[i].number);
        for (size_t n = 0; n < image.len_bytes; n++)
            assert_int_equal(resp_item_parse(bytes_of(image.data, n), &item, &used), E_AGAIN);
    }
}

static void malformed_replies_are_refused(void **state)
{
    static const char *const cases[] = {"OK\r\n",
                                        "$?\r\n",
                                        "$x\r\n",
                                        "$-2\r\n",
                                        "*-2\r\n",
                                        ":\r\n",
                                        ":1 \r\n",
                                        ":-\r\n",
                                        "#x\r\n",
                                        "_x\r\n",
                                        "$1\r\nabc",
                                        "$536870913\r\n",
                                        "*65537\r\n",
                                        "=3\r\nabc\r\n",
                                        "%-1\r\n",
                                        "\r\n",
                                        ":1234567890123456789\r\n"};
    char line[RESP_MAX_LINE + 1];
    struct resp_item item;
    size_t used;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(resp_item_parse(bytes_str(cases[i]), &item, &used), E_PROTO);
    memset(line, '+', sizeof(line));
    assert_int_equal(resp_item_parse(bytes_of(line, RESP_MAX_LINE - 1), &item, &used), E_AGAIN);
    assert_int_equal(resp_item_parse(bytes_of(line, RESP_MAX_LINE), &item, &used), E_PROTO);
}

static void a_string_says_how_much_is_missing(void **state)
{
    struct resp_item item;
    size_t used;

    (void)state;
    assert_int_equal(resp_item_parse(bytes_str("$100\r\nabc"), &item, &used), E_AGAIN);
    assert_int_equal(used, 6 + 100 + 2);
    assert_int_equal(resp_reply_bytes(bytes_str("*2\r\n+a\r\n$100\r\nabc"), &used), E_AGAIN);
    assert_int_equal(used, 8 + 6 + 100 + 2);
}

static void replies_end_with_their_last_item(void **state)
{
    static const char *const cases[] = {"+OK\r\n",
                                        "*0\r\n",
                                        "*2\r\n*1\r\n:1\r\n$3\r\nabc\r\n",
                                        "%1\r\n+k\r\n*2\r\n_\r\n#t\r\n",
                                        "|1\r\n+ttl\r\n:5\r\n*1\r\n:2\r\n",
                                        ">2\r\n+message\r\n+x\r\n"};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t len = strlen(cases[i]), used;
        char image[128];

        snprintf(image, sizeof(image), "%s+next\r\n", cases[i]);
        assert_int_equal(resp_reply_bytes(bytes_str(image), &used), 0);
        assert_int_equal(used, len);
        for (size_t n = 0; n < len; n++)
            assert_int_equal(resp_reply_bytes(bytes_of(image, n), &used), E_AGAIN);
    }
}

/* Nesting costs nothing, and a reply has a limited number of items. */
static void deep_replies_are_bounded(void **state)
{
    struct buf deep = {0};
    size_t used;

    (void)state;
    for (unsigned i = 0; i < RESP_MAX_ITEMS + 2u; i++)
        buf_append_str(&deep, "*1\r\n");
    assert_int_equal(resp_reply_bytes(buf_view(&deep), &used), E_PROTO);
    buf_clear(&deep);
    buf_append_str(&deep, "*65536\r\n*65536\r\n");
    assert_int_equal(resp_reply_bytes(buf_view(&deep), &used), E_PROTO);
    buf_fini(&deep);
}

static void commands_are_lists_of_strings(void **state)
{
    const struct bytes args[] = {bytes_str("SET"), bytes_of("a\0b", 3), bytes_str("")};
    struct buf out = {0};

    (void)state;
    assert_int_equal(resp_command(&out, args, 3), 0);
    assert_int_equal(out.len_bytes, 28);
    assert_memory_equal(out.data, "*3\r\n$3\r\nSET\r\n$3\r\na\0b\r\n$0\r\n\r\n", 28);
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_read),
        cmocka_unit_test(malformed_replies_are_refused),
        cmocka_unit_test(a_string_says_how_much_is_missing),
        cmocka_unit_test(replies_end_with_their_last_item),
        cmocka_unit_test(deep_replies_are_bounded),
        cmocka_unit_test(commands_are_lists_of_strings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
