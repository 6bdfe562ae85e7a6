/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations and conversions: near a float64 reference,
 * the same bits in every table, and no write past the end. */
#include "check.h"

#include "compute/kernels/kern_set_priv.h"

static const uint32_t lengths[] = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 2048};
enum { N_LENGTHS = sizeof(lengths) / sizeof(lengths[0]), MAX_LENGTH = 2048 };

/* Tests the scalar exponential, because tables are compared with each other below. */
static void exp2_is_exact_to_a_bit(void **state)
{
    double worst = 0;

    (void)state;
    for (int i = 0; i <= 200000; i += 16) {
        float x[16], y[16];

        for (int j = 0; j < 16; j++)
            x[j] = -126.0f + (float)(i + j) * (254.0f / 200016.0f);
        v16_store(y, v16_exp2(v16_load(x)));
        for (int j = 0; j < 16; j++) {
            double exact = exp2(x[j]);
            int exponent;

            frexp(exact, &exponent);
            worst = fmax(worst, fabs(y[j] - exact) / ldexp(1.0, exponent - 24));
        }
    }
    print_message("exp2: at most %.3f units in the last place off\n", worst);
    assert_true(worst < 1.0);
}

static void exp2_has_clean_ends(void **state)
{
    float x[16] = {-126.0f, -126.01f, -1000.0f, -1e30f, -INFINITY, 0.0f, -0.0f, 1.0f}, y[16];

    (void)state;
    v16_store(y, v16_exp2(v16_load(x)));
    assert_true(y[0] == 0x1p-126f);
    for (int i = 1; i < 5; i++)
        assert_true(y[i] == 0.0f && !signbit(y[i]));
    assert_true(y[5] == 1.0f && y[6] == 1.0f && y[7] == 2.0f);
}

static void rms_norm_is_near_float64(void **state)
{
    struct rng rng;
    float x[MAX_LENGTH], gain[MAX_LENGTH];

    (void)state;
    rng_init(&rng, 21);
    for (int i = 0; i < N_LENGTHS; i++) {
        uint32_t n = lengths[i];
        const struct kern_table *table;
        float *first = NULL;
        double squares = 0;

        check_fill(&rng, x, n);
        check_fill(&rng, gain, n);
        for (uint32_t j = 0; j < n; j++)
            squares += (double)x[j] * x[j];
        for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++) {
            float *out = check_floats(n);

            rms_norm(table, x, gain, n, 1e-5f, out);
            check_guard(out, n);
            for (uint32_t j = 0; j < n; j++) {
                double exact = x[j] / sqrt(squares / n + 1e-5f) * gain[j];
                assert_true(fabs(out[j] - exact) <= 1e-6 * fabs(exact));
            }
            if (first == NULL)
                first = out;
            else
                assert_memory_equal(out, first, n * sizeof(float));
            if (out != first)
                free(out);
        }
        free(first);
    }
}

/* Also with rows far from zero; with and without a bias. */
static void layer_norm_is_near_float64(void **state)
{
    struct rng rng;
    float x[MAX_LENGTH], gain[MAX_LENGTH], bias[MAX_LENGTH];

    (void)state;
    rng_init(&rng, 27);
    for (int i = 0; i < 2 * N_LENGTHS; i++) {
        uint32_t n = lengths[i / 2];
        struct layer_gain by = {gain, i % 2 ? bias : NULL};
        const struct kern_table *table;
        float *first = NULL;
        double mean = 0, squares = 0;

        check_fill(&rng, x, n);
        check_fill(&rng, gain, n);
        check_fill(&rng, bias, n);
        for (uint32_t j = 0; j < n; j++)
            mean += (x[j] += 3) / (double)n;
        for (uint32_t j = 0; j < n; j++)
            squares += (x[j] - mean) * (x[j] - mean);
        for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++) {
            float *out = check_floats(n);

            layer_norm(table, x, &by, n, 1e-5f, out);
            check_guard(out, n);
            for (uint32_t j = 0; j < n; j++) {
                double exact = (x[j] - mean) / sqrt(squares / n + 1e-5) * gain[j] + (i % 2 ? bias[j] : 0);
                assert_true(fabs(out[j] - exact) <= 4e-6 * (1 + fabs(exact)));
            }
            if (first == NULL)
                first = out;
            else
                assert_memory_equal(out, first, n * sizeof(float));
            if (out != first)
                free(out);
        }
        free(first);
    }
}

static void add_adds(void **state)
{
    struct rng rng;
    float y[MAX_LENGTH];

    (void)state;
    rng_init(&rng, 22);
    for (int i = 0; i < N_LENGTHS; i++) {
        const struct kern_table *table;

        for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++) {
            float *x = check_floats(lengths[i]), *sum = check_floats(lengths[i]);

            check_fill(&rng, x, lengths[i]);
            check_fill(&rng, y, lengths[i]);
            for (uint32_t j = 0; j < lengths[i]; j++)
                sum[j] = x[j] + y[j];
            vec_add(table, x, y, lengths[i]);
            assert_memory_equal(x, sum, (lengths[i] + GUARD) * sizeof(float));
            free(x);
            free(sum);
        }
    }
}

static void swiglu_is_near_float64(void **state)
{
    struct rng rng;
    float up[MAX_LENGTH], start[MAX_LENGTH];

    (void)state;
    rng_init(&rng, 23);
    for (int i = 0; i < N_LENGTHS; i++) {
        uint32_t n = lengths[i];
        const struct kern_table *table;
        float *first = NULL;

        check_fill(&rng, up, n);
        for (uint32_t j = 0; j < n; j++)
            start[j] = (float)(rng_unit(&rng) * 200 - 100);
        for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++) {
            float *gate = check_floats(n);

            memcpy(gate, start, n * sizeof(float));
            swiglu(table, gate, up, n);
            check_guard(gate, n);
            for (uint32_t j = 0; j < n; j++) {
                double exact = start[j] / (1 + exp(-(double)start[j])) * up[j];
                /* Beyond e^87 the sigmoid is clamped: nearly zero. */
                assert_true(fabs(gate[j] - exact) <= 6e-7 * fabs(exact) + 1e-30 || start[j] < -87);
                assert_true(start[j] > -87 || fabsf(gate[j]) < 1e-34f);
            }
            if (first == NULL)
                first = gate;
            else
                assert_memory_equal(gate, first, n * sizeof(float));
            if (gate != first)
                free(gate);
        }
        free(first);
    }
}

static void geglu_is_near_float64(void **state)
{
    struct rng rng;
    float up[MAX_LENGTH], start[MAX_LENGTH];

    (void)state;
    rng_init(&rng, 24);
    for (int i = 0; i < N_LENGTHS; i++) {
        uint32_t n = lengths[i];
        const struct kern_table *table;
        float *first = NULL;

        check_fill(&rng, up, n);
        for (uint32_t j = 0; j < n; j++)
            start[j] = (float)(rng_unit(&rng) * 24 - 12);
        for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++) {
            float *gate = check_floats(n);

            memcpy(gate, start, n * sizeof(float));
            geglu(table, gate, up, n);
            check_guard(gate, n);
            for (uint32_t j = 0; j < n; j++) {
                double x = start[j], u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
                double exact = x / (1 + exp(-2 * u)) * up[j];
                double beyond = -2 * u > 87; /* where e^-2u is clamped: nearly zero */

                assert_true(fabs(gate[j] - exact) <= 4e-7 * (1 + fabs(u)) * fabs(exact) + 1e-30 || beyond);
                assert_true(!beyond || fabsf(gate[j]) < 1e-34f);
            }
            if (first == NULL)
                first = gate;
            else
                assert_memory_equal(gate, first, n * sizeof(float));
            if (gate != first)
                free(gate);
        }
        free(first);
    }
}

static void vec_scale_is_a_product(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 25);
    for (int i = 0; i < N_LENGTHS; i++) {
        const struct kern_table *table;

        for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++) {
            float *x = check_floats(lengths[i]), *by = check_floats(lengths[i]);

            check_fill(&rng, x, lengths[i]);
            for (uint32_t j = 0; j < lengths[i]; j++)
                by[j] = x[j] * 1.7f;
            vec_scale(table, x, 1.7f, lengths[i]);
            check_guard(x, lengths[i]);
            assert_memory_equal(x, by, lengths[i] * sizeof(float));
            free(x);
            free(by);
        }
    }
}

/* Compares x Phi(x) relative to the result; far below zero it is nearly zero. */
static void gelu_is_near_float64(void **state)
{
    struct rng rng;
    float start[MAX_LENGTH], ones[MAX_LENGTH];

    (void)state;
    rng_init(&rng, 28);
    for (int i = 0; i < N_LENGTHS; i++) {
        uint32_t n = lengths[i];
        const struct kern_table *table;
        float *first = NULL;

        for (uint32_t j = 0; j < n; j++) {
            start[j] = (float)((rng_unit(&rng) * 24 - 12) * (j % 3 ? 1 : 1e-3));
            ones[j] = 1;
        }
        for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++) {
            float *x = check_floats(n), *tanh_form = check_floats(n), *gated = check_floats(n);

            memcpy(x, start, n * sizeof(float));
            memcpy(tanh_form, start, n * sizeof(float));
            memcpy(gated, start, n * sizeof(float));
            gelu_exact(table, x, n);
            gelu(table, tanh_form, n);
            geglu(table, gated, ones, n);
            check_guard(x, n);
            assert_memory_equal(tanh_form, gated, (n + GUARD) * sizeof(float));
            for (uint32_t j = 0; j < n; j++) {
                double exact = start[j] * erfc(-start[j] / sqrt(2)) / 2;
                /* The rounding of this is visible. */
                double tail = start[j] < 0 ? start[j] * start[j] / 2 : 0;

                assert_true(fabs(x[j] - exact) <= (8e-7 + 2e-7 * tail) * fabs(exact) + 1e-30);
            }
            if (first == NULL)
                first = x;
            else
                assert_memory_equal(x, first, n * sizeof(float));
            if (x != first)
                free(x);
            free(tanh_form);
            free(gated);
        }
        free(first);
    }
}

/* From tiny values, which a cap does not change, to values far beyond the cap. */
static void vec_cap_is_near_float64(void **state)
{
    struct rng rng;
    float start[MAX_LENGTH];

    (void)state;
    rng_init(&rng, 26);
    for (int i = 0; i < N_LENGTHS; i++) {
        uint32_t n = lengths[i];
        const struct kern_table *table;
        float *first = NULL, cap = i % 2 ? 50 : 2.5f;

        for (uint32_t j = 0; j < n; j++)
            start[j] = (float)((rng_unit(&rng) - 0.5) * exp2(j % 40 - 30.0));
        start[0] = i % 3 ? 1e30f : -INFINITY;
        for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++) {
            float *x = check_floats(n);

            memcpy(x, start, n * sizeof(float));
            vec_cap(table, x, cap, n);
            check_guard(x, n);
            for (uint32_t j = 0; j < n; j++) {
                double exact = cap * tanh((double)start[j] / cap);

                assert_true(fabs(x[j] - exact) <= 4e-7 * fabs(exact));
            }
            if (first == NULL)
                first = x;
            else
                assert_memory_equal(x, first, n * sizeof(float));
            if (x != first)
                free(x);
        }
        free(first);
    }
}

/* Returns a pair's place in a head. */
static void pair_at(enum rope_pairs pairs, uint32_t dims, uint32_t i, uint32_t at[2])
{
    at[0] = pairs == ROPE_ADJACENT ? 2 * i : i;
    at[1] = pairs == ROPE_ADJACENT ? 2 * i + 1 : i + dims / 2;
}

static void rope_turns_pairs(void **state)
{
    static const uint32_t head_dims[] = {8, 16, 24, 64, 80, 128, 128},
                          rotated[] = {8, 16, 10, 64, 80, 128, 32};
    struct rng rng;
    float cos_of[64], sin_of[64];

    (void)state;
    rng_init(&rng, 24);
    for (int i = 0; i < 14; i++) {
        enum rope_pairs pairs = i % 2 ? ROPE_ADJACENT : ROPE_HALVES;
        uint32_t head_dim = head_dims[i / 2], dims = rotated[i / 2], n = 3 * head_dim, at[2];
        float *x = check_floats(n), *first = NULL;
        const struct kern_table *table;

        check_fill(&rng, x, n);
        for (uint32_t j = 0; j < dims / 2; j++) {
            double angle = rng_unit(&rng) * 6.3;
            cos_of[j] = (float)cos(angle);
            sin_of[j] = (float)sin(angle);
        }
        for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++) {
            float *y = check_floats(n);

            memcpy(y, x, n * sizeof(float));
            rope_rotate(table, &(struct rope_args){.pairs = pairs,
                                                   .x = y,
                                                   .n_heads = 3,
                                                   .head_dim = head_dim,
                                                   .dims = dims,
                                                   .cos = cos_of,
                                                   .sin = sin_of});
            check_guard(y, n);
            for (uint32_t j = 0; j < n; j++)
                assert_true(j % head_dim < dims || y[j] == x[j]);
            for (uint32_t j = 0; j < 3 * dims / 2; j++) {
                uint32_t head = j / (dims / 2) * head_dim, pair = j % (dims / 2);

                pair_at(pairs, dims, pair, at);
                double x0 = x[head + at[0]], x1 = x[head + at[1]], c = cos_of[pair], s = sin_of[pair];
                assert_true(fabs(y[head + at[0]] - (x0 * c - x1 * s)) < 1e-6);
                assert_true(fabs(y[head + at[1]] - (x1 * c + x0 * s)) < 1e-6);
            }
            if (first == NULL)
                first = y;
            else
                assert_memory_equal(y, first, n * sizeof(float));
            if (y != first)
                free(y);
        }
        free(first);
        free(x);
    }
}

/* All 65536 values of each; a NaN may become any NaN. */
static void halves_are_widened_exactly(void **state)
{
    uint16_t *all = mem_aligned(64, 65536 * 2);
    float *widened = check_floats(65536);
    const struct kern_table *table;

    (void)state;
    for (uint32_t i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++) {
        table->vec->widen_f16(all, widened, 65536);
        for (uint32_t i = 0; i < 65536; i++) {
            float exact = f16_to_f32((uint16_t)i);
            assert_true(isnan(exact) ? isnan(widened[i]) : memcmp(&exact, &widened[i], 4) == 0);
        }
        table->vec->widen_bf16(all, widened, 65536);
        for (uint32_t i = 0; i < 65536; i++) {
            float exact = bf16_to_f32((uint16_t)i);
            assert_true(isnan(exact) ? isnan(widened[i]) : memcmp(&exact, &widened[i], 4) == 0);
        }
    }
    free(all);
    free(widened);
}

/* Rounding to halves: random patterns, and those next to every boundary. */
static void halves_are_rounded_to_even(void **state)
{
    enum { N = 16 };
    struct rng rng;
    const struct kern_table *table;

    (void)state;
    rng_init(&rng, 25);
    for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++)
        for (int round = 0; round < 2000; round++) {
            float row[N];
            uint16_t arena[2 * N * N];
            uint32_t block = 0;

            for (int i = 0; i < N; i++) {
                uint32_t bits = (uint32_t)rng_u64(&rng);

                if (i % 2) /* halfway between two halves, or next to that */
                    bits = (bits & 0xc7ffe000) | 0x30001000 | (bits & 1) | (bits & 2 ? 0xfff : 0);
                memcpy(&row[i], &bits, 4);
                if (isnan(row[i]))
                    row[i] = 65520.0f;
            }
            kv_store(&(struct kv_store_args){.table = table,
                                             .kv_layer = arena,
                                             .block_bytes = sizeof(arena),
                                             .kv_type = DTYPE_F16,
                                             .n_kv_heads = 1,
                                             .k_dim = N,
                                             .v_dim = N,
                                             .block_tokens = 16,
                                             .blocks = &block,
                                             .n = 1,
                                             .k = row,
                                             .v = row,
                                             .k_stride = N,
                                             .v_stride = N});
            for (int i = 0; i < N; i++)
                assert_int_equal(arena[N * 16 + i], f32_to_f16(row[i]));
        }
}

static void tables_are_found_by_name(void **state)
{
    const struct kern_table *best = kern_table_get("auto"), *scalar = kern_table_get("scalar");

    (void)state;
    assert_non_null(best);
    assert_non_null(scalar);
    assert_string_equal(kern_table_name(scalar), "scalar");
    assert_ptr_equal(kern_table_at(0), scalar);
    assert_ptr_equal(kern_table_get(kern_table_name(best)), best);
    assert_null(kern_table_get("avx9"));
    assert_null(kern_table_get(""));
    assert_int_equal(kern_numerics_id(best), kern_numerics_id(scalar));
    if (kern_table_get("avx512") != NULL)
        assert_ptr_equal(kern_table_get("avx512"), best);
    const struct kern_table *table;
    for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++)
        print_message("table %s runs here\n", kern_table_name(table));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp2_is_exact_to_a_bit),     cmocka_unit_test(exp2_has_clean_ends),
        cmocka_unit_test(rms_norm_is_near_float64),   cmocka_unit_test(layer_norm_is_near_float64),
        cmocka_unit_test(gelu_is_near_float64),       cmocka_unit_test(add_adds),
        cmocka_unit_test(swiglu_is_near_float64),     cmocka_unit_test(geglu_is_near_float64),
        cmocka_unit_test(vec_scale_is_a_product),     cmocka_unit_test(vec_cap_is_near_float64),
        cmocka_unit_test(rope_turns_pairs),           cmocka_unit_test(halves_are_widened_exactly),
        cmocka_unit_test(halves_are_rounded_to_even), cmocka_unit_test(tables_are_found_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
