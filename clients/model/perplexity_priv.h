/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of baton-model perplexity, and the file of a base's logits. */
#ifndef MODEL_PERPLEXITY_PRIV_H
#define MODEL_PERPLEXITY_PRIV_H

#include "base/fault.h"

#include <stdbool.h>
#include <stdint.h>

struct mean { /* running, by Welford's recurrence; a zeroed one is empty */
    uint64_t n;
    double mean;
    double squares; /* sum of squared distances from the mean */
};

struct score {
    struct mean nll;      /* -ln p(token) */
    struct mean base_nll; /* of the base, if there is one */
    struct mean kl;       /* sum p ln(p / q), p the base's */
    double kl_most;
    uint64_t n_same; /* places where both like the same token best */
};

/* One position: logits [vocab] of the model and of the base (NULL: none), and the text's next token. */
/* E_NUMERICS: the model, or the base, gives logits that are not finite. */
int score_add(struct score *score, const float *logits, const float *base, uint32_t vocab, uint32_t token);
double score_mean(const struct mean *mean);
double score_error(const struct mean *mean); /* standard error of the mean */
double score_perplexity(const struct score *score);

struct rows_head { /* what the rows depend on; no padding */
    char magic[8];
    char fingerprint[40]; /* of the base */
    uint64_t text;        /* a hash of the token ids */
    uint64_t n_windows;
    uint32_t kv, vocab, context, stride;
};
#define ROWS_MAGIC "batonkl"

struct rows;

/* Opens the file to read it, or, if there is none, to write it.  E_MISMATCH: of another head.  E_IO. */
int rows_open(const char *path, const struct rows_head *head, struct fault *fault, struct rows **out);
bool rows_are_there(const struct rows *rows); /* true: rows_get(), false: rows_put() */
int rows_get(struct rows *rows, float *row, uint32_t vocab, struct fault *fault);
int rows_put(struct rows *rows, const float *row, uint32_t vocab, struct fault *fault);
/* After the last row: a written file gets its name. */
int rows_finish(struct rows *rows, struct fault *fault);
void rows_close(struct rows *rows); /* removes an unfinished file */

#endif
