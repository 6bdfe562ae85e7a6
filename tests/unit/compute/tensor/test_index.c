/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse attention: scores of an indexer's keys, and copies of chosen keys. Every table gives the bits of the plain
 * loops here. */
#include "check.h"
#include "compute/kernels/index.h"

enum { ROUNDS = 120, MOST_HEADS = 70, MOST_BLOCKS = 4, MOST_WIDTH = 200 };

/* ---- scores ---- */

struct trial {
    struct index_args args;
    float q[MOST_HEADS * INDEX_MOST_DIM], weights[MOST_HEADS];
    float numbers[INDEX_MOST_DIM * INDEX_CALL_KEYS];           /* [dim][INDEX_CALL_KEYS] as stored */
    uint8_t arena[INDEX_CALL_GROUPS][INDEX_MOST_DIM * 64 * 4]; /* a block of each group */
};

/* Writes keys at a random place of a block for each group, among poison. */
static void store_keys(struct rng *rng, struct trial *trial)
{
    struct index_args *args = &trial->args;
    const size_t size = args->type == DTYPE_F32 ? 4 : 2;

    memset(trial->arena, 0xff, sizeof(trial->arena));
    for (uint32_t g = 0; g < args->n_groups; g++) {
        uint32_t first = check_pick(rng, 0, args->block_tokens / INDEX_GROUP_KEYS - 1) * INDEX_GROUP_KEYS;

        args->keys[g] = trial->arena[g] + first * size;
        for (uint32_t d = 0; d < args->dim; d++)
            for (uint32_t k = 0; k < INDEX_GROUP_KEYS; k++) {
                float *number = &trial->numbers[d * INDEX_CALL_KEYS + g * INDEX_GROUP_KEYS + k];
                uint8_t *to = trial->arena[g] + ((size_t)d * args->block_tokens + first + k) * size;
                uint16_t half = f32_to_f16(check_normal(rng));

                *number = f16_to_f32(half);
                if (size == 4)
                    *number = check_normal(rng);
                memcpy(to, size == 4 ? (void *)number : (void *)&half, size);
            }
    }
}

static void make_trial(struct rng *rng, struct trial *trial)
{
    trial->args = (struct index_args){.q = trial->q,
                                      .weights = trial->weights,
                                      .n_heads = check_pick(rng, 1, MOST_HEADS),
                                      .dim = check_pick(rng, 1, INDEX_MOST_DIM),
                                      .type = check_pick(rng, 0, 1) ? DTYPE_F32 : DTYPE_F16,
                                      .block_tokens = INDEX_GROUP_KEYS * check_pick(rng, 1, MOST_BLOCKS),
                                      .n_groups = check_pick(rng, 1, INDEX_CALL_GROUPS)};
    check_fill(rng, trial->q, (size_t)trial->args.n_heads * trial->args.dim);
    check_fill(rng, trial->weights, trial->args.n_heads);
    store_keys(rng, trial);
}

static float plain_score(const struct trial *trial, uint32_t key)
{
    const struct index_args *args = &trial->args;
    float score = 0;

    for (uint32_t h = 0; h < args->n_heads; h++) {
        float product = 0;

        for (uint32_t d = 0; d < args->dim; d++)
            product = fmaf(args->q[h * args->dim + d], trial->numbers[d * INDEX_CALL_KEYS + key], product);
        score = fmaf(args->weights[h], product > 0 ? product : 0, score);
    }
    return score;
}

static void scores_are_those_of_plain_loops(void **state)
{
    struct trial *trial = malloc(sizeof(*trial));
    const struct kern_table *table;
    struct rng rng;

    (void)state;
    assert_non_null(trial);
    rng_init(&rng, 71);
    for (int round = 0; round < ROUNDS; round++) {
        float wanted[INDEX_CALL_KEYS], *scores;
        uint32_t n;

        make_trial(&rng, trial);
        n = trial->args.n_groups * INDEX_GROUP_KEYS;
        for (uint32_t key = 0; key < n; key++)
            wanted[key] = plain_score(trial, key);
        for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
            scores = check_floats(n);
            index_scores(table, &trial->args, scores);
            assert_memory_equal(scores, wanted, n * sizeof(float));
            check_guard(scores, n);
            free(scores);
        }
    }
    free(trial);
}

/* ---- copies ---- */

static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0};

/* Number d of the token `at` of a head's keys in a block, by the layout that kern_kv_priv.h describes. */
static float stored_number(const struct attn_args *attn, const uint8_t *keys, uint32_t at, uint32_t d)
{
    const uint32_t per = attn->block_tokens, run = 32, runs = (attn->k_dim + run - 1) / run;
    const uint8_t *scales = keys + (size_t)per * runs * (attn->kv_type == DTYPE_Q4_0 ? run / 2 : run);
    size_t number = (size_t)d * per + at;
    uint16_t half = 0;
    float whole;

    if (attn->kv_type == DTYPE_Q8_0 || attn->kv_type == DTYPE_Q4_0) /* other types have no scales */
        memcpy(&half, scales + ((size_t)d / run * per + at) * 2, sizeof(half));
    switch ((int)attn->kv_type) {
    case DTYPE_F32:
        memcpy(&whole, keys + number * sizeof(whole), sizeof(whole));
        return whole;
    case DTYPE_F16:
        memcpy(&half, keys + number * 2, sizeof(half));
        return f16_to_f32(half);
    case DTYPE_BF16:
        memcpy(&half, keys + number * 2, sizeof(half));
        return bf16_to_f32(half);
    case DTYPE_Q8_0:
        return (float)(int8_t)keys[number] * f16_to_f32(half);
    default:
        number = ((size_t)d / run * (run / 2) + d % (run / 2)) * per + at;
        return (float)((d % run < run / 2 ? keys[number] & 15 : keys[number] >> 4) - 8) * f16_to_f32(half);
    }
}

struct copy { /* an arena with the keys of one sequence, in blocks of any order */
    struct attn_args attn;
    uint32_t blocks[MOST_BLOCKS];
    uint8_t *arena;
    size_t head_bytes;
};

static void fill_arena(struct rng *rng, const struct kern_table *table, struct copy *copy)
{
    struct attn_args *attn = &copy->attn;
    uint32_t n = MOST_BLOCKS * attn->block_tokens, width = attn->n_kv_heads * attn->k_dim;
    float *rows = check_floats((size_t)n * width);

    copy->head_bytes = attn->block_tokens * kv_row_bytes(attn->kv_type, attn->k_dim);
    attn->block_bytes = attn->n_kv_heads * copy->head_bytes;
    copy->arena = check_poisoned(MOST_BLOCKS * attn->block_bytes + 64);
    attn->kv_layer = copy->arena;
    for (uint32_t i = 0; i < MOST_BLOCKS; i++)
        copy->blocks[i] = (i * 3 + 1) % MOST_BLOCKS;
    check_fill(rng, rows, (size_t)n * width);
    kv_store(&(struct kv_store_args){.table = table,
                                     .kv_layer = copy->arena,
                                     .block_bytes = attn->block_bytes,
                                     .kv_type = attn->kv_type,
                                     .v_in_k = true,
                                     .n_kv_heads = attn->n_kv_heads,
                                     .k_dim = attn->k_dim,
                                     .v_dim = attn->v_dim,
                                     .block_tokens = attn->block_tokens,
                                     .blocks = copy->blocks,
                                     .n = n,
                                     .k = rows,
                                     .k_stride = width});
    free(rows);
}

static void check_copy(struct rng *rng, const struct kern_table *table, const struct copy *copy)
{
    const struct attn_args *attn = &copy->attn;
    struct kv_gather_args args = {.attn = attn,
                                  .blocks = copy->blocks,
                                  .n = check_pick(rng, 1, INDEX_GROUP_KEYS),
                                  .kv_head = check_pick(rng, 0, attn->n_kv_heads - 1),
                                  .out_stride = INDEX_GROUP_KEYS * check_pick(rng, 1, 3)};
    size_t len = (attn->k_dim - 1) * args.out_stride + INDEX_GROUP_KEYS;

    for (uint32_t k = 0; k < args.n; k++)
        args.positions[k] = check_pick(rng, 0, MOST_BLOCKS * attn->block_tokens - 1);
    args.out = check_floats(len);
    kv_gather(table, &args);
    for (uint32_t k = 0; k < INDEX_GROUP_KEYS; k++) {
        uint32_t position = args.positions[k < args.n ? k : args.n - 1], per = attn->block_tokens;
        const uint8_t *keys =
            copy->arena + copy->blocks[position / per] * attn->block_bytes + args.kv_head * copy->head_bytes;

        for (uint32_t d = 0; d < attn->k_dim; d++) {
            float wanted = stored_number(attn, keys, position % per, d);

            assert_memory_equal(&args.out[d * args.out_stride + k], &wanted, sizeof(wanted));
        }
    }
    check_guard(args.out, len);
    free(args.out);
}

static void copies_are_the_stored_numbers(void **state)
{
    const struct kern_table *table;
    struct rng rng;

    (void)state;
    rng_init(&rng, 72);
    for (int round = 0; round < ROUNDS; round++)
        for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
            uint32_t width = 2 * check_pick(&rng, 1, MOST_WIDTH / 2);
            struct copy copy = {.attn = {.kv_type = types[round % 5],
                                         .v_in_k = true,
                                         .n_kv_heads = check_pick(&rng, 1, 2),
                                         .k_dim = width,
                                         .v_dim = width,
                                         .block_tokens = INDEX_GROUP_KEYS * check_pick(&rng, 1, 4)}};

            fill_arena(&rng, table, &copy);
            check_copy(&rng, table, &copy);
            free(copy.arena);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_those_of_plain_loops),
        cmocka_unit_test(copies_are_the_stored_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
