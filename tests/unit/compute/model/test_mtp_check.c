/* SPDX-License-Identifier: Apache-2.0 */
/* model_check_mtp: which files have an MTP head, the KV of one, and the heads that are refused. */
#include "base/err.h"
#include "tests/unit/compute/model/tiny.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/compute/check_team.h"

#define NEXTN "nextn_predict_layers=1"
#define DELTA                                                                                                \
    "ssm.conv_kernel=4", "ssm.inner_size=32", "ssm.state_size=8", "ssm.time_step_rank=2",                    \
        "ssm.group_count=1", "full_attention_interval=2"
#define SPARSE                                                                                               \
    "attention.indexer.head_count=4", "attention.indexer.key_length=16", "attention.indexer.top_k=9",        \
        "attention.q_lora_rank=32"

static const char *const PLAIN[] = {NEXTN, NULL};
static const char *const WINDOWED[] = {NEXTN, "attention.sliding_window=9", NULL};
static const char *const COHERE[] = {NEXTN, "attention.sliding_window=9", "logit_scale=0.5", NULL};
#define LISTED NEXTN, "attention.sliding_window=9", "rope.freq_base_swa=100.0"
static const char *const WITH_HEAD[] = {LISTED, "attention.sliding_window_pattern=0,1,1,1", NULL};
static const char *const WITHOUT_HEAD[] = {LISTED, "attention.sliding_window_pattern=0,1,1", NULL};
#define HEAD_TOO LISTED, "attention.sliding_window_pattern=0,1,1,1"
/* One of the lists ends before the head's layer, the others have an item for it. */
static const char *const SHORT_HEADS[] = {HEAD_TOO, "attention.head_count=4,4,4", NULL};
static const char *const SHORT_KV_HEADS[] = {HEAD_TOO, "attention.head_count_kv=2,2,2", NULL};
static const char *const SHORT_FFN[] = {HEAD_TOO, "feed_forward_length=96,96,96", NULL};
static const char *const SHORT_CLAMPS[] = {HEAD_TOO, "swiglu_clamp_exp=0.0,0.0,0.5", NULL};
static const char *const SHORT_SHARED_CLAMPS[] = {HEAD_TOO, "swiglu_clamp_shexp=0.0,0.0,0.5", NULL};
static const char *const LONG_LISTS[] = {HEAD_TOO,
                                         "attention.head_count=4,4,4,4",
                                         "attention.head_count_kv=2,2,2,2",
                                         "feed_forward_length=96,96,96,96",
                                         "swiglu_clamp_shexp=0.0,0.0,0.5,0.0",
                                         NULL};
/* A dense head has no shared expert to limit. */
static const char *const CLAMPED_HEAD[] = {HEAD_TOO, "swiglu_clamp_shexp=0.0,0.0,0.5,0.25", NULL};
static const char *const HYBRID[] = {NEXTN, DELTA, NULL};
static const char *const HYBRID_ALONE[] = {DELTA, NULL};
static const char *const INDEXED[] = {NEXTN, SPARSE, "attention.indexer.types=1,0,0", NULL};

static const struct head_case {
    const char *arch;
    const char *const *set;
    struct tiny_twist twist;
    int code;
} CASES[] = {
    {"glm4moe", PLAIN, {0}, 0},
    {"qwen35", HYBRID, {0}, 0},
    {"deepseek2", PLAIN, {0}, 0},
    {"glm-dsa", INDEXED, {0}, 0},
    {"qwen35", HYBRID_ALONE, {0}, E_NOT_FOUND},
    {"llama", NULL, {0}, E_NOT_FOUND},
    /* Some writers keep the key and leave the tensors out. */
    {"qwen35", HYBRID, {.fault = TINY_NO_TENSOR, .name = "blk.3.nextn.eh_proj.weight"}, E_NOT_FOUND},
    {"glm-dsa", INDEXED, {.fault = TINY_NO_TENSOR, .name = "blk.3.indexer.proj.weight"}, E_NOT_FOUND},
    {"qwen35", HYBRID, {.fault = TINY_NO_TENSOR, .name = "blk.3.nextn.shared_head_norm.weight"}, 0},
    {"qwen35", HYBRID, {.fault = TINY_NO_TENSOR, .name = "blk.3.nextn.enorm.weight"}, E_FORMAT},
    {"qwen35", HYBRID, {.fault = TINY_NO_TENSOR, .name = "blk.3.attn_k.weight"}, E_FORMAT},
    {"deepseek2",
     PLAIN,
     {.fault = TINY_TENSOR_COLS, .name = "blk.3.nextn.eh_proj.weight", .value = 64},
     E_FORMAT},
    /* The other families of ordinary attention layers. */
    {"llama", PLAIN, {0}, 0},
    {"llama", WINDOWED, {0}, 0},
    {"llama", PLAIN, {.fault = TINY_NO_TENSOR, .name = "blk.3.nextn.hnorm.weight"}, E_FORMAT},
    {"qwen2", PLAIN, {0}, 0},
    {"qwen3", PLAIN, {0}, 0},
    {"gemma", PLAIN, {0}, 0},
    {"gemma2", WINDOWED, {0}, 0},
    {"gemma3", WINDOWED, {0}, 0},
    {"phi3", PLAIN, {0}, 0},
    {"granite", PLAIN, {0}, 0},
    {"olmo2", WINDOWED, {0}, 0},
    {"glm4", PLAIN, {0}, 0},
    {"exaone4", WINDOWED, {0}, 0},
    {"exaone-moe", WINDOWED, {0}, 0},
    {"exaone-moe", WINDOWED, {.fault = TINY_NO_TENSOR, .name = "blk.3.ffn_gate.weight"}, E_FORMAT},
    {"hy_v3", PLAIN, {0}, 0},
    {"bailingmoe2", PLAIN, {0}, 0},
    {"bailingmoe2", PLAIN, {.fault = TINY_NO_TENSOR, .name = "blk.3.nextn.enorm.weight"}, E_FORMAT},
    {"internlm2", PLAIN, {0}, 0},
    {"ernie4_5", PLAIN, {0}, 0},
    {"hunyuan-dense", PLAIN, {0}, 0},
    {"seed_oss", PLAIN, {0}, 0},
    {"qwen3moe", PLAIN, {0}, 0},
    {"qwen2moe", PLAIN, {0}, 0},
    {"olmoe", PLAIN, {0}, 0},
    {"granitemoe", PLAIN, {0}, 0},
    {"minimax-m2", PLAIN, {0}, 0},
    {"hunyuan-moe", PLAIN, {0}, 0},
    {"cohere2moe", COHERE, {0}, 0},
    {"cohere2moe", COHERE, {.fault = TINY_NO_TENSOR, .name = "blk.3.nextn.hnorm.weight"}, E_FORMAT},
    {"step35", WITH_HEAD, {0}, 0},
    {"step35", WITH_HEAD, {.fault = TINY_NO_TENSOR, .name = "blk.3.ffn_up.weight"}, E_FORMAT},
    /* The lists end before the head's layer. */
    {"step35", WITHOUT_HEAD, {0}, E_NOT_FOUND},
    {"step35", LONG_LISTS, {0}, 0},
    {"step35", SHORT_HEADS, {0}, E_NOT_FOUND},
    {"step35", SHORT_KV_HEADS, {0}, E_NOT_FOUND},
    {"step35", SHORT_FFN, {0}, E_NOT_FOUND},
    {"step35", SHORT_CLAMPS, {0}, E_NOT_FOUND},
    {"step35", SHORT_SHARED_CLAMPS, {0}, E_NOT_FOUND},
    {"step35", CLAMPED_HEAD, {0}, E_NOT_FOUND},
    {"smollm3", PLAIN, {0}, E_NOT_FOUND}, /* no key tells whether a head's layer turns its keys */
};

static bool has_experts(const char *arch)
{
    return strstr(arch, "moe") != NULL || strcmp(arch, "minimax-m2") == 0 || strcmp(arch, "hy_v3") == 0 ||
           strcmp(arch, "step35") == 0;
}

/* Four layers of the file: the last of the model's three is recurrent or shares its choice of keys, the head's not. */
static struct tiny_shape shape_of_case(const struct head_case *head)
{
    struct tiny_shape shape = tiny_shape(head->arch);

    if (strcmp(head->arch, "deepseek2") == 0 || strcmp(head->arch, "glm-dsa") == 0) {
        shape = tiny_experts("deepseek2");
        shape.arch = head->arch;
        shape.has_bias = true;
    } else if (has_experts(head->arch)) {
        shape = tiny_experts(head->arch);
        shape.has_bias = strcmp(head->arch, "qwen2moe") == 0;
    }
    shape.set = head->set;
    shape.n_layers = 4;
    return shape;
}

static void heads_are_found_and_checked(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct tiny_shape shape = shape_of_case(&CASES[i]);
        struct gguf *gguf = tiny_gguf(&shape, CASES[i].twist.name ? &CASES[i].twist : NULL);
        struct kv_layout layout = {.n_layers = 77};
        struct fault fault = {0};
        int rc = model_check_mtp(gguf, &(struct model_opts){.kv_type = KV_F16}, &fault, &layout);

        gguf_close(gguf);
        if (rc != CASES[i].code)
            fail_msg("case %zu: code %s, \"%s\"", i, err_name(rc), fault.text);
        assert_int_equal(layout.n_layers, rc == 0 ? 1 : 77);
        assert_int_equal(layout.state_bytes, 0);
        if (rc == 0)
            assert_int_equal(layout.index_dim > 0, strcmp(CASES[i].arch, "glm-dsa") == 0);
        if (rc < 0 && rc != E_NOT_FOUND)
            assert_non_null(strstr(fault.text, CASES[i].twist.name));
    }
}

/* A head without a last norm of its own loads; test_arch compares its logits (qwen35moe-mtp). */
static void the_last_norm_is_borrowed(void **state)
{
    struct tiny_shape shape = shape_of_case(&CASES[1]);
    struct gguf *gguf = tiny_gguf(&shape, &CASES[8].twist);
    struct model_opts opts = {0};
    struct model *model, *head;
    struct fault fault = {0};
    struct team *team;

    (void)state;
    team = check_team(1);
    if (model_new(gguf, team, &opts, &fault, &model) < 0)
        fail_msg("%s", fault.text);
    opts.mtp_of = model;
    if (model_new(gguf, team, &opts, &fault, &head) < 0)
        fail_msg("%s", fault.text);
    assert_int_equal(model_config(head)->n_layers, 1);
    assert_int_equal(model_config(head)->n_recurrent_layers, 0);
    assert_int_equal(model_config(model)->n_recurrent_layers, 2);
    gguf_close(gguf);
    model_free(head);
    model_free(model);
    team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_found_and_checked),
        cmocka_unit_test(the_last_norm_is_borrowed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
