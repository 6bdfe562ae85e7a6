/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised blocks compared with vectors from elsewhere (make_qblk.py), and the header's promises about their
 * parts: geometry, range, and that float and double differ by one rounding only. */
#include "gguf/qblk.h"
#include "qblk_digests.h"
#include "qblk_vectors.h"

#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const enum dtype quantised[] = {
    DTYPE_Q4_0,  DTYPE_Q4_1,    DTYPE_Q5_0,   DTYPE_Q5_1,   DTYPE_Q8_0,    DTYPE_Q2_K,  DTYPE_Q3_K,
    DTYPE_Q4_K,  DTYPE_Q5_K,    DTYPE_Q6_K,   DTYPE_IQ4_NL, DTYPE_IQ4_XS,  DTYPE_MXFP4, DTYPE_IQ1_S,
    DTYPE_IQ1_M, DTYPE_IQ2_XXS, DTYPE_IQ2_XS, DTYPE_IQ2_S,  DTYPE_IQ3_XXS, DTYPE_IQ3_S, DTYPE_TQ1_0,
    DTYPE_TQ2_0, DTYPE_NVFP4,   DTYPE_Q1_0,   DTYPE_Q2_0,
};

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static size_t from_hex(const char *hex, uint8_t *out)
{
    size_t n = strlen(hex) / 2;

    for (size_t i = 0; i < n; i++) {
        unsigned byte;

        assert_int_equal(sscanf(hex + i * 2, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
    return n;
}

static void rows_are_read_as_worked_out_elsewhere(void **state)
{
    assert_int_equal(ARRAY_LEN(qblk_vectors) + ARRAY_LEN(qblk_digests), ARRAY_LEN(quantised));
    for (size_t v = 0; v < ARRAY_LEN(qblk_vectors); v++) {
        const struct qblk_vector *vector = &qblk_vectors[v];
        const struct dtype_info *info = dtype_info(vector->type);
        uint8_t qblks[512], want[2048];
        float got[512];
        double exact[512];
        size_t len_bytes = from_hex(vector->qblks, qblks);
        size_t n = from_hex(vector->weights, want) / 4;

        assert_int_equal(len_bytes / info->qblk_bytes * info->qblk_weights, n);
        assert_int_equal(qblk_row_f32(vector->type, qblks, n, got), 0);
        assert_int_equal(qblk_row_f64(vector->type, qblks, n, exact), 0);
        for (size_t i = 0; i < n; i++) {
            uint32_t bits =
                (uint32_t)want[i * 4] << 24 | want[i * 4 + 1] << 16 | want[i * 4 + 2] << 8 | want[i * 4 + 3];

            if (bits_of(got[i] + 0.0F) != bits)
                fail_msg("%s weight %zu: %.9g", info->name, i, (double)got[i]);
            assert_true(bits_of((float)exact[i] + 0.0F) == bits);
        }
    }
}

/* The generator of make_qblk_digests.py. */
static void generate(uint64_t *state, int scale_top, uint32_t n, uint8_t *qblk)
{
    for (uint32_t i = 0; i < n; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        qblk[i] = (uint8_t)(*state >> 56) & ((int)i == scale_top ? 0xbf : 0xff);
    }
}

static void every_lattice_point_is_as_worked_out_elsewhere(void **state)
{
    for (size_t v = 0; v < ARRAY_LEN(qblk_digests); v++) {
        const struct dtype_info *info = dtype_info(qblk_digests[v].type);
        uint64_t random = 1, digest = UINT64_C(0xcbf29ce484222325);

        for (int block = 0; block < 512; block++) {
            uint8_t qblk[256];
            float weights[256];
            double exact[256];

            generate(&random, qblk_digests[v].scale_top, info->qblk_bytes, qblk);
            assert_int_equal(qblk_row_f32(qblk_digests[v].type, qblk, info->qblk_weights, weights), 0);
            assert_int_equal(qblk_row_f64(qblk_digests[v].type, qblk, info->qblk_weights, exact), 0);
            for (uint32_t i = 0; i < info->qblk_weights; i++) {
                uint32_t bits = bits_of(weights[i] + 0.0F);

                assert_true(bits_of((float)exact[i] + 0.0F) == bits);
                for (int byte = 0; byte < 4; byte++)
                    digest = (digest ^ (bits >> 8 * byte & 255)) * UINT64_C(0x100000001b3);
            }
        }
        if (digest != qblk_digests[v].digest)
            fail_msg("%s has other weights", info->name);
    }
}

/* Random bits with finite scales. */
static void random_qblk(struct rng *rng, enum dtype type, uint8_t *qblk)
{
    struct qblk_parts parts;

    do {
        for (uint32_t i = 0; i < dtype_info(type)->qblk_bytes; i++)
            qblk[i] = (uint8_t)rng_u64(rng);
        qblk_parts(type, qblk, &parts);
    } while (!isfinite(parts.scale) || !isfinite(parts.min) || fabsf(parts.scale) > 0x1p120F);
}

static void parts_keep_to_the_form(void **state)
{
    struct rng rng;

    rng_init(&rng, 5);
    for (size_t t = 0; t < ARRAY_LEN(quantised); t++) {
        const struct qblk_form *form = qblk_form(quantised[t]);
        const struct dtype_info *info = dtype_info(quantised[t]);

        assert_int_equal(form->weights, info->qblk_weights);
        assert_int_equal(form->sub_weights * form->n_subs, form->weights);
        assert_true(form->is_table == (qblk_table(quantised[t]) != NULL));
        for (int turn = 0; turn < 200; turn++) {
            uint8_t qblk[256];
            struct qblk_parts parts;

            random_qblk(&rng, quantised[t], qblk);
            qblk_parts(quantised[t], qblk, &parts);
            for (uint32_t i = 0; i < form->weights; i++)
                assert_in_range(parts.quants[i] + 128, form->quant_low + 128, form->quant_high + 128);
            for (uint32_t s = 0; s < form->n_subs; s++) {
                assert_true((double)qblk_sub_scale(&parts, s) ==
                            (double)parts.scale * parts.own_scales[s] * parts.sub_scales[s]);
                assert_true((double)qblk_sub_min(&parts, s) == (double)parts.min * parts.sub_mins[s]);
                assert_true(form->has_min || (parts.min == 0 && parts.sub_mins[s] == 0));
                assert_in_range(parts.sub_mins[s], 0, 63);
            }
        }
    }
}

static void a_power_of_two_comes_from_each_exponent(void **state)
{
    for (int exponent = 0; exponent < 256; exponent++) {
        struct qblk_mxfp4 qblk = {.exponent = (uint8_t)exponent};
        struct qblk_parts parts;

        qblk_parts(DTYPE_MXFP4, &qblk, &parts);
        assert_true(parts.scale == ldexpf(1, exponent - 128));
    }
}

/* The integers of a file and the numbers of the formula agree. */
static void fields_and_parts_agree(void **state)
{
    struct rng rng;

    rng_init(&rng, 7);
    for (size_t t = 0; t < ARRAY_LEN(quantised); t++) {
        const struct qblk_form *form = qblk_form(quantised[t]);
        const int8_t *table = qblk_table(quantised[t]);
        uint8_t qblk[256];
        struct qblk_parts parts;
        struct qblk_fields fields;

        random_qblk(&rng, quantised[t], qblk);
        qblk_parts(quantised[t], qblk, &parts);
        qblk_reader_of(quantised[t])(qblk, &fields);
        for (uint32_t i = 0; i < form->weights; i++) {
            assert_in_range(fields.u[i], 0, table != NULL ? 15 : form->quant_high - form->quant_low);
            assert_int_equal(parts.quants[i],
                             table != NULL ? table[fields.u[i]] : fields.u[i] + form->quant_low);
        }
        assert_memory_equal(parts.sub_scales, fields.sub_scales, form->n_subs);
        assert_memory_equal(parts.sub_mins, fields.sub_mins, form->n_subs);
        if (!form->has_sub_halves)
            assert_true(parts.scale * (float)(1 << form->unit_bits) ==
                        (quantised[t] == DTYPE_MXFP4 ? bf16_to_f32(fields.scale) : f16_to_f32(fields.scale)));
        assert_true(!form->has_min || parts.min == f16_to_f32(fields.min));
    }
}

static void floats_are_the_doubles_rounded_once(void **state)
{
    struct rng rng;

    rng_init(&rng, 6);
    for (size_t t = 0; t < ARRAY_LEN(quantised); t++) {
        for (int turn = 0; turn < 200; turn++) {
            uint8_t qblk[256];
            float single[256];
            double twice[256];
            uint32_t n = qblk_form(quantised[t])->weights;

            random_qblk(&rng, quantised[t], qblk);
            assert_int_equal(qblk_row_f32(quantised[t], qblk, n, single), 0);
            assert_int_equal(qblk_row_f64(quantised[t], qblk, n, twice), 0);
            for (uint32_t i = 0; i < n; i++)
                assert_true(single[i] == (float)twice[i]);
        }
    }
}

static void plain_rows_and_refusals(void **state)
{
    static const float four[3] = {1.5F, -2, 0.25F};
    static const uint16_t half[3] = {0x3e00, 0xc000, 0x3400}, brain[3] = {0x3fc0, 0xc000, 0x3e80};
    static const uint8_t qblk[36];
    float out[32];
    double twice[32];

    for (int t = 0; t < 3; t++) {
        enum dtype type = t == 0 ? DTYPE_F32 : t == 1 ? DTYPE_F16 : DTYPE_BF16;
        const void *row = t == 0 ? (const void *)four : t == 1 ? half : brain;

        assert_int_equal(qblk_row_f32(type, row, 3, out), 0);
        assert_int_equal(qblk_row_f64(type, row, 3, twice), 0);
        for (int i = 0; i < 3; i++)
            assert_true(out[i] == four[i] && twice[i] == (double)four[i]);
    }
    assert_int_equal(qblk_row_f32(DTYPE_Q8_1, qblk, 32, out), E_UNSUPPORTED);
    assert_int_equal(qblk_row_f64(DTYPE_I32, qblk, 4, twice), E_UNSUPPORTED);
    assert_int_equal(qblk_row_f32(DTYPE_Q8_0, qblk, 31, out), E_INVAL);
    assert_int_equal(qblk_row_f64(DTYPE_Q8_0, qblk, 33, twice), E_INVAL);
    assert_null(qblk_form(DTYPE_F32));
    assert_null(qblk_form((enum dtype)999));
    assert_null(qblk_table(DTYPE_Q4_0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_read_as_worked_out_elsewhere),
        cmocka_unit_test(every_lattice_point_is_as_worked_out_elsewhere),
        cmocka_unit_test(parts_keep_to_the_form),
        cmocka_unit_test(a_power_of_two_comes_from_each_exponent),
        cmocka_unit_test(fields_and_parts_agree),
        cmocka_unit_test(floats_are_the_doubles_rounded_once),
        cmocka_unit_test(plain_rows_and_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
