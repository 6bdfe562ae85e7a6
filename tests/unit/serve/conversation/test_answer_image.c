/* SPDX-License-Identifier: Apache-2.0 */
/* Images of remembered answers: they come back whole, and cut or changed ones are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "serve/conversation/answer_image.h"

#define VOCAB 100

static struct cached_answer *answer_new(void)
{
    struct cached_answer *answer;

    assert_int_equal(cached_answer_new(&answer), 0);
    answer->ids = cached_answer_take(answer, 3 * sizeof(*answer->ids));
    answer->blocks = cached_answer_take(answer, 2 * sizeof(*answer->blocks));
    answer->sorted = cached_answer_take(answer, 2 * sizeof(*answer->sorted));
    answer->drawn_ids = cached_answer_take(answer, 2 * sizeof(*answer->drawn_ids));
    answer->base_tokens = 12;
    answer->base_sum = UINT64_C(0x123456789abcdef0);
    answer->n_opening = 1;
    answer->n_ids = 3;
    answer->ids[0] = 5;
    answer->ids[1] = 0;
    answer->ids[2] = VOCAB - 1;
    answer->rest = bytes_str("re");
    answer->has_thinking = true;
    answer->thinking = bytes_str("hm");
    answer->n_blocks = 2;
    answer->blocks[0] = (struct gen_block){.kind = GEN_TEXT, .text = bytes_str("I look.")};
    answer->blocks[1] = (struct gen_block){.kind = GEN_TOOL_USE,
                                           .id = bytes_str("toolu_1"),
                                           .name = bytes_str("look"),
                                           .input = bytes_str("{\"b\":1,\"a\":2}")};
    answer->sorted[1] = bytes_str("{\"a\":2,\"b\":1}");
    answer->drawn_ids[1] = bytes_str("x1");
    return answer;
}

static void an_answer_comes_back_whole(void **state)
{
    struct cached_answer *answer = answer_new(), *back;
    struct buf image = {0};

    (void)state;
    assert_int_equal(answer_image_pack(answer, &image), 0);
    assert_int_equal(answer_image_parse(buf_view(&image), VOCAB, &back), 0);
    buf_fini(&image); /* the answer borrows nothing of it */
    assert_int_equal(back->base_tokens, answer->base_tokens);
    assert_true(back->base_sum == answer->base_sum);
    assert_int_equal(back->n_opening, 1);
    assert_int_equal(back->n_ids, 3);
    assert_memory_equal(back->ids, answer->ids, 3 * sizeof(*answer->ids));
    assert_true(bytes_is(back->rest, "re") && bytes_is(back->thinking, "hm") && back->has_thinking);
    assert_int_equal(back->n_blocks, 2);
    assert_true(back->blocks[0].kind == GEN_TEXT && bytes_is(back->blocks[0].text, "I look."));
    assert_true(back->blocks[1].kind == GEN_TOOL_USE && bytes_is(back->blocks[1].id, "toolu_1") &&
                bytes_is(back->blocks[1].name, "look") &&
                bytes_is(back->blocks[1].input, "{\"b\":1,\"a\":2}"));
    assert_true(bytes_is(back->sorted[1], "{\"a\":2,\"b\":1}") && bytes_is(back->drawn_ids[1], "x1"));
    cached_answer_unref(back);
    cached_answer_unref(answer);
}

static void cut_and_foreign_images_are_refused(void **state)
{
    struct cached_answer *answer = answer_new(), *back = NULL;
    struct buf image = {0};

    (void)state;
    assert_int_equal(answer_image_pack(answer, &image), 0);
    for (size_t n = 0; n < image.len_bytes; n++)
        assert_int_equal(answer_image_parse(bytes_of(image.data, n), VOCAB, &back), E_TRUNCATED);
    assert_int_equal(answer_image_parse(buf_view(&image), VOCAB - 1, &back), E_FORMAT); /* of another model */
    image.data[0]++;
    assert_int_equal(answer_image_parse(buf_view(&image), VOCAB, &back), E_VERSION);
    assert_null(back);
    buf_fini(&image);
    cached_answer_unref(answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_comes_back_whole),
        cmocka_unit_test(cut_and_foreign_images_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
