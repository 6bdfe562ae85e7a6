/* SPDX-License-Identifier: Apache-2.0 */
/* Packed weights: rows come back unchanged, parts are stacked, panels are compact, and other types are refused. */
#include "source.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>

static void rows_come_back(void **state)
{
    struct team *team = *state;
    const struct kern_table *table;
    struct rng rng;

    rng_init(&rng, 7);
    for (int j = 0; j < N_TYPES; j++) {
        struct source source = source_make(&rng, source_types[j], 37, source_cols(source_types[j], 288));

        for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
            struct weight weight = source_pack(table, &source, team);

            for (uint32_t row = 0; row < source.rows; row++) {
                float *out = check_floats(source.cols);

                weight_row(&weight, row, out);
                assert_memory_equal(out, source.floats + (size_t)row * source.cols,
                                    source.cols * sizeof(float));
                check_guard(out, source.cols);
                free(out);
            }
            weight_fini(&weight);
        }
        source_free(&source);
    }
}

static void parts_are_stacked(void **state)
{
    struct team *team = *state;
    struct rng rng;
    float row[64];

    rng_init(&rng, 8);
    struct source a = source_make(&rng, DTYPE_Q8_0, 5, 64), b = source_make(&rng, DTYPE_Q8_0, 30, 64);
    struct weight_part parts[2] = {{a.data, a.rows}, {b.data, b.rows}};
    struct weight weight;
    assert_int_equal(weight_pack(&(struct weight_packing){.table = kern_table_get("auto"),
                                                          .type = DTYPE_Q8_0,
                                                          .parts = parts,
                                                          .n_parts = 2,
                                                          .cols = 64,
                                                          .team = team},
                                 &weight),
                     0);
    assert_int_equal(weight.rows, 35);
    weight_row(&weight, 4, row);
    assert_memory_equal(row, a.floats + 4 * 64, sizeof(row));
    weight_row(&weight, 5, row);
    assert_memory_equal(row, b.floats, sizeof(row));
    weight_row(&weight, 34, row);
    assert_memory_equal(row, b.floats + 29 * 64, sizeof(row));
    weight_fini(&weight);
    source_free(&a);
    source_free(&b);
}

/* Each table multiplies by the scale of a part: products of rows with a scale are those of the plain rows times it. */
static void parts_have_scales(void **state)
{
    enum { COLS = 128, EACH = 40 };
    static const float scales[2] = {0.3719f, -113.7f};
    struct team *team = *state;
    const struct kern_table *table;
    struct rng rng;

    rng_init(&rng, 10);
    struct source source = source_make(&rng, DTYPE_NVFP4, EACH, COLS);
    struct weight_part parts[2] = {{source.data, EACH}, {source.data, EACH}};
    float *x = malloc(COLS * sizeof(*x)), y[2 * EACH], row[COLS];
    void *scratch = mem_aligned(64, matmul_scratch_most(1, COLS, team_size(team)));

    assert_non_null(x);
    assert_non_null(scratch);
    for (uint32_t k = 0; k < COLS; k++)
        x[k] = (float)((int)(k * 37 % 101) - 50);
    for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
        struct weight_packing packing = {
            .table = table, .type = DTYPE_NVFP4, .parts = parts, .n_parts = 2, .cols = COLS, .team = team};
        struct weight plain, scaled;
        float plain_y[2 * EACH];

        assert_int_equal(weight_pack(&packing, &plain), 0);
        packing.scales = scales;
        assert_int_equal(weight_pack(&packing, &scaled), 0);
        struct matmul_args args = {.weight = &plain,
                                   .x = x,
                                   .x_stride = COLS,
                                   .n = 1,
                                   .y = plain_y,
                                   .y_stride = 2 * EACH,
                                   .scratch = scratch};
        matmul(team, &args);
        args.weight = &scaled;
        args.y = y;
        matmul(team, &args);
        for (uint32_t r = 0; r < 2 * EACH; r++) {
            float scale = scales[r / EACH], size = 0;

            weight_row(&scaled, r, row);
            for (uint32_t k = 0; k < COLS; k++) {
                float expected = source.floats[(size_t)(r % EACH) * COLS + k] * scale;

                assert_true(fabsf(row[k] - expected) <= 1e-6f * fabsf(expected));
                size += fabsf(expected * x[k]);
            }
            assert_true(fabsf(y[r] - plain_y[r] * scale) <= 1e-5f * size);
        }
        weight_fini(&plain);
        weight_fini(&scaled);
    }
    free(x);
    free(scratch);
    source_free(&source);
}

/* Most bytes of panels for one of the file.  The scales of NVFP4 take 16 bits, and in the file 8.  Digits of IQ1 are
 * not numbers of points.  Where points are not looked up, each weight has an index of three or four bits. */
static double most_ratio(const struct kern_table *table, enum dtype type)
{
    const bool has_points = kern_has_points(table);

    switch ((uint32_t)type) {
    case DTYPE_NVFP4:
        return 1.15;
    case DTYPE_IQ1_S:
        return has_points ? 1.17 : 2.2;
    case DTYPE_IQ1_M:
        return has_points ? 1.18 : 2.08;
    case DTYPE_IQ2_XXS:
    case DTYPE_IQ2_XS:
        return has_points ? 1.062 : 1.7;
    case DTYPE_IQ3_XXS:
        return has_points ? 1.042 : 1.43;
    case DTYPE_IQ2_S:
    case DTYPE_IQ3_S:
        return has_points ? 1 : 1.43;
    case DTYPE_TQ1_0:
        return has_points ? 1 : 1.26;
    default:
        return 1.065;
    }
}

/* The kernels and the codecs have the same forms, and panels are hardly larger than the file. */
static void panels_are_compact(void **state)
{
#ifdef CHECK_EMULATED
    enum { ROWS = 256, COLS = 2048 };
#else
    enum { ROWS = 1024, COLS = 4096 };
#endif
    struct team *team = *state;
    const struct kern_table *table;
    struct rng rng;

    rng_init(&rng, 9);
    for (int j = N_PLAIN; j < N_TYPES; j++) {
        const struct dtype_info *info = dtype_info(source_types[j]);
        struct source source = source_make(&rng, source_types[j], ROWS, COLS);
        const double file_bytes = (double)ROWS * COLS / info->qblk_weights * info->qblk_bytes;

        for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
            struct weight weight = source_pack(table, &source, team);

            assert_true((double)weight.len_bytes <= most_ratio(table, source_types[j]) * file_bytes);
            assert_true(weight.region_bytes <= weight.len_bytes + (1 << 20));
            weight_fini(&weight);
        }
        source_free(&source);
    }
}

static int pack_one(struct team *team, enum dtype type, const struct weight_part *part, uint32_t n_parts,
                    uint32_t cols)
{
    struct weight weight;

    return weight_pack(&(struct weight_packing){.table = kern_table_get("auto"),
                                                .type = type,
                                                .parts = part,
                                                .n_parts = n_parts,
                                                .cols = cols,
                                                .team = team},
                       &weight);
}

static void refuses_what_it_cannot(void **state)
{
    struct team *team = *state;
    float data[64] = {0};
    struct weight_part part = {data, 1};
    char names[WEIGHT_TYPES_BYTES];

    assert_false(weight_type_ok(DTYPE_Q8_K));
    assert_int_equal(pack_one(team, DTYPE_Q8_K, &part, 1, 256), E_UNSUPPORTED);
    assert_int_equal(pack_one(team, DTYPE_Q4_K, &part, 1, 128), E_INVAL);
    assert_string_equal(
        weight_types(names, sizeof(names)),
        "F32 F16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S "
        "IQ2_S IQ4_XS IQ1_M BF16 TQ1_0 TQ2_0 MXFP4 NVFP4 Q1_0 Q2_0");
    assert_int_equal(pack_one(team, DTYPE_Q8_0, &part, 1, 33), E_INVAL);
    assert_int_equal(pack_one(team, DTYPE_F32, &part, 1, 0), E_INVAL);
    assert_int_equal(pack_one(team, DTYPE_F32, &part, 0, 64), E_INVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back),         cmocka_unit_test(parts_are_stacked),
        cmocka_unit_test(parts_have_scales),      cmocka_unit_test(panels_are_compact),
        cmocka_unit_test(refuses_what_it_cannot),
    };

    return cmocka_run_group_tests(tests, check_team_open, check_team_close);
}
