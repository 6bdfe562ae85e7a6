/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. */
#include "tests/bench/bench_help.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void *bench_need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "%s: out of memory\n", program_invocation_short_name);
        exit(1);
    }
    return memory;
}

int bench_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), bench_by_value);
    return values[n / 2];
}
