/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 dots: near a float64 reference, and the same bits by instruction and by FMAs, for every batch, split
 * and team.
 *
 * Against float64, with e = 2^-24 and activations as rounded: a sum of K products is rounded K times, each
 * time by at most e of what was summed so far, so |y - sum| <= K e size, size being the sum of the products'
 * magnitudes.  Against unrounded activations each product is off by at most 2^-9 of itself besides. */
#include "check.h"

enum { MAX_COLS = 2100, MAX_TOKENS = 40, GAP = 3 };

/* A random matrix as a file has it, and what it means after rounding to BF16. */
struct source {
    enum dtype type;
    uint32_t rows, cols;
    uint16_t *data;
    float *values; /* [rows][cols] */
};

static struct source make_source(struct rng *rng, enum dtype type, uint32_t rows, uint32_t cols)
{
    struct source source = {.type = type, .rows = rows, .cols = cols};
    size_t n = (size_t)rows * cols;

    source.data = malloc(n * sizeof(*source.data));
    source.values = malloc(n * sizeof(*source.values));
    assert_non_null(source.data);
    assert_non_null(source.values);
    for (size_t i = 0; i < n; i++) {
        float value = check_normal(rng);

        source.data[i] = type == DTYPE_F16 ? f32_to_f16(value) : f32_to_bf16(value);
        source.values[i] = type == DTYPE_F16 ? bf16_to_f32(f32_to_bf16(f16_to_f32(source.data[i])))
                                             : bf16_to_f32(source.data[i]);
    }
    return source;
}

static void free_source(struct source *source)
{
    free(source->data);
    free(source->values);
}

static struct weight pack(const struct kern_table *table, const struct source *source, struct team *team)
{
    struct weight_part part = {source->data, source->rows};
    struct weight weight;

    assert_int_equal(weight_pack_dots(table, source->type, &part, 1, source->cols, team, &weight), 0);
    assert_int_equal(weight.type, DTYPE_BF16);
    assert_int_equal(weight.is_dots, kern_has_dots(table));
    return weight;
}

static float *multiply(struct team *team, const struct weight *weight, const float *x, size_t x_stride,
                       uint32_t n)
{
    size_t y_stride = weight->rows + GAP;
    float *y = check_floats(n * y_stride);
    void *scratch = check_poisoned(matmul_scratch_bytes(n, weight->cols));

    matmul(team, &(struct matmul_args){.weight = weight,
                                       .x = x,
                                       .x_stride = x_stride,
                                       .n = n,
                                       .y = y,
                                       .y_stride = y_stride,
                                       .scratch = scratch});
    check_guard(y, n * y_stride);
    free(scratch);
    return y;
}

static float *make_x(struct rng *rng, uint32_t n, uint32_t cols, size_t *stride_out)
{
    size_t stride = cols + 5;
    float *x = check_floats(n * stride);

    for (uint32_t t = 0; t < n; t++)
        check_fill(rng, x + t * stride, cols);
    *stride_out = stride;
    return x;
}

static void compare_with_float64(const struct source *source, const float *x, const float *y, bool is_dots)
{
    for (uint32_t row = 0; row < source->rows; row++) {
        const float *w = source->values + (size_t)row * source->cols;
        double sum = 0, plain = 0, size = 0;

        for (uint32_t k = 0; k < source->cols; k++) {
            double meant = is_dots ? bf16_to_f32(f32_to_bf16(x[k])) : x[k];

            sum += w[k] * meant;
            plain += (double)w[k] * x[k];
            size += fabs(w[k] * meant);
        }
        double tolerance = (source->cols + 1) * 0x1p-24 * size;
        assert_true(fabs(y[row] - sum) <= tolerance);
        assert_true(fabs(y[row] - plain) <= tolerance + 0x1p-8 * size);
    }
}

static const struct case_shape {
    uint32_t rows, cols, n;
} shapes[] = {
    {1, 1, 1},     {16, 2, 3},    {17, 3, 15},   {33, 31, 1},    {20, 172, 26},
    {100, 257, 1}, {64, 509, 13}, {130, 512, 9}, {50, 1025, 30}, {16, 2048, 2},
};

static void is_near_float64_on_every_table(void **state)
{
    struct team *team = *state;
    const struct kern_table *table;
    struct rng rng;

    rng_init(&rng, 1);
    for (uint32_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        struct source source =
            make_source(&rng, s % 2 ? DTYPE_F16 : DTYPE_BF16, shapes[s].rows, shapes[s].cols);
        uint32_t n = shapes[s].n;
        size_t stride, len_bytes = n * (source.rows + GAP) * sizeof(float);
        float *x = make_x(&rng, n, source.cols, &stride), *first = NULL;

        for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
            struct weight weight = pack(table, &source, team);
            float *y = multiply(team, &weight, x, stride, n);

            for (uint32_t t = 0; t < n; t++)
                compare_with_float64(&source, x + t * stride, y + t * (source.rows + GAP), weight.is_dots);
            if (first == NULL)
                first = y;
            else
                assert_memory_equal(y, first, len_bytes); /* by whatever instruction */
            if (y != first)
                free(y);
            weight_fini(&weight);
        }
        free(first);
        free(x);
        free_source(&source);
    }
}

/* Sums around the smallest normal float: what is flushed, and when, is part of the arithmetic. */
static void subnormals_are_flushed_alike(void **state)
{
    struct team *team = *state;
    const struct kern_table *table;
    struct rng rng;

    rng_init(&rng, 2);
    for (int round = 0; round < 20; round++) {
        struct source source = make_source(&rng, DTYPE_BF16, 40, 96);
        size_t stride, len_bytes = 7 * (40 + GAP) * sizeof(float);
        float *x = make_x(&rng, 7, 96, &stride), *first = NULL;

        for (size_t i = 0; i < (size_t)40 * 96; i++)
            source.data[i] = f32_to_bf16(ldexpf(bf16_to_f32(source.data[i]), -64));
        for (uint32_t t = 0; t < 7; t++)
            for (uint32_t k = 0; k < 96; k++)
                x[t * stride + k] =
                    k == 5 ? 0x1.fffep-127f : ldexpf(x[t * stride + k], -60 - (int)check_pick(&rng, 0, 6));
        for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
            struct weight weight = pack(table, &source, team);
            float *y = multiply(team, &weight, x, stride, 7);

            if (first == NULL)
                first = y;
            else
                assert_memory_equal(y, first, len_bytes);
            for (uint32_t j = 0; weight.is_dots && j < 40; j++)
                assert_false(fpclassify(y[j]) == FP_SUBNORMAL);
            if (y != first)
                free(y);
            weight_fini(&weight);
        }
        free(first);
        free(x);
        free_source(&source);
    }
    /* The caller's own arithmetic goes on as before. */
    volatile float small = 0x1p-126f;
    assert_true(small / 2 > 0);
}

/* Tokens in every company, by teams of 1 to 4, with more columns than a slice: always the same bits. */
static void bits_do_not_depend_on_company(void **state)
{
    struct team *alone = check_team(1);
    const struct kern_table *table;
    struct rng rng;

    (void)state;
    rng_init(&rng, 3);
    struct source source = make_source(&rng, DTYPE_BF16, 150, MAX_COLS);
    size_t stride, y_stride = source.rows + GAP;
    float *x = make_x(&rng, MAX_TOKENS, source.cols, &stride);

    for (uint32_t i = 1; (table = kern_table_at(i)) != NULL; i++) {
        struct weight weight = pack(table, &source, alone);
        float *whole = multiply(alone, &weight, x, stride, MAX_TOKENS);

        for (uint32_t n = 1; n <= MAX_TOKENS; n++) {
            struct team *team = check_team(1 + n % 4);
            uint32_t first = (uint32_t)rng_below(&rng, MAX_TOKENS - n + 1);
            float *y = multiply(team, &weight, x + first * stride, stride, n);

            for (uint32_t t = 0; t < n; t++)
                assert_memory_equal(y + t * y_stride, whole + (first + t) * y_stride,
                                    source.rows * sizeof(float));
            free(y);
            team_free(team);
        }
        free(whole);
        weight_fini(&weight);
    }
    free(x);
    free_source(&source);
    team_free(alone);
}

static void rows_come_back(void **state)
{
    struct team *team = *state;
    const struct kern_table *table;
    struct rng rng;

    rng_init(&rng, 4);
    for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
        struct source source = make_source(&rng, i % 2 ? DTYPE_F16 : DTYPE_BF16, 37, 95);
        struct weight weight = pack(table, &source, team);

        for (uint32_t row = 0; row < source.rows; row++) {
            float *out = check_floats(source.cols);

            weight_row(&weight, row, out);
            assert_memory_equal(out, source.values + (size_t)row * source.cols, source.cols * sizeof(float));
            check_guard(out, source.cols);
            free(out);
        }
        weight_fini(&weight);
        free_source(&source);
    }
}

static void other_types_are_refused(void **state)
{
    float data[32] = {0};
    struct weight_part part = {data, 1};
    struct weight weight;

    assert_int_equal(weight_pack_dots(kern_table_get("auto"), DTYPE_F32, &part, 1, 32, *state, &weight),
                     E_UNSUPPORTED);
}

static void has_numerics_of_its_own(void **state)
{
    const struct kern_table *best = kern_table_get("auto");

    (void)state;
    assert_true(kern_dots_numerics_id(best) != kern_numerics_id(best));
    assert_true(kern_dots_numerics_id(best) == kern_dots_numerics_id(kern_table_get("scalar")));
    assert_false(kern_has_fast_dots(kern_table_get("scalar")));
    print_message("BF16 dots here: %s\n", kern_has_fast_dots(best) ? "by instruction"
                                          : kern_has_dots(best)    ? "by FMAs"
                                                                   : "none");
}

static int set_up(void **state)
{
    *state = check_team(2);
    return 0;
}

static int tear_down(void **state)
{
    team_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_near_float64_on_every_table), cmocka_unit_test(subnormals_are_flushed_alike),
        cmocka_unit_test(bits_do_not_depend_on_company),  cmocka_unit_test(rows_come_back),
        cmocka_unit_test(other_types_are_refused),        cmocka_unit_test(has_numerics_of_its_own),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
