/* SPDX-License-Identifier: Apache-2.0 */
/* From logits to figures: log-softmax, running means with their errors, and the divergence of two
 * distributions.
 *
 * All arithmetic is in double.  Each logit is used only as its difference from the largest. */
#include "clients/model/perplexity_priv.h"

#include <math.h>
#include <stddef.h>

#include "base/err.h"

static void mean_add(struct mean *mean, double value)
{
    double off = value - mean->mean;

    mean->n++;
    mean->mean += off / (double)mean->n;
    mean->squares += off * (value - mean->mean);
}

double score_mean(const struct mean *mean)
{
    return mean->mean;
}

double score_error(const struct mean *mean)
{
    return mean->n < 2 ? 0 : sqrt(mean->squares / (double)(mean->n - 1) / (double)mean->n);
}

double score_perplexity(const struct score *score)
{
    return exp(score->nll.mean);
}

/* ln of the sum of exp of the logits; *best_out is the first of the largest. */
static double log_sum(const float *logits, uint32_t vocab, uint32_t *best_out)
{
    uint32_t best = 0;
    double sum = 0;

    for (uint32_t i = 1; i < vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - (double)logits[best]);
    *best_out = best;
    return (double)logits[best] + log(sum);
}

int score_add(struct score *score, const float *logits, const float *base, uint32_t vocab, uint32_t token)
{
    uint32_t best, base_best;
    double norm = log_sum(logits, vocab, &best), kl = 0;

    if (!isfinite(norm - (double)logits[token]))
        return E_NUMERICS;
    mean_add(&score->nll, norm - (double)logits[token]);
    if (base == NULL)
        return 0;

    double base_norm = log_sum(base, vocab, &base_best);
    if (!isfinite(base_norm - (double)base[token]))
        return E_NUMERICS;
    for (uint32_t i = 0; i < vocab; i++) {
        double log_p = (double)base[i] - base_norm;

        kl += exp(log_p) * (log_p - ((double)logits[i] - norm));
    }
    mean_add(&score->base_nll, base_norm - (double)base[token]);
    mean_add(&score->kl, kl);
    score->kl_most = kl > score->kl_most ? kl : score->kl_most;
    score->n_same += best == base_best;
    return 0;
}
