/* SPDX-License-Identifier: Apache-2.0 */
/* Scales beside tensors of NVFP4: they multiply the tensor, or each expert, and wrong ones are refused by name. */
#include "base/err.h"
#include "compute/model/model_priv.h"
#include "compute/tensor/tensor.h"
#include "tests/unit/compute/model/tiny.h"

#include <math.h>
#include <string.h>

#include "tests/unit/compute/check_team.h"

static struct tiny_shape nvfp4_shape(void)
{
    struct tiny_shape shape = tiny_shape("llama");

    shape.ffn = 128;
    for (int i = 0; i < 3; i++)
        shape.types[i] = DTYPE_NVFP4;
    return shape;
}

/* Gate and up of the first layer are one matrix, of 128 rows each. */
static void scales_beside_tensors_multiply_them(void **state)
{
    static const struct tiny_twist SCALES[] = {
        {.fault = TINY_MORE_FLOATS, .name = "blk.0.ffn_up.scale", .value = 1},
        {.fault = TINY_MORE_FLOATS, .name = "blk.0.ffn_up.weight.scale", .value = 1},
        {.fault = TINY_MORE_FLOATS, .name = "blk.0.ffn_up.input_scale", .value = 1},
    };
    struct tiny_shape shape = nvfp4_shape();
    float plain[64], scaled[64], scale;

    for (size_t i = 0; i < sizeof(SCALES) / sizeof(SCALES[0]); i++) {
        struct gguf *gguf = tiny_gguf(&shape, &SCALES[i]), *bare = tiny_gguf(&shape, NULL);
        struct model *model = NULL, *without = NULL;
        struct fault fault = {0};

        memcpy(&scale, gguf_tensor_find(gguf, SCALES[i].name)->data, sizeof(scale));
        if (i == 2)
            scale = 1; /* of activations, which are rounded otherwise here */
        else
            assert_true(scale != 1);
        if (model_new(gguf, *state, &(struct model_opts){0}, &fault, &model) < 0)
            fail_msg("%s: %s", SCALES[i].name, fault.text);
        assert_int_equal(model_new(bare, *state, &(struct model_opts){0}, &fault, &without), 0);
        for (uint32_t row = 0; row < 256; row++) {
            weight_row(&model->layers[0].groups[GROUP_GATE_UP].parts[0], row, scaled);
            weight_row(&without->layers[0].groups[GROUP_GATE_UP].parts[0], row, plain);
            for (int k = 0; k < 64; k++) {
                float expected = row < 128 ? plain[k] : plain[k] * scale;

                assert_true(fabsf(scaled[k] - expected) <= 1e-6f * fabsf(expected));
            }
        }
        gguf_close(gguf);
        gguf_close(bare);
        model_free(model);
        model_free(without);
    }
}

/* Rows of an expert: gate, then up. */
static void each_expert_has_its_scale(void **state)
{
    enum { FFN = 128, COLS = 64 };
    const struct tiny_twist twist = {
        .fault = TINY_MORE_FLOATS, .name = "blk.0.ffn_up_exps.scale", .value = 8};
    struct tiny_shape shape = tiny_experts("llama");
    struct model *model = NULL, *without = NULL;
    struct fault fault = {0};
    float plain[COLS], scaled[COLS], scales[8];

    shape.ffn = shape.expert_ffn = FFN;
    for (int i = 0; i < 3; i++)
        shape.types[i] = DTYPE_NVFP4;
    struct gguf *gguf = tiny_gguf(&shape, &twist), *bare = tiny_gguf(&shape, NULL);
    memcpy(scales, gguf_tensor_find(gguf, twist.name)->data, sizeof(scales));
    if (model_new(gguf, *state, &(struct model_opts){0}, &fault, &model) < 0)
        fail_msg("%s", fault.text);
    assert_int_equal(model_new(bare, *state, &(struct model_opts){0}, &fault, &without), 0);
    for (uint32_t row = 0; row < 8 * 2 * FFN; row++) {
        float scale = row % (2 * FFN) < FFN ? 1.0f : scales[row / (2 * FFN)];

        weight_row(&model->layers[0].experts.gate_up[0], row, scaled);
        weight_row(&without->layers[0].experts.gate_up[0], row, plain);
        for (int k = 0; k < COLS; k++)
            assert_true(fabsf(scaled[k] - plain[k] * scale) <= 1e-6f * fabsf(plain[k] * scale));
    }
    gguf_close(gguf);
    gguf_close(bare);
    model_free(model);
    model_free(without);
}

static void wrong_scales_are_refused(void **state)
{
    static const struct {
        struct tiny_twist twist;
        bool is_nvfp4;
        int code;
        const char *says;
    } CASES[] = {
        {{.fault = TINY_MORE_FLOATS, .name = "blk.0.ffn_up.scale", .value = 3},
         true,
         E_FORMAT,
         "ffn_up.scale must be"},
        {{.fault = TINY_MORE_FLOATS, .name = "blk.0.ffn_up.scale", .value = 1},
         false,
         E_UNSUPPORTED,
         "ffn_up.scale"},
        {{.fault = TINY_MORE_FLOATS, .name = "blk.0.attn_norm.scale", .value = 1},
         true,
         E_UNSUPPORTED,
         "attn_norm.scale"},
    };

    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct tiny_shape shape = CASES[i].is_nvfp4 ? nvfp4_shape() : tiny_shape("llama");
        struct gguf *gguf = tiny_gguf(&shape, &CASES[i].twist);
        struct model *model = NULL;
        struct fault fault = {0};

        assert_int_equal(model_new(gguf, *state, &(struct model_opts){0}, &fault, &model), CASES[i].code);
        if (strstr(fault.text, CASES[i].says) == NULL)
            fail_msg("%zu: %s", i, fault.text);
        gguf_close(gguf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_beside_tensors_multiply_them),
        cmocka_unit_test(each_expert_has_its_scale),
        cmocka_unit_test(wrong_scales_are_refused),
    };

    return cmocka_run_group_tests(tests, check_team_open, check_team_close);
}
