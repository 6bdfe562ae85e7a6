/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' speed against the machine's limits, for the matrices of a 1.1B llama model (hidden 2048, ffn
 * 8192, 32 heads, 8 KV heads, head_dim 64, vocabulary 32000).  A tool for developers, not a test:
 *
 *     bench_tensor [--table NAME] [--threads N] [--type T] [--n N] [--attention] [--dots] [--tiles]
 *                  [--ms N]
 *
 * For each type and number of tokens: one layer's matrices (QKV, output, gate and up, down).  The weights are
 * not in the cache where the figure is about memory.  The limits are those of the same run, since the machine
 * may be shared. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "compute/tensor/tensor.h"
#include "tests/bench/bench_help.h"
#include "tests/bench/bench_tune.h"
#include "tests/bench/bench_weights.h"

enum {
    HIDDEN = 2048,
    FFN = 8192,
    HEADS = 32,
    KV_HEADS = 8,
    HEAD_DIM = 64,
    VOCAB = 32000,
    MAX_N = 512,
    MAX_RUNS = 1000
};

struct matrix {
    const char *name;
    uint32_t rows, cols;
};
static const struct matrix matrices[] = {
    {"qkv", HIDDEN + 2 * KV_HEADS *HEAD_DIM, HIDDEN},
    {"out", HIDDEN, HIDDEN},
    {"gate+up", 2 * FFN, HIDDEN},
    {"down", HIDDEN, FFN},
    {"head", VOCAB, HIDDEN},
};
enum { N_MATRICES = sizeof(matrices) / sizeof(matrices[0]) };

struct bench {
    struct team *team;
    const struct kern_table *table;
    struct tensor_limits limits;
    uint64_t budget_ns;  /* per figure */
    enum bf16_math math; /* of F16 and BF16 */
    float *x, *y;
    void *scratch;
};

/* Several copies of a matrix, together larger than a cache, multiplied one after another. */
struct copies {
    struct weight *weights;
    uint32_t n;
};

static struct copies pack_copies(const struct bench *bench, enum dtype type, const struct matrix *matrix)
{
    void *data = bench_weights(type, (size_t)matrix->rows * matrix->cols);
    struct weight_part part = {data, matrix->rows};
    struct weight_packing packing = {.table = bench->table,
                                     .form = bench->math == BF16_TILES  ? WEIGHT_TILES
                                             : bench->math == BF16_DOTS ? WEIGHT_DOTS
                                                                        : WEIGHT_AS_STORED,
                                     .type = type,
                                     .parts = &part,
                                     .n_parts = 1,
                                     .cols = matrix->cols,
                                     .team = bench->team};
    struct copies copies = {.n = 1};

    copies.weights = bench_need(calloc(64, sizeof(*copies.weights)));
    for (uint32_t i = 0; i < copies.n; i++) {
        if (weight_pack(&packing, &copies.weights[i]) != 0)
            bench_need(NULL);
        copies.n = (uint32_t)(((size_t)768 << 20) / copies.weights[0].len_bytes + 1);
        copies.n = copies.n > 64 ? 64 : copies.n;
    }
    free(data);
    return copies;
}

/* Median seconds of one product; the copies take turns. */
static double time_matmul(const struct bench *bench, const struct copies *copies, uint32_t n)
{
    double seconds[MAX_RUNS];
    uint64_t begin_ns = clock_now_ns();
    uint32_t runs = 0;

    while (runs < MAX_RUNS && (runs < 3 || clock_now_ns() - begin_ns < bench->budget_ns)) {
        const struct weight *weight = &copies->weights[runs % copies->n];
        uint64_t start_ns = clock_now_ns();

        matmul(bench->team, &(struct matmul_args){.weight = weight,
                                                  .x = bench->x,
                                                  .x_stride = weight->cols,
                                                  .n = n,
                                                  .y = bench->y,
                                                  .y_stride = weight->rows,
                                                  .scratch = bench->scratch});
        seconds[runs++] = (double)(clock_now_ns() - start_ns) / 1e9;
    }
    return bench_median(seconds, runs);
}

static void bench_type(const struct bench *bench, enum dtype type, int only_n)
{
    static const uint32_t token_counts[] = {1, 2, 4, 8, 16, 32, 128, 512};
    double tops = tensor_is_narrow(bench->table, type) ? bench->limits.narrow_tops : bench->limits.int8_tops;
    double peak = dtype_info(type)->qblk_weights > 1 && tops > 0 ? tops : bench->limits.fp32_tflops;
    if (bench->math == BF16_TILES && bench->limits.tiles_tflops > 0)
        peak = bench->limits.tiles_tflops;
    if (bench->math == BF16_DOTS && bench->limits.bf16_tflops > 0)
        peak = bench->limits.bf16_tflops;
    double total_s[8] = {0}, total_ops[8] = {0}, total_bytes = 0;

    printf("\n%-5s %-8s", dtype_info(type)->name, "");
    for (int i = 0; i < 8; i++)
        printf("   n=%-4u GB/s GF/s", token_counts[i]);
    printf("\n");
    for (int m = 0; m < N_MATRICES; m++) {
        const struct matrix *matrix = &matrices[m];
        struct copies copies = pack_copies(bench, type, matrix);

        printf("      %-8s", matrix->name);
        for (int i = 0; i < 8; i++) {
            if (only_n > 0 && token_counts[i] != (uint32_t)only_n)
                continue;
            double s = time_matmul(bench, &copies, token_counts[i]);
            double ops = 2.0 * matrix->rows * matrix->cols * token_counts[i];

            printf("  %11.1f %7.0f", (double)copies.weights[0].len_bytes / s / 1e9, ops / s / 1e9);
            fflush(stdout);
            total_s[i] += s;
            total_ops[i] += ops;
        }
        total_bytes += (double)copies.weights[0].len_bytes;
        printf("\n");
        for (uint32_t i = 0; i < copies.n; i++)
            weight_fini(&copies.weights[i]);
        free(copies.weights);
    }
    printf("      %-8s", "of limit");
    for (int i = 0; i < 8; i++)
        if (total_s[i] > 0)
            printf("  %10.0f%% %6.0f%%", 100 * total_bytes / total_s[i] / 1e9 / bench->limits.read_gbs,
                   100 * total_ops[i] / total_s[i] / 1e12 / peak);
    printf("\n");
}

static uint16_t *random_halves(size_t n)
{
    uint16_t *halves = bench_need(malloc(n * sizeof(*halves)));

    for (size_t i = 0; i < n; i++)
        halves[i] = (uint16_t)(0x3000 | (i * 7919 & 0x83ff));
    return halves;
}

/* Attention of one layer: a prompt of n queries, or one query per sequence, at the end of a context. */
static void bench_attention(const struct bench *bench, uint32_t n_items, uint32_t n_tokens, uint32_t context)
{
    enum { BLOCK = 32 };
    uint32_t n_blocks = (context + BLOCK - 1) / BLOCK;
    size_t block_bytes = (size_t)2 * KV_HEADS * BLOCK * HEAD_DIM * 2;
    size_t scratch_bytes = attn_scratch_bytes(
        &(struct attn_sizes){n_items * n_tokens, context, HEADS, HEAD_DIM, HEAD_DIM, team_size(bench->team)});
    uint16_t *arena = random_halves(block_bytes / 2 * n_blocks * n_items);
    uint32_t *blocks = bench_need(malloc(n_blocks * n_items * sizeof(*blocks)));
    struct attn_item *items = bench_need(calloc(n_items, sizeof(*items)));
    void *scratch = bench_need(mem_aligned(64, scratch_bytes));
    double seconds[MAX_RUNS];
    uint32_t runs = 0;

    for (uint32_t i = 0; i < n_items; i++) {
        for (uint32_t b = 0; b < n_blocks; b++)
            blocks[i * n_blocks + b] = b * n_items + i;
        items[i] = (struct attn_item){.first = i * n_tokens,
                                      .n_tokens = n_tokens,
                                      .position = context - n_tokens,
                                      .blocks = blocks + i * n_blocks};
    }
    struct attn_args args = {.table = bench->table,
                             .q = bench->x,
                             .q_stride = HEADS * HEAD_DIM,
                             .out = bench->y,
                             .out_stride = HEADS * HEAD_DIM,
                             .kv_layer = arena,
                             .block_bytes = block_bytes,
                             .kv_type = DTYPE_F16,
                             .n_heads = HEADS,
                             .n_kv_heads = KV_HEADS,
                             .k_dim = HEAD_DIM,
                             .v_dim = HEAD_DIM,
                             .block_tokens = BLOCK,
                             .scale = 0.125f,
                             .items = items,
                             .n_items = n_items,
                             .scratch = scratch,
                             .scratch_bytes = scratch_bytes};
    for (uint64_t begin_ns = clock_now_ns();
         runs < MAX_RUNS && (runs < 3 || clock_now_ns() - begin_ns < bench->budget_ns);) {
        uint64_t start_ns = clock_now_ns();

        attention(bench->team, &args);
        seconds[runs++] = (double)(clock_now_ns() - start_ns) / 1e9;
    }
    double s = bench_median(seconds, runs);
    double keys = n_items * n_tokens * (context - n_tokens + (n_tokens + 1) / 2.0);
    double gflops = 4.0 * HEADS * HEAD_DIM * keys / s / 1e9,
           gbs = (double)block_bytes * n_blocks * n_items / s / 1e9;

    printf("attention %3u x %4u queries, context %5u: %9.1f us  %6.0f GF/s (%.0f%%)  %5.1f GB/s (%.0f%%)\n",
           n_items, n_tokens, context, s * 1e6, gflops, gflops / 10 / bench->limits.fp32_tflops, gbs,
           100 * gbs / bench->limits.read_gbs);
    free(scratch);
    free(items);
    free(blocks);
    free(arena);
}

/* The operations on rows, for one token of a layer. */
static void bench_rows(const struct bench *bench)
{
    enum { ROUNDS = 2000 };
    uint64_t start_ns = clock_now_ns();

    for (int i = 0; i < ROUNDS; i++)
        rms_norm(bench->table, bench->x, bench->x + HIDDEN, HIDDEN, 1e-5f, bench->y);
    uint64_t norm_ns = clock_now_ns();
    for (int i = 0; i < ROUNDS; i++) {
        memcpy(bench->y, bench->x, FFN * sizeof(float)); /* otherwise the values would shrink to denormals */
        swiglu(bench->table, bench->y, bench->x + FFN, FFN);
    }
    uint64_t swiglu_ns = clock_now_ns();
    for (int i = 0; i < ROUNDS; i++)
        rope_rotate(bench->table, &(struct rope_args){.pairs = ROPE_ADJACENT,
                                                      .x = bench->y,
                                                      .n_heads = HEADS,
                                                      .head_dim = HEAD_DIM,
                                                      .dims = HEAD_DIM,
                                                      .cos = bench->x,
                                                      .sin = bench->x + 32});
    uint64_t rope_ns = clock_now_ns();
    printf("one token: rms_norm %.2f us, swiglu %.2f us, rope %.2f us\n",
           (double)(norm_ns - start_ns) / ROUNDS / 1e3, (double)(swiglu_ns - norm_ns) / ROUNDS / 1e3,
           (double)(rope_ns - swiglu_ns) / ROUNDS / 1e3);
}

struct wishes {
    unsigned n_threads; /* 0: all */
    int only_type;      /* -1: every type */
    int only_n;         /* 0: every number of tokens */
    bool is_attention_only;
};

static bool read_options(int argc, char **argv, struct bench *bench, struct wishes *wishes)
{
    static const struct option options[] = {
        {"table", 1, NULL, 't'}, {"threads", 1, NULL, 'j'},   {"type", 1, NULL, 'w'},
        {"n", 1, NULL, 'n'},     {"attention", 0, NULL, 'a'}, {"dots", 0, NULL, 'd'},
        {"tiles", 0, NULL, 'b'}, {"ms", 1, NULL, 'm'},        {NULL, 0, NULL, 0}};
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 't')
            bench->table = kern_table_get(optarg);
        else if (option == 'j')
            wishes->n_threads = (unsigned)atoi(optarg);
        else if (option == 'w')
            wishes->only_type = dtype_from_name(optarg);
        else if (option == 'n')
            wishes->only_n = atoi(optarg);
        else if (option == 'a')
            wishes->is_attention_only = true;
        else if (option == 'd')
            bench->math = BF16_DOTS;
        else if (option == 'b')
            bench->math = BF16_TILES;
        else if (option == 'm')
            bench->budget_ns = (uint64_t)atoi(optarg) * NS_PER_MS;
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    static const enum dtype types[] = {
        DTYPE_F32,    DTYPE_F16,   DTYPE_BF16,  DTYPE_Q8_0,    DTYPE_Q4_0,   DTYPE_Q4_1,  DTYPE_Q5_0,
        DTYPE_Q5_1,   DTYPE_Q2_K,  DTYPE_Q3_K,  DTYPE_Q4_K,    DTYPE_Q5_K,   DTYPE_Q6_K,  DTYPE_IQ4_NL,
        DTYPE_IQ4_XS, DTYPE_MXFP4, DTYPE_IQ1_S, DTYPE_IQ2_XXS, DTYPE_IQ2_XS, DTYPE_IQ3_S, DTYPE_TQ2_0};
    enum { N_TYPES = sizeof(types) / sizeof(types[0]) };
    struct bench bench = {.table = kern_table_get("auto"), .math = BF16_EXACT, .budget_ns = 300 * NS_PER_MS};
    struct wishes wishes = {.only_type = -1};

    if (!read_options(argc, argv, &bench, &wishes))
        return 2;
    if (bench.table == NULL || team_new(&(struct team_opts){.n_threads = wishes.n_threads}, &bench.team) != 0)
        return 1;
    bench_tune(bench.team, bench.table);

    size_t floats = (size_t)MAX_N * VOCAB;
    bench.x = bench_need(mem_aligned(64, floats * sizeof(float)));
    bench.y = bench_need(mem_aligned(64, floats * sizeof(float)));
    bench.scratch = bench_need(mem_aligned(64, matmul_scratch_most(MAX_N, FFN, team_size(bench.team))));
    for (size_t i = 0; i < floats; i++)
        bench.x[i] = (float)(i * 2654435761u % 2001) / 1000.0f - 1.0f;
    tensor_limits_measure(bench.team, bench.table, &bench.limits);
    printf("table %s, %u threads; limits: read %.1f GB/s, FP32 %.3f TFLOPS, BF16 %.3f by dots, %.3f by"
           " tiles, INT8 %.3f TOPS (%s), %.3f with narrow weights\n",
           kern_table_name(bench.table), team_size(bench.team), bench.limits.read_gbs,
           bench.limits.fp32_tflops, bench.limits.bf16_tflops, bench.limits.tiles_tflops,
           bench.limits.int8_tops, bench.limits.int8_by, bench.limits.narrow_tops);
    for (int i = 0; i < N_TYPES && !wishes.is_attention_only; i++)
        if (wishes.only_type < 0 || types[i] == (enum dtype)wishes.only_type)
            bench_type(&bench, types[i], wishes.only_n);
    printf("\n");
    bench_attention(&bench, 1, 1, 512);
    bench_attention(&bench, 1, 1, 4096);
    bench_attention(&bench, 32, 1, 256);
    bench_attention(&bench, 8, 1, 4096);
    bench_attention(&bench, 1, 512, 512);
    bench_attention(&bench, 1, 512, 8192);
    bench_rows(&bench);
    team_free(bench.team);
    return 0;
}
