/* SPDX-License-Identifier: Apache-2.0 */
/* A feed-forward in one run: the bits of matmul(), swiglu() or geglu() and matmul(), for all weight types,
 * any number of tokens and any team. */
#include "check.h"
#include "gguf/qblk_write.h"
#include "compute/tensor/gated.h"
#include "compute/tensor/matmul_priv.h"

#ifdef CHECK_EMULATED /* an emulated processor needs minutes for more */
enum { MANY_TOKENS = 8, LONG_CHANCE = 48, MOST_HIDDEN = 512 };
#else
enum { MANY_TOKENS = 100, LONG_CHANCE = 6, MOST_HIDDEN = 1024 };
#endif
enum { MAX_RANKS = 3, GAP = 3, POOL_WEIGHTS = 256 * 509 };

/* Random qblks of a type, written once: that takes longer than to multiply them. */
static const uint8_t *random_qblks(struct rng *rng, enum dtype type)
{
    static uint8_t *of_type[DTYPE_COUNT];
    float *values;

    if (of_type[type] != NULL)
        return of_type[type];
    values = check_floats(POOL_WEIGHTS);
    of_type[type] = malloc(POOL_WEIGHTS / dtype_info(type)->qblk_weights * dtype_info(type)->qblk_bytes);
    assert_non_null(of_type[type]);
    check_fill(rng, values, POOL_WEIGHTS);
    assert_int_equal(qblk_from_f32(type, values, POOL_WEIGHTS, of_type[type]), 0);
    free(values);
    return of_type[type];
}

/* Packs random rows; the packing names the rest. */
static struct weight make_weight(struct rng *rng, struct weight_packing packing, uint32_t rows)
{
    const struct dtype_info *info = dtype_info(packing.type);
    const uint8_t *pool = random_qblks(rng, packing.type);
    size_t n = (size_t)rows * packing.cols / info->qblk_weights, n_pool = POOL_WEIGHTS / info->qblk_weights;
    uint8_t *data = malloc(n * info->qblk_bytes);
    struct weight_part part = {data, rows};
    struct weight weight;

    assert_non_null(data);
    for (size_t i = 0, at = rng_below(rng, n_pool); i < n; i++, at = at + 1 < n_pool ? at + 1 : 0)
        memcpy(data + i * info->qblk_bytes, pool + at * info->qblk_bytes, info->qblk_bytes);
    packing.parts = &part;
    packing.n_parts = 1;
    assert_int_equal(weight_pack(&packing, &weight), 0);
    free(data);
    return weight;
}

static void multiply(struct team *team, struct matmul_args args)
{
    args.scratch = check_poisoned(matmul_scratch_bytes(args.weight, args.n, team_size(team)));
    matmul(team, &args);
    free(args.scratch);
}

/* Computes it step by step, without matmul_gated(). */
static void by_products(struct team *team, const struct gated_args *args, float *y)
{
    size_t ffn = args->down->cols;
    float *gate_up = check_floats(args->n * 2 * ffn);

    multiply(team, (struct matmul_args){.weight = args->gate_up,
                                        .x = args->x,
                                        .x_stride = args->x_stride,
                                        .n = args->n,
                                        .y = gate_up,
                                        .y_stride = 2 * ffn});
    for (size_t i = 0; i < args->n; i++) {
        float *gate = gate_up + i * 2 * ffn;

        args->act(args->gate_up->table, gate, gate + ffn, (uint32_t)ffn);
    }
    multiply(team, (struct matmul_args){.weight = args->down,
                                        .x = gate_up,
                                        .x_stride = 2 * ffn,
                                        .n = args->n,
                                        .y = y,
                                        .y_stride = args->y_stride});
    free(gate_up);
}

/* Scratch for a larger team and more tokens is also valid, and y may overlap x. */
static void compare(struct team *team, struct gated_args args, struct rng *rng)
{
    uint32_t cols = args.gate_up->cols, rows = args.down->rows, n = args.n;
    size_t len = n * args.y_stride;
    float *wanted = check_floats(len), *y = check_floats(len), *x = check_floats(n * args.x_stride);
    uint32_t n_ranks = check_pick(rng, team_size(team), MAX_RANKS);
    void *scratch =
        check_poisoned(gated_scratch_bytes(args.gate_up, args.down, n + check_pick(rng, 0, 1) * 40, n_ranks));

    for (uint32_t i = 0; i < n; i++)
        check_fill(rng, x + i * args.x_stride, cols);
    args.x = x;
    args.y = y;
    args.scratch = scratch;
    by_products(team, &args, wanted);
    matmul_gated(team, &args);
    assert_memory_equal(y, wanted, len * sizeof(float)); /* gaps too: they are never written */
    check_guard(y, len);
    if (args.x_stride == args.y_stride && rows == cols) {
        args.y = x;
        matmul_gated(team, &args);
        assert_memory_equal(x, wanted, len * sizeof(float));
    }
    free(scratch);
    free(wanted);
    free(y);
    free(x);
}

static const struct kind {
    enum dtype in, down;
    enum weight_form form;
} kinds[] = {
    {DTYPE_F32, DTYPE_F32, WEIGHT_AS_STORED},   {DTYPE_F16, DTYPE_F16, WEIGHT_AS_STORED},
    {DTYPE_BF16, DTYPE_BF16, WEIGHT_AS_STORED}, {DTYPE_BF16, DTYPE_BF16, WEIGHT_DOTS},
    {DTYPE_BF16, DTYPE_BF16, WEIGHT_TILES},     {DTYPE_Q8_0, DTYPE_Q8_0, WEIGHT_AS_STORED},
    {DTYPE_Q4_0, DTYPE_Q8_0, WEIGHT_AS_STORED}, {DTYPE_Q5_0, DTYPE_Q4_1, WEIGHT_AS_STORED},
    {DTYPE_Q4_K, DTYPE_Q6_K, WEIGHT_AS_STORED}, {DTYPE_Q2_K, DTYPE_Q3_K, WEIGHT_AS_STORED},
    {DTYPE_Q5_K, DTYPE_F16, WEIGHT_AS_STORED},  {DTYPE_F32, DTYPE_Q4_K, WEIGHT_AS_STORED},
};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static void check_kind(struct rng *rng, const struct kern_table *table, const struct kind *kind,
                       struct team **teams)
{
    /* Up to three of the largest units of a team of one, and a part of one. */
    uint32_t unit = dtype_info(kind->down)->qblk_weights > 32 ? 256 : 32;
    uint32_t ffn = unit * check_pick(rng, 1, MOST_HIDDEN / unit), hidden = 256 * check_pick(rng, 1, 2);
    /* The scalar kernels are slow; the code that cuts many tokens is the same for all kernels. */
    bool is_long = check_pick(rng, 0, LONG_CHANCE - 1) == 0 && strcmp(kern_table_name(table), "scalar") != 0;
    uint32_t n = is_long ? check_pick(rng, 500, 600) : check_pick(rng, 2, MANY_TOKENS);
    uint32_t rows = check_pick(rng, 0, 1) ? hidden : check_pick(rng, 1, 70);
    struct team *team = teams[check_pick(rng, 0, MAX_RANKS - 1)];
    struct weight gate_up = make_weight(rng,
                                        (struct weight_packing){.table = table,
                                                                .form = kind->form,
                                                                .type = kind->in,
                                                                .cols = hidden,
                                                                .n_runs = check_pick(rng, 1, 2),
                                                                .team = team},
                                        2 * ffn);
    struct weight down =
        make_weight(rng,
                    (struct weight_packing){
                        .table = table, .form = kind->form, .type = kind->down, .cols = ffn, .team = team},
                    rows);

    assert_true(gated_takes(&gate_up, &down));
    compare(team,
            (struct gated_args){.gate_up = &gate_up,
                                .down = &down,
                                .act = rng_below(rng, 2) ? swiglu : geglu,
                                .n = n,
                                .x_stride = hidden + GAP,
                                .y_stride = rows + GAP},
            rng);
    weight_fini(&gate_up);
    weight_fini(&down);
}

static void has_the_bits_of_its_products(void **state)
{
    struct team *teams[MAX_RANKS];
    const struct kern_table *table;
    struct kern_choice choice;
    struct rng rng;

    (void)state;
    rng_init(&rng, 31);
    for (unsigned i = 0; i < MAX_RANKS; i++)
        teams[i] = i == 0 ? check_team(1) : check_nodes(i + 1, i % 2 == 1);
    for (uint32_t k = CHECK_FIRST_TABLE; (table = kern_table_at(k)) != NULL; k++)
        for (uint32_t i = 0; check_choice(&rng, i, &choice); i++) {
            kern_choice_set(&choice);
            for (uint32_t j = i % CHECK_STEP; j < N_KINDS; j += CHECK_STEP)
                check_kind(&rng, table, &kinds[j], teams);
        }
    check_choice_end();
    for (unsigned i = 0; i < MAX_RANKS; i++)
        team_free(teams[i]);
}

static void refuses_what_activations_cannot_be_packed_for(void **state)
{
    struct team *team = check_team(1);
    const struct kern_table *table = kern_table_get("auto");
    struct rng rng;

    (void)state;
    rng_init(&rng, 32);
    struct weight gate_up = make_weight(
        &rng, (struct weight_packing){.table = table, .type = DTYPE_F32, .cols = 64, .team = team}, 2 * 172);
    struct weight down = make_weight(
        &rng, (struct weight_packing){.table = table, .type = DTYPE_F32, .cols = 172, .team = team}, 64);
    struct weight other = make_weight(
        &rng, (struct weight_packing){.table = table, .type = DTYPE_F32, .cols = 64, .team = team}, 2 * 64);

    assert_false(gated_takes(&gate_up, &down)); /* 172 is no multiple of 32 */
    assert_false(gated_takes(&other, &down));   /* 64 is not 172 */
    weight_fini(&gate_up);
    weight_fini(&down);
    weight_fini(&other);
    team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_bits_of_its_products),
        cmocka_unit_test(refuses_what_activations_cannot_be_packed_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
