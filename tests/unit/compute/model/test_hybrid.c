/* SPDX-License-Identifier: Apache-2.0 */
/* Files of hybrid models: which lists of heads and which widths are accepted, the resulting size of the
 * state, and which ones are refused by name. */
#include "base/check.h"
#include "tests/unit/compute/model/tiny.h"

#include <stdio.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static int check(const char *arch, const char *const *set, struct fault *fault, struct kv_layout *layout_out)
{
    struct tiny_shape shape = tiny_shape(arch);
    const struct model_opts opts = {.kv_type = KV_F32, .block_tokens = 32};
    struct gguf *gguf;
    uint32_t context;
    int rc;

    shape.n_layers = 3;
    shape.set = set;
    gguf = tiny_gguf(&shape, NULL);
    rc = model_check(gguf, &opts, fault, layout_out, &context);
    gguf_close(gguf);
    return rc;
}

static void the_layout_parts_the_layers(void **state)
{
    static const char *const lfm2[] = {"attention.head_count_kv=0,2,0", "shortconv.l_cache=4", NULL};
    static const char *const qwen35[] = {"ssm.conv_kernel=3",
                                         "ssm.inner_size=64",
                                         "ssm.state_size=16",
                                         "ssm.time_step_rank=4",
                                         "ssm.group_count=2",
                                         "full_attention_interval=3",
                                         NULL};
    struct fault fault = {0};
    struct kv_layout layout;

    (void)state;
    if (check("lfm2", lfm2, &fault, &layout) < 0)
        fail_msg("%s", fault.text);
    assert_int_equal(layout.n_layers, 1);
    assert_int_equal(layout.n_kv_heads, 2);
    assert_int_equal(layout.state_bytes, 2 * 3 * 64 * 4); /* layers, rows, channels */
    if (check("qwen35", qwen35, &fault, &layout) < 0)
        fail_msg("%s", fault.text);
    assert_int_equal(layout.n_layers, 1);
    assert_int_equal(layout.state_bytes, 2 * (2 * (2 * 2 * 16 + 64) + 4 * 16 * 16) * 4);
}

static const char *const MAMBA[] = {"ssm.conv_kernel=3",    "ssm.inner_size=64", "ssm.state_size=16",
                                    "ssm.time_step_rank=4", "ssm.group_count=2", NULL};
enum { MAMBA_BYTES = (2 * (2 * 2 * 16 + 64) + 4 * 16 * 16) * 4 }; /* of a layer */

static void mamba_has_state_instead_of_keys_or_beside_them(void **state)
{
    static const char *const nemotron[] = {"ssm.conv_kernel=3",          "ssm.inner_size=64",
                                           "ssm.state_size=16",          "ssm.time_step_rank=4",
                                           "ssm.group_count=2",          "attention.head_count_kv=0,2,0",
                                           "feed_forward_length=0,0,96", NULL};
    struct fault fault = {0};
    struct kv_layout layout;

    (void)state;
    if (check("falcon-h1", MAMBA, &fault, &layout) < 0)
        fail_msg("%s", fault.text);
    assert_int_equal(layout.n_layers, 3);
    assert_int_equal(layout.state_bytes, 3 * MAMBA_BYTES);
    if (check("nemotron_h", nemotron, &fault, &layout) < 0)
        fail_msg("%s", fault.text);
    assert_int_equal(layout.n_layers, 1);
    assert_int_equal(layout.state_bytes, MAMBA_BYTES);
    if (check("mamba2", MAMBA, &fault, &layout) < 0)
        fail_msg("%s", fault.text);
    assert_int_equal(layout.n_layers, 1); /* which holds parts of states */
    assert_int_equal(layout.state_bytes, 3 * MAMBA_BYTES);
}

/* A key that is there in the shape that model_tensors() sees, and wrong in the file. */
static void refused(const char *arch, const char *const *set, const struct tiny_twist *twist, const char *why)
{
    struct tiny_shape shape = tiny_shape(arch);
    const struct model_opts opts = {.kv_type = KV_F32, .block_tokens = 32};
    struct fault fault = {0};
    struct kv_layout layout;
    struct gguf *gguf;
    uint32_t context;

    shape.n_layers = 3;
    shape.set = set;
    gguf = tiny_gguf(&shape, twist);
    assert_true(model_check(gguf, &opts, &fault, &layout, &context) < 0);
    if (strstr(fault.text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", fault.text, why);
    gguf_close(gguf);
}

static void wrong_files_are_named(void **state)
{
    static const char *const lfm2[] = {"attention.head_count_kv=0,2,0", "shortconv.l_cache=4", NULL};

    (void)state;
    refused("lfm2", lfm2,
            &(struct tiny_twist){.fault = TINY_NO_TENSOR, .name = "blk.0.shortconv.conv.weight"},
            "blk.0.shortconv.conv.weight is missing");
    refused(
        "lfm2", lfm2,
        &(struct tiny_twist){.fault = TINY_TENSOR_COLS, .name = "blk.2.shortconv.conv.weight", .value = 3},
        "blk.2.shortconv.conv.weight is 64 x 3, expected 64 x 4");
    refused("lfm2", lfm2, &(struct tiny_twist){.fault = TINY_MORE_TENSOR, .name = "blk.0.attn_q.weight"},
            "blk.0.attn_q.weight");
    refused("mamba2", MAMBA, &(struct tiny_twist){.fault = TINY_MORE_TENSOR, .name = "blk.0.attn_q.weight"},
            "blk.0.attn_q.weight");
    refused("falcon-h1", MAMBA, &(struct tiny_twist){.fault = TINY_NO_TENSOR, .name = "blk.1.ssm_d"},
            "blk.1.ssm_d is missing");
}

/* Writes only the list, over a model without one. */
static void lists_of_heads_are_checked(void **state)
{
    static const struct {
        const char *arch, *list, *why;
    } CASES[] = {
        {"llama", "020", "layers without attention are not supported in llama"},
        {"lfm2", "02", "is no list of 3 numbers"},
        {"lfm2", "000", "no layer has attention"},
        {"lfm2", "214", "layers with 2 and 1 heads"},
    };
    static const char *const taps[] = {"shortconv.l_cache=4", NULL};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        struct tiny_twist twist = {.fault = TINY_KEY_FLAGS, .text = CASES[i].list};
        struct tiny_shape shape = tiny_shape(CASES[i].arch);
        const struct model_opts opts = {.kv_type = KV_F32, .block_tokens = 32};
        struct fault fault = {0};
        struct kv_layout layout;
        struct gguf *gguf;
        uint32_t context;
        char name[64];

        snprintf(name, sizeof(name), "%s.attention.head_count_kv", CASES[i].arch);
        twist.name = name;
        shape.n_layers = 3;
        shape.set = taps;
        gguf = tiny_gguf(&shape, &twist);
        assert_true(model_check(gguf, &opts, &fault, &layout, &context) < 0);
        if (strstr(fault.text, CASES[i].why) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", fault.text, CASES[i].why);
        gguf_close(gguf);
    }
}

static void widths_that_do_not_fit_are_refused(void **state)
{
    static const char *const good[] = {"ssm.conv_kernel=3",
                                       "ssm.inner_size=64",
                                       "ssm.state_size=16",
                                       "ssm.time_step_rank=4",
                                       "ssm.group_count=2",
                                       "full_attention_interval=2",
                                       NULL};
    static const struct tiny_twist TWISTS[] = {
        {.fault = TINY_KEY_U32, .name = "qwen35.full_attention_interval", .value = 0},
        {.fault = TINY_KEY_U32, .name = "qwen35.full_attention_interval", .value = 5},
        {.fault = TINY_KEY_U32, .name = "qwen35.ssm.group_count", .value = 3},
        {.fault = TINY_KEY_U32, .name = "qwen35.ssm.time_step_rank", .value = 5},
        {.fault = TINY_KEY_U32, .name = "qwen35.ssm.conv_kernel", .value = 9},
        {.fault = TINY_KEY_U32, .name = "qwen35.ssm.state_size", .value = 17},
    };
    static const char *const WHY[] = {"outside 1..4096",     "no layer of this qwen35 has attention",
                                      "do not fit together", "do not fit together",
                                      "outside 1..8",        "expected"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(TWISTS); i++)
        refused("qwen35", good, &TWISTS[i], WHY[i]);
}

/* Files of sparse attention, chunks and experts without gates. */
static void other_kinds_of_layers_are_checked(void **state)
{
    static const char *const sparse[] = {"attention.kv_lora_rank=32",
                                         "attention.q_lora_rank=32",
                                         "attention.key_length=24",
                                         "attention.value_length=16",
                                         "rope.dimension_count=8",
                                         "expert_count=4",
                                         "expert_used_count=2",
                                         "expert_feed_forward_length=32",
                                         "attention.indexer.head_count=4",
                                         "attention.indexer.key_length=16",
                                         "attention.indexer.top_k=9",
                                         NULL};
    static const char *const chunks[] = {"attention.sliding_window=64", "expert_count=4",
                                         "expert_used_count=1", "expert_feed_forward_length=32", NULL};
    static const char *const plain[] = {"ssm.conv_kernel=3",
                                        "ssm.inner_size=64",
                                        "ssm.state_size=16",
                                        "ssm.time_step_rank=4",
                                        "ssm.group_count=2",
                                        "attention.head_count_kv=0,2,0",
                                        "feed_forward_length=0,0,32",
                                        "expert_count=4",
                                        "expert_used_count=2",
                                        "expert_feed_forward_length=32",
                                        "expert_shared_feed_forward_length=48",
                                        NULL};
    struct fault fault = {0};
    struct kv_layout layout;

    (void)state;
    if (check("glm-dsa", sparse, &fault, &layout) < 0 || check("deepseek32", sparse, &fault, &layout) < 0)
        fail_msg("%s", fault.text);
    assert_int_equal(kv_layout_layer_block_bytes(&layout), 32 * (32 + 8 + 16) * 4);
    refused("deepseek32", sparse,
            &(struct tiny_twist){
                .fault = TINY_KEY_U32, .name = "deepseek32.attention.indexer.key_length", .value = 4},
            "indexer keys of 4 with 8 turned");
    refused(
        "deepseek32", sparse,
        &(struct tiny_twist){.fault = TINY_KEY_U32, .name = "deepseek32.attention.indexer.top_k", .value = 0},
        "outside 1..65536");
    refused("deepseek32", sparse,
            &(struct tiny_twist){.fault = TINY_NO_TENSOR, .name = "blk.1.indexer.k_norm.bias"},
            "blk.1.indexer.k_norm.bias is missing");
    refused("glm-dsa", sparse,
            &(struct tiny_twist){
                .fault = TINY_KEY_FLAGS, .name = "glm-dsa.attention.indexer.types", .text = "011"},
            "the first layer has no indexer");
    if (check("llama4", chunks, &fault, &layout) < 0 || check("nemotron_h_moe", plain, &fault, &layout) < 0)
        fail_msg("%s", fault.text);
    assert_int_equal(layout.n_layers, 1);
    assert_int_equal(layout.state_bytes, MAMBA_BYTES);
    refused(
        "llama4", chunks,
        &(struct tiny_twist){.fault = TINY_KEY_U32, .name = "llama4.attention.sliding_window", .value = 48},
        "chunks of 48 tokens are not whole blocks of 32");
    refused("nemotron_h_moe", plain,
            &(struct tiny_twist){.fault = TINY_NO_TENSOR, .name = "blk.2.ffn_up_shexp.weight"},
            "blk.2.ffn_up_shexp.weight is missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_layout_parts_the_layers),
        cmocka_unit_test(mamba_has_state_instead_of_keys_or_beside_them),
        cmocka_unit_test(wrong_files_are_named),
        cmocka_unit_test(lists_of_heads_are_checked),
        cmocka_unit_test(widths_that_do_not_fit_are_refused),
        cmocka_unit_test(other_kinds_of_layers_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
