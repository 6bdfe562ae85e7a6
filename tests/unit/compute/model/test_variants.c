/* SPDX-License-Identifier: Apache-2.0 */
/* Files of one architecture differ: tensors and keys that some have and others lack. */
#include "base/err.h"
#include "compute/tensor/tensor.h"
#include "tests/unit/compute/model/tiny.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/check.h"
#include "tests/unit/compute/check_team.h"

static int load(const struct tiny_shape *shape, const struct tiny_twist *twist, struct team *team,
                struct fault *fault)
{
    struct gguf *gguf = tiny_gguf(shape, twist);
    struct model *model = NULL;
    int rc = model_new(gguf, team, &(struct model_opts){0}, fault, &model);

    model_free(model);
    gguf_close(gguf);
    return rc;
}

static void an_unknown_architecture_is_named_in_one_line(void **state)
{
    const struct tiny_shape shape = tiny_shape("llama");
    const struct tiny_twist twist = {
        .fault = TINY_KEY_STR, .name = "general.architecture", .text = "deepseek4"};
    struct fault fault = {0};

    assert_int_equal(load(&shape, &twist, *state, &fault), E_UNSUPPORTED);
    assert_ptr_equal(strstr(fault.text, "architecture \"deepseek4\" is not supported"), fault.text);
    assert_true(strlen(fault.text) < 160);
}

static void biases_may_be_absent(void **state)
{
    static const char *const LACKS[] = {"attn_q.bias", "attn_k.bias",   "attn_v.bias", "attn_output.bias",
                                        "ffn_up.bias", "ffn_down.bias", NULL};
    static const char *const NAMES[] = {"qwen2", "starcoder2", "qwen2moe"};

    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        struct tiny_shape shape = i < 2 ? tiny_shape(NAMES[i]) : tiny_experts(NAMES[i]);
        const struct tiny_twist twist = {.fault = TINY_NO_TENSOR, .name = "blk.0.attn_q.bias"};
        struct fault fault = {0};

        shape.has_bias = true;
        assert_int_equal(load(&shape, &twist, *state, &fault), E_FORMAT);
        assert_non_null(strstr(fault.text, "2 of the three biases"));
        shape.lacks = LACKS;
        if (load(&shape, NULL, *state, &fault) < 0)
            fail_msg("%s: %s", NAMES[i], fault.text);
    }
}

/* An MTP head is counted among the layers. The model reads none of it, whether or not model_check_mtp() knows it. */
static void heads_are_left_out_of_the_model(void **state)
{
    static const char *const SET[] = {"nextn_predict_layers=1", NULL};
    static const char *const SCALED[] = {"nextn_predict_layers=1", "attention.sliding_window=9",
                                         "logit_scale=0.5", NULL};
    struct {
        struct tiny_shape shape;
        const char *const *set;
        const char *head, *none; /* a tensor besides those of the head, and one beyond it */
    } cases[] = {
        {tiny_shape("exaone4"), SET, "blk.1.nextn.embed_tokens.weight", "blk.2.nextn.enorm.weight"},
        {tiny_experts("cohere2moe"), SCALED, "blk.1.nextn.enorm.weight", "blk.2.nextn.enorm.weight"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tiny_twist twist = {.fault = TINY_MORE_TENSOR, .name = cases[i].head};
        struct fault fault = {0};

        cases[i].shape.set = cases[i].set;
        if (load(&cases[i].shape, &twist, *state, &fault) < 0)
            fail_msg("%s: %s", cases[i].shape.arch, fault.text);
        twist.name = cases[i].none;
        assert_int_equal(load(&cases[i].shape, &twist, *state, &fault), E_UNSUPPORTED);
    }
}

/* Layers that use an earlier choice of keys may have the tensors of an indexer. */
static void a_spare_indexer_is_not_read(void **state)
{
    static const char *const SET[] = {"attention.indexer.head_count=4", "attention.indexer.key_length=16",
                                      "attention.indexer.top_k=9",      "attention.q_lora_rank=32",
                                      "attention.indexer.types=1,0",    NULL};
    struct tiny_shape shape = tiny_experts("deepseek2");
    struct tiny_twist twist = {.fault = TINY_MORE_FLOATS, .name = "blk.1.indexer.k_norm.weight", .value = 16};
    struct fault fault = {0};

    shape.arch = "glm-dsa";
    shape.has_bias = true;
    shape.set = SET;
    if (load(&shape, &twist, *state, &fault) < 0)
        fail_msg("%s", fault.text);
    twist.name = "blk.1.indexer.other.weight";
    assert_int_equal(load(&shape, &twist, *state, &fault), E_UNSUPPORTED);
}

static void early_files_of_qwen3next_are_refused_by_name(void **state)
{
    struct tiny_shape shape = tiny_experts("qwen3next");
    static const char *const SET[] = {"ssm.conv_kernel=4",
                                      "ssm.inner_size=32",
                                      "ssm.state_size=8",
                                      "ssm.time_step_rank=2",
                                      "ssm.group_count=1",
                                      "full_attention_interval=2",
                                      NULL};
    const struct tiny_twist twist = {.fault = TINY_MORE_TENSOR, .name = "blk.0.ssm_in.weight"};
    struct fault fault = {0};

    shape.set = SET;
    assert_int_equal(load(&shape, &twist, *state, &fault), E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "early converter"));
}

/* A key that would change scores is refused where it is not computed. */
static void a_scale_of_scores_is_not_ignored(void **state)
{
    struct tiny_shape shape = tiny_shape("qwen3");
    const struct tiny_twist twist = {.fault = TINY_KEY_F32, .name = "qwen3.attention.scale", .number = 0.5f};
    struct fault fault = {0};

    assert_int_equal(load(&shape, &twist, *state, &fault), E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "attention.scale"));
}

/* Files of StableLM have the key true also where the halves follow one another. */
static void the_halves_of_stablelm_decide(void **state)
{
    struct tiny_shape shape = tiny_shape("stablelm");
    struct tiny_twist twist = {.fault = TINY_KEY_BOOL, .name = "stablelm.use_parallel_residual", .value = 1};
    struct fault fault = {0};

    if (load(&shape, &twist, *state, &fault) < 0)
        fail_msg("%s", fault.text);
    twist = (struct tiny_twist){.fault = TINY_NO_TENSOR, .name = "blk.0.ffn_norm.weight"};
    assert_int_equal(load(&shape, &twist, *state, &fault), E_FORMAT);
}

/* Files are checked before a worker loads them. */
static void experts_are_checked_before_packing(void **state)
{
    struct tiny_shape shape = tiny_experts("qwen3moe");
    const struct tiny_twist twist = {.fault = TINY_NO_TENSOR, .name = "blk.0.ffn_up_exps.weight"};
    struct gguf *gguf = tiny_gguf(&shape, &twist);
    struct kv_layout layout;
    struct fault fault = {0};
    uint32_t context;

    (void)state;
    assert_int_equal(model_check(gguf, &(struct model_opts){0}, &fault, &layout, &context), E_FORMAT);
    assert_non_null(strstr(fault.text, "blk.0.ffn_up_exps.weight is missing"));
    gguf_close(gguf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_halves_of_stablelm_decide, check_team_open, check_team_close),
        cmocka_unit_test(experts_are_checked_before_packing),
        cmocka_unit_test_setup_teardown(an_unknown_architecture_is_named_in_one_line, check_team_open,
                                        check_team_close),
        cmocka_unit_test_setup_teardown(biases_may_be_absent, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(heads_are_left_out_of_the_model, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(a_spare_indexer_is_not_read, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(early_files_of_qwen3next_are_refused_by_name, check_team_open,
                                        check_team_close),
        cmocka_unit_test_setup_teardown(a_scale_of_scores_is_not_ignored, check_team_open, check_team_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
