/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's speed against the machine's limits.  A tool for developers, not a test:
 *
 *     bench_attention [--table NAME] [--threads N] [--type T] [--shape N] [--context N] [--prompt N] [--ms N]
 *                     [--cpu]
 *
 * For each shape of heads and each type of KV memory:
 *
 *     decode   one query at the end of a context (--context), layer after layer of an arena that no cache
 *              holds, against the read bandwidth;
 *     prompt   a prompt (--prompt) of one layer in chunks of 512, against the peak of FP32: 4 flops for each
 *              query, key that it sees, head, and element of the (mean of key's and value's) width.
 *
 *     indexer  sparse attention at the end of a context (--context), one thread: the scores of all keys by 64 heads of
 *              128 numbers, against the peak of FP32, and copies of 2,048 chosen keys of 576 numbers (--shape 6: nothing else).
 *
 * 0 leaves one out.  Figures are medians, beside the limits of the same run.  --cpu counts processor time
 * instead of wall time, for one thread on a busy machine. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "compute/kernels/index.h"
#include "compute/tensor/tensor.h"
#include "tests/bench/bench_help.h"
#include "tests/bench/bench_tune.h"

enum { INDEX_HEADS = 64, INDEX_DIM = 128, INDEX_TOP = 2048, INDEX_SHAPE = 4 }; /* of DeepSeek V3.2 */
enum { BLOCK = 32, CHUNK = 512, MAX_RUNS = 2000, MAX_LAYERS = 64, MIN_RUNS = 3 };

struct shape {
    const char *name;
    uint32_t n_heads, n_kv_heads, k_dim, v_dim;
    bool v_in_k;
};
static const struct shape shapes[] = {
    {"32 heads, 8 KV heads of 64", 32, 8, 64, 64, false},
    {"32 heads, 8 KV heads of 128", 32, 8, 128, 128, false},
    {"32 heads, 4 KV heads of 128", 32, 4, 128, 128, false},
    {"8 heads, 8 KV heads of 64", 8, 8, 64, 64, false},
    {"16 heads, latent 576/512", 16, 1, 576, 512, true},
    {"128 heads, latent 576/512", 128, 1, 576, 512, true},
};
enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

struct bench {
    struct team *team;
    const struct kern_table *table;
    struct tensor_limits limits;
    uint64_t budget_ns; /* per figure */
    uint32_t context, prompt;
    bool is_cpu_time;
};

/* The buffers that one figure uses. */
struct stage {
    struct attn_args args;
    struct attn_item item;
    struct mem_region region;
    char *arena;
    float *q, *out;
    uint32_t *blocks;
    size_t layer_bytes;
};

/* Stores random numbers with the kernel, so that the arena looks as a model would leave it. */
static void fill_layer(const struct stage *stage, void *layer, uint32_t n_tokens)
{
    const struct attn_args *a = &stage->args;
    size_t k_row = (size_t)a->n_kv_heads * a->k_dim, v_row = (size_t)a->n_kv_heads * a->v_dim;
    float *k = bench_need(malloc(BLOCK * k_row * sizeof(*k))),
          *v = bench_need(malloc(BLOCK * v_row * sizeof(*v)));
    struct rng rng;

    rng_init(&rng, 5);
    for (size_t i = 0; i < BLOCK * k_row; i++)
        k[i] = (float)(rng_unit(&rng) - 0.5);
    for (size_t i = 0; i < BLOCK * v_row; i++)
        v[i] = (float)(rng_unit(&rng) - 0.5);
    for (uint32_t at = 0; at < n_tokens; at += BLOCK)
        kv_store(&(struct kv_store_args){.table = a->table,
                                         .kv_layer = layer,
                                         .block_bytes = a->block_bytes,
                                         .kv_type = a->kv_type,
                                         .v_in_k = a->v_in_k,
                                         .n_kv_heads = a->n_kv_heads,
                                         .k_dim = a->k_dim,
                                         .v_dim = a->v_dim,
                                         .block_tokens = BLOCK,
                                         .blocks = stage->blocks,
                                         .position = at,
                                         .n = BLOCK,
                                         .k = k,
                                         .v = v,
                                         .k_stride = k_row,
                                         .v_stride = v_row});
    free(k);
    free(v);
}

struct stage_size {
    uint32_t n_tokens, n_layers;
};

static void stage_open(const struct bench *bench, const struct shape *shape, enum dtype type,
                       struct stage_size size, struct stage *stage)
{
    uint32_t n_blocks = (size.n_tokens + BLOCK - 1) / BLOCK, n_queries = CHUNK;
    size_t row_bytes =
        kv_row_bytes(type, shape->k_dim) + (shape->v_in_k ? 0 : kv_row_bytes(type, shape->v_dim));

    *stage = (struct stage){.args = {.table = bench->table,
                                     .kv_type = type,
                                     .v_in_k = shape->v_in_k,
                                     .n_heads = shape->n_heads,
                                     .n_kv_heads = shape->n_kv_heads,
                                     .k_dim = shape->k_dim,
                                     .v_dim = shape->v_dim,
                                     .block_tokens = BLOCK,
                                     .block_bytes = shape->n_kv_heads * BLOCK * row_bytes,
                                     .scale = 1.0f / sqrtf((float)shape->k_dim),
                                     .n_items = 1,
                                     .q_stride = (size_t)shape->n_heads * shape->k_dim,
                                     .out_stride = (size_t)shape->n_heads * shape->v_dim}};
    stage->layer_bytes = n_blocks * stage->args.block_bytes;
    if (mem_region_open(stage->layer_bytes * size.n_layers, false, false, "arena", &stage->region) < 0)
        bench_need(NULL);
    stage->arena = stage->region.base;
    stage->blocks = bench_need(malloc(n_blocks * sizeof(*stage->blocks)));
    for (uint32_t i = 0; i < n_blocks; i++)
        stage->blocks[i] = i ^ 1 % n_blocks;
    stage->q = bench_need(mem_aligned(64, n_queries * stage->args.q_stride * sizeof(float)));
    stage->out = bench_need(mem_aligned(64, n_queries * stage->args.out_stride * sizeof(float)));
    for (size_t i = 0; i < n_queries * stage->args.q_stride; i++)
        stage->q[i] = (float)(i * 2654435761u % 2001) / 1000.0f - 1.0f;
    stage->args.scratch_bytes = attn_scratch_bytes(&(struct attn_sizes){.max_tokens = n_queries,
                                                                        .max_context = size.n_tokens,
                                                                        .n_heads = shape->n_heads,
                                                                        .k_dim = shape->k_dim,
                                                                        .v_dim = shape->v_dim,
                                                                        .n_ranks = team_size(bench->team)});
    stage->args.scratch = bench_need(mem_aligned(64, stage->args.scratch_bytes));
    stage->args.q = stage->q;
    stage->args.out = stage->out;
    stage->args.items = &stage->item;
    fill_layer(stage, stage->arena, n_blocks * BLOCK);
    for (uint32_t i = 1; i < size.n_layers; i++)
        memcpy(stage->arena + i * stage->layer_bytes, stage->arena, stage->layer_bytes);
}

static void stage_close(struct stage *stage)
{
    free(stage->args.scratch);
    free(stage->q);
    free(stage->out);
    free(stage->blocks);
    mem_region_close(&stage->region);
}

static uint64_t now_ns(const struct bench *bench)
{
    struct timespec used;

    if (!bench->is_cpu_time)
        return clock_now_ns();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

static double run(const struct bench *bench, struct stage *stage, uint32_t layer, uint32_t position,
                  uint32_t n)
{
    uint64_t start_ns = now_ns(bench);

    stage->item = (struct attn_item){.n_tokens = n, .position = position, .blocks = stage->blocks};
    stage->args.kv_layer = stage->arena + layer * stage->layer_bytes;
    attention(bench->team, &stage->args);
    return (double)(now_ns(bench) - start_ns) / 1e9;
}

static void bench_decode(const struct bench *bench, const struct shape *shape, enum dtype type)
{
    uint32_t n_layers = 16, n_runs = 0;
    double seconds[MAX_RUNS];
    struct stage stage;

    while (n_layers < MAX_LAYERS &&
           (size_t)n_layers * bench->context * shape->n_kv_heads * shape->k_dim < 100000000)
        n_layers *= 2;
    stage_open(bench, shape, type, (struct stage_size){bench->context, n_layers}, &stage);
    for (uint64_t begin_ns = clock_now_ns();
         n_runs < MAX_RUNS && (n_runs < MIN_RUNS || clock_now_ns() - begin_ns < bench->budget_ns); n_runs++)
        seconds[n_runs] = run(bench, &stage, n_runs % n_layers, bench->context - 1, 1);
    double s = bench_median(seconds, n_runs), gbs = (double)stage.layer_bytes / s / 1e9;
    printf("  %-5s decode at %5u: %8.1f us a layer, %5.1f GB/s (%3.0f%%)\n", dtype_info(type)->name,
           bench->context, s * 1e6, gbs, 100 * gbs / bench->limits.read_gbs);
    stage_close(&stage);
}

static void bench_prompt(const struct bench *bench, const struct shape *shape, enum dtype type)
{
    double seconds[MAX_RUNS], keys = 0.5 * bench->prompt * (bench->prompt + 1.0);
    uint32_t n_runs = 0;
    struct stage stage;

    stage_open(bench, shape, type, (struct stage_size){bench->prompt, 1}, &stage);
    for (uint64_t begin_ns = clock_now_ns();
         n_runs < MAX_RUNS && (n_runs < MIN_RUNS || clock_now_ns() - begin_ns < bench->budget_ns); n_runs++) {
        seconds[n_runs] = 0;
        for (uint32_t at = 0; at < bench->prompt; at += CHUNK)
            seconds[n_runs] +=
                run(bench, &stage, 0, at, bench->prompt - at < CHUNK ? bench->prompt - at : CHUNK);
    }
    double s = bench_median(seconds, n_runs);
    double gflops = 2.0 * shape->n_heads * (shape->k_dim + shape->v_dim) * keys / s / 1e9;
    printf("  %-5s prompt of %5u: %8.1f ms a layer, %5.0f GF/s (%3.0f%%)\n", dtype_info(type)->name,
           bench->prompt, s * 1e3, gflops, gflops / 10 / bench->limits.fp32_tflops);
    stage_close(&stage);
}

/* Seconds of the scores of all keys of a context. */
static double run_scores(const struct bench *bench, const uint16_t *arena, const float *q)
{
    struct index_args args = {.q = q,
                              .weights = q,
                              .n_heads = INDEX_HEADS,
                              .dim = INDEX_DIM,
                              .type = DTYPE_F16,
                              .block_tokens = BLOCK,
                              .n_groups = INDEX_CALL_GROUPS};
    uint64_t start_ns = now_ns(bench);
    float scores[INDEX_CALL_KEYS];

    for (size_t key = 0; key + INDEX_CALL_KEYS <= bench->context; key += INDEX_CALL_KEYS) {
        for (size_t g = 0, at = key; g < INDEX_CALL_GROUPS; g++, at += INDEX_GROUP_KEYS)
            args.keys[g] = arena + at / BLOCK * BLOCK * INDEX_DIM + at % BLOCK;
        index_scores(bench->table, &args, scores);
    }
    return (double)(now_ns(bench) - start_ns) / 1e9;
}

static void bench_scores(const struct bench *bench)
{
    size_t n_keys = bench->context / INDEX_CALL_KEYS * INDEX_CALL_KEYS, n = n_keys * INDEX_DIM;
    uint16_t *arena = bench_need(malloc((n + 1) * sizeof(*arena)));
    float *q = bench_need(malloc(INDEX_HEADS * INDEX_DIM * sizeof(*q)));
    double seconds[MAX_RUNS];
    uint32_t n_runs = 0;

    for (size_t i = 0; i < n; i++)
        arena[i] = f32_to_f16((float)(i * 2654435761u % 2001) / 1000.0f - 1.0f);
    for (size_t i = 0; i < INDEX_HEADS * INDEX_DIM; i++)
        q[i] = (float)(i * 2654435761u % 1999) / 1000.0f - 1.0f;
    for (uint64_t begin_ns = clock_now_ns();
         n_runs < MAX_RUNS && (n_runs < MIN_RUNS || clock_now_ns() - begin_ns < bench->budget_ns); n_runs++)
        seconds[n_runs] = run_scores(bench, arena, q);
    double s = bench_median(seconds, n_runs), gflops = 2.0 * INDEX_HEADS * (double)n / s / 1e9;
    double peak_gflops = 1e3 * bench->limits.fp32_tflops / team_size(bench->team);
    printf("  scores of %u keys: %.1f us, %.0f GF/s (%.0f%% of a thread's peak)\n", (unsigned)n_keys, s * 1e6,
           gflops, 100 * gflops / peak_gflops);
    free(arena);
    free(q);
}

/* Every n-th key of the context is chosen. */
static double run_gather(const struct bench *bench, const struct stage *stage, float *out)
{
    struct kv_gather_args args = {
        .attn = &stage->args, .blocks = stage->blocks, .n = INDEX_GROUP_KEYS, .out_stride = BLOCK};
    uint64_t start_ns = now_ns(bench);

    for (uint32_t first = 0; first < INDEX_TOP; first += INDEX_GROUP_KEYS) {
        for (uint32_t k = 0; k < INDEX_GROUP_KEYS; k++)
            args.positions[k] = (uint32_t)((uint64_t)(first + k) * bench->context / INDEX_TOP);
        args.out = out + (size_t)(first / BLOCK) * BLOCK * stage->args.k_dim + first % BLOCK;
        kv_gather(bench->table, &args);
    }
    return (double)(now_ns(bench) - start_ns) / 1e9;
}

static void bench_gather(const struct bench *bench, enum dtype type)
{
    float *out = bench_need(malloc((size_t)INDEX_TOP * shapes[INDEX_SHAPE].k_dim * sizeof(*out)));
    double seconds[MAX_RUNS];
    uint32_t n_runs = 0;
    struct stage stage;

    stage_open(bench, &shapes[INDEX_SHAPE], type, (struct stage_size){bench->context, 1}, &stage);
    stage.args.kv_layer = stage.arena;
    for (uint64_t begin_ns = clock_now_ns();
         n_runs < MAX_RUNS && (n_runs < MIN_RUNS || clock_now_ns() - begin_ns < bench->budget_ns); n_runs++)
        seconds[n_runs] = run_gather(bench, &stage, out);
    printf("  %-5s copies of %d keys: %.1f us\n", dtype_info(type)->name, INDEX_TOP,
           bench_median(seconds, n_runs) * 1e6);
    stage_close(&stage);
    free(out);
}

static void bench_all(const struct bench *bench, int only_shape, int only_type)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0};

    for (int i = 0; i < N_SHAPES; i++) {
        if (only_shape >= 0 && i != only_shape)
            continue;
        printf("%s\n", shapes[i].name);
        for (int j = 0; j < 5; j++) {
            if (only_type >= 0 && types[j] != (enum dtype)only_type)
                continue;
            if (bench->context > 0)
                bench_decode(bench, &shapes[i], types[j]);
            if (bench->prompt > 0)
                bench_prompt(bench, &shapes[i], types[j]);
        }
    }
    if ((only_shape >= 0 && only_shape != N_SHAPES) || bench->context < INDEX_CALL_KEYS)
        return;
    printf("indexer\n");
    bench_scores(bench);
    for (int j = 0; j < 5; j++)
        if (only_type < 0 || types[j] == (enum dtype)only_type)
            bench_gather(bench, types[j]);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"table", 1, NULL, 't'}, {"threads", 1, NULL, 'j'}, {"type", 1, NULL, 'w'},
        {"shape", 1, NULL, 's'}, {"context", 1, NULL, 'c'}, {"prompt", 1, NULL, 'p'},
        {"ms", 1, NULL, 'm'},    {"cpu", 0, NULL, 'u'},     {NULL, 0, NULL, 0}};
    struct bench bench = {
        .table = kern_table_get("auto"), .budget_ns = 200 * NS_PER_MS, .context = 4096, .prompt = 8192};
    unsigned n_threads = 0;
    int only_type = -1, only_shape = -1, option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 't')
            bench.table = kern_table_get(optarg);
        else if (option == 'j')
            n_threads = (unsigned)atoi(optarg);
        else if (option == 'w')
            only_type = dtype_from_name(optarg);
        else if (option == 's')
            only_shape = atoi(optarg);
        else if (option == 'c')
            bench.context = (uint32_t)atoi(optarg);
        else if (option == 'p')
            bench.prompt = (uint32_t)atoi(optarg);
        else if (option == 'm')
            bench.budget_ns = (uint64_t)atoi(optarg) * NS_PER_MS;
        else if (option == 'u')
            bench.is_cpu_time = true;
        else
            return 2;
    }
    if (bench.table == NULL || team_new(&(struct team_opts){.n_threads = n_threads}, &bench.team) != 0)
        return 1;
    bench_tune(bench.team, bench.table);
    tensor_limits_measure(bench.team, bench.table, &bench.limits);
    printf("table %s, %u threads; limits: read %.1f GB/s, FP32 %.3f TFLOPS\n", kern_table_name(bench.table),
           team_size(bench.team), bench.limits.read_gbs, bench.limits.fp32_tflops);
    bench_all(&bench, only_shape, only_type);
    team_free(bench.team);
    return 0;
}
