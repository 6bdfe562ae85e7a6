/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of routers through the shared store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "fleet/router/news_priv.h"

static void sections_come_back(void **state)
{
    struct bytes sections, section;
    struct buf message = {0};
    struct news news;
    unsigned kind;

    (void)state;
    news_begin(&message, 77, "router0");
    news_put(&message, NEWS_LOGINS, bytes_str("abc"));
    news_put(&message, (enum news_kind)200, bytes_str("of a later version"));
    news_put(&message, NEWS_GOODBYE, bytes_str(""));
    assert_int_equal(news_parse(buf_view(&message), &news), 0);
    assert_true(news.epoch == 77);
    assert_string_equal(news.node, "router0");
    sections = news.sections;
    assert_true(news_next(&sections, &kind, &section));
    assert_true(kind == NEWS_LOGINS && bytes_is(section, "abc"));
    assert_true(news_next(&sections, &kind, &section));
    assert_int_equal(kind, 200);
    assert_true(news_next(&sections, &kind, &section));
    assert_true(kind == NEWS_GOODBYE && section.len_bytes == 0);
    assert_false(news_next(&sections, &kind, &section));
    buf_fini(&message);
}

static void what_is_no_message_is_refused(void **state)
{
    struct buf message = {0};
    struct news news;

    (void)state;
    news_begin(&message, 77, "router0");
    for (size_t n = 0; n < message.len_bytes; n++)
        assert_int_equal(news_parse(bytes_of(message.data, n), &news), E_TRUNCATED);
    message.data[0]++;
    assert_int_equal(news_parse(buf_view(&message), &news), E_VERSION);
    news_begin(&message, 0, "router0");
    assert_int_equal(news_parse(buf_view(&message), &news), E_FORMAT);
    news_begin(&message, 1, "a\x1b[2J");
    assert_int_equal(news_parse(buf_view(&message), &news), E_FORMAT);
    buf_fini(&message);
}

static void a_cut_section_ends_them(void **state)
{
    struct bytes sections, section;
    struct buf message = {0};
    struct news news;
    unsigned kind;

    (void)state;
    news_begin(&message, 1, "a");
    news_put(&message, NEWS_FORGET, bytes_str("resp_1"));
    assert_int_equal(news_parse(bytes_of(message.data, message.len_bytes - 1), &news), 0);
    sections = news.sections;
    assert_false(news_next(&sections, &kind, &section));
    buf_fini(&message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_come_back),
        cmocka_unit_test(what_is_no_message_is_refused),
        cmocka_unit_test(a_cut_section_ends_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
