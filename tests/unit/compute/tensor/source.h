/* SPDX-License-Identifier: Apache-2.0 */
/* Random matrices of every type that weights may have, as in a file, with their values. */
#ifndef TESTS_TENSOR_SOURCE_H
#define TESTS_TENSOR_SOURCE_H

#include "check.h"

#ifdef CHECK_EMULATED
enum { N_TYPES = 19 }; /* one of each form */
#else
enum { N_TYPES = 26 };
#endif
enum { N_PLAIN = 3 };                   /* the plain types come first */
extern const enum dtype source_types[]; /* [N_TYPES] and more */

/* A random matrix as in a file, and its values. */
struct source {
    enum dtype type;
    uint32_t rows, cols;
    void *data;
    double *values; /* [rows][cols], exact */
    float *floats;  /* rounded once */
};

struct source source_make(struct rng *rng, enum dtype type, uint32_t rows, uint32_t cols);
void source_free(struct source *source);
/* Sets the floats of qblks, so that weights are about 1 or less. */
void source_fill_scales(struct rng *rng, enum dtype type, uint8_t *data, size_t n_qblks);
/* Returns a number of columns that the type allows, near the given one. */
uint32_t source_cols(enum dtype type, uint32_t cols);
/* The same of runs of equal rows, see struct weight_packing. */
struct weight source_pack_runs(const struct kern_table *table, const struct source *source, struct team *team,
                               uint32_t n_runs);
struct weight source_pack(const struct kern_table *table, const struct source *source, struct team *team);

#endif
