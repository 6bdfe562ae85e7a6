/* SPDX-License-Identifier: Apache-2.0 */
/* One-token products of every type, compared with reading, which limits decode.  A tool for developers, not a
 * test:
 *
 *     bench_decode [--table NAME] [--threads N] [--type T] [--passes N] [--set FIELD=VARIANT]...
 *
 * - cached: a matrix that the second-level cache of one core holds, one thread: the limit of the arithmetic.
 * With 0 passes only this.
 * - product: 8192 x 2048 weights, so many copies that no cache holds them, one after the other.
 * - reading: the limit as tensor_limits_glance() sees it right before and right after each pass of products.
 * - share: the median over passes of product / reading, so that a machine that changes between them does not
 *   matter.
 * - packed: bits that the product reads for a weight, and its share of reading by them.  The others count the bytes of
 *   the file, which has fewer bits for most types of two and three bits.
 *
 * --set overrides a field of the kernel choice, such as fetch=far (compute/tensor/choice.h).
 *
 * The last column is a hash of the outputs.  It is the same for all tables, and before and after a change of
 * kernels that must keep the bits. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "compute/tensor/choice.h"
#include "compute/tensor/tensor.h"
#include "tests/bench/bench_help.h"
#include "tests/bench/bench_tune.h"
#include "tests/bench/bench_weights.h"

enum { COLS = 2048, ROWS = 8192, MAX_PASSES = 51, MAX_COPIES = 512, CACHED_RUNS = 400 };
#define COLD_BYTES   ((size_t)320 << 20)
#define CACHED_BYTES 1.0e6

struct bench {
    struct team *team, *alone;
    const struct kern_table *table;
    int n_passes;
    float *x, *y;
    void *scratch;
};

static struct weight pack(const struct bench *bench, enum dtype type, uint32_t rows)
{
    void *data = bench_weights(type, (size_t)rows * COLS);
    struct weight_part part = {data, rows};
    struct weight weight;

    if (weight_pack(&(struct weight_packing){.table = bench->table,
                                             .type = type,
                                             .parts = &part,
                                             .n_parts = 1,
                                             .cols = COLS,
                                             .team = bench->team},
                    &weight) != 0)
        bench_need(NULL);
    free(data);
    return weight;
}

static double seconds_of(const struct bench *bench, struct team *team, const struct weight *weight)
{
    uint64_t start_ns = clock_now_ns();

    matmul(team, &(struct matmul_args){.weight = weight,
                                       .x = bench->x,
                                       .x_stride = COLS,
                                       .n = 1,
                                       .y = bench->y,
                                       .y_stride = weight->rows,
                                       .scratch = bench->scratch});
    return (double)(clock_now_ns() - start_ns) / 1e9;
}

/* Bytes of rows in a file. */
static double file_bytes(enum dtype type, uint32_t rows)
{
    return (double)rows * COLS / dtype_info(type)->qblk_weights * dtype_info(type)->qblk_bytes;
}

/* Returns the best rate in GB/s. */
static double cached_gbs(const struct bench *bench, enum dtype type)
{
    uint32_t rows = (uint32_t)(CACHED_BYTES / file_bytes(type, 1) / 64) * 64;
    struct weight weight = pack(bench, type, rows);
    double least = 1e9;

    for (int i = 0; i < CACHED_RUNS; i++) {
        double seconds = seconds_of(bench, bench->alone, &weight);

        least = seconds < least ? seconds : least;
    }
    weight_fini(&weight);
    return file_bytes(type, rows) / least / 1e9;
}

static uint64_t hash_of(const float *y, uint32_t n)
{
    uint64_t hash = 0xcbf29ce484222325;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, y + i, sizeof(bits));
        hash = (hash ^ bits) * 0x100000001b3;
    }
    return hash;
}

static void bench_type(const struct bench *bench, enum dtype type)
{
    double shares[MAX_PASSES], products[MAX_PASSES], readings[MAX_PASSES];
    struct weight weights[MAX_COPIES];
    struct tensor_limits before, after;
    double share, packed;
    uint32_t n = 1;

    if (bench->n_passes == 0) {
        printf("%-7s cached %5.1f GB/s\n", dtype_info(type)->name, cached_gbs(bench, type));
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        weights[i] = pack(bench, type, ROWS);
        n = (uint32_t)((double)tensor_limits_cold_bytes(COLD_BYTES) / file_bytes(type, ROWS)) + 1;
        n = n > MAX_COPIES ? MAX_COPIES : n;
    }
    tensor_limits_glance(bench->team, bench->table, &before);
    for (int pass = 0; pass < bench->n_passes; pass++) {
        double seconds = 0;

        for (uint32_t i = 0; i < n; i++)
            seconds += seconds_of(bench, bench->team, &weights[i]);
        tensor_limits_glance(bench->team, bench->table, &after);
        readings[pass] = (before.read_gbs + after.read_gbs) / 2;
        products[pass] = file_bytes(type, ROWS) * n / seconds / 1e9;
        shares[pass] = products[pass] / readings[pass];
        before = after;
    }
    share = bench_median(shares, bench->n_passes);
    packed = (double)weights[0].len_bytes / file_bytes(type, ROWS);
    printf("%-7s cached %5.1f GB/s   product %5.1f   reading %5.1f   share %3.0f %%   packed %4.1f bits, "
           "%3.0f %%   %016llx\n",
           dtype_info(type)->name, cached_gbs(bench, type), bench_median(products, bench->n_passes),
           bench_median(readings, bench->n_passes), 100 * share,
           8.0 * (double)weights[0].len_bytes / ROWS / COLS, 100 * share * packed,
           (unsigned long long)hash_of(bench->y, ROWS));
    fflush(stdout);
    for (uint32_t i = 0; i < n; i++)
        weight_fini(&weights[i]);
}

/* Overrides one field of the choice; false: there is no such field or variant. */
static bool bench_set(const char *text)
{
    const char *equals = strchr(text, '=');
    size_t n = equals != NULL ? (size_t)(equals - text) : 0;
    struct kern_choice choice = *kern_choice_get();

    for (enum kern_field field = 0; n > 0 && field < KERN_N_FIELDS; field++) {
        const char *name = kern_choice_field_name(field);

        for (uint32_t i = 0; i < kern_choice_n_variants(field); i++)
            if (strlen(name) == n && memcmp(name, text, n) == 0 &&
                strcmp(kern_choice_variant_name(field, i), equals + 1) == 0) {
                choice.at[field] = (uint8_t)i;
                kern_choice_set(&choice);
                return true;
            }
    }
    return false;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"table", 1, NULL, 't'},  {"threads", 1, NULL, 'j'}, {"type", 1, NULL, 'w'},
        {"passes", 1, NULL, 'p'}, {"set", 1, NULL, 's'},     {NULL, 0, NULL, 0},
    };
    static const enum dtype types[] = {
        DTYPE_Q8_0,    DTYPE_Q4_0,  DTYPE_Q4_1,  DTYPE_Q5_0,   DTYPE_Q5_1,    DTYPE_Q2_K,   DTYPE_Q3_K,
        DTYPE_Q4_K,    DTYPE_Q5_K,  DTYPE_Q6_K,  DTYPE_IQ4_NL, DTYPE_IQ4_XS,  DTYPE_MXFP4,  DTYPE_F16,
        DTYPE_BF16,    DTYPE_F32,   DTYPE_IQ1_S, DTYPE_IQ1_M,  DTYPE_IQ2_XXS, DTYPE_IQ2_XS, DTYPE_IQ2_S,
        DTYPE_IQ3_XXS, DTYPE_IQ3_S, DTYPE_TQ1_0, DTYPE_TQ2_0,  DTYPE_NVFP4,   DTYPE_Q1_0,   DTYPE_Q2_0};
    struct bench bench = {.table = kern_table_get("auto"), .n_passes = 7};
    unsigned n_threads = 0;
    const char *sets[KERN_N_FIELDS];
    int only_type = -1, option, n_sets = 0;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 't')
            bench.table = kern_table_get(optarg);
        else if (option == 'j')
            n_threads = (unsigned)atoi(optarg);
        else if (option == 'w')
            only_type = dtype_from_name(optarg);
        else if (option == 'p')
            bench.n_passes = atoi(optarg);
        else if (option == 's' && n_sets < KERN_N_FIELDS)
            sets[n_sets++] = optarg;
        else
            return 2;
    }
    if (bench.table == NULL || bench.n_passes < 0 || bench.n_passes > MAX_PASSES ||
        team_new(&(struct team_opts){.n_threads = n_threads}, &bench.team) != 0 ||
        team_new(&(struct team_opts){.n_threads = 1}, &bench.alone) != 0)
        return 1;
    bench_tune(bench.team, bench.table);
    for (int i = 0; i < n_sets; i++)
        if (!bench_set(sets[i])) {
            fprintf(stderr, "bench_decode: no such choice: %s\n", sets[i]);
            return 2;
        }
    bench.x = bench_need(mem_aligned(64, COLS * sizeof(float)));
    bench.y = bench_need(mem_aligned(64, 4 * ROWS * sizeof(float)));
    bench.scratch = bench_need(mem_aligned(64, matmul_scratch_most(1, COLS, team_size(bench.team))));
    for (size_t i = 0; i < COLS; i++)
        bench.x[i] = (float)(i * 2654435761u % 2001) / 1000.0f - 1.0f;
    printf("table %s, %u threads\n", kern_table_name(bench.table), team_size(bench.team));
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (only_type < 0 || types[i] == (enum dtype)only_type)
            bench_type(&bench, types[i]);
    team_free(bench.alone);
    team_free(bench.team);
    return 0;
}
