/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of experts. Hot path.
 *
 *     chance   softmax of all scores, or the sigmoid of each       (Shazeer et al. 2017; DeepSeek V3)
 *     order    sort key: chance + bias where a layer has a bias, else the score itself
 *     groups   only the experts of the best groups take part. The value of a group is its best expert,
 *              or the sum of its two best when there is a bias or a sigmoid
 *              (DeepSeek V2 section 2.2.2, V3 2.1.2)
 *     chosen   the n_used largest of order, largest first; of equal ones the lower index
 *     weight   chance of the chosen, divided by their sum (is_normed), times scale
 *
 * SparseMixer (Liu et al. 2024; Phi 3.5 MoE) gives each choice a softmax of its own, over the experts that are left
 * and nearly as good as the best of them. So weights add up to at most n_used, not to 1.
 *
 * A softmax over the chosen experts alone equals the normed softmax over all: the factor of the others
 * cancels.
 *
 * Numbers are double precision, with this file's own exponential, and are rounded to float once. So a
 * token's choice and weights depend only on its scores, not on the machine's math library or on other
 * tokens. NaN scores (a broken model) still give n_used different experts. */
#include "compute/model/moe_route_priv.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

/* e^x to better than float precision, |x| up to 700; operations of one rounding each, in one order. */
static double fixed_exp(double x)
{
    static const double TERMS[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                                   1.0 / 5040,     1.0 / 720,     1.0 / 120,    1.0 / 24,
                                   1.0 / 6,        1.0 / 2,       1.0,          1.0};
    double whole, r, sum = 0;
    uint64_t bits;

    if (!(x > -700)) /* also NaN */
        return 0;
    x = x < 700 ? x : 700;
    whole = x * 0x1.71547652b82fep0 + 0x1.8p52; /* rounds x / ln 2 */
    whole -= 0x1.8p52;
    r = (x - whole * 0x1.62e42fefa3800p-1) - whole * 0x1.ef35793c76730p-45;
    for (unsigned i = 0; i < ARRAY_LEN(TERMS); i++)
        sum = sum * r + TERMS[i];
    bits = (uint64_t)(1023 + (int64_t)whole) << 52;
    memcpy(&r, &bits, sizeof(r));
    return sum * r;
}

float route_sigmoid(double score)
{
    return (float)(1 / (1 + fixed_exp(-score)));
}

struct routing {
    const struct route_rule *rule;
    double chance[ROUTE_MAX_EXPERTS];
    double order[ROUTE_MAX_EXPERTS];
    bool is_out[ROUTE_MAX_EXPERTS]; /* excluded, or chosen already */
};

static void compute_chances(struct routing *r, const float *scores)
{
    uint32_t n = r->rule->n_experts;
    double most = scores[0], sum = 0;

    if (r->rule->gate == ROUTE_SIGMOID) {
        for (uint32_t i = 0; i < n; i++)
            r->chance[i] = 1 / (1 + fixed_exp(-(double)scores[i]));
        return;
    }
    for (uint32_t i = 1; i < n; i++)
        most = scores[i] > most ? scores[i] : most;
    for (uint32_t i = 0; i < n; i++) {
        r->chance[i] = fixed_exp(scores[i] - most);
        sum += r->chance[i];
    }
    for (uint32_t i = 0; i < n; i++)
        r->chance[i] /= sum;
}

/* The largest of n that is not excluded; of equal ones the first. */
static uint32_t best_of(const double *order, const bool *is_out, uint32_t n)
{
    uint32_t best = UINT32_MAX;

    for (uint32_t i = 0; i < n; i++)
        if (!is_out[i] && (best == UINT32_MAX || order[i] > order[best]))
            best = i;
    return best;
}

static double group_worth(const struct routing *r, uint32_t first, uint32_t n, bool two)
{
    bool is_out[ROUTE_MAX_EXPERTS] = {false};
    uint32_t best = best_of(r->order + first, is_out, n);
    double worth = r->order[first + best];

    is_out[best] = true;
    if (two && n > 1)
        worth += r->order[first + best_of(r->order + first, is_out, n)];
    return worth;
}

static void keep_best_groups(struct routing *r, bool two)
{
    uint32_t n_groups = r->rule->n_groups, each = r->rule->n_experts / n_groups;
    double worth[ROUTE_MAX_EXPERTS];
    bool is_kept[ROUTE_MAX_EXPERTS] = {false};

    for (uint32_t g = 0; g < n_groups; g++)
        worth[g] = group_worth(r, g * each, each, two);
    for (uint32_t i = 0; i < r->rule->n_groups_used; i++)
        is_kept[best_of(worth, is_kept, n_groups)] = true;
    for (uint32_t i = 0; i < r->rule->n_experts; i++)
        r->is_out[i] = !is_kept[i / each];
}

/* Experts whose scores differ from the best by more than this share do not count: twice the noise of training. */
static const double NEARLY = 2 * 0.01;

static void route_sparsemixer(struct routing *r, const float *scores, uint32_t *experts_out,
                              float *weights_out)
{
    for (uint32_t i = 0; i < r->rule->n_experts; i++)
        r->order[i] = scores[i];
    for (uint32_t k = 0; k < r->rule->n_used; k++) {
        uint32_t best = best_of(r->order, r->is_out, r->rule->n_experts);
        double most, sum = 0;

        ASSERT(best != UINT32_MAX);
        most = scores[best];
        for (uint32_t i = 0; i < r->rule->n_experts; i++) {
            double apart = (most - scores[i]) / fmax(fabs(scores[i]), most);

            if (!r->is_out[i] && !(apart > NEARLY))
                sum += fixed_exp(scores[i] - most);
        }
        r->is_out[best] = true;
        experts_out[k] = best;
        weights_out[k] = (float)(r->rule->scale / sum);
    }
}

void route_token(const struct route_rule *rule, const float *scores, const float *bias, uint32_t *experts_out,
                 float *weights_out)
{
    struct routing r = {.rule = rule};
    bool by_chance = bias != NULL || rule->gate == ROUTE_SIGMOID;
    double chosen = 0, by;

    if (rule->gate == ROUTE_SPARSEMIXER) {
        route_sparsemixer(&r, scores, experts_out, weights_out);
        return;
    }
    compute_chances(&r, scores);
    for (uint32_t i = 0; i < rule->n_experts; i++)
        r.order[i] = !by_chance ? scores[i] : r.chance[i] + (bias ? bias[i] : 0);
    if (rule->n_groups > 1)
        keep_best_groups(&r, by_chance);
    for (uint32_t i = 0; i < rule->n_used; i++) {
        uint32_t best = best_of(r.order, r.is_out, rule->n_experts);

        ASSERT(best != UINT32_MAX);
        r.is_out[best] = true;
        experts_out[i] = best;
        chosen += r.chance[best];
    }
    by = rule->scale;
    if (rule->is_normed || rule->gate == ROUTE_SOFTMAX_CHOSEN)
        by /= chosen;
    for (uint32_t i = 0; i < rule->n_used; i++)
        weights_out[i] = (float)(r.chance[experts_out[i]] * by);
}
