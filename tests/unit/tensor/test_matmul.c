/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: near a float64 reference, and the same bits for every table, batch, split and team. */
#include "check.h"

enum { MAX_COLS = 512, MAX_TOKENS = 40 };

static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0};
enum { N_TYPES = sizeof(types) / sizeof(types[0]) };

/* A random matrix as a file has it, and what it means. */
struct source {
    enum dtype type;
    uint32_t rows, cols;
    void *data;
    float *values; /* [rows][cols], exact */
};

static void put_value(struct source *source, struct rng *rng, size_t i)
{
    float value = check_normal(rng);

    if (source->type == DTYPE_F32) {
        ((float *)source->data)[i] = value;
    } else if (source->type == DTYPE_F16) {
        ((uint16_t *)source->data)[i] = f32_to_f16(value);
        value = f16_to_f32(f32_to_f16(value));
    } else if (source->type == DTYPE_BF16) {
        ((uint16_t *)source->data)[i] = f32_to_bf16(value);
        value = bf16_to_f32(f32_to_bf16(value));
    } else {
        uint8_t *qblk = (uint8_t *)source->data + i / 32 * 34;
        uint16_t scale;

        if (i % 32 == 0) {
            scale = f32_to_f16((float)rng_unit(rng) * 0.02f);
            memcpy(qblk, &scale, 2);
        }
        memcpy(&scale, qblk, 2);
        int8_t quant = (int8_t)check_pick(rng, 0, 255); /* -128 too */
        qblk[2 + i % 32] = (uint8_t)quant;
        value = (float)quant * f16_to_f32(scale);
    }
    source->values[i] = value;
}

static struct source make_source(struct rng *rng, enum dtype type, uint32_t rows, uint32_t cols)
{
    const struct dtype_info *info = dtype_info(type);
    struct source source = {.type = type, .rows = rows, .cols = cols};

    source.data = malloc((size_t)rows * cols / info->qblk_weights * info->qblk_bytes);
    source.values = malloc((size_t)rows * cols * sizeof(float));
    assert_non_null(source.data);
    assert_non_null(source.values);
    for (size_t i = 0; i < (size_t)rows * cols; i++)
        put_value(&source, rng, i);
    return source;
}

static void free_source(struct source *source)
{
    free(source->data);
    free(source->values);
}

static struct weight pack(const struct kern_table *table, const struct source *source, struct team *team)
{
    struct weight weight;
    struct weight_part part = {source->data, source->rows};

    assert_int_equal(weight_pack(table, source->type, &part, 1, source->cols, team, &weight), 0);
    return weight;
}

/* y rows with a gap of 3 floats, so that whoever writes past a row is seen. */
static float *multiply(struct team *team, const struct weight *weight, const float *x, size_t x_stride,
                       uint32_t n)
{
    size_t y_stride = weight->rows + 3;
    float *y = check_floats(n * y_stride);
    void *scratch = check_poisoned(matmul_scratch_bytes(n, weight->cols));

    matmul(team, &(struct matmul_args){.weight = weight,
                                       .x = x,
                                       .x_stride = x_stride,
                                       .n = n,
                                       .y = y,
                                       .y_stride = y_stride,
                                       .scratch = scratch});
    for (uint32_t t = 0; t < n; t++)
        for (int i = 0; i < 3; i++) {
            uint32_t bits;

            memcpy(&bits, y + t * y_stride + weight->rows + i, sizeof(bits));
            assert_int_equal(bits, POISON);
        }
    check_guard(y, n * y_stride);
    free(scratch);
    return y;
}

/* Rows of x with poison between them. */
static float *make_x(struct rng *rng, uint32_t n, uint32_t cols, size_t *stride_out)
{
    size_t stride = cols + 5;
    float *x = check_floats(n * stride);

    for (uint32_t t = 0; t < n; t++)
        check_fill(rng, x + t * stride, cols);
    *stride_out = stride;
    return x;
}

/* What 8-bit activations stand for. */
static void quantize_like(const float *x, uint32_t cols, double *out)
{
    for (uint32_t b = 0; b < cols; b += 32) {
        double amax = 0;

        for (uint32_t i = b; i < b + 32; i++)
            amax = fmax(amax, fabs(x[i]));
        for (uint32_t i = b; i < b + 32; i++)
            out[i] = amax == 0 ? 0 : nearbyint(x[i] * 127.0 / amax) * amax / 127.0;
    }
}

/* Against float64: sums of K rounded terms, each rounding at most 2^-24 of what was summed so far.  8-bit
 * activations are compared with their exact meaning, but for one that sat between two quants and fell on the
 * other side; and with the unrounded ones, half a quant each. */
static void compare_with_float64(const struct source *source, const float *x, const float *y)
{
    bool is_q8 = source->type == DTYPE_Q8_0;
    double meant[MAX_COLS];

    for (uint32_t k = 0; k < source->cols; k++)
        meant[k] = x[k];
    if (is_q8)
        quantize_like(x, source->cols, meant);
    for (uint32_t row = 0; row < source->rows; row++) {
        const float *w = source->values + (size_t)row * source->cols;
        double sum = 0, plain = 0, size = 0, flip = 0;

        for (uint32_t k = 0; k < source->cols; k++) {
            sum += w[k] * meant[k];
            plain += (double)w[k] * x[k];
            size += fabs(w[k] * meant[k]);
            flip = fmax(flip, fabs(w[k]) * 4.0 / 127);
        }
        double tolerance = size * (is_q8 ? source->cols / 32 + 3 : source->cols) * 0x1p-24;
        if (is_q8 && fabs(y[row] - sum) > tolerance)
            tolerance += flip;
        assert_true(fabs(y[row] - sum) <= tolerance);
        if (is_q8)
            assert_true(fabs(y[row] - plain) <= 0.01 * sqrt(source->cols) * 1.3 * 2);
    }
}

static const uint32_t shapes[][2] = {{1, 32},    {16, 64},  {17, 96},  {33, 160},
                                     {100, 320}, {64, 512}, {130, 288}};

static void is_near_float64(void **state)
{
    struct team *team = *state;
    const struct kern_table *table;
    struct rng rng;

    rng_init(&rng, 1);
    for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++)
        for (uint32_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
            for (int j = 0; j < N_TYPES; j++) {
                struct source source = make_source(&rng, types[j], shapes[s][0], shapes[s][1]);
                struct weight weight = pack(table, &source, team);
                uint32_t n = 1 + s * 5;
                size_t stride;
                float *x = make_x(&rng, n, source.cols, &stride), *y = multiply(team, &weight, x, stride, n);

                for (uint32_t t = 0; t < n; t++)
                    compare_with_float64(&source, x + t * stride, y + t * (source.rows + 3));
                free(x);
                free(y);
                weight_fini(&weight);
                free_source(&source);
            }
}

/* Any number of columns will do for plain types. */
static void takes_ragged_columns(void **state)
{
    static const uint32_t cols[] = {1, 2, 3, 5, 31, 172, 257, 509};
    struct team *team = *state;
    const struct kern_table *table;
    struct rng rng;

    rng_init(&rng, 2);
    for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++)
        for (uint32_t c = 0; c < 8; c++) {
            struct source source = make_source(&rng, types[c % 3], 20 + c, cols[c]);
            struct weight weight = pack(table, &source, team);
            uint32_t n = c % 2 ? 1 : 15;
            size_t stride;
            float *x = make_x(&rng, n, cols[c], &stride), *y = multiply(team, &weight, x, stride, n);

            for (uint32_t t = 0; t < n; t++)
                compare_with_float64(&source, x + t * stride, y + t * (source.rows + 3));
            free(x);
            free(y);
            weight_fini(&weight);
            free_source(&source);
        }
}

/* Every table gives the scalar table's bits, over random shapes. */
static void tables_agree(void **state)
{
    struct team *team = *state;
    struct rng rng;

    rng_init(&rng, 3);
    for (int round = 0; round < 24; round++) {
        uint32_t rows = check_pick(&rng, 1, 80), cols = 32 * check_pick(&rng, 1, 12),
                 n = check_pick(&rng, 1, 30);
        struct source source = make_source(&rng, types[round % N_TYPES], rows, cols);
        const struct kern_table *table;
        size_t stride, len_bytes = n * (rows + 3) * sizeof(float);
        float *x = make_x(&rng, n, cols, &stride), *first = NULL;

        for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
            struct weight weight = pack(table, &source, team);
            float *y = multiply(team, &weight, x, stride, n);

            if (first == NULL)
                first = y;
            else
                assert_memory_equal(y, first, len_bytes);
            if (y != first)
                free(y);
            weight_fini(&weight);
        }
        free(first);
        free(x);
        free_source(&source);
    }
}

/* Tokens 0..39 at once, in every smaller company, by teams of 1 to 4: always the same bits. */
static void bits_do_not_depend_on_company(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 4);
    for (int j = 0; j < N_TYPES; j++) {
        const struct kern_table *table = kern_table_get("auto");
        struct team *alone = check_team(1);
        struct source source = make_source(&rng, types[j], 150, MAX_COLS);
        struct weight weight = pack(table, &source, alone);
        size_t stride, y_stride = source.rows + 3;
        float *x = make_x(&rng, MAX_TOKENS, source.cols, &stride);
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
        free(x);
        weight_fini(&weight);
        free_source(&source);
        team_free(alone);
    }
}

/* More columns and tokens than a slice and a block hold. */
static void bits_survive_slicing(void **state)
{
    enum { TOKENS = 520, COLS = 1056, ROWS = 48 };
    struct team *team = *state;
    struct rng rng;

    rng_init(&rng, 5);
    for (int j = 0; j < N_TYPES; j++) {
        struct source source = make_source(&rng, types[j], ROWS, COLS);
        struct weight weight = pack(kern_table_get("auto"), &source, team);
        size_t stride;
        float *x = make_x(&rng, TOKENS, COLS, &stride), *whole = multiply(team, &weight, x, stride, TOKENS);

        for (uint32_t t = 0; t < TOKENS; t += 37) {
            float *y = multiply(team, &weight, x + t * stride, stride, 1);

            assert_memory_equal(y, whole + t * (ROWS + 3), ROWS * sizeof(float));
            free(y);
        }
        free(whole);
        free(x);
        weight_fini(&weight);
        free_source(&source);
    }
}

static void zero_and_tiny_activations_are_harmless(void **state)
{
    struct team *team = *state;
    struct rng rng;
    float x[3 * 64] = {0};

    rng_init(&rng, 6);
    for (int i = 64; i < 128; i++)
        x[i] = 1e-42f; /* its inverse is not a float */
    for (int i = 128; i < 192; i++)
        x[i] = i % 2 ? 3e38f : -3e38f;
    struct source source = make_source(&rng, DTYPE_Q8_0, 16, 64);
    const struct kern_table *table;
    for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
        struct weight weight = pack(table, &source, team);
        float *y = multiply(team, &weight, x, 64, 3);

        for (int row = 0; row < 16; row++) {
            assert_true(y[row] == 0);
            assert_true(fabsf(y[19 + row]) < 1e-30f);
        }
        free(y);
        weight_fini(&weight);
    }
    free_source(&source);
}

static void rows_come_back(void **state)
{
    struct team *team = *state;
    struct rng rng;

    rng_init(&rng, 7);
    for (int j = 0; j < N_TYPES; j++) {
        struct source source = make_source(&rng, types[j], 37, 96);
        struct weight weight = pack(kern_table_get("scalar"), &source, team);

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

static void parts_are_stacked(void **state)
{
    struct team *team = *state;
    struct rng rng;
    float row[64];

    rng_init(&rng, 8);
    struct source a = make_source(&rng, DTYPE_Q8_0, 5, 64), b = make_source(&rng, DTYPE_Q8_0, 30, 64);
    struct weight_part parts[2] = {{a.data, a.rows}, {b.data, b.rows}};
    struct weight weight;
    assert_int_equal(weight_pack(kern_table_get("auto"), DTYPE_Q8_0, parts, 2, 64, team, &weight), 0);
    assert_int_equal(weight.rows, 35);
    weight_row(&weight, 4, row);
    assert_memory_equal(row, a.values + 4 * 64, sizeof(row));
    weight_row(&weight, 5, row);
    assert_memory_equal(row, b.values, sizeof(row));
    weight_row(&weight, 34, row);
    assert_memory_equal(row, b.values + 29 * 64, sizeof(row));
    weight_fini(&weight);
    free_source(&a);
    free_source(&b);
}

static void refuses_what_it_cannot(void **state)
{
    struct team *team = *state;
    float data[64] = {0};
    struct weight_part part = {data, 1};
    struct weight weight;

    assert_false(weight_type_ok(DTYPE_Q4_K));
    assert_int_equal(weight_pack(kern_table_get("auto"), DTYPE_Q4_K, &part, 1, 256, team, &weight),
                     E_UNSUPPORTED);
    assert_int_equal(weight_pack(kern_table_get("auto"), DTYPE_Q8_0, &part, 1, 33, team, &weight), E_INVAL);
    assert_int_equal(weight_pack(kern_table_get("auto"), DTYPE_F32, &part, 1, 0, team, &weight), E_INVAL);
    assert_int_equal(weight_pack(kern_table_get("auto"), DTYPE_F32, &part, 0, 64, team, &weight), E_INVAL);
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
        cmocka_unit_test(is_near_float64),        cmocka_unit_test(takes_ragged_columns),
        cmocka_unit_test(tables_agree),           cmocka_unit_test(bits_do_not_depend_on_company),
        cmocka_unit_test(bits_survive_slicing),   cmocka_unit_test(zero_and_tiny_activations_are_harmless),
        cmocka_unit_test(rows_come_back),         cmocka_unit_test(parts_are_stacked),
        cmocka_unit_test(refuses_what_it_cannot),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
