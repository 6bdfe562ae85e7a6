/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of baton-model perplexity. */
#ifndef MODEL_PERPLEXITY_PRIV_H
#define MODEL_PERPLEXITY_PRIV_H

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

#endif
