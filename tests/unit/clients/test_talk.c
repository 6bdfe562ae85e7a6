/* SPDX-License-Identifier: Apache-2.0 */
/* The request of a conversation, and the display of a daemon's status: pure functions of baton-chat and
 * batonctl. */
#include <jansson.h>
#include <string.h>

#include "base/err.h"
#include "clients/chat/session.h"
#include "clients/ctl/status.h"
#include "tests/unit/check.h"

static json_t *request_of(const struct session *session)
{
    struct buf body = {0};
    json_t *root;

    assert_int_equal(session_put_request(session, &body), 0);
    root = json_loadb((const char *)body.data, body.len_bytes, 0, NULL);
    assert_non_null(root);
    buf_fini(&body);
    return root;
}

static const char *content_of(const json_t *root, size_t i)
{
    return json_string_value(
        json_object_get(json_array_get(json_object_get(root, "messages"), i), "content"));
}

static void a_session_becomes_a_request(void **state)
{
    struct session session = {
        .max_tokens = 9, .has_temperature = true, .temperature = 0.7, .has_seed = true, .seed = 5};
    json_t *root;

    session.model = strdup("m \"quoted\"");
    assert_int_equal(session_set_system(&session, "Be\nbrief."), 0);
    assert_int_equal(session_add(&session, false, bytes_str("hi")), 0);
    assert_int_equal(session_add(&session, true, bytes_str("gr\xc3\xbc\xc3\x9f")), 0);
    assert_int_equal(session_add(&session, false, bytes_of("a\0b\xff", 4)), 0);
    root = request_of(&session);
    assert_string_equal(json_string_value(json_object_get(root, "model")), "m \"quoted\"");
    assert_string_equal(json_string_value(json_object_get(root, "system")), "Be\nbrief.");
    assert_int_equal(json_integer_value(json_object_get(root, "max_tokens")), 9);
    assert_true(json_number_value(json_object_get(root, "temperature")) == 0.7);
    assert_null(json_object_get(root, "top_p"));
    assert_true(json_is_true(json_object_get(root, "stream")));
    assert_string_equal(content_of(root, 1), "gr\xc3\xbc\xc3\x9f");
    assert_string_equal(content_of(root, 2), "a\xef\xbf\xbd"
                                             "b\xef\xbf\xbd");
    json_decref(root);
    session_cut(&session, 2);
    assert_int_equal(session_set_system(&session, ""), 0);
    root = request_of(&session);
    assert_int_equal(json_array_size(json_object_get(root, "messages")), 2);
    assert_null(json_object_get(root, "system"));
    json_decref(root);
    session_clear(&session);
    session_cut(&session, 2); /* there are fewer */
    session_fini(&session);
}

static void long_sessions_are_kept(void **state)
{
    struct session session = {0};
    struct buf text = {0};

    session.model = strdup("m");
    for (int i = 0; i < 1000; i++)
        assert_int_equal(session_add(&session, i % 2 == 1, bytes_str("x")), 0);
    assert_int_equal(session.n_messages, 1000);
    assert_int_equal(session_put_transcript(&session, &text), 0);
    assert_true(bytes_starts_with(buf_view(&text), "# m\n\n## you\n\nx\n\n## answer\n\nx\n"));
    buf_fini(&text);
    session_fini(&session);
}

#define ROUTER(workers)                                                                                      \
    "{\"daemon\": \"baton-router\", \"node\": \"r\", \"draining\": true, \"queued\": 2, \"handed_off\": "    \
    "10, \"local\": 4, "                                                                                     \
    "\"redispatched\": 1, \"indexed_blocks\": 7, \"workers\": [" workers "]}"

static void a_router_in_a_line(void **state)
{
    struct buf line = {0};

    assert_int_equal(
        status_render(
            bytes_str(ROUTER("{\"node\": \"p\\u001b[2J\", \"role\": \"prefill\", \"up\": false}, "
                             "{\"node\": \"d\", \"role\": \"decode\", \"up\": true, \"draining\": false, "
                             "\"running\": 3, \"decode_step_ms\": 12.34, \"blocks_free\": 24, "
                             "\"blocks_total\": 25, \"inflight\": 5}")),
            true, &line),
        0);
    assert_string_equal(
        (char *)line.data,
        "router: 1 worker, 3 running, 2 queued, draining | handed off 10, local 4, redispatched 1"
        " | p?[2J down | d 12.3 ms/token, 96% blocks free\n");
    buf_fini(&line);
}

static void a_router_without_workers_says_what_to_do(void **state)
{
    struct buf table = {0};

    assert_int_equal(status_render(bytes_str(ROUTER("")), false, &table), 0);
    assert_non_null(strstr((char *)table.data, "link.routers"));
    buf_fini(&table);
}

static void a_router_says_what_disks_have(void **state)
{
    struct buf table = {0};

    assert_int_equal(status_render(bytes_str("{\"daemon\": \"baton-router\", \"node\": \"r\", "
                                             "\"indexed_blocks\": 7, \"indexed_on_disk_only\": 5, "
                                             "\"workers\": [{\"node\": \"d\", \"role\": \"decode\", "
                                             "\"blocks_total\": 25, \"blocks_on_disk\": 4321}]}"),
                                   false, &table),
                     0);
    assert_non_null(strstr((char *)table.data, "7 cached blocks known, 5 of them on disk only"));
    assert_non_null(strstr((char *)table.data, "0/25         4321"));
    buf_fini(&table);
}

static void a_worker_in_a_table(void **state)
{
    static const char json[] =
        "{\"daemon\": \"baton-decode\", \"node\": \"d0\", \"model\": \"m\", "
        "\"engine\": \"cpu\", \"draining\": false, "
        "\"tasks\": 2, \"running\": 1, \"waiting\": 1, \"blocks\": {\"total\": 100, "
        "\"free\": 50, \"cached\": 25, "
        "\"hits\": 3, \"misses\": 1}, \"disk\": {\"blocks\": 9, \"bytes\": 2500000, "
        "\"read_bytes_per_s\": 1500000000, \"writeback\": 2}, \"routers\": [{\"address\": \"127.0.0.1:1\", "
        "\"up\": true}], \"peers\": []}";
    struct buf text = {0};

    assert_int_equal(status_render(bytes_str(json), false, &text), 0);
    assert_non_null(strstr((char *)text.data, "50 of 100 free, 25 cached"));
    assert_non_null(strstr((char *)text.data, "3 hits, 1 misses (75%)"));
    assert_non_null(strstr((char *)text.data, "127.0.0.1:1 (up)"));
    assert_non_null(strstr((char *)text.data, "9 blocks in 2.5 MB, read at 1500.0 MB/s; 2 to be saved\n"));
    buf_clear(&text);
    assert_int_equal(status_render(bytes_str(json), true, &text), 0);
    assert_string_equal((char *)text.data, "baton-decode d0: 1 running, 1 waiting | 0 tok/s prefill, 0.0 "
                                           "ms/token | 75% blocks free, 25 cached\n");
    buf_fini(&text);
}

static void work_is_counted(void **state)
{
    struct status_work work;

    assert_int_equal(status_work(bytes_str(ROUTER("{\"inflight\": 5}, {\"inflight\": 1}")), &work), 0);
    assert_true(work.is_draining);
    assert_int_equal(work.n_running, 8);
    assert_int_equal(work.n_placed, 14);
    assert_int_equal(status_work(bytes_str("{\"daemon\": \"baton-decode\", \"tasks\": 3}"), &work), 0);
    assert_int_equal(work.n_running, 3);
}

static void malformed_status_is_refused(void **state)
{
    static const char *const texts[] = {"", "{}", "[1]", "<html>", "{\"daemon\": 3}", "{\"daemon\": \"x\""};
    struct buf text = {0};
    struct status_work work;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(status_render(bytes_str(texts[i]), i % 2, &text), E_FORMAT);
        assert_int_equal(status_work(bytes_str(texts[i]), &work), E_FORMAT);
    }
    /* Members of wrong types are shown as nothing. */
    assert_int_equal(
        status_render(bytes_str("{\"daemon\": \"baton-router\", \"workers\": {\"a\": 1}, \"queued\": -5}"),
                      false, &text),
        0);
    assert_int_equal(
        status_render(
            bytes_str("{\"daemon\": \"baton-router\", \"workers\": [1, [], \"x\"], \"handed_off\": 1e300}"),
            false, &text),
        0);
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_becomes_a_request),
        cmocka_unit_test(long_sessions_are_kept),
        cmocka_unit_test(a_router_in_a_line),
        cmocka_unit_test(a_router_without_workers_says_what_to_do),
        cmocka_unit_test(a_router_says_what_disks_have),
        cmocka_unit_test(a_worker_in_a_table),
        cmocka_unit_test(work_is_counted),
        cmocka_unit_test(malformed_status_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
