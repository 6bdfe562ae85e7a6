/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong files of models with experts and latent attention.  Each kind of error ends in one fault that names its cause. */
#include "base/err.h"
#include "base/rng.h"
#include "tests/unit/compute/model/tiny.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/compute/check_team.h"

static const struct hostile {
    const char *arch;
    struct tiny_twist twist;
    int code;
    const char *says;
} HOSTILE[] = {
    {"qwen3moe",
     {.fault = TINY_NO_KEY, .name = "qwen3moe.expert_count"},
     E_FORMAT,
     "expert_count is missing"},
    {"qwen3moe",
     {.fault = TINY_KEY_U32, .name = "qwen3moe.expert_count", .value = 0},
     E_FORMAT,
     "expert_count"},
    {"qwen3moe",
     {.fault = TINY_KEY_U32, .name = "qwen3moe.expert_count", .value = 1u << 30},
     E_FORMAT,
     "0..512"},
    {"qwen3moe",
     {.fault = TINY_KEY_F32, .name = "qwen3moe.expert_group_count", .number = 1.5f},
     E_FORMAT,
     "whole"},
    {"qwen3moe",
     {.fault = TINY_KEY_U32, .name = "qwen3moe.expert_count", .value = 7},
     E_FORMAT,
     "ffn_gate_inp"},
    {"qwen3moe", {.fault = TINY_NO_KEY, .name = "qwen3moe.expert_used_count"}, E_FORMAT, "expert_used_count"},
    {"qwen3moe",
     {.fault = TINY_KEY_U32, .name = "qwen3moe.expert_used_count", .value = 9},
     E_FORMAT,
     "to choose from"},
    {"qwen3moe",
     {.fault = TINY_KEY_U32, .name = "qwen3moe.expert_used_count", .value = 65},
     E_FORMAT,
     "1..64"},
    {"qwen3moe",
     {.fault = TINY_KEY_U32, .name = "qwen3moe.expert_group_count", .value = 3},
     E_FORMAT,
     "3 groups"},
    {"qwen3moe",
     {.fault = TINY_KEY_U32, .name = "qwen3moe.expert_group_used_count", .value = 2},
     E_FORMAT,
     "groups"},
    {"qwen3moe",
     {.fault = TINY_KEY_U32, .name = "qwen3moe.expert_gating_func", .value = 4},
     E_UNSUPPORTED,
     "gating"},
    {"qwen3moe",
     {.fault = TINY_KEY_U32, .name = "qwen3moe.expert_feed_forward_length", .value = 31},
     E_UNSUPPORTED,
     "multiples of 16"},
    {"qwen3moe",
     {.fault = TINY_KEY_U32, .name = "qwen3moe.expert_feed_forward_length", .value = 48},
     E_FORMAT,
     "ffn_gate_exps.weight is 8 x 32 x 64, expected 8 x 48 x 64"},
    {"qwen3moe",
     {.fault = TINY_NO_TENSOR, .name = "blk.1.ffn_up_exps.weight"},
     E_FORMAT,
     "blk.1.ffn_up_exps"},
    {"qwen3moe", {.fault = TINY_NO_TENSOR, .name = "blk.0.ffn_gate_inp.weight"}, E_FORMAT, "ffn_gate_inp"},
    {"qwen3moe",
     {.fault = TINY_MORE_TENSOR, .name = "blk.0.ffn_gate.weight"},
     E_UNSUPPORTED,
     "blk.0.ffn_gate.weight"},
    {"llama",
     {.fault = TINY_MORE_TENSOR, .name = "blk.0.ffn_gate.0.weight"},
     E_FORMAT,
     "ffn_gate.0.weight is"},
    {"deepseek2",
     {.fault = TINY_NO_KEY, .name = "deepseek2.attention.kv_lora_rank"},
     E_FORMAT,
     "kv_lora_rank"},
    {"deepseek2",
     {.fault = TINY_KEY_U32, .name = "deepseek2.attention.kv_lora_rank", .value = 1024},
     E_UNSUPPORTED,
     "at most"},
    {"deepseek2",
     {.fault = TINY_KEY_U32, .name = "deepseek2.attention.kv_lora_rank", .value = 40},
     E_UNSUPPORTED,
     "16"},
    {"deepseek2",
     {.fault = TINY_KEY_U32, .name = "deepseek2.rope.dimension_count", .value = 48},
     E_FORMAT,
     "nothing is left"},
    {"deepseek2",
     {.fault = TINY_KEY_U32, .name = "deepseek2.rope.dimension_count", .value = 15},
     E_FORMAT,
     "even"},
    {"deepseek2",
     {.fault = TINY_NO_KEY, .name = "deepseek2.rope.dimension_count"},
     E_FORMAT,
     "dimension_count"},
    {"deepseek2",
     {.fault = TINY_KEY_U32, .name = "deepseek2.leading_dense_block_count", .value = 3},
     E_FORMAT,
     "leading_dense_block_count"},
    {"deepseek2",
     {.fault = TINY_KEY_U32, .name = "deepseek2.leading_dense_block_count", .value = 2},
     E_FORMAT,
     "blk.1"},
    {"deepseek2",
     {.fault = TINY_KEY_U32, .name = "deepseek2.attention.value_length", .value = 64},
     E_UNSUPPORTED,
     "longer than keys"},
    {"deepseek2",
     {.fault = TINY_KEY_U32, .name = "deepseek2.attention.q_lora_rank", .value = 8},
     E_FORMAT,
     "attn_q_a"},
    {"deepseek2",
     {.fault = TINY_KEY_U32, .name = "deepseek2.expert_shared_count", .value = 3},
     E_FORMAT,
     "shexp"},
    {"deepseek2",
     {.fault = TINY_NO_TENSOR, .name = "blk.0.attn_kv_b.weight"},
     E_FORMAT,
     "attn_kv_b.weight is missing"},
    {"deepseek2",
     {.fault = TINY_NO_TENSOR, .name = "blk.1.attn_kv_a_norm.weight"},
     E_FORMAT,
     "attn_kv_a_norm"},
    {"deepseek2", {.fault = TINY_MORE_TENSOR, .name = "blk.0.attn_k.weight"}, E_UNSUPPORTED, "attn_k.weight"},
};

static void every_wrong_file_is_refused_by_name(void **state)
{
    for (size_t i = 0; i < sizeof(HOSTILE) / sizeof(HOSTILE[0]); i++) {
        struct tiny_shape shape = tiny_experts(HOSTILE[i].arch);
        struct gguf *gguf = tiny_gguf(&shape, &HOSTILE[i].twist);
        struct model *model = NULL;
        struct fault fault = {0};
        int rc = model_new(gguf, *state, &(struct model_opts){0}, &fault, &model);

        gguf_close(gguf);
        if (rc != HOSTILE[i].code || strstr(fault.text, HOSTILE[i].says) == NULL)
            fail_msg("%zu %s: code %s, \"%s\"", i, HOSTILE[i].twist.name, err_name(rc), fault.text);
        assert_null(model);
    }
}

/* An arbitrary file may be refused or run. */
static void try_image(struct bytes image, struct team *team, unsigned *n_ran)
{
    struct gguf *gguf = NULL;
    struct fault fault = {0};
    struct model *model = NULL;

    if (gguf_open_memory(image, &fault, &gguf) == 0 &&
        model_new(gguf, team, &(struct model_opts){0}, &fault, &model) == 0) {
        tiny_run(model, team, NULL);
        model_free(model);
        ++*n_ran;
    } else {
        assert_true(fault.code < 0 && fault.text[0] != '\0');
    }
    gguf_close(gguf);
}

static void mutated_files_are_refused_or_run(void **state)
{
    static const char *const ARCHS[] = {"llama", "qwen3moe", "deepseek2"};
    struct rng rng;

    rng_init(&rng, 43);
    for (unsigned a = 0; a < 3; a++) {
        struct tiny_shape shape = tiny_experts(ARCHS[a]);
        struct buf image = {0};
        unsigned n_ran = 0;

        tiny_image(&shape, NULL, &image);
        for (unsigned i = 0; i < 300; i++) {
            size_t at = (size_t)rng_below(&rng, 3500); /* keys and tensor directory */
            uint8_t was = image.data[at];

            image.data[at] =
                rng_below(&rng, 2) ? (uint8_t)rng_u64(&rng) : (uint8_t)(was ^ (1u << rng_below(&rng, 8)));
            try_image(buf_view(&image), *state, &n_ran);
            image.data[at] = was;
        }
        assert_true(n_ran > 0 && n_ran < 300);
        buf_fini(&image);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_wrong_file_is_refused_by_name, check_team_open,
                                        check_team_close),
        cmocka_unit_test_setup_teardown(mutated_files_are_refused_or_run, check_team_open, check_team_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
