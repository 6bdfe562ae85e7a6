/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of events: written ids are read, and other texts are refused. */
#include "tests/unit/check.h"

#include <string.h>

#include "base/err.h"
#include "serve/api/event_id.h"

static void a_written_id_is_read_back(void **state)
{
    struct event_id id = {
        .request_id = "req_0aZ", .has_event = true, .cached_tokens = 4000000000u, .tag = 0x0c0ffee1};
    struct event_id back;
    char text[EVENT_ID_PREFIX_BYTES + 24];

    event_id_put_prefix(&id, text);
    assert_string_equal(text, "req_0aZ.4000000000.0c0ffee1");
    strcat(text, ".18");
    assert_int_equal(event_id_parse(bytes_str(text), &back), 0);
    assert_string_equal(back.request_id, id.request_id);
    assert_true(back.has_event);
    assert_int_equal(back.cached_tokens, id.cached_tokens);
    assert_int_equal(back.tag, id.tag);
    assert_int_equal(back.number, 18);
    assert_int_equal(event_id_parse(bytes_str("req_0aZ"), &back), 0);
    assert_false(back.has_event);
    assert_int_equal(back.number, 0);
}

static void all_else_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "req_",
                                      "7",
                                      "req_a.",
                                      "req_a.1",
                                      "req_a.1.00000000",
                                      "req_a.1.00000000.",
                                      "req_a.1.00000000.1.",
                                      "req_a.1.00000000.1 ",
                                      "req_a.01.00000000.1",
                                      "req_a.-1.00000000.1",
                                      "req_a.4294967296.00000000.1",
                                      "req_a.1.0000000.1",
                                      "req_a.1.0000000G.1",
                                      "req_a.1.00000000.9999999999999999999",
                                      "req_a b.1.00000000.1",
                                      "req_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.1.00000000.1"};
    struct event_id out;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (event_id_parse(bytes_str(bad[i]), &out) != E_FORMAT)
            fail_msg("'%s' was read", bad[i]);
    assert_int_equal(event_id_parse(bytes_of(NULL, 0), &out), E_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_written_id_is_read_back),
                                       cmocka_unit_test(all_else_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
