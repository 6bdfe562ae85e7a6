/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 dots and BF16 tiles: near a float64 reference, and the same bits with the instruction and with FMAs,
 * for every batch, split and team.
 *
 * Compared with float64, with e = 2^-24 and rounded activations: a sum of K products is rounded K times, each
 * time by at most e of the sum so far.  So |y - sum| <= K e size, with size the sum of the products'
 * magnitudes.  With unrounded activations each product is off by at most 2^-9 of itself in addition.  Tiles
 * round each product up to 17 times in its slice of 32 columns, then once more for each slice: fewer than K +
 * 18 times. */
#include "check.h"

enum { MAX_COLS = 2100, MAX_TOKENS = 70, GAP = 3 };
#ifdef CHECK_EMULATED /* under emulation of another processor, some batches are enough, and some tokens of them */
enum { COMPANY_STEP = 17, TOKEN_STEP = 7 };
#else
enum { COMPANY_STEP = 1, TOKEN_STEP = 1 };
#endif

struct subject { /* each test runs for both */
    struct team *team;
    bool as_tiles;
};

/* A random matrix as in a file, and its values after rounding to BF16. */
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

static struct weight pack(const struct kern_table *table, const struct source *source, bool as_tiles,
                          struct team *team)
{
    struct weight_part part = {source->data, source->rows};
    struct weight_packing packing = {.table = table,
                                     .form = as_tiles ? WEIGHT_TILES : WEIGHT_DOTS,
                                     .type = source->type,
                                     .parts = &part,
                                     .n_parts = 1,
                                     .cols = source->cols,
                                     .team = team};
    struct weight weight;

    assert_int_equal(weight_pack(&packing, &weight), 0);
    assert_int_equal(weight.type, DTYPE_BF16);
    assert_int_equal(weight.is_dots, kern_has_dots(table));
    assert_int_equal(weight.is_tiles, as_tiles && kern_has_dots(table));
    assert_int_equal(weight.is_paired, (as_tiles ? kern_has_fast_tiles : kern_has_fast_dots)(table));
    return weight;
}

static float *multiply(struct team *team, const struct weight *weight, const float *x, size_t x_stride,
                       uint32_t n)
{
    size_t y_stride = weight->rows + GAP;
    float *y = check_floats(n * y_stride);
    void *scratch = check_poisoned(matmul_scratch_bytes(weight, n, team_size(team)));

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

/* Returns how often a product is rounded until it is in its output. */
static uint32_t roundings(const struct weight *weight)
{
    uint32_t of_tiles = 18 + weight->cols / 32;

    return weight->is_tiles && of_tiles < weight->cols + 1 ? of_tiles : weight->cols + 1;
}

static void compare_with_float64(const struct source *source, const struct weight *weight, const float *x,
                                 const float *y)
{
    for (uint32_t row = 0; row < source->rows; row++) {
        const float *w = source->values + (size_t)row * source->cols;
        double sum = 0, plain = 0, size = 0;

        for (uint32_t k = 0; k < source->cols; k++) {
            double meant = weight->is_dots ? bf16_to_f32(f32_to_bf16(x[k])) : x[k];

            sum += w[k] * meant;
            plain += (double)w[k] * x[k];
            size += fabs(w[k] * meant);
        }
        double tolerance = roundings(weight) * 0x1p-24 * size;
        assert_true(fabs(y[row] - sum) <= tolerance);
        assert_true(fabs(y[row] - plain) <= tolerance + 0x1p-8 * size);
    }
}

static const struct case_shape {
    uint32_t rows, cols, n;
} shapes[] = {
    {1, 1, 1},     {16, 2, 3},    {17, 3, 15},    {33, 31, 1},     {20, 172, 26},
    {100, 257, 1}, {64, 509, 13}, {130, 512, 9},  {50, 1025, 30},  {16, 2048, 2},
    {70, 96, 17},  {90, 33, 65},  {48, 1040, 32}, {36, 1056, 530}, /* two blocks of BF16 tiles, the first of
                                                                      two heights, three slices, a ragged
                                                                      panel */
};

static void is_near_float64_on_every_table(void **state)
{
    const struct subject *subject = *state;
    struct team *team = subject->team;
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
            struct weight weight = pack(table, &source, subject->as_tiles, team);
            float *y = multiply(team, &weight, x, stride, n);

            for (uint32_t t = 0; t < n; t += TOKEN_STEP)
                compare_with_float64(&source, &weight, x + t * stride, y + t * (source.rows + GAP));
            if (first == NULL)
                first = y;
            else
                assert_memory_equal(y, first, len_bytes); /* with either instruction */
            if (y != first)
                free(y);
            weight_fini(&weight);
        }
        free(first);
        free(x);
        free_source(&source);
    }
}

/* Sums near the smallest normal float: which numbers are flushed, and when, is part of the arithmetic. */
static void subnormals_are_flushed_alike(void **state)
{
    const struct subject *subject = *state;
    struct team *team = subject->team;
    const struct kern_table *table;
    struct rng rng;

    rng_init(&rng, 2);
    for (uint32_t round = 0; round < 40; round++) {
        uint32_t n = 1 + round; /* every height of a tile */
        struct source source = make_source(&rng, DTYPE_BF16, 40, 96);
        size_t stride, len_bytes = n * (40 + GAP) * sizeof(float);
        float *x = make_x(&rng, n, 96, &stride), *first = NULL;

        for (size_t i = 0; i < (size_t)40 * 96; i++)
            source.data[i] = f32_to_bf16(ldexpf(bf16_to_f32(source.data[i]), -64));
        for (uint32_t t = 0; t < n; t++)
            for (uint32_t k = 0; k < 96; k++)
                x[t * stride + k] =
                    k == 5 ? 0x1.fffep-127f : ldexpf(x[t * stride + k], -60 - (int)check_pick(&rng, 0, 6));
        for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
            struct weight weight = pack(table, &source, subject->as_tiles, team);
            float *y = multiply(team, &weight, x, stride, n);

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
    /* The caller's own arithmetic continues unchanged. */
    volatile float small = 0x1p-126f;
    assert_true(small / 2 > 0);
}

/* Beside any neighbours, with teams of 1 to 4, with more columns than a slice: always the same bits. */
static void bits_do_not_depend_on_neighbours(void **state)
{
    const struct subject *subject = *state;
    struct team *alone = check_team(1);
    const struct kern_table *table;
    struct rng rng;

    rng_init(&rng, 3);
    struct source source = make_source(&rng, DTYPE_BF16, 150, MAX_COLS);
    size_t stride, y_stride = source.rows + GAP;
    float *x = make_x(&rng, MAX_TOKENS, source.cols, &stride);

    for (uint32_t i = 1; (table = kern_table_at(i)) != NULL; i++) {
        struct weight weight = pack(table, &source, subject->as_tiles, alone);
        float *whole = multiply(alone, &weight, x, stride, MAX_TOKENS);

        for (uint32_t n = 1; n <= MAX_TOKENS; n += COMPANY_STEP) {
            struct team *team = check_team(1 + n % 4);
            uint32_t first = (uint32_t)rng_below(&rng, MAX_TOKENS - n + 1);

            kern_choice_set(&(struct kern_choice){.at[KERN_PLAIN] = n % 2 == 0 ? CACHE_SECOND : CACHE_FIRST});
            float *y = multiply(team, &weight, x + first * stride, stride, n);
            check_choice_end();

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
    const struct subject *subject = *state;
    struct team *team = subject->team;
    const struct kern_table *table;
    struct rng rng;

    rng_init(&rng, 4);
    for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
        struct source source = make_source(&rng, i % 2 ? DTYPE_F16 : DTYPE_BF16, 37, 95);
        struct weight weight = pack(table, &source, subject->as_tiles, team);

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
    const struct subject *subject = *state;
    float data[32] = {0};
    struct weight_part part = {data, 1};
    struct weight_packing packing = {.table = kern_table_get("auto"),
                                     .form = subject->as_tiles ? WEIGHT_TILES : WEIGHT_DOTS,
                                     .type = DTYPE_F32,
                                     .parts = &part,
                                     .n_parts = 1,
                                     .cols = 32,
                                     .team = subject->team};
    struct weight weight;

    assert_int_equal(weight_pack(&packing, &weight), E_UNSUPPORTED);
}

/* If they were equal, no test would show that tiles are computed as tiles. */
static void tiles_are_not_dots(void **state)
{
    const struct subject *subject = *state;
    const struct kern_table *best = kern_table_get("auto");
    struct rng rng;

    rng_init(&rng, 5);
    struct source source = make_source(&rng, DTYPE_BF16, 64, 512);
    size_t stride;
    float *x = make_x(&rng, 20, source.cols, &stride);
    struct weight dots = pack(best, &source, false, subject->team);
    struct weight tiles = pack(best, &source, true, subject->team);
    float *by_dots = multiply(subject->team, &dots, x, stride, 20);
    float *by_tiles = multiply(subject->team, &tiles, x, stride, 20);

    assert_int_equal(memcmp(by_dots, by_tiles, 64 * sizeof(float)) != 0, kern_has_dots(best));
    free(by_dots);
    free(by_tiles);
    weight_fini(&dots);
    weight_fini(&tiles);
    free(x);
    free_source(&source);
}

static const char *way(bool has_any, bool has_fast)
{
    return has_fast ? "by instruction" : has_any ? "by FMAs" : "none";
}

static void have_numerics_of_their_own(void **state)
{
    const struct kern_table *best = kern_table_get("auto"), *scalar = kern_table_get("scalar");

    (void)state;
    assert_true(kern_dots_numerics_id(best) != kern_numerics_id(best));
    assert_true(kern_tiles_numerics_id(best) != kern_numerics_id(best));
    assert_true(kern_tiles_numerics_id(best) != kern_dots_numerics_id(best));
    assert_true(kern_dots_numerics_id(best) == kern_dots_numerics_id(scalar));
    assert_true(kern_tiles_numerics_id(best) == kern_tiles_numerics_id(scalar));
    assert_false(kern_has_fast_dots(scalar));
    assert_false(kern_has_fast_tiles(scalar));
    print_message("BF16 dots here: %s; tiles: %s\n", way(kern_has_dots(best), kern_has_fast_dots(best)),
                  way(kern_has_dots(best), kern_has_fast_tiles(best)));
}

static void the_requested_form_is_chosen(void **state)
{
    const struct kern_table *table;

    (void)state;
    for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
        bool can = kern_has_dots(table);

        assert_int_equal(kern_bf16_math(table, BF16_EXACT), BF16_EXACT);
        assert_int_equal(kern_bf16_math(table, BF16_DOTS), can ? BF16_DOTS : BF16_EXACT);
        assert_int_equal(kern_bf16_math(table, BF16_TILES), can ? BF16_TILES : BF16_EXACT);
        assert_int_equal(kern_bf16_math(table, BF16_AUTO), !can                         ? BF16_EXACT
                                                           : kern_has_fast_tiles(table) ? BF16_TILES
                                                                                        : BF16_DOTS);
    }
}

static int set_up(void **state, bool as_tiles)
{
    static struct subject subject;

    subject = (struct subject){.team = check_team(2), .as_tiles = as_tiles};
    *state = &subject;
    return 0;
}

static int set_up_dots(void **state)
{
    return set_up(state, false);
}

static int set_up_tiles(void **state)
{
    return set_up(state, true);
}

static int tear_down(void **state)
{
    struct subject *subject = *state;

    team_free(subject->team);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_near_float64_on_every_table),   cmocka_unit_test(subnormals_are_flushed_alike),
        cmocka_unit_test(bits_do_not_depend_on_neighbours), cmocka_unit_test(rows_come_back),
        cmocka_unit_test(other_types_are_refused),
    };
    const struct CMUnitTest both[] = {
        cmocka_unit_test(tiles_are_not_dots),
        cmocka_unit_test(have_numerics_of_their_own),
        cmocka_unit_test(the_requested_form_is_chosen),
    };

    return cmocka_run_group_tests_name("dots", tests, set_up_dots, tear_down) +
           cmocka_run_group_tests_name("tiles", tests, set_up_tiles, tear_down) +
           cmocka_run_group_tests_name("both", both, set_up_dots, tear_down);
}
