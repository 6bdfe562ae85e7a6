/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of routers through the shared store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "fleet/router/router_message_priv.h"

static void sections_come_back(void **state)
{
    struct bytes sections, section;
    struct buf message = {0};
    struct router_message received;
    unsigned kind;

    (void)state;
    router_message_begin(&message, 77, "router0");
    router_message_put(&message, ROUTER_MESSAGE_LOGINS, bytes_str("abc"));
    router_message_put(&message, (enum router_message_kind)200, bytes_str("of a later version"));
    router_message_put(&message, ROUTER_MESSAGE_GOODBYE, bytes_str(""));
    assert_int_equal(router_message_parse(buf_view(&message), &received), 0);
    assert_true(received.epoch == 77);
    assert_string_equal(received.node, "router0");
    sections = received.sections;
    assert_true(router_message_next(&sections, &kind, &section));
    assert_true(kind == ROUTER_MESSAGE_LOGINS && bytes_is(section, "abc"));
    assert_true(router_message_next(&sections, &kind, &section));
    assert_int_equal(kind, 200);
    assert_true(router_message_next(&sections, &kind, &section));
    assert_true(kind == ROUTER_MESSAGE_GOODBYE && section.len_bytes == 0);
    assert_false(router_message_next(&sections, &kind, &section));
    buf_fini(&message);
}

static void malformed_messages_are_refused(void **state)
{
    struct buf message = {0};
    struct router_message received;

    (void)state;
    router_message_begin(&message, 77, "router0");
    for (size_t n = 0; n < message.len_bytes; n++)
        assert_int_equal(router_message_parse(bytes_of(message.data, n), &received), E_TRUNCATED);
    message.data[0]++;
    assert_int_equal(router_message_parse(buf_view(&message), &received), E_VERSION);
    router_message_begin(&message, 0, "router0");
    assert_int_equal(router_message_parse(buf_view(&message), &received), E_FORMAT);
    router_message_begin(&message, 1, "a\x1b[2J");
    assert_int_equal(router_message_parse(buf_view(&message), &received), E_FORMAT);
    buf_fini(&message);
}

static void a_cut_section_ends_them(void **state)
{
    struct bytes sections, section;
    struct buf message = {0};
    struct router_message received;
    unsigned kind;

    (void)state;
    router_message_begin(&message, 1, "a");
    router_message_put(&message, ROUTER_MESSAGE_FORGET, bytes_str("resp_1"));
    assert_int_equal(router_message_parse(bytes_of(message.data, message.len_bytes - 1), &received), 0);
    sections = received.sections;
    assert_false(router_message_next(&sections, &kind, &section));
    buf_fini(&message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_come_back),
        cmocka_unit_test(malformed_messages_are_refused),
        cmocka_unit_test(a_cut_section_ends_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
