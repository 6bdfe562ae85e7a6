/* SPDX-License-Identifier: Apache-2.0 */
/* SUBMIT has the whole work order: over a real frame, unpack reads every field that pack writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "compute/order/submit.h"
#include "proto/token_list.h"

static const struct sample_bias some_bias[] = {{.id = 3, .bias = -1.5f}, {.id = 70000, .bias = 2}};

/* Every plain value differs from zero, so that a lost field is noticed. */
static struct work_order order_full(void)
{
    struct work_order order = {.tokens = malloc(5 * sizeof(token_id)),
                               .n_tokens = 5,
                               .n_prompt = 4,
                               .work = {.request_id = "req_1",
                                        .tenant = "team",
                                        .weight = 7,
                                        .max_new_tokens = 99,
                                        .pin_tokens = {3, 2},
                                        .public_tokens = 1,
                                        .score_from = 4,
                                        .ignores_end = true,
                                        .resume = {.is_kept = true,
                                                   .message_id = "msg_1",
                                                   .created_unix_s = 1790000000,
                                                   .body_digest = {1, 2, 3, [31] = 4}},
                                        .trace = {.trace_id = {9, [15] = 8},
                                                  .parent_id = {7, [7] = 6},
                                                  .is_known = true,
                                                  .is_sampled = true},
                                        .sample = {.temperature = 0.5f,
                                                   .top_p = 0.75f,
                                                   .min_p = 0.25f,
                                                   .top_k = 40,
                                                   .wants_logprob = true,
                                                   .n_top = 6,
                                                   .seed = UINT64_MAX - 1,
                                                   .frequency_penalty = -1,
                                                   .presence_penalty = 1.5f,
                                                   .repetition_penalty = 1.25f,
                                                   .min_tokens = 9}}};

    for (uint32_t i = 0; i < 5; i++)
        order.tokens[i] = 200 * i + 1;
    assert_int_equal(work_order_copy_bias(&order, some_bias, 2), 0);
    assert_int_equal(buf_append_str(&order.constraint, "{}"), 0);
    return order;
}

static Baton__Submit *over_the_wire(struct work_submit *packed)
{
    struct buf frame = {0};
    struct fault fault = {0};
    ProtobufCMessage *message;

    assert_int_equal(frame_pack(FRAME_SUBMIT, &packed->submit.base, &frame), 0);
    assert_int_equal(
        frame_unpack(FRAME_SUBMIT,
                     bytes_of(frame.data + FRAME_HEADER_BYTES, frame.len_bytes - FRAME_HEADER_BYTES), &fault,
                     &message),
        0);
    buf_fini(&frame);
    return (Baton__Submit *)message;
}

static void assert_same(const struct work_order *a, const struct work_order *b)
{
    struct work x = a->work, y = b->work;

    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_int_equal(a->n_prompt, b->n_prompt);
    assert_memory_equal(a->tokens, b->tokens, a->n_tokens * sizeof(*a->tokens));
    assert_true(bytes_equal(buf_view(&a->constraint), buf_view(&b->constraint)));
    assert_int_equal(x.sample.n_bias, y.sample.n_bias);
    assert_memory_equal(x.sample.bias, y.sample.bias, x.sample.n_bias * sizeof(*x.sample.bias));
    x.sample.bias = y.sample.bias = NULL;
    assert_memory_equal(&x, &y, sizeof(x)); /* all plain values, future ones included */
}

static void every_field_arrives(void **state)
{
    (void)state;
    for (unsigned token_bytes = 2; token_bytes <= TOKEN_LIST_MAX_BYTES; token_bytes++) {
        struct work_order order = order_full(), arrived;
        struct work_submit packed;
        Baton__Submit *submit;

        memset(&arrived, 0, sizeof(arrived));
        assert_int_equal(work_submit_pack(&order, token_bytes, &packed), 0);
        submit = over_the_wire(&packed);
        assert_int_equal(work_submit_unpack(submit, &arrived), 0);
        assert_same(&order, &arrived);
        frame_message_free(&submit->base);
        work_submit_fini(&packed);
        work_order_fini(&order);
        work_order_fini(&arrived);
    }
}

static void a_bad_token_list_is_refused(void **state)
{
    struct work_order order = order_full(), arrived = {0};
    struct work_submit packed;

    (void)state;
    assert_int_equal(work_submit_pack(&order, 3, &packed), 0);
    packed.submit.tokens.len = 11;
    assert_int_equal(work_submit_unpack(&packed.submit, &arrived), E_PROTO);
    work_order_fini(&arrived);
    packed.submit.tokens.len = 15;
    packed.submit.n_prompt = 6;
    assert_int_equal(work_submit_unpack(&packed.submit, &arrived), E_PROTO);
    work_order_fini(&arrived);
    work_submit_fini(&packed);
    work_order_fini(&order);
}

static void a_moved_order_leaves_nothing_behind(void **state)
{
    struct work_order order = order_full(), moved = work_order_move(&order);

    (void)state;
    assert_null(order.tokens);
    assert_null(order.work.sample.bias);
    work_order_fini(&order); /* nothing is freed twice */
    assert_int_equal(moved.tokens[4], 801);
    work_order_free_tokens(&moved);
    assert_int_equal(moved.work.sample.bias[1].id, 70000);
    work_order_fini(&moved);
    assert_int_equal(moved.work.weight, 7);
}

static void one_changed_token_changes_the_hash(void **state)
{
    token_id tokens[40];
    struct work_order order = {
        .tokens = tokens, .n_tokens = ARRAY_LEN(tokens), .n_prompt = ARRAY_LEN(tokens)};
    uint64_t hash;

    for (token_id i = 0; i < ARRAY_LEN(tokens); i++)
        tokens[i] = i / 2;
    hash = work_order_hash_prompt(&order);
    for (uint32_t i = 0; i < ARRAY_LEN(tokens); i++) {
        tokens[i]++;
        assert_int_not_equal(work_order_hash_prompt(&order), hash);
        tokens[i]--;
    }
    assert_int_equal(work_order_hash_prompt(&order), hash);
    order.n_prompt--;
    assert_int_not_equal(work_order_hash_prompt(&order), hash);
}

/* A worker that takes an answer's end for another one would report a wrong stop reason, or never end the answer. */
static void only_the_ends_of_the_model_are_ends(void **state)
{
    const ProtobufCEnumDescriptor *finishes = &baton__finish__descriptor;
    const struct {
        const char *finish;
        enum work_end end;
    } ends[] = {{"FINISH_STOP", WORK_END_STOP_TOKEN},
                {"FINISH_LENGTH", WORK_END_LENGTH},
                {"FINISH_CONTEXT", WORK_END_CONTEXT}};

    (void)state;
    for (unsigned i = 0; i < finishes->n_values; i++) {
        Baton__Finish finish = (Baton__Finish)finishes->values[i].value;
        enum work_end end = WORK_END_STOP_TOKEN;
        unsigned at = 0;

        while (at < ARRAY_LEN(ends) && strcmp(ends[at].finish, finishes->values[i].name) != 0)
            at++;
        assert_int_equal(work_end_of(finish, &end), at < ARRAY_LEN(ends));
        assert_int_equal(end, at < ARRAY_LEN(ends) ? ends[at].end : WORK_END_STOP_TOKEN);
    }
    for (int unknown = (int)finishes->n_values; unknown < 256; unknown++) { /* of a newer worker */
        enum work_end end = WORK_END_LENGTH;

        assert_true(work_end_of((Baton__Finish)unknown, &end));
        assert_int_equal(end, WORK_END_STOP_TOKEN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_ends_of_the_model_are_ends),
        cmocka_unit_test(one_changed_token_changes_the_hash),
        cmocka_unit_test(every_field_arrives),
        cmocka_unit_test(a_bad_token_list_is_refused),
        cmocka_unit_test(a_moved_order_leaves_nothing_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
