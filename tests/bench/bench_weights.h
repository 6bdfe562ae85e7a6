/* SPDX-License-Identifier: Apache-2.0 */
/* Random weights for measuring the time of products. */
#ifndef TESTS_BENCH_BENCH_WEIGHTS_H
#define TESTS_BENCH_BENCH_WEIGHTS_H

#include "gguf/dtype.h"

/* Returns random bits of a type with small sums: in a qblk, the 16-bit floats (at either end) or the exponent
 * are small. n_weights: a whole number of qblks.  Heap, never NULL. */
void *bench_weights(enum dtype type, size_t n_weights);

#endif
