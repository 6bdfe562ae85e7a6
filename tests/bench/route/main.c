/* SPDX-License-Identifier: Apache-2.0 */
/* How many requests one core can route to a thousand workers, and the wait for a placement.
 *
 * Not a test: it prints a table and always succeeds.  The picker, the index and the ledger are the router's
 * own; the workers, their caches and the clock are simulated (drive.c).  In the same run it measures random
 * reads of a table of the index's size: one after another, where each line holds the next address, and sixteen
 * at a time.  Figures are medians of the rounds; other load on the machine shows in the maximum. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/bench/route/route.h"
#include "tests/bench/bench_help.h"

#define MAX_ROUNDS 50

static const char *const usage =
    "usage: bench_route [--trace FILE] [--rounds N] [--workers N] [--cache-blocks N] [--index-entries N]\n"
    "                   [--rate PER_S] [--loss-every REQUESTS] [--resync-blocks N]\n"
    "                   [--clock cpu|wall] [--disks yes|no]\n";

/* ---- limits of memory ---- */

struct line {
    uint32_t next;
    uint32_t rest[15];
};

/* One cycle through all lines in random order. */
static void make_cycle(struct line *lines, uint32_t n)
{
    uint32_t *order = route_grab(n, sizeof(*order));
    struct rng rng;

    rng_init(&rng, 9);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t other = (uint32_t)rng_below(&rng, i + 1), kept = order[i];

        order[i] = order[other];
        order[other] = kept;
    }
    for (uint32_t i = 0; i < n; i++)
        lines[order[i]].next = order[(i + 1) % n];
    free(order);
}

static void measure_memory(size_t len_bytes, bool is_wall, double *one_out, double *many_out)
{
    enum { N = 1000000, STREAMS = 16 };
    uint32_t n = (uint32_t)(len_bytes / sizeof(struct line)), at = 0, streams[STREAMS];
    struct mem_region region;
    struct line *lines;
    uint64_t began_ns;

    ASSERT(mem_region_open(len_bytes, false, true, "reference", &region) == 0);
    lines = region.base;
    make_cycle(lines, n);
    began_ns = route_stamp_ns(is_wall);
    for (uint32_t i = 0; i < N; i++)
        at = lines[at].next;
    *one_out = N * 1e9 / (double)(route_stamp_ns(is_wall) - began_ns);
    for (uint32_t s = 0; s < STREAMS; s++)
        streams[s] = n / STREAMS * s;
    began_ns = route_stamp_ns(is_wall);
    for (uint32_t i = 0; i < N; i += STREAMS)
        for (uint32_t s = 0; s < STREAMS; s++)
            streams[s] = lines[streams[s]].next;
    *many_out = N * 1e9 / (double)(route_stamp_ns(is_wall) - began_ns);
    for (uint32_t s = 0; s < STREAMS; s++)
        at ^= streams[s];
    if (at == UINT32_MAX)
        puts(""); /* so that the reads are wanted */
    mem_region_close(&region);
}

/* ---- medians ---- */

/* Of the field that lies at offset in each result. */
static double median(const struct route_result *results, uint32_t n, size_t offset)
{
    double values[MAX_ROUNDS];

    for (uint32_t i = 0; i < n; i++)
        memcpy(&values[i], (const char *)&results[i] + offset, sizeof(double));
    return bench_median(values, n);
}

#define MEDIAN(field) median(results, n, offsetof(struct route_result, field))

static void print_times(const char *what, const struct route_result *results, uint32_t n, size_t offset)
{
    printf("%-44s", what);
    for (size_t i = 0; i < 4; i++)
        printf(" %9.1f", median(results, n, offset + i * sizeof(double)));
    printf("  us\n");
}

static void print_results(const struct route_opts *opts, const struct route_result *results, uint32_t n)
{
    const struct route_result *last = &results[n - 1];
    double best = 0;

    for (uint32_t i = 0; i < n; i++)
        best = results[i].routed_per_s > best ? results[i].routed_per_s : best;
    printf("routed requests, all work counted            %9.0f per s (best %.0f)\n", MEDIAN(routed_per_s),
           best);
    printf("  of each: hashing its chain                 %9.2f us\n", MEDIAN(hash_us));
    printf("           look-up, choice, booking          %9.2f us\n", MEDIAN(choose_us));
    printf("           ends, reports, events, losses     %9.2f us\n", MEDIAN(other_us));
    printf("%-44s %9s %9s %9s %9s\n", "", "p50", "p99", "p99.9", "most");
    print_times("a request's own work", results, n, offsetof(struct route_result, service_us));
    printf("(offered: %.0f per s)\n", opts->rate_per_s);
    print_times("from its arrival to its booking", results, n, offsetof(struct route_result, wait_us));
    printf("longest piece of other work                  %9.1f us\n", MEDIAN(longest_other_us));
    printf("hit share of blocks: expected, found         %9.1f %% %6.1f %%\n", 100 * MEDIAN(hoped),
           100 * MEDIAN(hit));
    printf("placed on one worker; over the objectives    %9.1f %% %6.1f %%\n", 100 * MEDIAN(alone),
           100 * MEDIAN(overloaded));
    printf("a round's pieces of other work; losses       %9llu %8llu\n", (unsigned long long)last->n_events,
           (unsigned long long)last->n_losses);
    if (opts->has_disks)
        printf("placed where some is read; workers named     %9.1f %% %8.1f\n", 100 * MEDIAN(reading),
               MEDIAN(n_runs));
    printf("index: blocks known, bytes at most, a block  %9zu %11zu %5.0f\n", last->n_indexed,
           picker_index_bytes(opts->index_entries),
           (double)picker_index_bytes(opts->index_entries) / opts->index_entries);
}

/* ---- the program ---- */

static bool take_option(struct route_opts *opts, const char *name, const char *value)
{
    struct {
        const char *name;
        uint32_t *number;
    } const numbers[] = {{"--rounds", &opts->n_rounds},           {"--workers", &opts->n_workers},
                         {"--cache-blocks", &opts->cache_blocks}, {"--index-entries", &opts->index_entries},
                         {"--loss-every", &opts->loss_every},     {"--resync-blocks", &opts->resync_blocks}};

    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].number = (uint32_t)strtoul(value, NULL, 10);
            return true;
        }
    if (strcmp(name, "--trace") == 0)
        opts->trace = value;
    else if (strcmp(name, "--clock") == 0)
        opts->is_wall = strcmp(value, "wall") == 0;
    else if (strcmp(name, "--disks") == 0)
        opts->has_disks = strcmp(value, "yes") == 0;
    else if (strcmp(name, "--rate") == 0)
        opts->rate_per_s = strtod(value, NULL);
    else
        return false;
    return true;
}

static bool is_sensible(const struct route_opts *opts)
{
    return opts->n_rounds >= 1 && opts->n_rounds <= MAX_ROUNDS && opts->n_workers >= 10 &&
           opts->n_workers <= PICKER_MAX_WORKERS && opts->cache_blocks >= 256 && opts->index_entries > 0 &&
           opts->rate_per_s > 0 && opts->resync_blocks > opts->cache_blocks;
}

static bool load(const struct route_opts *opts, struct trace *out)
{
    struct fault fault = {0};

    if (opts->trace == NULL) {
        puts("no --trace: a made-up one of about the shape of Mooncake's conversations");
        route_make_trace(out);
        return true;
    }
    if (trace_load(opts->trace, &fault, out) == 0 && out->n_entries > 0 && out->n_block_ids > 0)
        return true;
    fprintf(stderr, "bench_route: %s\n", fault.text[0] ? fault.text : "the trace has no blocks");
    return false;
}

int main(int argc, char **argv)
{
    static struct route_result warm, results[MAX_ROUNDS];
    struct route_opts opts = {.n_workers = 1000,
                              .n_rounds = 7,
                              .cache_blocks = 512,
                              .index_entries = 1000000,
                              .rate_per_s = 30000,
                              .loss_every = 1000,
                              .resync_blocks = 16384};
    double chains, singly, one, many;
    struct trace trace = {0};
    struct drive *drive;

    for (int i = 1; i < argc; i += 2)
        if (i + 1 == argc || !take_option(&opts, argv[i], argv[i + 1])) {
            fputs(usage, stderr);
            return 2;
        }
    if (!is_sensible(&opts) || !load(&opts, &trace)) {
        fputs(usage, stderr);
        return 2;
    }
    drive = drive_new(&opts, &trace);
    printf("%zu requests, %.1f blocks each, %u workers of %u blocks, %u rounds\n", trace.n_entries,
           (double)trace.n_block_ids / (double)trace.n_entries, opts.n_workers, opts.cache_blocks,
           opts.n_rounds);
    for (uint32_t i = 0; i < 3; i++)
        drive_round(drive, &warm);
    for (uint32_t i = 0; i < opts.n_rounds; i++)
        drive_round(drive, &results[i]);
    drive_lookups(drive, &chains, &singly);
    measure_memory(picker_index_bytes(opts.index_entries), opts.is_wall, &one, &many);
    printf("block look-ups: along chains, singly         %9.2f %9.2f million per s\n", chains / 1e6,
           singly / 1e6);
    printf("random reads beside: 16 at a time, dependent %9.2f %9.2f million per s\n", many / 1e6, one / 1e6);
    print_results(&opts, results, opts.n_rounds);
    drive_free(drive);
    trace_fini(&trace);
    return 0;
}
