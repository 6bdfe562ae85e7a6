/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded calls: large ones are written as they arrive, without the JSON library.  Answers that were cut: only the ids
 * of the text that was delivered are kept. */
#include "serve/answer/transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "tests/unit/serve/endpoint/sim_model.h"
#include "text/json/json.h"

#define TEMPLATE(marks)                                                                                      \
    "{# " marks " #}{% for m in messages %}{{ m.content }};{% endfor %}{{ tools|string if tools }}"
#define MISTRAL_TEMPLATE TEMPLATE("[TOOL_CALLS]")
#define KIMI_TEMPLATE    TEMPLATE("<|tool_calls_section_begin|>")

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

static int take_open(void *arg)
{
    return 0;
}

static const struct answer_sink quiet_sink = {.open_text = take_open,
                                              .text = take_piece,
                                              .open_thinking = take_open,
                                              .thinking = take_piece,
                                              .signature = take_piece,
                                              .open_call = take_id,
                                              .arguments = take_piece,
                                              .close = take_end};

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

/* The prompt of a resumed stream comes from another router, perhaps shorter than the base of this one's. */
static void an_answer_to_another_prompt_has_no_ids(void **state)
{
    token_id ids[1] = {1};
    const struct prompt prompt = {.ids = {.ids = ids, .n = 1}, .base_tokens = 2};
    const struct transcript_end end = {
        .model = *state, .prompt = &prompt, .stop = GEN_STOP_END_TURN, .has_other_prompt = true};
    struct transcript *transcript;
    struct cached_answer *answer;

    assert_int_equal(transcript_new(&quiet_sink, NULL, &transcript), 0);
    transcript_tokens(transcript, ids, 1);
    transcript_sink.open_text(transcript);
    transcript_sink.text(transcript, bytes_str("Three."));
    transcript_sink.close(transcript, CALLS_WHOLE);
    assert_int_equal(transcript_finish(transcript, &end, &answer), 0);
    assert_true(answer->is_keyless);
    assert_int_equal(answer->n_ids, 0);
    assert_true(bytes_equal(answer->blocks[0].text, bytes_str("Three.")));
    cached_answer_unref(answer);
    transcript_free(transcript);
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

/* Checks the model's own id of the only call, in an answer whose text is this; "": none.  Counts allocations.  True: the
 * answer has a key. */
static bool has_key(const struct gen_model *model, const struct buf *text, const char *want)
{
    struct token_ids ids = {0};
    struct cached_answer *answer;
    bool is_keyless;

    assert_int_equal(tokenizer_encode(model->tokenizer, buf_view(text), TOKEN_PARSE_SPECIAL, SIZE_MAX, &ids),
                     0);
    assert_int_equal(record_of(model, ids.ids, ids.n, bytes_str("{\"a\":[1]}"), &answer), 0);
    assert_true(n_allocations < 5000);
    assert_true(
        bytes_equal(answer->drawn_ids == NULL ? (struct bytes){0} : answer->drawn_ids[0], bytes_str(want)));
    is_keyless = answer->is_keyless;
    cached_answer_unref(answer);
    token_ids_fini(&ids);
    return !is_keyless;
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
        assert_true(has_key(&model, &text, "call00001"));
        buf_fini(&text);
    }
    sim_model_close(&model);
}

static void long_lists_in_a_text_are_not_loaded(void **state)
{
    static const char *const items[] = {"1,", "{\"a\":1},", "[", "[{\"a\":"};
    struct gen_model model;

    assert_int_equal(sim_model_open_with(MISTRAL_TEMPLATE, 4096, &model), 0);
    for (size_t i = 0; i < 4; i++) {
        struct buf text = {0};

        buf_append_str(&text, "[");
        for (size_t n = 0; n < 100000; n++)
            buf_append_str(&text, items[i]);
        buf_append_str(&text, MISTRAL_CALL);
        assert_true(has_key(&model, &text, "call00001"));
        buf_fini(&text);
    }
    sim_model_close(&model);
}

/* The loop waits while they are spelled. */
static void ids_are_looked_for_in_the_last_tokens(void **state)
{
    static const struct {
        const char *chat, *before, *behind, *want;
    } cases[] = {
        {MISTRAL_TEMPLATE, "", MISTRAL_CALL, "call00001"},
        {MISTRAL_TEMPLATE, "[{\"name\": \"f\", \"arguments\": {\"a\": \"", "\"}, \"id\": \"call00001\"}]",
         ""},
        {MISTRAL_TEMPLATE, "[{\"name\": \"f\", \"arguments\": {\"a\": \"",
         "\", \"b\": [{\"id\": \"inner\"}] }, \"id\": \"call00001\"}]", ""},
        {KIMI_TEMPLATE, "", "functions.f:3{\"a\": 1}", "functions.f:3"},
        {KIMI_TEMPLATE, "functions.f:3{\"a\": \"", "\"}", ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct gen_model model;
        struct buf text = {0};

        assert_int_equal(sim_model_open_with(cases[i].chat, 4096, &model), 0);
        buf_append_str(&text, cases[i].before);
        for (size_t n = 0; n < 20000; n++)
            buf_append_str(&text, "word ");
        buf_append_str(&text, cases[i].behind);
        assert_int_equal(has_key(&model, &text, cases[i].want), cases[i].want[0] != '\0');
        buf_fini(&text);
        sim_model_close(&model);
    }
}

/* ---- answers that were cut ---- */

struct cut {          /* an answer, and what is recorded of it */
    const char *stop; /* NULL: a limit cuts it */
    uint32_t min_tokens;
    uint64_t took_ns; /* processor time of the recording */
    int rc;
    bool is_keyless;
    size_t n_kept; /* sampled ids */
    struct buf text, rest;
};

static uint64_t cpu_ns(void)
{
    struct timespec now;

    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void record_cut(const struct gen_model *model, const struct answer_opts *opts, struct bytes text,
                       struct cut *cut)
{
    token_id opening[2] = {1, 2};
    const struct prompt prompt = {.ids = {.ids = opening, .n = 2}, .base_tokens = 1};
    struct transcript_end end = {.model = model, .prompt = &prompt};
    struct transcript *transcript;
    struct cached_answer *out;
    struct token_ids ids = {0};
    struct answer *answer;

    assert_int_equal(tokenizer_encode(model->tokenizer, text, TOKEN_PARSE_SPECIAL, SIZE_MAX, &ids), 0);
    assert_int_equal(transcript_new(&quiet_sink, NULL, &transcript), 0);
    assert_int_equal(answer_new(opts, &transcript_sink, transcript, &answer), 0);
    end.is_early = answer_push(answer, ids.ids, ids.n) == 1;
    transcript_tokens(transcript, ids.ids, answer_tokens(answer));
    assert_int_equal(answer_finish(answer, GEN_STOP_MAX_TOKENS), 0);
    end.answer = answer;
    end.stop = answer_stop(answer);
    end.is_early |= end.stop == GEN_STOP_SEQUENCE;
    cut->took_ns = cpu_ns();
    cut->rc = transcript_finish(transcript, &end, &out);
    cut->took_ns = cpu_ns() - cut->took_ns;
    if (cut->rc == 0) {
        cut->is_keyless = out->is_keyless;
        cut->n_kept = out->n_ids - out->n_opening;
        buf_append(&cut->text, out->blocks[0].text.data, out->blocks[0].text.len_bytes);
        buf_append(&cut->rest, out->rest.data, out->rest.len_bytes);
        cached_answer_unref(out);
    }
    answer_free(answer);
    transcript_free(transcript);
    token_ids_fini(&ids);
}

static void cut_answer(const struct gen_model *model, struct bytes text, struct cut *cut)
{
    struct bytes stop = bytes_str(cut->stop);
    struct answer_scratch scratch = {0};
    struct stop_set *set = NULL;
    struct gen_request request = {.work.sample.min_tokens = cut->min_tokens};
    struct answer_opts opts = {.scratch = &scratch, .model = model, .request = &request};

    if (cut->stop != NULL)
        assert_int_equal(stop_set_new(&stop, 1, &set), 0);
    opts.stops = set;
    record_cut(model, &opts, text, cut);
    stop_set_free(set);
    answer_scratch_fini(&scratch);
}

static void cut_fini(struct cut *cut)
{
    buf_fini(&cut->text);
    buf_fini(&cut->rest);
}

/* The text may stand more than once, before the stop string, in it and behind it. */
static void ids_end_where_the_delivered_text_ends(void **state)
{
    static const struct {
        const char *text, *stop;
        uint32_t min_tokens;
        const char *delivered;
        size_t n_kept;
        const char *rest; /* a token of the model is one byte, but for the marks of calls */
    } table[] = {
        {"a<tool_call>b", "call>", 0, "a<tool_", 1, "<tool_"},
        {"no no more", " no", 0, "no", 2, ""},
        {"aaaaaaaaaa", "aaa", 5, "aaa", 3, ""},
        {"one END two one", "END", 0, "one ", 4, ""},
        {"ab<|im_start|>c END", "END", 0, "abc ", 5, ""},
        {"a \xe2\x82\xac END \xe2\x82", "END", 0, "a \xe2\x82\xac ", 6, ""},
        {"a \xe2\x82\xac", NULL, 0, "a \xe2\x82\xac", 5, ""},
        {"a \xe2\x82", NULL, 0, "a ", 2, ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct cut cut = {.stop = table[i].stop, .min_tokens = table[i].min_tokens};

        cut_answer(*state, bytes_str(table[i].text), &cut);
        assert_int_equal(cut.rc, 0);
        assert_false(cut.is_keyless);
        assert_true(bytes_is(buf_view(&cut.text), table[i].delivered));
        assert_int_equal(cut.n_kept, table[i].n_kept);
        assert_true(bytes_equal(buf_view(&cut.rest), bytes_str(table[i].rest)));
        cut_fini(&cut);
    }
}

/* However long the answer is, little of it is looked at. */
static void long_answers_are_recorded_fast(void **state)
{
    enum { N = 20000 };
    static const char *const ends[] = {"END", NULL};
    struct buf text = {0};

    for (int i = 0; i < N; i++)
        buf_append_byte(&text, 'a');
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        struct cut cut = {.stop = ends[i]};

        if (ends[i] != NULL)
            buf_append_str(&text, ends[i]);
        cut_answer(*state, buf_view(&text), &cut);
        assert_int_equal(cut.rc, 0);
        assert_int_equal(cut.n_kept, ends[i] != NULL ? N : text.len_bytes);
        assert_true(cut.took_ns < 30000000);
        cut_fini(&cut);
    }
    memset(text.data, 'a', text.len_bytes);
    /* A stop string of half the text: its tokens are too many to count. */
    struct cut cut = {.stop = (const char *)text.data + text.len_bytes - N / 2, .min_tokens = N};
    cut_answer(*state, buf_view(&text), &cut);
    assert_int_equal(cut.rc, 0);
    assert_true(cut.is_keyless);
    assert_int_equal(cut.n_kept, 0);
    assert_int_equal(cut.text.len_bytes, N / 2 + 1); /* the match ends behind min_tokens */
    assert_true(cut.took_ns < 30000000);
    cut_fini(&cut);
    buf_fini(&text);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_answer_to_another_prompt_has_no_ids),
                                       cmocka_unit_test(large_calls_are_recorded_without_a_tree),
                                       cmocka_unit_test(calls_that_no_client_can_send_back_are_not_recorded),
                                       cmocka_unit_test(ids_of_mistral_are_found_behind_other_lists),
                                       cmocka_unit_test(long_lists_in_a_text_are_not_loaded),
                                       cmocka_unit_test(ids_are_looked_for_in_the_last_tokens),
                                       cmocka_unit_test(ids_end_where_the_delivered_text_ends),
                                       cmocka_unit_test(long_answers_are_recorded_fast)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
