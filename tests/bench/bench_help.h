/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of the benchmarks: error exits, medians, and random weights. */
#ifndef TESTS_BENCH_BENCH_HELP_H
#define TESTS_BENCH_BENCH_HELP_H

#include <stddef.h>

/* Returns memory; NULL ends the program with a message. */
void *bench_need(void *memory);
int bench_by_value(const void *a, const void *b); /* of doubles, for qsort() */
double bench_median(double *values, size_t n);    /* sorts them; n > 0 */

#endif
