/* SPDX-License-Identifier: Apache-2.0 */
/* Quantising.  Packing reverses unpacking bit for bit.  Written weights read back within a stated error, for
 * weights as in models and for awkward ones.  The search is better than plain rounding. */
#include "gguf/qblk_write.h"

#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N = 4096 };

/* Root mean squared error for normal weights of deviation 1.
 * The bound is about 3 % above the measured value. */
static const struct {
    enum dtype type;
    double error;
} writable[] = {
    {DTYPE_Q4_0, 0.0832},  {DTYPE_Q4_1, 0.0725},  {DTYPE_Q5_0, 0.0416}, {DTYPE_Q5_1, 0.0347},
    {DTYPE_Q8_0, 0.00543}, {DTYPE_Q2_K, 0.277},   {DTYPE_Q3_K, 0.1484}, {DTYPE_Q4_K, 0.0729},
    {DTYPE_Q5_K, 0.0356},  {DTYPE_Q6_K, 0.01775},
};

static float normal(struct rng *rng)
{
    return (float)(sqrt(-2 * log(1 - rng_unit(rng))) * cos(6.283185307179586 * rng_unit(rng)));
}

static double rms_error(enum dtype type, const float *weights, float *back)
{
    static uint8_t row[N * 4];
    double sum = 0;

    assert_int_equal(qblk_from_f32(type, weights, N, row), 0);
    assert_int_equal(qblk_row_f32(type, row, N, back), 0);
    for (int i = 0; i < N; i++)
        sum += pow((double)back[i] - (double)weights[i], 2);
    return sqrt(sum / N);
}

static void packing_undoes_taking_apart(void **state)
{
    struct rng rng;

    rng_init(&rng, 1);
    for (size_t t = 0; t < ARRAY_LEN(writable); t++) {
        enum dtype type = writable[t].type;
        size_t len_bytes = dtype_info(type)->qblk_bytes;

        for (int turn = 0; turn < 500; turn++) {
            uint8_t qblk[256], again[256];
            struct qblk_parts parts;

            do {
                for (size_t i = 0; i < len_bytes; i++)
                    qblk[i] = (uint8_t)rng_u64(&rng);
                qblk_parts(type, qblk, &parts);
            } while (!isfinite(parts.scale) || !isfinite(parts.min));
            qblk_pack(type, &parts, again);
            assert_memory_equal(qblk, again, len_bytes);
        }
    }
}

static void normal_weights_keep_to_the_stated_error(void **state)
{
    static float weights[N], back[N];
    struct rng rng;

    rng_init(&rng, 2);
    for (int i = 0; i < N; i++)
        weights[i] = normal(&rng);
    for (size_t t = 0; t < ARRAY_LEN(writable); t++) {
        double error = rms_error(writable[t].type, weights, back);

        if (error > writable[t].error)
            fail_msg("%s: %.5f", dtype_info(writable[t].type)->name, error);
    }
}

/* An outlier, a shift, sub-blocks of zeros, small ones: each weight is within about a step of the grid that
 * would just span its qblk. */
static void awkward_weights_stay_near(void **state)
{
    static float weights[N], back[N];
    struct rng rng;

    rng_init(&rng, 3);
    for (int i = 0; i < N; i++) {
        float value = normal(&rng);

        weights[i] = i < 1024   ? value + (i % 256 == 7 ? 20 : 0)
                     : i < 2048 ? value * 0.01F + 3
                     : i < 3072 ? (i / 16 % 2 ? 0 : value)
                                : value * 0.01F;
    }
    for (size_t t = 0; t < ARRAY_LEN(writable); t++) {
        const struct qblk_form *form = qblk_form(writable[t].type);
        double steps = form->quant_high - form->quant_low;

        rms_error(writable[t].type, weights, back);
        for (int i = 0; i < N; i++) {
            int from = i / (int)form->weights * (int)form->weights;
            double most = 0;

            for (int k = from; k < from + (int)form->weights; k++)
                most = fmax(most, fabs((double)weights[k]));
            assert_true(fabs((double)back[i] - (double)weights[i]) <= most * 2.2 / steps);
        }
    }
}

static void constant_weights(void **state)
{
    static const float values[] = {0, 1, -1, 0.37F, -1000, 1e-30F};
    float weights[N], back[N];

    for (size_t v = 0; v < ARRAY_LEN(values); v++) {
        for (int i = 0; i < N; i++)
            weights[i] = values[v];
        for (size_t t = 0; t < ARRAY_LEN(writable); t++) {
            double error = rms_error(writable[t].type, weights, back);

            assert_true(error <= fabs((double)values[v]) * 0.005 + 1e-12);
            assert_true(values[v] != 0 || error == 0);
        }
    }
}

/* After one pass through a type, weights are on its grid,
 * and a second pass changes them little or not at all. */
static void a_second_pass_adds_next_to_nothing(void **state)
{
    static float weights[N], once[N], twice[N];
    struct rng rng;

    rng_init(&rng, 4);
    for (int i = 0; i < N; i++)
        weights[i] = normal(&rng);
    for (size_t t = 0; t < ARRAY_LEN(writable); t++) {
        double first = rms_error(writable[t].type, weights, once);
        double second = rms_error(writable[t].type, once, twice);

        assert_true(second < first * 0.5);
    }
}

/* Rounding to a grid that just spans the weights, without a search. */
static void the_search_beats_plain_rounding(void **state)
{
    static float weights[N], back[N];
    struct rng rng;
    double plain = 0;

    rng_init(&rng, 5);
    for (int i = 0; i < N; i++)
        weights[i] = normal(&rng);
    for (int b = 0; b < N; b += 32) {
        float most = 0;

        for (int i = b; i < b + 32; i++)
            most = fabsf(weights[i]) > fabsf(most) ? weights[i] : most;
        for (int i = b; i < b + 32; i++) {
            float step = most / -8, q = fminf(roundf(weights[i] / step), 7);

            plain += pow((double)(q * step - weights[i]), 2);
        }
    }
    plain = sqrt(plain / N);
    assert_true(rms_error(DTYPE_Q4_0, weights, back) < plain * 0.97);
    assert_true(rms_error(DTYPE_Q4_K, weights, back) < plain * 0.85);
}

/* A 16-bit scale has a lower limit: weights below it become zero, never larger. */
static void weights_too_small_become_zero(void **state)
{
    static float weights[N], back[N];
    struct rng rng;
    double squares = 0;

    rng_init(&rng, 6);
    for (int i = 0; i < N; i++) {
        weights[i] = normal(&rng) * 1e-7F;
        squares += (double)weights[i] * (double)weights[i];
    }
    for (size_t t = 0; t < ARRAY_LEN(writable); t++)
        assert_true(rms_error(writable[t].type, weights, back) <= sqrt(squares / N) * 1.0001);
}

/* The error that is weighed shrinks. */
static void importance_moves_the_error(void **state)
{
    static float weights[N], importance[N], back[2][N];
    static uint8_t row[2][N * 4];
    struct rng rng;

    (void)state;
    rng_init(&rng, 7);
    for (int i = 0; i < N; i++) {
        weights[i] = normal(&rng);
        importance[i] = i % 8 == 0 ? 20 : 0.2F;
    }
    for (size_t t = 0; t < ARRAY_LEN(writable); t++) {
        enum dtype type = writable[t].type;
        double error[2] = {0, 0};

        assert_int_equal(qblk_from_f32(type, weights, N, row[0]), 0);
        assert_int_equal(qblk_from_f32_important(type, weights, importance, N, row[1]), 0);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(qblk_row_f32(type, row[k], N, back[k]), 0);
            for (int i = 0; i < N; i++)
                error[k] += importance[i] * pow((double)back[k][i] - (double)weights[i], 2);
        }
        assert_true(type == DTYPE_Q8_0 ? error[1] == error[0] : error[1] < error[0] * 0.95);
    }
}

static void plain_types_and_refusals(void **state)
{
    float weights[32] = {1, -2.5F}, back[32];
    uint8_t row[128];

    for (int t = 0; t < 3; t++) {
        enum dtype type = t == 0 ? DTYPE_F32 : t == 1 ? DTYPE_F16 : DTYPE_BF16;

        assert_int_equal(qblk_from_f32(type, weights, 32, row), 0);
        assert_int_equal(qblk_row_f32(type, row, 32, back), 0);
        assert_memory_equal(weights, back, sizeof(weights));
    }
    assert_int_equal(qblk_from_f32(DTYPE_IQ4_NL, weights, 32, row), E_UNSUPPORTED);
    assert_int_equal(qblk_from_f32(DTYPE_I8, weights, 32, row), E_UNSUPPORTED);
    assert_int_equal(qblk_from_f32(DTYPE_Q4_0, weights, 31, row), E_INVAL);
    assert_int_equal(qblk_from_f32(DTYPE_Q4_K, weights, 32, row), E_INVAL);
    weights[5] = 1e6F;
    assert_int_equal(qblk_from_f32(DTYPE_F16, weights, 32, row), E_RANGE);
    weights[5] = 1e30F;
    assert_int_equal(qblk_from_f32(DTYPE_Q4_0, weights, 32, row), E_RANGE);
    weights[5] = NAN;
    assert_int_equal(qblk_from_f32(DTYPE_Q8_0, weights, 32, row), E_RANGE);
    assert_int_equal(qblk_from_f32(DTYPE_BF16, weights, 32, row), E_RANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packing_undoes_taking_apart),
        cmocka_unit_test(normal_weights_keep_to_the_stated_error),
        cmocka_unit_test(awkward_weights_stay_near),
        cmocka_unit_test(constant_weights),
        cmocka_unit_test(a_second_pass_adds_next_to_nothing),
        cmocka_unit_test(the_search_beats_plain_rounding),
        cmocka_unit_test(weights_too_small_become_zero),
        cmocka_unit_test(importance_moves_the_error),
        cmocka_unit_test(plain_types_and_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
