/* SPDX-License-Identifier: Apache-2.0 */
/* The work order of a choice: a slice of a long prompt in each turn of the loop, and room for the answer. */
#include "tests/unit/check.h"

#include <stdlib.h>

#include "base/log.h"
#include "serve/endpoint/choice_priv.h"
#include "serve/endpoint/handle.h"

static struct front front;
static struct gen_model model;
static struct request request;
static struct choice choice;

static void choice_open(uint32_t n_tokens, uint32_t max_new_tokens)
{
    front = (struct front){0};
    model = (struct gen_model){.context_length = 4 << 20};
    request = (struct request){.front = &front, .model = &model};
    request.gen.has_seed = true;
    request.gen.work.max_new_tokens = max_new_tokens;
    for (uint32_t i = 0; i < n_tokens; i++)
        assert_int_equal(token_ids_push(&request.prompt.ids, i * 7), 0);
    request.n_choices = 1;
    choice = (struct choice){.request = &request, .prompt = &request.prompt};
}

static void choice_close(void)
{
    work_order_fini(&choice.order);
    token_ids_fini(&request.prompt.ids);
}

static void a_short_prompt_is_copied_at_once(void **state)
{
    choice_open(CHOICE_SLICE_TOKENS, 100000);
    assert_int_equal(choice_order_work(&choice), 1);
    assert_int_equal(choice.order.n_tokens, CHOICE_SLICE_TOKENS);
    assert_int_equal(choice.order.cap_tokens, CHOICE_SLICE_TOKENS); /* it grows with the answer */
    assert_memory_equal(choice.order.tokens, request.prompt.ids.ids, CHOICE_SLICE_TOKENS * sizeof(token_id));
    choice_close();
}

static void a_long_prompt_is_copied_in_slices(void **state)
{
    const uint32_t n = 3 * CHOICE_SLICE_TOKENS + 5;
    uint32_t had = 0;

    choice_open(n, 1000);
    for (unsigned turn = 0; turn < 3; turn++) {
        assert_int_equal(choice_order_work(&choice), 0);
        assert_int_equal(choice.order.n_tokens - had, CHOICE_SLICE_TOKENS);
        had = choice.order.n_tokens;
    }
    assert_int_equal(choice_order_work(&choice), 1);
    assert_int_equal(choice.order.n_tokens, n);
    assert_int_equal(choice.order.n_prompt, n);
    assert_int_equal(choice.order.cap_tokens, n + 1000);
    assert_memory_equal(choice.order.tokens, request.prompt.ids.ids, n * sizeof(token_id));
    choice_close();
}

/* The first token of an answer must not copy the prompt again. */
static void the_answer_grows_in_place(void **state)
{
    const uint32_t n = CHOICE_SLICE_TOKENS + 1;
    struct gen_outbox outbox;
    struct gen_handle handle;
    const token_id *before;

    choice_open(n, 1000);
    assert_int_equal(choice_order_work(&choice), 0);
    assert_int_equal(choice_order_work(&choice), 1);
    assert_int_equal(gen_outbox_open(&outbox, NULL, NULL), 0);
    gen_handle_init(&handle, &outbox, &choice.order, NULL, NULL);
    before = choice.order.tokens;
    for (token_id i = 0; i < 1000; i++)
        assert_int_equal(gen_handle_token(&handle, i), 0);
    assert_ptr_equal(choice.order.tokens, before);
    assert_int_equal(gen_handle_token(&handle, 1), 0);
    assert_int_equal(choice.order.n_tokens, n + 1001);
    gen_handle_fini(&handle);
    gen_outbox_close(&outbox);
    choice_close();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_prompt_is_copied_at_once),
        cmocka_unit_test(a_long_prompt_is_copied_in_slices),
        cmocka_unit_test(the_answer_grows_in_place),
    };

    log_set_level(LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
