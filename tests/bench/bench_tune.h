/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses kernels as a daemon on this machine would. */
#ifndef TESTS_BENCH_BENCH_TUNE_H
#define TESTS_BENCH_BENCH_TUNE_H

#include <stdio.h>

#include "compute/tensor/tune.h"

/* Chooses by the cache file, or measures, and prints the choice. */
static inline void bench_tune(struct team *team, const struct kern_table *table)
{
    struct tuned tuned;
    struct buf line = {0};

    tensor_tune(team, table, TUNE_AUTO, &tuned);
    tuned_line(&tuned, &line);
    printf("%s\n", line.data != NULL ? (const char *)line.data : "");
    buf_fini(&line);
}

#endif
