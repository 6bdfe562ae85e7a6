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

#define MISTRAL_TEMPLATE                                                                                     \
    "{# [TOOL_CALLS] #}{% for m in messages %}{{ m.content }};{% endfor %}{{ tools|string if tools }}"

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

/* Records one call, whose arguments come in pieces, of an answer of n tokens; the result of transcript_finish(). */
static int record_of(const struct gen_model *model, const token_id *drawn, size_t n_drawn,
                     struct bytes arguments, struct cached_answer **out)
{
    token_id ids[4] = {1, 2, 3, 4};
    const struct prompt prompt = {.ids = {.ids = ids, .n = 4}, .base_tokens = 2};
    const struct transcript_end end = {.model = model, .prompt = &prompt, .stop = GEN_STOP_TOOL_USE};
    struct transcript *transcript;
    int rc;

    assert_int_equal(transcript_new(&quiet_sink, NULL, &transcript), 0);
    transcript_tokens(transcript, drawn, n_drawn);
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

static int record(const struct gen_model *model, struct bytes arguments, struct cached_answer **out)
{
    static const token_id drawn[4] = {1, 2, 3, 4};

    return record_of(model, drawn, 4, arguments, out);
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

/* The model's own id of the only call, in an answer whose text is this; "": none.  Counts allocations. */
static void mistral_id(const struct gen_model *model, const struct buf *text, const char *want)
{
    struct token_ids ids = {0};
    struct cached_answer *answer;

    assert_int_equal(tokenizer_encode(model->tokenizer, buf_view(text), TOKEN_PARSE_SPECIAL, SIZE_MAX, &ids),
                     0);
    assert_int_equal(record_of(model, ids.ids, ids.n, bytes_str("{\"a\":[1]}"), &answer), 0);
    assert_true(n_allocations < 5000);
    assert_true(
        bytes_equal(answer->drawn_ids == NULL ? (struct bytes){0} : answer->drawn_ids[0], bytes_str(want)));
    cached_answer_unref(answer);
    token_ids_fini(&ids);
}

#define MISTRAL_CALL "[{\"name\": \"f\", \"arguments\": {\"a\": [1]}, \"id\": \"call00001\"}]"

static void ids_of_mistral_are_found_behind_other_lists(void **state)
{
    static const char *const before[] = {"", "[TOOL_CALLS]", "See [1] and [2, 3].[TOOL_CALLS]",
                                         "[{a}] [ {\"b\": ["};
    struct gen_model model;

    assert_int_equal(sim_model_open_with(MISTRAL_TEMPLATE, 4096, &model), 0);
    for (size_t i = 0; i < 4; i++) {
        struct buf text = {0};

        buf_append_str(&text, before[i]);
        buf_append_str(&text, MISTRAL_CALL);
        mistral_id(&model, &text, "call00001");
        buf_fini(&text);
    }
    sim_model_close(&model);
}

static void long_lists_in_a_text_are_not_loaded(void **state)
{
    static const char *const items[] = {"1,", "{\"a\":1},", "[", "[{\"a\":"};
    static const char *const want[] = {"call00001", "", "call00001", ""};
    struct gen_model model;

    assert_int_equal(sim_model_open_with(MISTRAL_TEMPLATE, 4096, &model), 0);
    for (size_t i = 0; i < 4; i++) {
        struct buf text = {0};

        buf_append_str(&text, "[");
        for (size_t n = 0; n < 100000; n++)
            buf_append_str(&text, items[i]);
        buf_append_str(&text, MISTRAL_CALL);
        mistral_id(&model, &text, want[i]);
        buf_fini(&text);
    }
    sim_model_close(&model);
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
                                       cmocka_unit_test(calls_that_no_client_can_send_back_are_not_recorded),
                                       cmocka_unit_test(ids_of_mistral_are_found_behind_other_lists),
                                       cmocka_unit_test(long_lists_in_a_text_are_not_loaded)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
