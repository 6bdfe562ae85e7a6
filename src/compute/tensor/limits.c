/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's measured limits, to compare a kernel's figures with.
 *
 * Reading: each rank reads its own stretch of a buffer that no cache can hold, in several ways; the
 * fastest counts. One stream is fastest on some processors. Others need several streams before their
 * prefetchers are fully used (one machine read 22 GB/s by one stream and 31 by four). The buffer is twice the
 * last-level cache where that is known: a machine with 480 MiB of it read 192 MiB a tenth faster than 1 GiB.
 * Arithmetic: each rank repeats one instruction on registers. Every figure is the median of RUNS runs over the whole team,
 * each calibrated to about 60 ms, so a shared machine is measured in its present state. A glance is three
 * shorter runs.
 *
 * Peaks are those of the instructions that a table's kernels use. The integer peak is that of vectors,
 * even where quantised prompts go through BF16 tiles (kern_amx_quant.c). */
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "compute/tensor/tensor.h"
#include "compute/tensor/weight_priv.h"

enum { RUNS = 5, LANES = PANEL_ROWS };
#define READ_BYTES     ((size_t)1 << 30)
#define GLANCE_BYTES   ((size_t)192 << 20)
#define MIN_READ_BYTES ((size_t)64 << 20)
#define MAX_COLD_BYTES ((size_t)1 << 30)

struct effort {
    int n_runs;
    uint64_t run_ns;
    size_t read_bytes;
};
static const struct reading readings[] = {{1, 4096}, {4, 1024}, {8, 1024}};
static const struct effort thorough = {RUNS, 60 * NS_PER_MS, READ_BYTES};
static const struct effort glance = {3, 20 * NS_PER_MS, GLANCE_BYTES};

struct measuring {
    const struct effort *effort;
    const struct kern_table *table;
    kern_peak peak;
    uint32_t rounds;
    const char *buffer;
    size_t buffer_bytes;
    struct reading reading;
    _Atomic float sink;
};

static void peak_job(void *arg, unsigned rank, unsigned n_ranks)
{
    struct measuring *measuring = arg;

    measuring->sink = measuring->peak(measuring->rounds);
}

static void read_job(void *arg, unsigned rank, unsigned n_ranks)
{
    struct measuring *measuring = arg;

    const struct team_range range = team_split(measuring->buffer_bytes, 1024, rank, n_ranks);
    measuring->sink = measuring->table->vec->read_memory(measuring->buffer + range.from,
                                                         range.to - range.from, measuring->reading);
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static double tensor_limits_seconds_of(struct team *team, team_job job, struct measuring *measuring)
{
    uint64_t start_ns = clock_now_ns();

    team_run(team, job, measuring);
    return (double)(clock_now_ns() - start_ns) / (double)NS_PER_S;
}

static double median_seconds(struct team *team, team_job job, struct measuring *measuring)
{
    double seconds[RUNS];

    for (int i = 0; i < measuring->effort->n_runs; i++)
        seconds[i] = tensor_limits_seconds_of(team, job, measuring);
    qsort(seconds, (size_t)measuring->effort->n_runs, sizeof(seconds[0]), by_size);
    return seconds[measuring->effort->n_runs / 2];
}

/* Operations per second; ops: per round and rank. 0 without a function. */
static double measure_peak(struct team *team, const struct effort *effort, kern_peak peak, double ops)
{
    struct measuring measuring = {.effort = effort, .peak = peak, .rounds = 100000};

    if (peak == NULL)
        return 0.0;
    /* Twice, because the first run raises the machine's clock. */
    for (int i = 0; i < 2; i++) {
        double seconds = tensor_limits_seconds_of(team, peak_job, &measuring);
        double rounds = measuring.rounds * ((double)effort->run_ns / (double)NS_PER_S) / seconds;

        measuring.rounds = rounds < 1000 ? 1000 : rounds > 1e9 ? 1000000000 : (uint32_t)rounds;
    }
    return ops * measuring.rounds * team_size(team) / median_seconds(team, peak_job, &measuring);
}

size_t tensor_limits_cold_bytes(size_t least_bytes)
{
    long cache_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t cold_bytes = cache_bytes > 0 ? 2 * (size_t)cache_bytes : 0;

    cold_bytes = cold_bytes < MAX_COLD_BYTES ? cold_bytes : MAX_COLD_BYTES;
    return cold_bytes > least_bytes ? cold_bytes : least_bytes;
}

/* Bytes per second; 0 if there is no memory for the buffer. */
static double measure_reading(struct team *team, const struct effort *effort, const struct kern_table *table)
{
    struct mem_region region;
    size_t len_bytes = tensor_limits_cold_bytes(effort->read_bytes);
    int rc;

    while ((rc = mem_region_open(len_bytes, false, true, "limits", &region)) != 0 &&
           len_bytes > MIN_READ_BYTES)
        len_bytes /= 2;
    if (rc != 0)
        return 0.0;
    struct measuring measuring = {
        .effort = effort, .table = table, .buffer = region.base, .buffer_bytes = len_bytes};
    double least = 0;

    for (size_t i = 0; i < sizeof(readings) / sizeof(readings[0]); i++) {
        measuring.reading = readings[i];
        double seconds = median_seconds(team, read_job, &measuring);

        least = i == 0 || seconds < least ? seconds : least;
    }
    mem_region_close(&region);
    return (double)len_bytes / least;
}

static void tensor_limits_measure_with(struct team *team, const struct effort *effort,
                                       const struct kern_table *table, struct tensor_limits *out)
{
    const struct kern_q8 *q8 = table->q8;
    const bool has_vectors = table->has_int8_dot || q8->narrow_peak != NULL;
    const double dots = (double)q8->peak_dots * LANES * 8;

    out->read_gbs = measure_reading(team, effort, table) / 1e9;
    out->fp32_tflops =
        measure_peak(team, effort, table->vec->peak, table->vec->tile_tokens * LANES * 2) / 1e12;
    out->bf16_tflops = measure_peak(team, effort, kern_bf16_peak(), PEAK_BF16_CHAINS * LANES * 4) / 1e12;
    out->tiles_tflops =
        measure_peak(team, effort, kern_tiles_peak(), (double)PEAK_TILES_CHAINS * LANES * TILES_COLS * 2) /
        1e12;
    out->int8_tops = measure_peak(team, effort, has_vectors ? q8->peak : NULL, dots) / 1e12;
    out->narrow_tops =
        q8->narrow_peak == NULL ? out->int8_tops : measure_peak(team, effort, q8->narrow_peak, dots) / 1e12;
    out->int8_by = "vectors";
}

bool tensor_is_narrow(const struct kern_table *table, enum dtype type)
{
    const struct quant_form form = quant_form(weight_packed_type(table, type));

    return form.bits > 0 && form.most <= table->q8->narrow_most;
}

void tensor_limits_measure(struct team *team, const struct kern_table *table, struct tensor_limits *out)
{
    tensor_limits_measure_with(team, &thorough, table, out);
}

void tensor_limits_glance(struct team *team, const struct kern_table *table, struct tensor_limits *out)
{
    tensor_limits_measure_with(team, &glance, table, out);
}
