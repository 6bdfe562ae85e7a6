/* SPDX-License-Identifier: Apache-2.0 */
/* Exact sampling.
 *
 *   logits --weights--> --top-k--> --top-p--> --min-p--> --draw--> id
 *
 * A weight is exp((logit - highest) / temperature) as a 40-bit fixed-point integer. The highest is 2^40; a
 * weight below 2^-41 of it is 0 and drops out. All later arithmetic is on integers, where sums have no
 * order. So the work may run in any fast order, and two machines that agree on the weights agree on
 * everything. They do agree on the weights: exp is the polynomial below in plain double arithmetic (the
 * build forbids contraction), not the C library's, which differs between processors.
 *
 *    top-p   goal = ceil(top_p x sum), in double.  Tokens stay, heaviest first, until their weights
 *            reach the goal.
 *    min-p   weights below ceil(min_p x 2^40), in double, drop out.
 *    draw    r = floor(random64 x sum / 2^64).  Adding up the weights in order of id, take the first
 *            token at which the sum exceeds r.
 *
 * random64 is the first two words of the counter-based generator, key = seed, counter = (0, position).
 *
 * Nothing is sorted and little is stored. The vocabulary is read in spans of 64. Only the highest logit
 * and the sum of weights of each span are kept. The k-th highest of the spans' maxima is a lower bound for
 * the k heaviest tokens. Tokens that together weigh less than top-p drops cannot be in its set. The draw
 * finds the span first. So single tokens become candidates only in the few spans that matter. Among
 * candidates keep_best finds a cut by a radix search. It adds up amounts per bucket of the top 11 bits of
 * the logits' order keys and finds the bucket that reaches the goal. It drops all buckets below, and
 * continues inside that bucket with the next bits.
 *
 * A grammar's mask has one word of 64 bits per span. Spans without an allowed token are skipped; forbidden
 * tokens of other spans count as -inf from the start.
 *
 * Log probabilities are of the original logits: without temperature, filters, penalties or mask.
 *
 * Hot path: no allocation, no log. */
#include "compute/sample/sampler.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "compute/sample/state.h"
#include "text/grammar/weight.h"

#define VOCAB_MAX   (UINT32_C(1) << (63 - WEIGHT_BITS)) /* the sum of all weights stays below 2^63 */
#define SPAN        64u
#define LANES       8u
#define BUCKETS     2048u
#define DRAW_DOMAIN 0 /* counter_high: other uses of a request's seed have other values */

struct span {
    float max; /* logit after the rules of sampler_clean() */
    uint64_t sum;
};

struct candidate {
    uint32_t key; /* has the order of the logit */
    token_id id;
    uint64_t weight;
};

struct sampler {
    uint32_t vocab_size;
    uint32_t n_spans;
    uint32_t n; /* candidates, in order of id */
    struct span *spans;
    struct candidate *candidates;
};

struct view { /* the logits of one sampling */
    const float *logits;
    const uint64_t *mask; /* allowed tokens, one word per span; NULL: all */
    double highest;
    double per_temperature;
    float spoilt; /* 0; NaN once a non-finite logit was read */
};

enum measure { BY_COUNT, BY_WEIGHT };

int sampler_new(uint32_t vocab_size, struct sampler **out)
{
    if (vocab_size == 0 || vocab_size > VOCAB_MAX)
        return E_INVAL;

    struct sampler *sampler = calloc(1, sizeof(*sampler));
    if (sampler == NULL)
        return E_NOMEM;
    sampler->vocab_size = vocab_size;
    sampler->n_spans = (vocab_size + SPAN - 1) / SPAN;
    sampler->spans = calloc(sampler->n_spans, sizeof(*sampler->spans));
    sampler->candidates = calloc(vocab_size, sizeof(*sampler->candidates));
    if (sampler->spans == NULL || sampler->candidates == NULL) {
        sampler_free(sampler);
        return E_NOMEM;
    }
    *out = sampler;
    return 0;
}

void sampler_free(struct sampler *sampler)
{
    if (sampler == NULL)
        return;
    free(sampler->candidates);
    free(sampler->spans);
    free(sampler);
}

/* ---- logits ---- */

/* A logit after the rules: NaN is -inf, +inf the largest float, -0 is 0. */
static float sampler_clean(float logit)
{
    if (!(logit >= -FLT_MAX))
        return -INFINITY;
    return (logit > FLT_MAX ? FLT_MAX : logit) + 0.0f;
}

/* Unsigned integers in the order of the floats. */
static uint32_t order_key(float logit)
{
    uint32_t bits;

    memcpy(&bits, &logit, sizeof(bits));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static uint32_t span_len(const struct sampler *sampler, uint32_t span)
{
    uint32_t left = sampler->vocab_size - span * SPAN;

    return left < SPAN ? left : SPAN;
}

/* Adds x - x of each to *spoilt: 0 if x is finite, else NaN, which stays in the sum. */
static float max_of(const float *logits, uint32_t n, float *spoilt)
{
    float lanes[LANES], odd[LANES] = {0}, max = -INFINITY;
    uint32_t i = 0;

    for (uint32_t lane = 0; lane < LANES; lane++)
        lanes[lane] = -INFINITY;
    for (; i + LANES <= n; i += LANES) {
        for (uint32_t lane = 0; lane < LANES; lane++) { /* a NaN comparison is false */
            lanes[lane] = logits[i + lane] > lanes[lane] ? logits[i + lane] : lanes[lane];
            odd[lane] += logits[i + lane] - logits[i + lane];
        }
    }
    for (; i < n; i++) {
        max = logits[i] > max ? logits[i] : max;
        *spoilt += logits[i] - logits[i];
    }
    for (uint32_t lane = 0; lane < LANES; lane++) {
        max = lanes[lane] > max ? lanes[lane] : max;
        *spoilt += odd[lane];
    }
    return sampler_clean(max);
}

static bool sampler_is_allowed(const struct view *view, token_id id)
{
    return view->mask == NULL || (view->mask[id / SPAN] >> id % SPAN & 1) != 0;
}

/* The span's logits, -INFINITY for tokens that are forbidden or beyond the end. */
static void sampler_load(const struct sampler *sampler, const struct view *view, uint32_t span,
                         float out[SPAN])
{
    uint32_t n = span_len(sampler, span);
    uint64_t allowed = view->mask != NULL ? view->mask[span] : UINT64_MAX;

    memcpy(out, view->logits + span * SPAN, n * sizeof(*out));
    for (uint32_t i = n; i < SPAN; i++)
        out[i] = -INFINITY;
    for (uint32_t i = 0; allowed != UINT64_MAX && i < SPAN; i++)
        out[i] = allowed >> i & 1 ? out[i] : -INFINITY;
}

static float max_of_span(const struct sampler *sampler, struct view *view, uint32_t span)
{
    const float *own = view->logits + span * SPAN;
    float logits[SPAN], forbidden = 0;

    if (view->mask == NULL || view->mask[span] == UINT64_MAX)
        return max_of(own, span_len(sampler, span), &view->spoilt);
    if (view->mask[span] == 0)
        return -INFINITY;
    sampler_load(sampler, view, span, logits);
    for (uint32_t i = 0; i < span_len(sampler, span); i++)
        view->spoilt += own[i] - own[i];
    return max_of(logits, SPAN, &forbidden);
}

/* Fills the spans' maxima. Returns the first token with the highest logit. If all are -inf: the lowest
 * allowed token, or TOKEN_NONE if none is allowed. */
static token_id find_highest(struct sampler *sampler, struct view *view)
{
    uint32_t best = 0;
    token_id id = 0;

    for (uint32_t s = 0; s < sampler->n_spans; s++) {
        sampler->spans[s].max = max_of_span(sampler, view, s);
        if (sampler->spans[s].max > sampler->spans[best].max)
            best = s;
    }
    if (sampler->spans[best].max > -INFINITY) {
        id = best * SPAN;
        while (!sampler_is_allowed(view, id) || sampler_clean(view->logits[id]) != sampler->spans[best].max)
            id++;
        return id;
    }
    while (id < sampler->vocab_size && !sampler_is_allowed(view, id))
        id++;
    return id < sampler->vocab_size ? id : TOKEN_NONE;
}

/* ---- weights ---- */

/* (logit - highest) / temperature; 0 if positive (+inf), EXPONENT_MIN if less or NaN. */
static inline double exponent_of(const struct view *view, float logit)
{
    double below = (double)logit - view->highest;
    double x = (below > 0 ? 0 : below) * view->per_temperature;

    return x > EXPONENT_MIN ? x : EXPONENT_MIN;
}

/* Weights of a span; 0 for tokens that are forbidden or beyond its end. Returns their sum. */
static uint64_t sampler_weigh(const struct sampler *sampler, const struct view *view, uint32_t span,
                              uint64_t weights_out[SPAN])
{
    float logits[SPAN];
    double x[SPAN];
    uint64_t sum = 0;

    sampler_load(sampler, view, span, logits);
    for (uint32_t i = 0; i < SPAN; i++)
        x[i] = exponent_of(view, logits[i]);
    for (uint32_t i = 0; i < SPAN; i++)
        weights_out[i] = weight_of(x[i]);
    for (uint32_t i = 0; i < SPAN; i++)
        sum += weights_out[i];
    return sum;
}

static uint64_t heaviest_of(const struct sampler *sampler, const struct view *view, uint32_t span)
{
    return weight_of(exponent_of(view, sampler->spans[span].max));
}

/* Sums of weights of each span and of all; weights below at_least count as 0. */
static uint64_t weigh_all(struct sampler *sampler, const struct view *view, uint64_t at_least)
{
    uint64_t total = 0, weights[SPAN];

    for (uint32_t s = 0; s < sampler->n_spans; s++) {
        uint64_t sum = 0;

        if (sampler->spans[s].max > -INFINITY && heaviest_of(sampler, view, s) >= at_least) {
            sum = sampler_weigh(sampler, view, s, weights);
            for (uint32_t i = 0; at_least > 0 && i < SPAN; i++)
                sum -= weights[i] < at_least ? weights[i] : 0;
        }
        total += sampler->spans[s].sum = sum;
    }
    return total;
}

/* ---- candidates ---- */

/* Keeps the heaviest candidates until they reach goal (in number or weight). All together do reach it. */
static void keep_best(struct sampler *sampler, enum measure measure, uint64_t goal)
{
    static const unsigned shifts[] = {21, 10, 0};
    struct candidate *c = sampler->candidates;
    uint32_t cut = 0, mask = 0; /* known bits of the key at which the goal is reached */
    uint64_t above = 0;         /* amount of candidates whose key is above the known bits */

    for (size_t level = 0; level < 3; level++) {
        uint64_t sums[BUCKETS] = {0};
        uint32_t bucket = BUCKETS - 1, n = 0;

        for (uint32_t i = 0; i < sampler->n; i++) {
            if ((c[i].key & mask) == cut)
                sums[c[i].key >> shifts[level] & (BUCKETS - 1)] += measure == BY_COUNT ? 1 : c[i].weight;
        }
        while (above + sums[bucket] < goal)
            above += sums[bucket--];
        cut |= bucket << shifts[level];
        mask |= (BUCKETS - 1) << shifts[level];

        for (uint32_t i = 0; i < sampler->n; i++) {
            if ((c[i].key & mask) >= cut)
                c[n++] = c[i];
        }
        sampler->n = n;
    }

    /* Of those exactly at the cut, keeps the lowest ids. */
    uint32_t n = 0;
    for (uint32_t i = 0; i < sampler->n; i++) {
        if (c[i].key == cut) {
            if (above >= goal)
                continue;
            above += measure == BY_COUNT ? 1 : c[i].weight;
        }
        c[n++] = c[i];
    }
    sampler->n = n;
}

static void sampler_append(struct sampler *sampler, token_id id, float logit, uint64_t weight)
{
    sampler->candidates[sampler->n++] = (struct candidate){order_key(logit), id, weight};
}

/* A key that at least k tokens reach: the k-th highest of the spans' maxima. */
static uint32_t floor_under(struct sampler *sampler, uint32_t k)
{
    uint32_t key = UINT32_MAX;

    if (k > sampler->n_spans)
        return 0;
    sampler->n = 0;
    for (uint32_t s = 0; s < sampler->n_spans; s++)
        sampler_append(sampler, s, sampler->spans[s].max, 0);
    keep_best(sampler, BY_COUNT, k);
    for (uint32_t i = 0; i < sampler->n; i++)
        key = sampler->candidates[i].key < key ? sampler->candidates[i].key : key;
    return key;
}

/* The k highest above -inf, or all of them if there are fewer. */
static void gather_highest(struct sampler *sampler, const struct view *view, uint32_t k)
{
    uint32_t floor_key = floor_under(sampler, k);
    float logits[SPAN];

    sampler->n = 0;
    for (uint32_t s = 0; s < sampler->n_spans; s++) {
        if (order_key(sampler->spans[s].max) < floor_key || sampler->spans[s].max == -INFINITY)
            continue;
        sampler_load(sampler, view, s, logits);
        for (uint32_t i = 0; i < SPAN; i++) {
            float logit = sampler_clean(logits[i]);

            if (order_key(logit) >= floor_key && logit > -INFINITY)
                sampler_append(sampler, s * SPAN + i, logit, weight_of(exponent_of(view, logit)));
        }
    }
    if (sampler->n > k)
        keep_best(sampler, BY_COUNT, k);
}

/* The k heaviest with a weight above 0. */
static void gather_top_k(struct sampler *sampler, const struct view *view, uint32_t k)
{
    uint32_t n = 0;

    gather_highest(sampler, view, k);
    for (uint32_t i = 0; i < sampler->n; i++) {
        if (sampler->candidates[i].weight > 0)
            sampler->candidates[n++] = sampler->candidates[i];
    }
    sampler->n = n;
}

static uint64_t sum_candidates(const struct sampler *sampler)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < sampler->n; i++)
        sum += sampler->candidates[i].weight;
    return sum;
}

static uint64_t top_p_goal(float top_p, uint64_t sum)
{
    uint64_t goal = top_p > 0 ? (uint64_t)ceil((double)top_p * (double)sum) : 1;

    return goal < sum ? goal : sum; /* the product is rounded */
}

/* All tokens that may be in the top-p set. vocab_size tokens of weight too_light together weigh no more
 * than top-p leaves out. */
static uint64_t gather_top_p(struct sampler *sampler, const struct view *view, float top_p)
{
    uint64_t sum = weigh_all(sampler, view, 0), goal = top_p_goal(top_p, sum);
    uint64_t too_light = (sum - goal) / sampler->vocab_size, weights[SPAN];

    sampler->n = 0;
    for (uint32_t s = 0; s < sampler->n_spans; s++) {
        if (heaviest_of(sampler, view, s) <= too_light)
            continue;
        sampler_weigh(sampler, view, s, weights);
        for (uint32_t i = 0; i < SPAN; i++) {
            if (weights[i] > too_light)
                sampler_append(sampler, s * SPAN + i, sampler_clean(view->logits[s * SPAN + i]), weights[i]);
        }
    }
    return goal;
}

/* ---- the draw ---- */

static uint64_t random_below(uint64_t sum, const struct sample_opts *opts, uint64_t position)
{
    uint32_t words[4];

    rng_counter(opts->seed, DRAW_DOMAIN, position, words);
    return (uint64_t)((unsigned __int128)((uint64_t)words[0] << 32 | words[1]) * sum >> 64);
}

/* Draws among candidates of at least a weight; the heaviest always qualifies. */
static token_id draw_candidate(struct sampler *sampler, const struct sample_opts *opts, uint64_t at_least,
                               uint64_t position)
{
    const struct candidate *c = sampler->candidates;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < sampler->n; i++)
        sampler->candidates[i].weight = c[i].weight >= at_least ? c[i].weight : 0;
    uint64_t r = random_below(sum_candidates(sampler), opts, position);
    while ((sum += c->weight) <= r)
        c++;
    return c->id;
}

/* Draws among all tokens of at least a weight: first the span, then the token. */
static token_id draw_any(struct sampler *sampler, const struct view *view, const struct sample_opts *opts,
                         uint64_t at_least, uint64_t position)
{
    uint64_t r = random_below(weigh_all(sampler, view, at_least), opts, position);
    uint64_t weights[SPAN], sum = 0;
    uint32_t s = 0, i = 0;

    for (; sampler->spans[s].sum <= r; s++)
        r -= sampler->spans[s].sum;
    sampler_weigh(sampler, view, s, weights);
    while ((sum += weights[i] >= at_least ? weights[i] : 0) <= r)
        i++;
    return s * SPAN + i;
}

static token_id sampler_sample(struct sampler *sampler, const struct view *view,
                               const struct sample_opts *opts, uint64_t position)
{
    uint64_t at_least = 0;

    if (opts->min_p > 0)
        at_least = (uint64_t)ceil(fmin((double)opts->min_p, 1) * (double)WEIGHT_ONE);
    if (opts->top_k > 0 && opts->top_k < sampler->vocab_size) {
        gather_top_k(sampler, view, opts->top_k);
        if (opts->top_p < 1)
            keep_best(sampler, BY_WEIGHT, top_p_goal(opts->top_p, sum_candidates(sampler)));
    } else if (opts->top_p < 1) {
        uint64_t goal = gather_top_p(sampler, view, opts->top_p);

        keep_best(sampler, BY_WEIGHT, goal);
    } else {
        return draw_any(sampler, view, opts, at_least, position);
    }
    return draw_candidate(sampler, opts, at_least, position);
}

/* ---- log probabilities ---- */

struct outlook { /* inputs of a sampling's log probabilities */
    double highest, log_sum;
    bool has_any;
};

static float logprob_of(const struct outlook *outlook, float logit)
{
    if (!outlook->has_any)
        return -INFINITY;
    return (float)((double)sampler_clean(logit) - outlook->highest - outlook->log_sum);
}

/* Likeliest first; of equal ones the lowest id. */
static void put_tops(struct sampler *sampler, const struct view *view, const struct outlook *outlook,
                     uint32_t n_top, struct sample_result *out)
{
    if (n_top > SAMPLE_MAX_TOP)
        n_top = SAMPLE_MAX_TOP;
    if (n_top > sampler->vocab_size)
        n_top = sampler->vocab_size;
    if (n_top == 0 || !outlook->has_any)
        return;
    gather_highest(sampler, view, n_top);
    for (uint32_t i = 0; i < sampler->n; i++) {
        struct candidate best = sampler->candidates[i];
        uint32_t at = out->n_top++;

        for (; at > 0 && order_key(sampler_clean(view->logits[out->top[at - 1].id])) < best.key; at--)
            out->top[at] = out->top[at - 1];
        out->top[at] =
            (struct sample_top){.id = best.id, .logprob = logprob_of(outlook, view->logits[best.id])};
    }
}

/* Everything but the log probability of the sampled token. highest is the highest logit, and the spans'
 * maxima belong to these logits. */
static struct outlook sampler_look(struct sampler *sampler, const float *logits, double highest,
                                   const struct sample_opts *opts, struct sample_result *out)
{
    struct view view = {.logits = logits, .highest = highest, .per_temperature = 1};
    struct outlook outlook = {.highest = highest, .has_any = highest > -INFINITY};

    if (outlook.has_any)
        outlook.log_sum = log((double)weigh_all(sampler, &view, 0) / (double)WEIGHT_ONE);
    put_tops(sampler, &view, &outlook, opts->n_top, out);
    return outlook;
}

/* ---- sampling ---- */

static token_id draw_from(struct sampler *sampler, struct view *view, const struct sample_opts *opts,
                          uint64_t position)
{
    token_id id = find_highest(sampler, view);

    if (id == TOKEN_NONE)
        return id;
    view->highest = (double)sampler_clean(view->logits[id]);
    if (view->highest > -INFINITY && opts->temperature > 0) {
        view->per_temperature = 1 / (double)opts->temperature;
        id = sampler_sample(sampler, view, opts, position);
    }
    return id;
}

void sampler_draw(struct sampler *sampler, const float *logits, const struct sample_opts *opts,
                  uint64_t position, struct sample_result *out)
{
    struct view view = {.logits = logits};

    *out = (struct sample_result){.id = draw_from(sampler, &view, opts, position)};
    out->is_spoilt = isnan(view.spoilt);
    if (opts->wants_logprob) {
        struct outlook outlook = sampler_look(sampler, logits, view.highest, opts, out);

        out->logprob = logprob_of(&outlook, logits[out->id]);
    }
}

int sampler_score(struct sampler *sampler, const float *logits, token_id id, uint32_t n_top,
                  struct sample_result *out)
{
    const struct sample_opts opts = {.wants_logprob = true, .n_top = n_top};
    struct view view = {.logits = logits};
    struct outlook outlook;

    if (id >= sampler->vocab_size)
        return E_INVAL;
    *out = (struct sample_result){.id = id};
    outlook = sampler_look(sampler, logits, (double)sampler_clean(logits[find_highest(sampler, &view)]),
                           &opts, out);
    out->logprob = logprob_of(&outlook, logits[id]);
    out->is_spoilt = isnan(view.spoilt);
    return 0;
}

static float spoilt_sum(const struct sampler *sampler, const float *logits)
{
    float spoilt = 0;

    (void)max_of(logits, sampler->vocab_size, &spoilt);
    return spoilt;
}

void sampler_draw_at(struct sampler *sampler, float *logits, const struct sample_opts *opts,
                     const struct sample_place *place, struct sample_result *out)
{
    struct view view = {.logits = logits};
    struct outlook outlook = {0};

    if (place->state == NULL) {
        sampler_draw(sampler, logits, opts, place->position, out);
        return;
    }
    *out = (struct sample_result){0};
    if (opts->wants_logprob)
        outlook = sampler_look(sampler, logits, (double)sampler_clean(logits[find_highest(sampler, &view)]),
                               opts, out);
    view.mask = sample_state_mask(place->state, place->tokens_left);
    sample_state_bend(place->state, logits);
    out->id = draw_from(sampler, &view, opts, place->position);
    sample_state_unbend(place->state, logits);
    /* Penalties may have made a finite logit infinite: check the original logits. */
    out->is_spoilt = isnan(view.spoilt) && isnan(spoilt_sum(sampler, logits));
    if (opts->wants_logprob && out->id != TOKEN_NONE)
        out->logprob = logprob_of(&outlook, logits[out->id]);
}
