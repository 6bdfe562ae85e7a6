/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens made which text: one token per byte, so every character beyond ASCII has several. */
#include "serve/endpoint/logprobs_priv.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "sim_model.h"

struct fixture {
    struct gen_model model;
    struct logprobs *logprobs;
    struct buf out;
};

static void begin(struct fixture *f, uint32_t n_top)
{
    memset(f, 0, sizeof(*f));
    assert_int_equal(sim_model_open(4096, &f->model), 0);
    assert_int_equal(logprobs_new(f->model.tokenizer, n_top, false, &f->logprobs), 0);
}

static void end(struct fixture *f)
{
    logprobs_free(f->logprobs);
    buf_fini(&f->out);
    sim_model_close(&f->model);
}

/* Token number n of a test has the log probability -n. */
static void push(struct fixture *f, const char *bytes, int first)
{
    for (size_t i = 0; bytes[i] != '\0'; i++) {
        struct sample_result draw = {
            .id = (uint8_t)bytes[i], .logprob = -(float)(first + (int)i), .n_top = 2};

        draw.top[0] = (struct sample_top){'z', -0.5f};
        draw.top[1] = (struct sample_top){draw.id, draw.logprob};
        assert_int_equal(logprobs_push(f->logprobs, &draw), 0);
    }
}

static void deliver(struct fixture *f, const char *text)
{
    logprobs_text(f->logprobs, bytes_str(text));
}

static void is_text(struct fixture *f, const char *want)
{
    assert_int_equal(logprobs_put_text(f->logprobs, &f->out), 0);
    assert_string_equal((const char *)f->out.data, want);
    buf_clear(&f->out);
}

#define NONE "{\"tokens\":[],\"token_logprobs\":[],\"top_logprobs\":null,\"text_offset\":[]}"

static void tokens_of_a_character_that_a_limit_cuts_are_kept(void **state)
{
    struct fixture f;

    begin(&f, 0);
    push(&f, "a\xe2\x82", 1);
    deliver(&f, "a");
    logprobs_end_text(f.logprobs);
    logprobs_end_text(f.logprobs); /* of the text, then of the answer */
    is_text(&f, "{\"tokens\":[\"a\",\"bytes:\\\\xe2\",\"bytes:\\\\x82\"],\"token_logprobs\":[-1,-2,-3],"
                "\"top_logprobs\":null,\"text_offset\":[0,1,1]}");
    end(&f);
    /* Text that was not delivered, and half a character inside thinking, are not the answer's. */
    begin(&f, 0);
    push(&f, "no", 1);
    logprobs_end_text(f.logprobs);
    is_text(&f, NONE);
    push(&f, "thought\xe2", 1);
    logprobs_skip(f.logprobs);
    push(&f, "\x82", 1);
    logprobs_end_text(f.logprobs);
    is_text(&f, NONE);
    end(&f);
}

static void a_token_is_ready_when_its_last_byte_is_delivered(void **state)
{
    struct fixture f;

    begin(&f, 0);
    assert_false(logprobs_is_ready(f.logprobs));
    push(&f, "a", 1);
    deliver(&f, "a");
    assert_true(logprobs_is_ready(f.logprobs));
    is_text(&f, "{\"tokens\":[\"a\"],\"token_logprobs\":[-1],\"top_logprobs\":null,\"text_offset\":[0]}");
    assert_false(logprobs_is_ready(f.logprobs));
    /* A character in three tokens: no text is delivered before the last. */
    push(&f, "\xe2\x82", 2);
    is_text(&f, NONE);
    push(&f, "\xac", 4);
    deliver(&f, "\xe2\x82\xac");
    push(&f, "b", 5);
    deliver(&f, "b");
    is_text(
        &f,
        "{\"tokens\":[\"bytes:\\\\xe2\",\"bytes:\\\\x82\",\"bytes:\\\\xac\",\"b\"],\"token_logprobs\":[-2,-3,"
        "-4,-5],\"top_logprobs\":null,\"text_offset\":[1,1,1,2]}");
    end(&f);
}

static void logprobs_of_held_text_wait(void **state)
{
    struct fixture f;

    begin(&f, 0);
    push(&f, "xEN", 1);
    deliver(&f, "x");
    is_text(&f, "{\"tokens\":[\"x\"],\"token_logprobs\":[-1],\"top_logprobs\":null,\"text_offset\":[0]}");
    push(&f, "X", 4);
    deliver(&f, "ENX"); /* it was not a stop string */
    is_text(&f, "{\"tokens\":[\"E\",\"N\",\"X\"],\"token_logprobs\":[-2,-3,-4],\"top_logprobs\":null,\"text_"
                "offset\":["
                "1,2,3]}");
    push(&f, "END", 5);
    logprobs_skip(f.logprobs); /* now it was a stop string */
    is_text(&f, NONE);
    end(&f);
}

static void logprobs_of_tokens_that_are_no_text_are_dropped(void **state)
{
    struct fixture f;

    begin(&f, 0);
    push(&f, "<call>{}", 1);
    logprobs_skip(f.logprobs);
    push(&f, "\n\nhi", 9); /* blanks that were stripped */
    deliver(&f, "hi");
    is_text(&f, "{\"tokens\":[\"h\",\"i\"],\"token_logprobs\":[-11,-12],\"top_logprobs\":null,\"text_"
                "offset\":[0,1]}");
    end(&f);
}

static void text_that_was_never_drawn_changes_nothing(void **state)
{
    struct fixture f;

    begin(&f, 0);
    push(&f, "ab", 1);
    deliver(&f, "q");
    is_text(&f, NONE);
    deliver(&f, "ab");
    is_text(
        &f,
        "{\"tokens\":[\"a\",\"b\"],\"token_logprobs\":[-1,-2],\"top_logprobs\":null,\"text_offset\":[0,1]}");
    end(&f);
}

/* A token of several bytes, cut by a stop string that began inside it. */
static void a_token_delivered_in_part_counts_in_the_end(void **state)
{
    struct fixture f;
    struct sample_result draw = {.logprob = -7};

    begin(&f, 0);
    draw.id = tokenizer_find(f.model.tokenizer, bytes_str("<tool_call>")); /* user-defined: it has text */
    assert_int_not_equal(draw.id, TOKEN_NONE);
    assert_int_equal(logprobs_push(f.logprobs, &draw), 0);
    deliver(&f, "<tool");
    is_text(&f, NONE);
    logprobs_skip(f.logprobs);
    is_text(
        &f,
        "{\"tokens\":[\"<tool_call>\"],\"token_logprobs\":[-7],\"top_logprobs\":null,\"text_offset\":[0]}");
    end(&f);
}

static void the_likeliest_tokens_are_listed(void **state)
{
    struct fixture f;

    begin(&f, 2);
    push(&f, "a", 1);
    deliver(&f, "a");
    assert_int_equal(logprobs_put_chat(f.logprobs, &f.out), 0);
    assert_string_equal(
        (const char *)f.out.data,
        "{\"content\":[{\"token\":\"a\",\"logprob\":-1,\"bytes\":[97],\"top_logprobs\":[{\"token\":"
        "\"z\",\"logprob\":-0.5,\"bytes\":[122]},{\"token\":\"a\",\"logprob\":-1,\"bytes\":[97]}]}],"
        "\"refusal\":null}");
    buf_clear(&f.out);
    push(&f, "bc", 2);
    deliver(&f, "bc");
    is_text(
        &f,
        "{\"tokens\":[\"b\",\"c\"],\"token_logprobs\":[-2,-3],\"top_logprobs\":[{\"z\":-0.5,\"b\":-2},{\"z\":"
        "-0.5,\"c\":-3}],\"text_offset\":[1,2]}");
    end(&f);
    /* The sampled token is added to fewer likeliest tokens than it was sampled from. */
    begin(&f, 1);
    push(&f, "b", 2);
    deliver(&f, "b");
    is_text(&f, "{\"tokens\":[\"b\"],\"token_logprobs\":[-2],\"top_logprobs\":[{\"z\":-0.5,\"b\":-2}],\"text_"
                "offset\":"
                "[0]}");
    end(&f);
}

static void json_has_no_infinity(void **state)
{
    struct sample_result draw = {.id = 'a', .logprob = -INFINITY};
    struct fixture f;

    begin(&f, 0);
    assert_int_equal(logprobs_push(f.logprobs, &draw), 0);
    deliver(&f, "a");
    is_text(&f,
            "{\"tokens\":[\"a\"],\"token_logprobs\":[-9999.0],\"top_logprobs\":null,\"text_offset\":[0]}");
    end(&f);
}

static void thousands_are_kept_in_order(void **state)
{
    struct fixture f;
    size_t n = 0;

    begin(&f, 1);
    for (int i = 0; i < 4998; i++) {
        push(&f, i % 3 == 0 ? "\xc3" : i % 3 == 1 ? "\xa9" : "e", i);
        if (i % 3 == 1)
            deliver(&f, "\xc3\xa9");
        if (i % 3 == 2)
            deliver(&f, "e");
    }
    assert_int_equal(logprobs_put_chat(f.logprobs, &f.out), 0);
    for (size_t at = 0; (at = bytes_find(buf_view(&f.out), bytes_str("\"top_logprobs\""), at)) != SIZE_MAX;
         at++)
        n++;
    assert_int_equal(n, 4998);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_ready_when_its_last_byte_is_delivered),
        cmocka_unit_test(tokens_of_a_character_that_a_limit_cuts_are_kept),
        cmocka_unit_test(logprobs_of_held_text_wait),
        cmocka_unit_test(logprobs_of_tokens_that_are_no_text_are_dropped),
        cmocka_unit_test(text_that_was_never_drawn_changes_nothing),
        cmocka_unit_test(a_token_delivered_in_part_counts_in_the_end),
        cmocka_unit_test(the_likeliest_tokens_are_listed),
        cmocka_unit_test(json_has_no_infinity),
        cmocka_unit_test(thousands_are_kept_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
