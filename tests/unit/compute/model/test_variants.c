/* SPDX-License-Identifier: Apache-2.0 */
/* Files of one architecture differ: tensors and keys that some have and others lack. */
#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "compute/model/model_priv.h"
#include "compute/tensor/tensor.h"
#include "tests/unit/compute/model/tiny.h"

#include <math.h>
#include <stdio.h>
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
    static const char *const LISTED[] = {"nextn_predict_layers=1", "attention.sliding_window=9",
                                         "attention.sliding_window_pattern=1,0",
                                         NULL}; /* none for the head */
    static const char *const UNEQUAL[] = {"nextn_predict_layers=1", "attention.sliding_window=9",
                                          "attention.sliding_window_pattern=1,0,1",
                                          "attention.head_count=4,4", NULL};
    static const char *const CLAMPED[] = {"nextn_predict_layers=1", "attention.sliding_window=9",
                                          "attention.sliding_window_pattern=1,0,1",
                                          "swiglu_clamp_shexp=0.0,0.5,0.25", NULL};
    struct {
        struct tiny_shape shape;
        const char *const *set;
        const char *head, *none; /* a tensor besides those of the head, and one beyond it */
    } cases[] = {
        {tiny_shape("exaone4"), SET, "blk.1.nextn.embed_tokens.weight", "blk.2.nextn.enorm.weight"},
        {tiny_experts("cohere2moe"), SCALED, "blk.1.nextn.embed_tokens.weight", "blk.2.nextn.enorm.weight"},
        {tiny_experts("step35"), LISTED, "blk.2.nextn.enorm.weight", "blk.3.nextn.enorm.weight"},
        {tiny_experts("step35"), UNEQUAL, "blk.2.nextn.enorm.weight", "blk.3.nextn.enorm.weight"},
        {tiny_experts("step35"), CLAMPED, "blk.2.nextn.enorm.weight", "blk.3.nextn.enorm.weight"},
    };

    for (size_t i = 2; i < sizeof(cases) / sizeof(cases[0]); i++)
        cases[i].shape.n_layers = 3;
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
    assert_non_null(strstr(fault.text, "blk.0.ffn_norm.weight is missing"));
    shape.set = (const char *const[]){"use_parallel_residual=true", NULL};
    if (load(&shape, NULL, *state, &fault) < 0)
        fail_msg("%s", fault.text);
}

/* llama.cpp's files of hy_v3 have the bias of the choice without ".bias". */
static void the_bias_of_a_choice_has_two_names(void **state)
{
    struct tiny_shape shape = tiny_experts("hy_v3");
    struct tiny_twist twist = {
        .fault = TINY_MORE_FLOATS, .name = "blk.1.exp_probs_b", .value = shape.n_experts};
    struct fault fault = {0};

    if (load(&shape, &twist, *state, &fault) < 0)
        fail_msg("%s", fault.text);
    twist.value++;
    assert_int_equal(load(&shape, &twist, *state, &fault), E_FORMAT);
    assert_non_null(strstr(fault.text, "blk.1.exp_probs_b"));
}

/* No key tells GPT-NeoX 20B, which was trained with another form of GELU, from other files. */
static void the_shape_tells_gpt_neox_20b(void **state)
{
    static const uint32_t LAYERS[] = {44, 44, 36}, HIDDEN[] = {6144, 5120, 6144};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(LAYERS); i++) {
        struct tiny_shape shape = tiny_shape("gptneox");
        struct tiny_twist twist = {
            .fault = TINY_KEY_U32, .name = "gptneox.embedding_length", .value = HIDDEN[i]};
        struct model model = {0};
        struct fault fault = {0};

        shape.n_layers = LAYERS[i];
        shape.n_heads = shape.n_kv_heads = 8;
        struct gguf *gguf = tiny_gguf(&shape, &twist);
        if (arch_read(gguf, 0, &fault, &model) < 0)
            fail_msg("%s", fault.text);
        assert_int_equal(model.activation, i == 0 ? ACT_GELU : ACT_GELU_EXACT);
        free(model.layers);
        gguf_close(gguf);
    }
}

/* Without these keys a layer would see other tokens, or turn none of its heads. */
static void keys_of_windows_must_be_there(void **state)
{
    static const char *const SET[] = {"logit_scale=0.5", "attention.sliding_window=9",
                                      "attention.sliding_window_pattern=1,0", NULL};
    static const struct {
        const char *arch;
        bool needs_pattern;
    } CASES[] = {
        {"mimo2", true}, {"step35", true}, {"afmoe", false}, {"cohere2moe", false}, {"exaone-moe", false}};

    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct tiny_shape shape = tiny_experts(CASES[i].arch);
        char window[64], pattern[64];
        struct fault fault = {0};
        struct tiny_twist twist = {.fault = TINY_NO_KEY, .name = window};

        snprintf(window, sizeof(window), "%s.attention.sliding_window", shape.arch);
        snprintf(pattern, sizeof(pattern), "%s.attention.sliding_window_pattern", shape.arch);
        shape.set = SET + (strcmp(shape.arch, "cohere2moe") != 0);
        if (load(&shape, NULL, *state, &fault) < 0)
            fail_msg("%s: %s", shape.arch, fault.text);
        assert_int_equal(load(&shape, &twist, *state, &fault), E_FORMAT);
        assert_non_null(strstr(fault.text, window));
        twist = (struct tiny_twist){.fault = TINY_KEY_U32, .name = window, .value = 0};
        assert_int_equal(load(&shape, &twist, *state, &fault), E_FORMAT);
        assert_non_null(strstr(fault.text, window));
        twist = (struct tiny_twist){.fault = TINY_NO_KEY, .name = pattern};
        assert_int_equal(load(&shape, &twist, *state, &fault), CASES[i].needs_pattern ? E_FORMAT : 0);
        assert_true(!CASES[i].needs_pattern || strstr(fault.text, pattern) != NULL);
    }
}

/* Logits after the last of a few tokens. */
static void last_logits(const struct tiny_shape *shape, struct team *team, float out[64])
{
    struct model *model = tiny_model(shape, team, &(struct model_opts){0});

    tiny_run(model, team, out);
    model_free(model);
}

static bool is_same(const struct tiny_shape *shape, const char *const *set, const float *logits,
                    struct team *team)
{
    struct tiny_shape changed = *shape;
    float other[64];

    changed.set = set;
    last_logits(&changed, team, other);
    return memcmp(other, logits, shape->vocab * sizeof(float)) == 0;
}

/* A RoPE base of the layers with a window is applied, or refused where it meets a scaling. */
static void a_base_of_windows_is_not_ignored(void **state)
{
#define WINDOWS "logit_scale=0.5", "attention.sliding_window=9", "attention.sliding_window_pattern=1,0"
    static const char *const PLAIN[] = {WINDOWS, NULL};
    static const char *const EQUAL[] = {WINDOWS, "rope.freq_base_swa=10000", NULL};
    static const char *const OTHER[] = {WINDOWS, "rope.freq_base_swa=500", NULL};
    static const char *const NAMES[] = {"cohere2moe", "afmoe", "exaone-moe", "phimoe"};
    float logits[64];

    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        struct tiny_shape shape = tiny_experts(NAMES[i]);
        size_t from = strcmp(NAMES[i], "cohere2moe") != 0; /* the others have no scale of logits */
        char key[64];
        const struct tiny_twist twist = {.fault = TINY_KEY_STR, .name = key, .text = "yarn"};
        struct fault fault = {0};

        snprintf(key, sizeof(key), "%s.rope.scaling.type", shape.arch);
        if (strcmp(NAMES[i], "phimoe") == 0)
            shape.n_used = 2;
        shape.set = PLAIN + from;
        last_logits(&shape, *state, logits);
        assert_true(is_same(&shape, EQUAL + from, logits, *state));
        assert_false(is_same(&shape, OTHER + from, logits, *state));
        shape.set = OTHER + from;
        assert_int_equal(load(&shape, &twist, *state, &fault), E_UNSUPPORTED);
        assert_non_null(strstr(fault.text, "rope.freq_base_swa"));
    }
}

/* Its choice and its weights are its own: keys and tensors of other rules are refused. */
static void a_sparse_mixer_has_no_other_rule(void **state)
{
    struct tiny_shape shape = tiny_experts("phimoe");
    const struct {
        struct tiny_twist twist;
        const char *says;
    } CASES[] = {
        {{.fault = TINY_KEY_U32, .name = "phimoe.expert_gating_func", .value = 1}, "SparseMixer"},
        {{.fault = TINY_KEY_U32, .name = "phimoe.expert_group_count", .value = 2}, "SparseMixer"},
        {{.fault = TINY_MORE_FLOATS, .name = "blk.1.exp_probs_b.bias", .value = 8}, "exp_probs_b"},
    };
    struct fault fault = {0};

    shape.n_used = 2;
    if (load(&shape, NULL, *state, &fault) < 0)
        fail_msg("%s", fault.text);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        assert_int_equal(load(&shape, &CASES[i].twist, *state, &fault), E_UNSUPPORTED);
        assert_non_null(strstr(fault.text, CASES[i].says));
    }
}

static void numbers_of_keys_stay_finite(void **state)
{
    static const char *const XIELU[] = {"xielu.alpha_p=800.0", "xielu.alpha_n=800.0", "xielu.beta=0.5",
                                        "xielu.eps=0.0", NULL};
    struct tiny_shape shape = tiny_shape("apertus");
    struct tiny_twist twist = {.fault = TINY_KEY_F32, .name = "hunyuan_vl.rope.scaling.alpha"};
    struct fault fault = {0};
    float logits[64];

    shape.set = XIELU;
    last_logits(&shape, *state, logits);
    for (uint32_t i = 0; i < shape.vocab; i++)
        assert_true(isfinite(logits[i]));
    shape = tiny_shape("hunyuan_vl");
    if (load(&shape, &twist, *state, &fault) < 0) /* 0: none */
        fail_msg("%s", fault.text);
    twist.number = 1e-40f;
    assert_int_equal(load(&shape, &twist, *state, &fault), E_FORMAT);
    assert_non_null(strstr(fault.text, "rope.scaling.alpha"));
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
        cmocka_unit_test(the_shape_tells_gpt_neox_20b),
        cmocka_unit_test_setup_teardown(the_bias_of_a_choice_has_two_names, check_team_open,
                                        check_team_close),
        cmocka_unit_test_setup_teardown(the_halves_of_stablelm_decide, check_team_open, check_team_close),
        cmocka_unit_test(experts_are_checked_before_packing),
        cmocka_unit_test_setup_teardown(keys_of_windows_must_be_there, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(a_base_of_windows_is_not_ignored, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(a_sparse_mixer_has_no_other_rule, check_team_open, check_team_close),
        cmocka_unit_test_setup_teardown(numbers_of_keys_stay_finite, check_team_open, check_team_close),
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
