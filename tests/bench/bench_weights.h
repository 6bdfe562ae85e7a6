/* SPDX-License-Identifier: Apache-2.0 */
/* Weights to be multiplied for the time it takes. */
#ifndef TESTS_BENCH_BENCH_WEIGHTS_H
#define TESTS_BENCH_BENCH_WEIGHTS_H

#include "gguf/dtype.h"

/* Random bits of a type, small enough that sums stay tame: of a qblk, what may be its 16-bit floats (at
 * either end) or its exponent is small.  n_weights: a whole number of qblks.  Heap, never NULL. */
void *bench_weights(enum dtype type, size_t n_weights);

#endif
