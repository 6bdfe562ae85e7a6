/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: near a float64 reference, and the same bits for every table, batch, split and team. */
#include "source.h"

#include "gguf/qblk.h"
#include "compute/tensor/matmul_priv.h"

enum { MAX_COLS = 512, MAX_TOKENS = 40, COMPANY = 100 };

/* Returns y in rows with a gap of 3 floats, so that a write past a row is noticed. */
static float *multiply(struct team *team, const struct weight *weight, const float *x, size_t x_stride,
                       uint32_t n)
{
    size_t y_stride = weight->rows + 3;
    float *y = check_floats(n * y_stride);
    void *scratch = check_poisoned(matmul_scratch_bytes(weight, n, team_size(team)));

    matmul(team, &(struct matmul_args){.weight = weight,
                                       .x = x,
                                       .x_stride = x_stride,
                                       .n = n,
                                       .y = y,
                                       .y_stride = y_stride,
                                       .scratch = scratch,
                                       .next = n % 3 == 1 ? weight : NULL}); /* changes nothing */
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

/* Returns rows of x with poison between them. */
static float *make_x(struct rng *rng, uint32_t n, uint32_t cols, size_t *stride_out)
{
    size_t stride = cols + 5;
    float *x = check_floats(n * stride);

    for (uint32_t t = 0; t < n; t++)
        check_fill(rng, x + t * stride, cols);
    *stride_out = stride;
    return x;
}

/* Computes the values that 8-bit activations represent: per 32, multiples of a power of two, at most 127. */
static void quantize_like(const float *x, uint32_t cols, double *out)
{
    for (uint32_t b = 0; b < cols; b += 32) {
        double amax = 0, step = 0x1p-140;

        for (uint32_t i = b; i < b + 32; i++)
            amax = fmax(amax, fabs(x[i]));
        while (128 * step <= amax * 129 / 128)
            step *= 2;
        for (uint32_t i = b; i < b + 32; i++)
            out[i] = nearbyint(x[i] / step) * step;
    }
}

/* Compared with float64: sums of K rounded terms, each rounded by at most 2^-24 of the sum so far.  8-bit
 * activations are compared with their exact values, and with the unrounded ones: off by half a quant each,
 * and a quant is at most 2/127 of the largest. */
static void compare_with_float64(const struct source *source, const float *x, const float *y)
{
    bool is_q8 = qblk_form(source->type) != NULL;
    double *meant = malloc(source->cols * sizeof(*meant)), top = 0;

    assert_non_null(meant);
    for (uint32_t k = 0; k < source->cols; k++) {
        meant[k] = x[k];
        top = fmax(top, fabs(x[k]));
    }
    if (is_q8)
        quantize_like(x, source->cols, meant);
    for (uint32_t row = 0; row < source->rows; row++) {
        const double *w = source->values + (size_t)row * source->cols;
        double sum = 0, plain = 0, size = 0, square = 0;

        for (uint32_t k = 0; k < source->cols; k++) {
            sum += w[k] * meant[k];
            plain += w[k] * x[k];
            size += (fabs(w[k]) + (is_q8 ? 2 : 0)) * fabs(meant[k]); /* a min and its quants may cancel */
            square += w[k] * w[k];
        }
        if (!(fabs(y[row] - sum) <= size * source->cols * 0x1p-24))
            fail_msg("%s: row %u is %g, not %g, off by more than %g", dtype_info(source->type)->name, row,
                     (double)y[row], sum, size * source->cols * 0x1p-24);
        if (is_q8)
            assert_true(fabs(y[row] - plain) <= 6 * sqrt(square / 12) * top * 2 / 127 + 1e-6);
    }
    free(meant);
}

/* Every so many shapes, and tokens of them; batches of all sizes up to EVERY_SIZE, then some. */
#ifdef CHECK_EMULATED
enum { SHAPE_STEP = 3, EVERY_SIZE = 6, SIZE_STEP = 43, ROUNDS = 2, TOKEN_STEP = 5, MOST_AHEAD_ROWS = 50 };
#else
enum { SHAPE_STEP = 1, EVERY_SIZE = 36, SIZE_STEP = 7, ROUNDS = 5, TOKEN_STEP = 1, MOST_AHEAD_ROWS = 1500 };
#endif

static const uint32_t shapes[][2] = {{1, 32},    {16, 64},  {17, 96},  {33, 160},
                                     {100, 320}, {64, 512}, {130, 288}};

static void is_near_float64(void **state)
{
    struct team *team = *state;
    const struct kern_table *table;
    struct rng rng;

    rng_init(&rng, 1);
    for (uint32_t i = CHECK_FIRST_TABLE; (table = kern_table_at(i)) != NULL; i++)
        for (uint32_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s += SHAPE_STEP)
            for (int j = 0; j < N_TYPES; j++) {
                struct source source = source_make(&rng, source_types[j], shapes[s][0],
                                                   source_cols(source_types[j], shapes[s][1]));
                struct weight weight = source_pack(table, &source, team);
                uint32_t n = 1 + s * 5;
                size_t stride;
                float *x = make_x(&rng, n, source.cols, &stride), *y = multiply(team, &weight, x, stride, n);

                for (uint32_t t = 0; t < n; t += TOKEN_STEP)
                    compare_with_float64(&source, x + t * stride, y + t * (source.rows + 3));
                free(x);
                free(y);
                weight_fini(&weight);
                source_free(&source);
            }
}

/* Plain types accept any number of columns. */
static void takes_ragged_columns(void **state)
{
    static const uint32_t cols[] = {1, 2, 3, 5, 31, 172, 257, 509};
    struct team *team = *state;
    const struct kern_table *table;
    struct rng rng;

    rng_init(&rng, 2);
    for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++)
        for (uint32_t c = 0; c < 8; c++) {
            struct source source = source_make(&rng, source_types[c % N_PLAIN], 20 + c, cols[c]);
            struct weight weight = source_pack(table, &source, team);
            uint32_t n = c % 2 ? 1 : 15;
            size_t stride;
            float *x = make_x(&rng, n, cols[c], &stride), *y = multiply(team, &weight, x, stride, n);

            for (uint32_t t = 0; t < n; t++)
                compare_with_float64(&source, x + t * stride, y + t * (source.rows + 3));
            free(x);
            free(y);
            weight_fini(&weight);
            source_free(&source);
        }
}

/* Every table gives the scalar table's bits, over random shapes. */
static void tables_agree(void **state)
{
    struct team *team = *state;
    struct rng rng;

    rng_init(&rng, 3);
    for (int round = 0; round < ROUNDS * N_TYPES; round++) {
        enum dtype type = source_types[round % N_TYPES];
        uint32_t rows = check_pick(&rng, 1, 150), cols = source_cols(type, 32 * check_pick(&rng, 1, 24)),
                 n = round < N_TYPES ? 1 : check_pick(&rng, 2, 30);
        struct source source = source_make(&rng, type, rows, cols);
        const struct kern_table *table;
        size_t stride, len_bytes = n * (rows + 3) * sizeof(float);
        float *x = make_x(&rng, n, cols, &stride), *first = NULL;

        for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
            struct weight weight = source_pack(table, &source, team);
            float *y = multiply(team, &weight, x, stride, n);

            if (first == NULL)
                first = y;
            else if (memcmp(y, first, len_bytes) != 0)
                fail_msg("%s: other bits than of the scalar table, by %s", dtype_info(type)->name,
                         kern_table_name(table));
            if (y != first)
                free(y);
            weight_fini(&weight);
        }
        free(first);
        free(x);
        source_free(&source);
    }
}

/* The bytes of quants that are largest, or lowest (of tables from -127 on, the largest size). */
static int extreme_quants(enum dtype type, bool is_lowest)
{
    return is_lowest             ? 0
           : type == DTYPE_Q8_0  ? 0x7f
           : type == DTYPE_MXFP4 ? 0x77 /* 12; 15 is -12 */
                                 : 0xff;
}

/* Returns the first table's outputs: those of all others, and of one token alone, are the same. */
static float *tables_multiply(struct team *team, const struct source *source, const float *x, uint32_t cols,
                              uint32_t n_tokens)
{
    const struct kern_table *table;
    float *first = NULL;

    for (uint32_t t = 0; (table = kern_table_at(t)) != NULL; t++) {
        struct weight weight = source_pack(table, source, team);
        float *y = multiply(team, &weight, x, cols, n_tokens), *alone = multiply(team, &weight, x, cols, 1);

        if (first != NULL)
            assert_memory_equal(y, first, (size_t)n_tokens * (source->rows + 3) * sizeof(float));
        assert_memory_equal(alone, y, source->rows * sizeof(float));
        free(alone);
        free(first);
        first = y;
        weight_fini(&weight);
    }
    return first;
}

/* Quants of weights and activations have the largest magnitude and one sign:
 * no table's sums of fewer than 32 bits overflow. */
static void largest_products_fit(void **state)
{
    enum { ROWS = 40, COLS = 512, TOKENS = 13 };
    struct team *team = *state;
    float x[TOKENS * COLS];
    struct rng rng;

    rng_init(&rng, 31);
    for (uint32_t i = 0; i < TOKENS * COLS; i++)
        x[i] = (i / COLS % 2 ? -127 : 127) * 0x1p-7f;
    for (int i = 2 * N_PLAIN; i < 2 * N_TYPES; i++) {
        enum dtype type = source_types[i / 2];
        size_t n_qblks = (size_t)ROWS * COLS / dtype_info(type)->qblk_weights;
        struct source source = source_make(&rng, type, ROWS, COLS);

        memset(source.data, extreme_quants(type, i % 2), n_qblks * dtype_info(type)->qblk_bytes);
        source_fill_scales(&rng, type, source.data, n_qblks);
        free(tables_multiply(team, &source, x, COLS, TOKENS));
        source_free(&source);
    }
}

/* Compares all variants that a measurement may choose. */
static void compare_variants(struct team *team, const struct matmul_args *args, const float *whole)
{
    const struct weight *weight = args->weight;
    const size_t y_stride = weight->rows + 3;
    struct kern_choice choice;
    struct rng rng;

    rng_init(&rng, args->n);
    for (uint32_t i = 0; check_choice(&rng, i, &choice); i++) {
        kern_choice_set(&choice);
        float *y = multiply(team, weight, args->x, args->x_stride, args->n);

        for (uint32_t t = 0; t < args->n; t++)
            assert_memory_equal(y + t * y_stride, whole + t * y_stride, weight->rows * sizeof(float));
        free(y);
    }
    check_choice_end();
}

/* A hundred tokens at once, in smaller batches of every kind, with teams of 1 to 4: always the same bits. */
static void bits_do_not_depend_on_neighbours(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 4);
    for (int j = 0; j < N_TYPES; j++) {
        const struct kern_table *table = kern_table_get("auto");
        struct team *alone = check_team(1);
        struct source source = source_make(&rng, source_types[j], 150, MAX_COLS);
        struct weight weight = source_pack(table, &source, alone);
        size_t stride, y_stride = source.rows + 3;
        float *x = make_x(&rng, COMPANY, source.cols, &stride);
        float *whole = multiply(alone, &weight, x, stride, COMPANY);

        for (uint32_t n = 1; n <= COMPANY; n += n < EVERY_SIZE ? 1 : SIZE_STEP) {
            struct team *team = check_team(1 + n % 4);
            uint32_t first = (uint32_t)rng_below(&rng, COMPANY - n + 1);

            compare_variants(
                team,
                &(struct matmul_args){.weight = &weight, .x = x + first * stride, .x_stride = stride, .n = n},
                whole + first * y_stride);
            team_free(team);
        }
        free(whole);
        free(x);
        weight_fini(&weight);
        source_free(&source);
        team_free(alone);
    }
}

/* More columns and tokens than a slice and a block have. */
static void bits_survive_slicing(void **state)
{
    enum { TOKENS = 520, ROWS = 48 };
    struct team *team = *state;
    struct rng rng;

    rng_init(&rng, 5);
    for (int j = 0; j < N_TYPES; j++) {
        const uint32_t cols = source_cols(source_types[j], 1056);
        struct source source = source_make(&rng, source_types[j], ROWS, cols);
        struct weight weight = source_pack(kern_table_get("auto"), &source, team);
        size_t stride;
        float *x = make_x(&rng, TOKENS, cols, &stride), *whole = multiply(team, &weight, x, stride, TOKENS);

        for (uint32_t t = 0; t < TOKENS; t += 37) {
            const uint32_t n = t % 2 ? 5 : 1;

            compare_variants(
                team,
                &(struct matmul_args){.weight = &weight, .x = x + t * stride, .x_stride = stride, .n = n},
                whole + t * (ROWS + 3));
        }
        free(whole);
        free(x);
        weight_fini(&weight);
        source_free(&source);
    }
}

static void zero_and_tiny_activations_are_harmless(void **state)
{
    struct team *team = *state;
    struct rng rng;
    enum { KINDS = 6, MANY = 72 /* as many tokens as tiles take */ };
    float x[MANY * 64] = {0};

    rng_init(&rng, 6);
    for (int i = 64; i < 128; i++)
        x[i] = 1e-42f; /* its inverse is not a float */
    for (int i = 128; i < 192; i++)
        x[i] = i % 2 ? 1e26f : -1e26f;
    x[3 * 64 + 40] = NAN;
    x[4 * 64 + 7] = INFINITY;
    x[5 * 64 + 1] = -3e38f; /* beyond the range of a qblk's scale */
    for (int i = KINDS * 64; i < MANY * 64; i++)
        x[i] = x[i - KINDS * 64];
    struct source source = source_make(&rng, DTYPE_Q8_0, 16, 64);
    const struct kern_table *table;
    for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
        struct weight weight = source_pack(table, &source, team);

        for (uint32_t n = KINDS; n <= MANY; n += MANY - KINDS) {
            float *y = multiply(team, &weight, x, 64, n);

            for (uint32_t at = 0; at < n * 19; at += KINDS * 19)
                for (uint32_t row = at; row < at + 16; row++) {
                    assert_true(y[row] == 0);
                    assert_true(fabsf(y[19 + row]) < 1e-30f);
                    assert_true(isfinite(y[2 * 19 + row]));
                    for (int bad = 3; bad < KINDS; bad++)
                        assert_true(isnan(y[bad * 19 + row]));
                }
            free(y);
        }
        weight_fini(&weight);
    }
    source_free(&source);
}

struct ahead {
    struct team *team;
    const struct weight *weight;
    size_t left_bytes[MAX_TOKENS], left_of_nothing[MAX_TOKENS];
};

static void look_ahead(void *arg, unsigned rank, unsigned n_ranks)
{
    struct ahead *ahead = arg;

    (void)n_ranks;
    matmul_ahead(ahead->team, rank, ahead->weight);
    ahead->left_bytes[rank] = team_ahead_left(ahead->team, rank);
    matmul_ahead(ahead->team, rank, NULL);
    ahead->left_of_nothing[rank] = team_ahead_left(ahead->team, rank);
}

/* Each rank prefetches its own share: together the whole matrix, or the beginnings of large shares. */
static void shares_are_looked_forward_to(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 8);
    for (int j = 0; j < N_TYPES; j++)
        for (uint32_t rows = 1; rows < MOST_AHEAD_ROWS; rows = rows * 3 + 5)
            for (unsigned n_ranks = 1; n_ranks <= 5; n_ranks += 2) {
                struct ahead ahead = {.team = check_team(n_ranks)};
                struct source source =
                    source_make(&rng, source_types[j], rows, source_cols(source_types[j], 256));
                struct weight weight = source_pack(kern_table_get("auto"), &source, ahead.team);
                size_t sum_bytes = 0;

                ahead.weight = &weight;
                team_run(ahead.team, look_ahead, &ahead);
                for (unsigned rank = 0; rank < n_ranks; rank++) {
                    assert_true(ahead.left_bytes[rank] <= 512 * 1024);
                    assert_int_equal(ahead.left_of_nothing[rank], 0);
                    sum_bytes += ahead.left_bytes[rank];
                }
                assert_true(sum_bytes <= weight.len_bytes);
                if (weight.len_bytes / n_ranks < 256 * 1024)
                    assert_int_equal(sum_bytes, weight.len_bytes);
                weight_fini(&weight);
                source_free(&source);
                team_free(ahead.team);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_looked_forward_to),
        cmocka_unit_test(is_near_float64),
        cmocka_unit_test(takes_ragged_columns),
        cmocka_unit_test(tables_agree),
        cmocka_unit_test(largest_products_fit),
        cmocka_unit_test(bits_do_not_depend_on_neighbours),
        cmocka_unit_test(bits_survive_slicing),
        cmocka_unit_test(zero_and_tiny_activations_are_harmless),
    };

    return cmocka_run_group_tests(tests, check_team_open, check_team_close);
}
