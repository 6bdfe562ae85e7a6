/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded calls: large ones are written as they arrive, without the JSON library. */
#include "serve/answer/transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "tests/unit/serve/endpoint/sim_model.h"
#include "text/json/json.h"

static size_t n_allocations; /* of the JSON library */

static void *counting_malloc(size_t n)
{
    n_allocations++;
    return malloc(n);
}

static int take_id(void *arg, const char *id, struct bytes name)
{
    return 0;
}

static int take_piece(void *arg, struct bytes json)
{
    return 0;
}

static int take_end(void *arg, enum calls_end how)
{
    return 0;
}

static const struct answer_sink quiet_sink = {
    .open_call = take_id, .arguments = take_piece, .close = take_end};

/* Records one call, whose arguments come in pieces; the result of transcript_finish(). */
static int record(const struct gen_model *model, struct bytes arguments, struct cached_answer **out)
{
    token_id ids[4] = {1, 2, 3, 4};
    const struct prompt prompt = {.ids = {.ids = ids, .n = 4}, .base_tokens = 2};
    const struct transcript_end end = {.model = model, .prompt = &prompt, .stop = GEN_STOP_TOOL_USE};
    struct transcript *transcript;
    int rc;

    assert_int_equal(transcript_new(&quiet_sink, NULL, &transcript), 0);
    transcript_tokens(transcript, ids, 4);
    transcript_sink.open_call(transcript, "toolu_1", bytes_str("f"));
    for (size_t at = 0; at < arguments.len_bytes; at += 5) {
        size_t n = arguments.len_bytes - at < 5 ? arguments.len_bytes - at : 5;

        assert_int_equal(transcript_sink.arguments(transcript, bytes_of(arguments.data + at, n)), 0);
    }
    transcript_sink.close(transcript, CALLS_WHOLE);
    n_allocations = 0;
    rc = transcript_finish(transcript, &end, out);
    transcript_free(transcript);
    return rc;
}

static void put_numbers(struct buf *out, size_t n)
{
    buf_append_str(out, "{\"a\":[1.50");
    for (size_t i = 0; i < n; i++)
        buf_append_str(out, ",{\"b\" :2}");
    buf_append_str(out, "]}");
}

static void large_calls_are_recorded_without_a_tree(void **state)
{
    static const size_t counts[] = {0, 100, 5000, 100000};

    for (size_t i = 0; i < 4; i++) {
        struct cached_answer *answer;
        struct buf arguments = {0}, want = {0};
        json_t *loaded;

        put_numbers(&arguments, counts[i]);
        assert_int_equal(api_json_load(buf_view(&arguments), NULL, &loaded), 0);
        assert_int_equal(api_json_put(&want, loaded), 0);
        json_decref(loaded);
        assert_int_equal(record(*state, buf_view(&arguments), &answer), 0);
        assert_int_equal(answer->is_keyless, i >= 2);
        assert_true(n_allocations < 20000);
        assert_int_equal(answer->n_blocks, 1);
        assert_true(bytes_equal(answer->blocks[0].input, buf_view(&want)));
        assert_int_equal(answer->sorted[0].len_bytes > 0, i < 2);
        cached_answer_unref(answer);
        buf_fini(&arguments);
        buf_fini(&want);
    }
}

static void calls_that_no_client_can_send_back_are_not_recorded(void **state)
{
    struct cached_answer *answer;
    struct buf arguments = {0};

    assert_int_equal(record(*state, bytes_str("{\"a\":\"\\ud800\"}"), &answer), E_UNSUPPORTED);
    buf_append_str(&arguments, "{\"a\":[\"\\ud800\"");
    for (int i = 0; i < 5000; i++)
        buf_append_str(&arguments, ",1");
    buf_append_str(&arguments, "]}");
    assert_int_equal(record(*state, buf_view(&arguments), &answer), E_UNSUPPORTED);
    buf_fini(&arguments);
}

static int set_up(void **state)
{
    static struct gen_model model;

    *state = &model;
    json_set_alloc_funcs(counting_malloc, free);
    return sim_model_open(4096, &model);
}

static int tear_down(void **state)
{
    sim_model_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_calls_are_recorded_without_a_tree),
                                       cmocka_unit_test(calls_that_no_client_can_send_back_are_not_recorded)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
