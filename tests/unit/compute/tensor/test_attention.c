/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over paged KV: near a float64 reference, independent of keys after a query, and the same bits for
 * every chunking, all batch neighbours, every split of the keys, table and team. */
#include "check.h"

struct shape {
    uint32_t n_heads, n_kv_heads, k_dim, v_dim, block_tokens;
    enum dtype type;
    uint32_t window;
    bool v_in_k, has_sinks;
    float cap;
};

/* One sequence: its q, k, v for all tokens, and its own paged arena in shuffled blocks. */
struct sequence {
    struct shape shape;
    uint32_t n_tokens;
    float *q, *k, *v, *sinks;
    float *held_k, *held_v; /* as the arena's type stores them */
    void *arena;
    size_t block_bytes;
    uint32_t *blocks;
};

static float through_f16(float x)
{
    return f16_to_f32(f32_to_f16(x));
}

/* Quantises a run of a row and expands it again: the scale is an F16, quants are rounded to even. */
static void quantise(enum dtype type, float *x, uint32_t n)
{
    float top = 0, scale;

    for (uint32_t i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(top) || (fabsf(x[i]) == fabsf(top) && x[i] < 0))
            top = x[i];
    scale = through_f16(type == DTYPE_Q8_0 ? fabsf(top) / 127 : top / -8);
    for (uint32_t i = 0; i < n; i++) {
        float q = scale == 0 ? 0 : rintf(x[i] * (1 / scale));

        x[i] = scale * (type == DTYPE_Q8_0 ? fminf(fmaxf(q, -127), 127) : fminf(fmaxf(q, -8), 7));
    }
}

/* Rounds a row as the arena stores it. */
static void round_row(enum dtype type, float *x, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++) {
        if (type == DTYPE_F16)
            x[i] = through_f16(x[i]);
        else if (type == DTYPE_BF16)
            x[i] = bf16_to_f32(f32_to_bf16(x[i]));
        else if (type != DTYPE_F32 && i % 32 == 0)
            quantise(type, x + i, dim - i < 32 ? dim - i : 32);
    }
}

static float *make_rows(struct rng *rng, enum dtype type, size_t n_rows, uint32_t dim, float **rounded_out)
{
    float *rows = check_floats(n_rows * dim), *rounded = check_floats(n_rows * dim);

    check_fill(rng, rows, n_rows * dim);
    memcpy(rounded, rows, n_rows * dim * sizeof(float));
    for (size_t i = 0; i < n_rows; i++)
        round_row(type, rounded + i * dim, dim);
    *rounded_out = rounded;
    return rows;
}

static struct sequence make_sequence(struct rng *rng, struct shape shape, uint32_t n_tokens)
{
    struct sequence seq = {.shape = shape, .n_tokens = n_tokens};
    uint32_t n_blocks = (n_tokens + shape.block_tokens - 1) / shape.block_tokens;
    size_t n_rows = (size_t)n_tokens * shape.n_kv_heads, n_q = (size_t)n_tokens * shape.n_heads * shape.k_dim;

    seq.block_bytes =
        shape.n_kv_heads * shape.block_tokens *
        (kv_row_bytes(shape.type, shape.k_dim) + (shape.v_in_k ? 0 : kv_row_bytes(shape.type, shape.v_dim)));
    seq.q = check_floats(n_q);
    check_fill(rng, seq.q, n_q);
    seq.k = make_rows(rng, shape.type, n_rows, shape.k_dim, &seq.held_k);
    seq.v = make_rows(rng, shape.type, n_rows, shape.v_dim, &seq.held_v);
    for (size_t row = 0; shape.v_in_k && row < n_rows; row++)
        memcpy(seq.held_v + row * shape.v_dim, seq.held_k + row * shape.k_dim, shape.v_dim * sizeof(float));
    seq.sinks = check_floats(shape.n_heads);
    check_fill(rng, seq.sinks, shape.n_heads);
    seq.arena = check_poisoned(seq.block_bytes * (n_blocks + 1));
    seq.blocks = malloc(n_blocks * sizeof(uint32_t));
    assert_non_null(seq.blocks);
    for (uint32_t i = 0; i < n_blocks; i++) {
        uint32_t j = (uint32_t)rng_below(rng, i + 1);

        seq.blocks[i] = seq.blocks[j];
        seq.blocks[j] = i;
    }
    return seq;
}

static void free_sequence(struct sequence *seq)
{
    free(seq->q);
    free(seq->k);
    free(seq->v);
    free(seq->held_k);
    free(seq->held_v);
    free(seq->sinks);
    free(seq->arena);
    free(seq->blocks);
}

/* Floats of a token; a gap of 3 follows each row of out. */
static size_t q_row(const struct shape *shape)
{
    return (size_t)shape->n_heads * shape->k_dim;
}

static size_t out_row(const struct shape *shape)
{
    return (size_t)shape->n_heads * shape->v_dim + 3;
}

static void store(const struct kern_table *table, const struct sequence *seq, uint32_t position, uint32_t n)
{
    size_t k_row = (size_t)seq->shape.n_kv_heads * seq->shape.k_dim;
    size_t v_row = (size_t)seq->shape.n_kv_heads * seq->shape.v_dim;

    kv_store(&(struct kv_store_args){.table = table,
                                     .kv_layer = seq->arena,
                                     .block_bytes = seq->block_bytes,
                                     .kv_type = seq->shape.type,
                                     .v_in_k = seq->shape.v_in_k,
                                     .n_kv_heads = seq->shape.n_kv_heads,
                                     .k_dim = seq->shape.k_dim,
                                     .v_dim = seq->shape.v_dim,
                                     .block_tokens = seq->shape.block_tokens,
                                     .blocks = seq->blocks,
                                     .position = position,
                                     .n = n,
                                     .k = seq->k + position * k_row,
                                     .v = seq->shape.v_in_k ? NULL : seq->v + position * v_row,
                                     .k_stride = k_row,
                                     .v_stride = v_row});
}

struct queries { /* item i's are the rows of q from `first` on */
    const float *q;
    struct attn_item *items;
    uint32_t n_items;
    bool has_room_for_parts;
};

/* Runs items over one arena. */
static void attend(struct team *team, const struct kern_table *table, const struct sequence *seq,
                   const struct queries *queries, float *out)
{
    struct shape shape = seq->shape;
    uint32_t n_tokens = 0;

    for (uint32_t i = 0; i < queries->n_items; i++)
        n_tokens += queries->items[i].n_tokens;
    size_t scratch_bytes = attn_scratch_bytes(
        &(struct attn_sizes){.max_tokens = n_tokens > queries->n_items ? n_tokens : queries->n_items,
                             .max_context = queries->has_room_for_parts ? seq->n_tokens : 0,
                             .n_heads = shape.n_heads,
                             .k_dim = shape.k_dim,
                             .v_dim = shape.v_dim,
                             .n_ranks = team_size(team)});
    void *scratch = check_poisoned(scratch_bytes);
    attention(team, &(struct attn_args){.table = table,
                                        .q = queries->q,
                                        .q_stride = q_row(&shape),
                                        .out = out,
                                        .out_stride = out_row(&shape),
                                        .kv_layer = seq->arena,
                                        .block_bytes = seq->block_bytes,
                                        .kv_type = shape.type,
                                        .v_in_k = shape.v_in_k,
                                        .n_heads = shape.n_heads,
                                        .n_kv_heads = shape.n_kv_heads,
                                        .k_dim = shape.k_dim,
                                        .v_dim = shape.v_dim,
                                        .block_tokens = shape.block_tokens,
                                        .window = shape.window,
                                        .sinks = shape.has_sinks ? seq->sinks : NULL,
                                        .scale = 1.0f / sqrtf((float)shape.k_dim),
                                        .cap = shape.cap,
                                        .items = queries->items,
                                        .n_items = queries->n_items,
                                        .scratch = scratch,
                                        .scratch_bytes = scratch_bytes});
    free(scratch);
}

static size_t out_floats(const struct sequence *seq)
{
    return seq->n_tokens * out_row(&seq->shape);
}

/* Computes the whole sequence in chunks.
 * Each chunk's KV is stored right before its attention; the rest is poison. */
static float *run_chunks(struct team *team, const struct kern_table *table, const struct sequence *seq,
                         struct rng *rng, uint32_t max_chunk)
{
    float *out = check_floats(out_floats(seq));

    memset(seq->arena, 0xff,
           seq->block_bytes * ((seq->n_tokens + seq->shape.block_tokens - 1) / seq->shape.block_tokens));
    for (uint32_t at = 0; at < seq->n_tokens;) {
        uint32_t n = rng == NULL ? max_chunk : check_pick(rng, 1, max_chunk);
        struct attn_item item = {.n_tokens = n < seq->n_tokens - at ? n : seq->n_tokens - at,
                                 .position = at,
                                 .blocks = seq->blocks};

        store(table, seq, at, item.n_tokens);
        attend(team, table, seq, &(struct queries){seq->q + at * q_row(&seq->shape), &item, 1, true},
               out + at * out_row(&seq->shape));
        at += item.n_tokens;
    }
    check_guard(out, out_floats(seq));
    return out;
}

static double reference(const struct sequence *seq, uint32_t token, uint32_t head, uint32_t d)
{
    struct shape shape = seq->shape;
    uint32_t kv_head = head / (shape.n_heads / shape.n_kv_heads);
    uint32_t first = shape.window != 0 && token >= shape.window ? token - shape.window + 1 : 0;
    const float *q = seq->q + ((size_t)token * shape.n_heads + head) * shape.k_dim;
    double top = shape.has_sinks ? seq->sinks[head] : -INFINITY, sum = 0, out = 0;

    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && shape.has_sinks)
            sum = exp(seq->sinks[head] - top);
        for (uint32_t key = first; key <= token; key++) {
            size_t at = (size_t)key * shape.n_kv_heads + kv_head;
            double score = 0;

            for (uint32_t i = 0; i < shape.k_dim; i++)
                score += (double)q[i] * seq->held_k[at * shape.k_dim + i];
            score /= sqrt(shape.k_dim);
            if (shape.cap != 0)
                score = shape.cap * tanh(score / shape.cap);
            if (pass == 0) {
                top = fmax(top, score);
                continue;
            }
            sum += exp(score - top);
            out += exp(score - top) * seq->held_v[at * shape.v_dim + d];
        }
    }
    return out / sum;
}

#ifdef CHECK_EMULATED
/* Under emulation of another processor, half of the length is enough: the keys still make two splits.  Tables after the second
 * have its attention. */
enum { LONG = 560, LESS_LONG = 150, LONGER = 600, MORE_TOKENS = 30, N_SAMPLES = 40 };
enum { CHUNKINGS_A_SHAPE = 1, SHAPE_STEP = 4, N_CROWDS = 2, N_TABLES = 2 };
#else
enum { LONG = 1200, LESS_LONG = 1000, LONGER = 1300, MORE_TOKENS = 90, N_SAMPLES = 200 };
enum { CHUNKINGS_A_SHAPE = 4, SHAPE_STEP = 1, N_CROWDS = 5, N_TABLES = 100 };
#endif

static void compare_with_float64(const struct sequence *seq, const float *out, struct rng *rng)
{
    for (int i = 0; i < N_SAMPLES; i++) {
        uint32_t token = i == 0 ? seq->n_tokens - 1 : (uint32_t)rng_below(rng, seq->n_tokens);
        uint32_t head = (uint32_t)rng_below(rng, seq->shape.n_heads);
        uint32_t d = i == 1 ? seq->shape.v_dim - 1 : (uint32_t)rng_below(rng, seq->shape.v_dim);
        double got = out[token * out_row(&seq->shape) + head * seq->shape.v_dim + d];

        assert_true(fabs(got - reference(seq, token, head, d)) < 4e-6);
    }
}

/* Heads, KV heads, widths, block; type; window, values in keys, sinks, cap. */
static const struct shape shapes[] = {
    {1, 1, 32, 32, 16, DTYPE_F32, 0, false, false, 0},
    {4, 2, 64, 64, 32, DTYPE_F16, 0, false, false, 0},
    {6, 2, 80, 80, 16, DTYPE_F16, 0, false, false, 0},
    {4, 1, 96, 96, 32, DTYPE_F32, 0, false, true, 0},
    {2, 2, 128, 128, 32, DTYPE_F16, 0, false, false, 0},
    {8, 2, 8, 8, 32, DTYPE_BF16, 0, false, false, 0},
    {3, 3, 8, 8, 16, DTYPE_F32, 5, false, false, 0},
    {16, 4, 24, 24, 48, DTYPE_F32, 0, false, false, 0},
    {5, 1, 16, 16, 128, DTYPE_F16, 0, false, false, 0},
    {4, 2, 64, 64, 32, DTYPE_Q8_0, 0, false, false, 0},
    {7, 1, 64, 64, 16, DTYPE_Q4_0, 100, false, true, 0},
    {4, 4, 72, 40, 48, DTYPE_Q8_0, 64, false, false, 0},
    {2, 1, 24, 56, 32, DTYPE_Q4_0, 0, false, false, 0},
    {16, 1, 96, 64, 32, DTYPE_F16, 0, true, false, 0},
    {130, 1, 72, 40, 32, DTYPE_F32, 30, true, true, 0},
    {10, 1, 160, 96, 16, DTYPE_Q8_0, 0, true, false, 0},
    {12, 1, 64, 64, 64, DTYPE_Q4_0, 17, true, false, 0},
    {4, 2, 192, 128, 32, DTYPE_BF16, 129, false, true, 0},
    {4, 1, 576, 512, 32, DTYPE_F16, 0, true, false, 0},
    {2, 1, 256, 256, 32, DTYPE_BF16, 1, false, true, 0},
    {16, 2, 64, 80, 32, DTYPE_F16, 0, false, false, 0},
    {7, 1, 40, 128, 32, DTYPE_Q8_0, 0, false, false, 0},
    {16, 1, 56, 48, 16, DTYPE_Q4_0, 0, false, true, 0},
    {11, 1, 64, 32, 32, DTYPE_BF16, 70, false, false, 0},
    {16, 1, 40, 40, 32, DTYPE_F16, 0, true, false, 0},
    {9, 1, 32, 16, 64, DTYPE_F32, 0, false, false, 0},
    {13, 1, 40, 32, 32, DTYPE_Q4_0, 0, true, false, 0},
    {12, 4, 64, 96, 32, DTYPE_Q4_0, 0, false, false, 0},
    {8, 4, 48, 48, 32, DTYPE_F16, 0, false, false, 0.7f},
    {4, 1, 24, 24, 32, DTYPE_F32, 40, false, false, 1.5f},
    {16, 1, 64, 64, 32, DTYPE_Q8_0, 0, true, false, 0.3f},
    {7, 1, 32, 32, 16, DTYPE_BF16, 90, false, true, 2},
};
enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static void is_near_float64(void **state)
{
    struct rng rng;

    rng_init(&rng, 11);
    for (int i = 0; i < N_SHAPES; i++) {
        struct sequence seq = make_sequence(&rng, shapes[i], 70 + MORE_TOKENS * (uint32_t)(i % 3));
        float *out = run_chunks(*state, kern_table_get("auto"), &seq, NULL, seq.n_tokens);

        compare_with_float64(&seq, out, &rng);
        free(out);
        free_sequence(&seq);
    }
}

static void tables_agree(void **state)
{
    struct rng rng;

    rng_init(&rng, 12);
    for (int i = 0; i < N_SHAPES; i++) {
        struct sequence seq = make_sequence(&rng, shapes[i], 75);
        const struct kern_table *table;
        float *first = NULL;

        for (uint32_t j = 0; j < N_TABLES && (table = kern_table_at(j)) != NULL; j++) {
            float *out = run_chunks(*state, table, &seq, NULL, 50);

            if (first == NULL)
                first = out;
            else
                assert_memory_equal(out, first, out_floats(&seq) * sizeof(float));
            if (out != first)
                free(out);
        }
        free(first);
        free_sequence(&seq);
    }
}

/* Whole, token by token, in sevens, at random;
 * with teams of 1 to 4; across several splits; with either prefetch. */
static void chunking_does_not_matter(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 13);
    for (int i = SHAPE_STEP / 2; i < N_SHAPES; i += SHAPE_STEP) {
        static const uint32_t chunks[] = {1, 7, 64, 300};
        struct sequence seq = make_sequence(&rng, shapes[i],
                                            i == 1 || i == 10   ? LONG
                                            : i == 7 || i == 14 ? LESS_LONG
                                                                : 150);
        struct team *alone = check_team(1);
        float *whole = run_chunks(alone, kern_table_get("auto"), &seq, NULL, seq.n_tokens);

        for (unsigned run = 0; run < CHUNKINGS_A_SHAPE; run++) {
            const unsigned j = ((unsigned)i / SHAPE_STEP + run) % 4;
            struct team *team = j < 2 ? check_team(j + 1) : check_nodes(j + 1, j == 2);
            kern_choice_set(&(struct kern_choice){.at[KERN_KEYS] = j % 2 == 0 ? CACHE_SECOND : CACHE_FIRST});
            float *out = run_chunks(team, kern_table_get("auto"), &seq, j == 3 ? &rng : NULL, chunks[j]);

            check_choice_end();
            assert_memory_equal(out, whole, out_floats(&seq) * sizeof(float));
            free(out);
            team_free(team);
        }
        free(whole);
        free_sequence(&seq);
        team_free(alone);
    }
}

/* Many items at once, some with split keys, some without room for splits: each as if alone. */
static void neighbours_do_not_matter(void **state)
{
    struct rng rng;

    rng_init(&rng, 14);
    for (int i = 0; i < N_CROWDS; i++) {
        static const int which[] = {1, 10, 3, 2, 16};
        const struct kern_table *table = kern_table_get("auto");
        struct sequence seq = make_sequence(&rng, shapes[which[i]], LONGER);
        size_t row = q_row(&seq.shape), o_row = out_row(&seq.shape);
        float *whole = run_chunks(*state, table, &seq, NULL, seq.n_tokens);
        struct attn_item items[20];
        uint32_t n = 0;
        float *q = check_floats(20 * 60 * row), *out = check_floats(20 * 60 * o_row);

        for (int j = 0; j < 20; j++) {
            uint32_t n_tokens = j % 5 == 0 ? check_pick(&rng, 5, 60) : check_pick(&rng, 0, 3);

            items[j] = (struct attn_item){.first = n, .n_tokens = n_tokens, .blocks = seq.blocks};
            items[j].position = (uint32_t)rng_below(&rng, seq.n_tokens - n_tokens);
            memcpy(q + n * row, seq.q + items[j].position * row, n_tokens * row * sizeof(float));
            n += n_tokens;
        }
        for (int has_room = 0; has_room < 2; has_room++) {
            attend(*state, table, &seq, &(struct queries){q, items, 20, has_room}, out);
            for (int j = 0; j < 20; j++)
                for (uint32_t t = 0; t < items[j].n_tokens; t++)
                    assert_memory_equal(out + (items[j].first + t) * o_row,
                                        whole + (items[j].position + t) * o_row, (o_row - 3) * sizeof(float));
        }
        free(q);
        free(out);
        free(whole);
        free_sequence(&seq);
    }
}

/* Scores that would overflow a plain exponential, and rows in which one key takes all weight. */
static void extreme_scores_are_fine(void **state)
{
    struct rng rng;
    struct shape shape = {2, 1, 32, 32, 16, DTYPE_F32, 0, false, false, 0};

    rng_init(&rng, 15);
    struct sequence seq = make_sequence(&rng, shape, 60);
    for (uint32_t i = 0; i < 60 * 32; i++)
        seq.k[i] = seq.held_k[i] *= 300;
    float *out = run_chunks(*state, kern_table_get("auto"), &seq, NULL, 60);
    for (uint32_t token = 0; token < 60; token++)
        for (uint32_t d = 0; d < 32; d++) {
            double got = out[token * out_row(&shape) + d];

            /* The rounding of such large scores is visible: 2^-24 of about 5000. */
            assert_true(fabs(got - reference(&seq, token, 0, d)) < 5e-3);
        }
    free(out);
    free_sequence(&seq);
}

/* No items, and items without queries. */
static void nothing_to_do_is_fine(void **state)
{
    struct rng rng;

    rng_init(&rng, 16);
    struct sequence seq = make_sequence(&rng, shapes[1], 40);
    struct attn_item items[3] = {{.blocks = seq.blocks},
                                 {.n_tokens = 1, .position = 3, .blocks = seq.blocks},
                                 {.first = 1, .blocks = seq.blocks}};
    float *out = check_floats(out_row(&seq.shape));
    store(kern_table_get("auto"), &seq, 0, 40);
    attend(*state, kern_table_get("auto"), &seq, &(struct queries){seq.q, items, 0, true}, out);
    check_guard(out, 0); /* untouched so far */
    attend(*state, kern_table_get("auto"), &seq,
           &(struct queries){seq.q + 3 * q_row(&seq.shape), items, 3, true}, out);
    assert_true(fabs(out[0] - reference(&seq, 3, 0, 0)) < 4e-6);
    check_guard(out, out_row(&seq.shape) - 3);
    free(out);
    free_sequence(&seq);
}

/* The layout in the arena is a contract between workers. */
static void layout_is_as_written(void **state)
{
    struct shape shape = {4, 2, 24, 24, 16, DTYPE_F16, 0, false, false, 0};
    struct rng rng;

    (void)state;
    rng_init(&rng, 17);
    struct sequence seq = make_sequence(&rng, shape, 40);
    const struct kern_table *table;
    for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++) {
        memset(seq.arena, 0xff, 3 * seq.block_bytes);
        store(table, &seq, 0, 17);
        store(table, &seq, 17, 23);
        for (uint32_t token = 0; token < 48; token++)
            for (uint32_t head = 0; head < 2; head++)
                for (uint32_t d = 0; d < 24; d++) {
                    const uint16_t *block =
                        (const uint16_t *)((char *)seq.arena + seq.blocks[token / 16] * seq.block_bytes);
                    uint16_t k = block[(head * 24 + d) * 16 + token % 16];
                    uint16_t v = block[2 * 24 * 16 + (head * 16 + token % 16) * 24 + d];
                    size_t at = (token * 2 + head) * 24 + d;

                    assert_int_equal(k, token < 40 ? f32_to_f16(seq.k[at]) : 0xffff);
                    assert_int_equal(v, token < 40 ? f32_to_f16(seq.v[at]) : 0xffff);
                }
    }
    free_sequence(&seq);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_near_float64),          cmocka_unit_test(tables_agree),
        cmocka_unit_test(chunking_does_not_matter), cmocka_unit_test(neighbours_do_not_matter),
        cmocka_unit_test(extreme_scores_are_fine),  cmocka_unit_test(nothing_to_do_is_fine),
        cmocka_unit_test(layout_is_as_written),
    };

    return cmocka_run_group_tests(tests, check_team_open, check_team_close);
}
