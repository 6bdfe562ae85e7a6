/* SPDX-License-Identifier: Apache-2.0 */
/* Many products in one run.  They have the bits of matmul() on the same rows alone, for any team, any other pieces
 * and any method of loading activations; and rows mixed in order. */
#include "check.h"
#include "compute/tensor/grouped.h"

#ifdef CHECK_EMULATED /* an emulated processor needs minutes for more */
enum { MOST_PANELS = 12 };
#else
enum { MOST_PANELS = 40 };
#endif
enum { MAX_PIECES = 24, N_X = 700, MAX_RANKS = 3 };

struct bench {
    struct rng rng;
    struct team *teams[MAX_RANKS]; /* of 1, 2, 3 ranks */
    struct team *solos[MAX_RANKS];
};

static int set_up(void **state)
{
    static struct bench bench;

    rng_init(&bench.rng, 77);
    for (unsigned i = 0; i < MAX_RANKS; i++) {
        bench.teams[i] = i == 0 ? check_team(1) : check_nodes(i + 1, i % 2 == 1);
        bench.solos[i] = check_team(1);
    }
    *state = &bench;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *bench = *state;

    for (unsigned i = 0; i < MAX_RANKS; i++) {
        team_free(bench->teams[i]);
        team_free(bench->solos[i]);
    }
    return 0;
}

/* Random bits that are finite numbers in every type here. */
static void *random_matrix(struct rng *rng, enum dtype type, uint32_t rows, uint32_t cols)
{
    const struct dtype_info *info = dtype_info(type);
    size_t n_qblks = (size_t)rows * cols / info->qblk_weights;
    uint8_t *data = malloc(n_qblks * info->qblk_bytes);

    assert_non_null(data);
    for (size_t i = 0; i < n_qblks; i++) {
        uint8_t *at = data + i * info->qblk_bytes;
        float value = check_normal(rng);
        uint16_t half = f32_to_f16(type == DTYPE_Q8_0 ? value * 0.01f : value);

        if (type == DTYPE_F32)
            memcpy(at, &value, sizeof(value));
        else
            memcpy(at, &half, sizeof(half));
        for (unsigned j = 2; type == DTYPE_Q8_0 && j < info->qblk_bytes; j++)
            at[j] = (uint8_t)rng_u64(rng);
    }
    return data;
}

/* Loads a row by an index, as a gather does. */
static void gather(const struct grouped_piece *piece, uint32_t i, float *out)
{
    const uint32_t *rows = piece->arg;

    memcpy(out, piece->x + rows[piece->first + i] * piece->x_stride, piece->weight->cols * sizeof(float));
}

struct trial {
    const struct kern_table *table;
    struct weight weight; /* stacked experts */
    void *data;
    size_t row_bytes;
    uint32_t expert_rows, n_experts;
    float *x;
    uint32_t *rows; /* for gather: [MAX_PIECES * N_X] */
    struct grouped_piece pieces[MAX_PIECES];
    float *y[MAX_PIECES];
    uint32_t n_pieces;
};

static void make_piece(struct bench *b, struct trial *t, uint32_t i)
{
    uint32_t expert = check_pick(&b->rng, 0, t->n_experts - 1);
    uint32_t n = check_pick(&b->rng, 0, 9) == 0 ? check_pick(&b->rng, 250, 600) : check_pick(&b->rng, 0, 9);

    t->pieces[i] = (struct grouped_piece){.weight = &t->weight,
                                          .first_row = expert * t->expert_rows,
                                          .n_rows = t->expert_rows,
                                          .n = n,
                                          .x = t->x,
                                          .x_stride = t->weight.cols + 3,
                                          .first = i * N_X,
                                          .arg = t->rows,
                                          .load = rng_below(&b->rng, 2) ? gather : NULL,
                                          .y_stride = t->expert_rows + 5};
    t->y[i] = check_floats((n + 1) * t->pieces[i].y_stride);
    t->pieces[i].y = t->y[i];
}

static void make_trial(struct bench *b, const struct kern_table *table, enum dtype type, struct trial *t)
{
    const struct dtype_info *info = dtype_info(type);
    uint32_t cols = 32 * check_pick(&b->rng, 1, 9), n_runs;
    struct weight_part part;

    *t = (struct trial){.table = table, .n_experts = check_pick(&b->rng, 1, 6)};
    t->expert_rows = 16 * check_pick(&b->rng, 1, MOST_PANELS);
    n_runs =
        t->n_experts * (t->expert_rows % 32 == 0 ? check_pick(&b->rng, 0, 2) : check_pick(&b->rng, 0, 1));
    t->row_bytes = (size_t)cols / info->qblk_weights * info->qblk_bytes;
    t->data = random_matrix(&b->rng, type, t->expert_rows * t->n_experts, cols);
    part = (struct weight_part){t->data, t->expert_rows * t->n_experts};
    assert_int_equal(
        weight_pack(&(struct weight_packing){.table = table,
                                             .type = type,
                                             .parts = &part,
                                             .n_parts = 1,
                                             .cols = cols,
                                             .n_runs = n_runs,
                                             .team = b->teams[check_pick(&b->rng, 0, MAX_RANKS - 1)]},
                    &t->weight),
        0);
    t->x = check_floats((size_t)N_X * (cols + 3));
    check_fill(&b->rng, t->x, (size_t)N_X * (cols + 3));
    t->rows = calloc((size_t)MAX_PIECES * N_X, sizeof(uint32_t));
    assert_non_null(t->rows);
    for (uint32_t i = 0; i < MAX_PIECES * N_X; i++)
        t->rows[i] = check_pick(&b->rng, 0, N_X - 1);
    t->n_pieces = check_pick(&b->rng, 1, MAX_PIECES);
    for (uint32_t i = 0; i < t->n_pieces; i++)
        make_piece(b, t, i);
}

static void free_trial(struct trial *t)
{
    for (uint32_t i = 0; i < t->n_pieces; i++)
        free(t->y[i]);
    weight_fini(&t->weight);
    free(t->data);
    free(t->rows);
    free(t->x);
}

/* Packs the same rows alone and multiplies them with matmul(), token by token. */
static void check_piece(struct bench *b, const struct trial *t, uint32_t index)
{
    const struct grouped_piece *piece = &t->pieces[index];
    uint32_t cols = t->weight.cols;
    struct weight_part part = {(char *)t->data + piece->first_row * t->row_bytes, piece->n_rows};
    struct weight alone;
    float *y = check_floats(piece->n_rows);
    void *scratch = check_poisoned(matmul_scratch_most(1, cols, 1));

    assert_int_equal(weight_pack(&(struct weight_packing){.table = t->table,
                                                          .type = t->weight.type,
                                                          .parts = &part,
                                                          .n_parts = 1,
                                                          .cols = cols,
                                                          .team = b->teams[0]},
                                 &alone),
                     0);
    for (uint32_t i = 0; i < piece->n; i++) {
        uint32_t row = piece->load ? t->rows[piece->first + i] : i;

        matmul(b->teams[0], &(struct matmul_args){.weight = &alone,
                                                  .x = t->x + row * piece->x_stride,
                                                  .x_stride = piece->x_stride,
                                                  .n = 1,
                                                  .y = y,
                                                  .y_stride = piece->n_rows,
                                                  .scratch = scratch});
        assert_memory_equal(y, piece->y + i * piece->y_stride, piece->n_rows * sizeof(float));
        for (size_t j = piece->n_rows; j < piece->y_stride; j++) {
            uint32_t bits;

            memcpy(&bits, piece->y + i * piece->y_stride + j, sizeof(bits));
            assert_int_equal(bits, POISON);
        }
    }
    weight_fini(&alone);
    free(scratch);
    free(y);
}

static void pieces_have_the_bits_of_matmul(void **state)
{
    static const enum dtype TYPES[] = {DTYPE_F32, DTYPE_F16, DTYPE_Q8_0};
    struct bench *b = *state;
    const struct kern_table *table;

    for (uint32_t k = CHECK_FIRST_TABLE; (table = kern_table_at(k)) != NULL; k++)
        for (unsigned i = 0; i < 6; i += CHECK_STEP) {
            unsigned n_ranks = check_pick(&b->rng, 1, MAX_RANKS);
            struct trial t;
            void *scratch;

            make_trial(b, table, TYPES[i % 3], &t);
            scratch = check_poisoned(grouped_scratch_bytes(MAX_PIECES, 32 * 9, n_ranks));
            matmul_grouped(b->teams[n_ranks - 1], &(struct grouped_args){.pieces = t.pieces,
                                                                         .n_pieces = t.n_pieces,
                                                                         .solos = b->solos,
                                                                         .max_cols = 32 * 9,
                                                                         .scratch = scratch});
            for (uint32_t p = 0; p < t.n_pieces; p++)
                check_piece(b, &t, p);
            free(scratch);
            free_trial(&t);
        }
}

static void no_pieces_is_no_work(void **state)
{
    struct bench *b = *state;
    void *scratch = check_poisoned(grouped_scratch_bytes(1, 32, 2));

    matmul_grouped(b->teams[1],
                   &(struct grouped_args){.solos = b->solos, .max_cols = 32, .scratch = scratch});
    free(scratch);
}

static void mixing_is_in_order_and_the_same_everywhere(void **state)
{
    struct bench *b = *state;
    const struct kern_table *table;

    for (unsigned trial = 0; trial < 50; trial++) {
        uint32_t n = check_pick(&b->rng, 1, 70), n_rows = check_pick(&b->rng, 1, 9);
        float *memory = check_floats(9 * 70), weights[9];
        const float *rows[9];

        check_fill(&b->rng, memory, 9 * 70);
        check_fill(&b->rng, weights, 9);
        for (uint32_t r = 0; r < 9; r++)
            rows[r] = memory + check_pick(&b->rng, 0, 8) * 70;
        for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++) {
            float *out = check_floats(n);

            mix_rows(table, &(struct weighted_rows){rows, weights, n_rows}, n, out);
            for (uint32_t i = 0; i < n; i++) {
                float sum = weights[0] * rows[0][i];

                for (uint32_t r = 1; r < n_rows; r++)
                    sum = fmaf(weights[r], rows[r][i], sum);
                assert_memory_equal(&sum, &out[i], sizeof(sum));
            }
            check_guard(out, n);
            free(out);
        }
        free(memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pieces_have_the_bits_of_matmul, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_pieces_is_no_work, set_up, tear_down),
        cmocka_unit_test_setup_teardown(mixing_is_in_order_and_the_same_everywhere, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
