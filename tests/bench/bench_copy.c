/* SPDX-License-Identifier: Apache-2.0 */
/* Every method to copy a piece of KV, beside the C library's, as a hand-off through shared memory uses it:
 * pieces of 512 KiB at random places of two large regions.  A tool for developers, not a test:
 *
 *     bench_copy [MIB_OF_EACH_REGION [ROUNDS]]
 *
 * In each round every method copies a run of pieces.  The figures of a method are the median and the best of
 * its rounds, and the median of its ratios to memcpy of the same round.  The last lines show the daemons' own
 * choice, five times, and its time. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/mem_copy.h"
#include "base/rng.h"
#include "tests/bench/bench_help.h"

#define PIECE_BYTES ((size_t)512 << 10)

enum { STRETCH_PIECES = 32, MAX_ROUNDS = 201, TUNINGS = 5 };

static double stretch_gbs(const struct mem_copy_method *method, const struct mem_region *from,
                          const struct mem_region *to, struct rng *rng)
{
    const uint64_t n_places = from->len_bytes / PIECE_BYTES, start_ns = clock_now_ns();

    for (int i = 0; i < STRETCH_PIECES; i++)
        method->copy((char *)to->base + rng_below(rng, n_places) * PIECE_BYTES,
                     (const char *)from->base + rng_below(rng, n_places) * PIECE_BYTES, PIECE_BYTES);
    return (double)(STRETCH_PIECES * PIECE_BYTES) / (double)(clock_now_ns() - start_ns);
}

static void show_tunings(void)
{
    for (int i = 0; i < TUNINGS; i++) {
        double gbs[MEM_COPY_MAX_METHODS];
        uint64_t start_ns = clock_now_ns();
        const struct mem_copy_method *best = mem_copy_measure(45 * NS_PER_MS, gbs);
        double ms = (double)(clock_now_ns() - start_ns) / 1e6;

        printf("chosen: %-12s in %5.1f ms:", best == NULL ? "-" : best->name, ms);
        for (uint32_t j = 0; best != NULL && mem_copy_method_at(j) != NULL; j++)
            printf(" %s %.1f", mem_copy_method_at(j)->name, gbs[j]);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    static double gbs[MEM_COPY_MAX_METHODS][MAX_ROUNDS], ratios[MEM_COPY_MAX_METHODS][MAX_ROUNDS];
    size_t len_bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 256) << 20;
    int rounds = argc > 2 ? atoi(argv[2]) : 31;
    struct mem_region from, to;
    struct rng rng;

    rng_init(&rng, 1);
    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    if (len_bytes < PIECE_BYTES || mem_region_open(len_bytes, false, true, "from", &from) != 0 ||
        mem_region_open(len_bytes, true, true, "to", &to) != 0)
        bench_need(NULL);
    for (int r = 0; r < rounds; r++)
        for (uint32_t i = 0; mem_copy_method_at(i) != NULL; i++) {
            gbs[i][r] = stretch_gbs(mem_copy_method_at(i), &from, &to, &rng);
            ratios[i][r] = gbs[i][r] / gbs[0][r];
        }
    printf("%-12s %10s %10s %12s\n", "method", "median", "best GB/s", "of memcpy");
    for (uint32_t i = 0; mem_copy_method_at(i) != NULL; i++) {
        double median = bench_median(gbs[i], (size_t)rounds);

        printf("%-12s %10.2f %10.2f %12.2f\n", mem_copy_method_at(i)->name, median, gbs[i][rounds - 1],
               bench_median(ratios[i], (size_t)rounds));
    }
    mem_region_close(&from);
    mem_region_close(&to);
    show_tunings();
    return 0;
}
