/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling: the rules by example,
 * the distribution compared with a plain sort in doubles, and frozen samples. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"
#include "compute/sample/sampler.h"

#define VOCAB 40
#define CROWD 150 /* more than two spans, the last one short */

static const struct sample_opts plain = {.temperature = 1, .top_p = 1, .seed = 7};

static struct sample_result draw(uint32_t vocab, const float *logits, const struct sample_opts *opts,
                                 uint64_t position)
{
    struct sampler *sampler;
    struct sample_result result;

    assert_int_equal(sampler_new(vocab, &sampler), 0);
    sampler_draw(sampler, logits, opts, position, &result);
    sampler_free(sampler);
    return result;
}

static void greedy_takes_the_highest_and_lowest_id(void **state)
{
    const float logits[] = {-3, 2, NAN, 5, 5, -INFINITY};
    struct sample_opts opts = plain;

    opts.temperature = 0;
    assert_int_equal(draw(6, logits, &opts, 1).id, 3);
    opts.temperature = -1;
    assert_int_equal(draw(6, logits, &opts, 1).id, 3);
    opts.temperature = NAN;
    assert_int_equal(draw(6, logits, &opts, 1).id, 3);
}

static void odd_logits_are_survived(void **state)
{
    const float none[] = {NAN, -INFINITY, NAN, -INFINITY};
    const float huge[] = {1, INFINITY, FLT_MAX, -FLT_MAX};
    const float zeros[] = {-0.0f, 0.0f};
    struct sample_opts opts = plain;

    opts.wants_logprob = true;
    for (uint64_t position = 0; position < 50; position++) {
        assert_int_equal(draw(4, none, &opts, position).id, 0);
        token_id id = draw(4, huge, &opts, position).id;
        assert_true(id == 1 || id == 2); /* +inf counts as the largest float */
    }
    assert_true(isinf(draw(4, none, &opts, 0).logprob));
    opts.top_k = 1; /* equal: the lower id */
    assert_int_equal(draw(2, zeros, &opts, 3).id, 0);
    opts.temperature = 0;
    assert_int_equal(draw(4, huge, &opts, 0).id, 1);
    assert_int_equal(draw(4, none, &opts, 0).id, 0);
}

/* One NaN or infinity at any place is detected, whether sampled or scored.
 * No trace of an earlier sampling stays. */
static void odd_logits_are_reported(void **state)
{
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY};
    static const uint32_t places[] = {0, 7, 63, 64, 100, 128, CROWD - 1};
    struct sampler *sampler;

    assert_int_equal(sampler_new(CROWD, &sampler), 0);
    for (unsigned how = 0; how < 8; how++)
        for (size_t p = 0; p < ARRAY_LEN(places); p++)
            for (size_t v = 0; v <= ARRAY_LEN(odd); v++) { /* the last round has none */
                const bool is_odd = v < ARRAY_LEN(odd);
                struct sample_opts opts = {.temperature = how & 1 ? 0.7f : 0,
                                           .top_p = how & 2 ? 0.5f : 1,
                                           .top_k = how & 2 ? 3 : 0,
                                           .wants_logprob = (how & 4) != 0,
                                           .n_top = how & 4 ? 5 : 0};
                struct sample_result result;
                float logits[CROWD];

                for (uint32_t i = 0; i < CROWD; i++)
                    logits[i] = (float)((i * 37) % 101) / 10 - 5;
                if (is_odd)
                    logits[places[p]] = odd[v];
                sampler_draw(sampler, logits, &opts, 3, &result);
                assert_int_equal(result.is_spoilt, is_odd);
                assert_int_equal(sampler_score(sampler, logits, 5, opts.n_top, &result), 0);
                assert_int_equal(result.is_spoilt, is_odd);
            }
    sampler_free(sampler);
}

/* Large logits are valid, however many are added. */
static void large_logits_are_not_odd(void **state)
{
    float logits[CROWD];
    struct sample_opts opts = plain;

    for (uint32_t i = 0; i < CROWD; i++)
        logits[i] = i % 2 ? FLT_MAX : -FLT_MAX;
    opts.wants_logprob = true;
    assert_false(draw(CROWD, logits, &opts, 1).is_spoilt);
}

static void extreme_options_are_survived(void **state)
{
    const float logits[] = {1, 3, 2};
    struct sample_opts opts = plain;

    opts.temperature = FLT_TRUE_MIN;
    assert_int_equal(draw(3, logits, &opts, 9).id, 1);
    opts.temperature = INFINITY;
    assert_true(draw(3, logits, &opts, 9).id < 3);
    opts = plain;
    opts.top_p = 0;
    assert_int_equal(draw(3, logits, &opts, 9).id, 1);
    opts.top_p = -5;
    assert_int_equal(draw(3, logits, &opts, 9).id, 1);
    opts = plain;
    opts.min_p = 7;
    assert_int_equal(draw(3, logits, &opts, 9).id, 1);
    opts = plain;
    opts.top_k = UINT32_MAX;
    assert_true(draw(3, logits, &opts, 9).id < 3);
    opts.top_p = opts.min_p = NAN;
    assert_true(draw(3, logits, &opts, 9).id < 3);
    assert_int_equal(draw(1, logits, &opts, 9).id, 0);

    struct sampler *sampler = NULL;
    assert_int_equal(sampler_new(0, &sampler), E_INVAL);
    assert_int_equal(sampler_new(UINT32_MAX, &sampler), E_INVAL);
    assert_null(sampler);
    sampler_free(NULL);
}

static void logprob_is_of_the_untempered_distribution(void **state)
{
    const float logits[] = {1, 3, 2, -8};
    struct sample_opts opts = {.temperature = 0.2f, .top_p = 0.5f, .top_k = 1, .wants_logprob = true};
    double sum = exp(1) + exp(3) + exp(2) + exp(-8);
    struct sample_result result = draw(4, logits, &opts, 0);

    assert_int_equal(result.id, 1);
    assert_true(fabs(result.logprob - (3 - log(sum))) < 1e-6);
    opts.wants_logprob = false;
    assert_true(draw(4, logits, &opts, 0).logprob == 0);
}

/* ---- the distribution ---- */

static const float *order_logits; /* for qsort */

static int heavier_first(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;

    if (order_logits[i] != order_logits[j])
        return order_logits[i] > order_logits[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

/* Fills probabilities_out: [vocab], by sorting everything. */
static void naive(uint32_t vocab, const float *logits, const struct sample_opts *opts,
                  double *probabilities_out)
{
    uint32_t *order = calloc(vocab, sizeof(*order));
    uint32_t n = opts->top_k && opts->top_k < vocab ? opts->top_k : vocab, n_kept = 0;
    double sum = 0, kept = 0;

    assert_non_null(order);
    for (uint32_t i = 0; i < vocab; i++) {
        order[i] = i;
        probabilities_out[i] = 0;
    }
    order_logits = logits;
    qsort(order, vocab, sizeof(*order), heavier_first);
    double highest = (double)logits[order[0]];
    for (uint32_t i = 0; i < n; i++)
        sum += exp(((double)logits[order[i]] - highest) / (double)opts->temperature);
    while (n_kept < n && (n_kept == 0 || kept < (double)opts->top_p * sum))
        kept += exp(((double)logits[order[n_kept++]] - highest) / (double)opts->temperature);
    double total = 0;
    for (uint32_t i = 0; i < n_kept; i++) {
        double weight = exp(((double)logits[order[i]] - highest) / (double)opts->temperature);

        if (weight >= (double)opts->min_p)
            total += probabilities_out[order[i]] = weight;
    }
    for (uint32_t i = 0; i < vocab; i++)
        probabilities_out[i] /= total;
    free(order);
}

static void check_distribution(struct rng *rng, const struct sample_opts *opts)
{
    enum { DRAWS = 2500 };
    float logits[CROWD];
    double p[CROWD];
    uint32_t seen[CROWD] = {0};
    struct sampler *sampler;

    for (uint32_t i = 0; i < CROWD; i++) {
        logits[i] = (float)(rng_unit(rng) * 8 - 4);
        if (i && rng_below(rng, 4) == 0)
            logits[i] = logits[rng_below(rng, i)]; /* ties */
    }
    naive(CROWD, logits, opts, p);
    assert_int_equal(sampler_new(CROWD, &sampler), 0);
    for (uint64_t position = 0; position < DRAWS; position++) {
        struct sample_result result;

        sampler_draw(sampler, logits, opts, position, &result);
        assert_true(result.id < CROWD);
        assert_true(p[result.id] > 0);
        seen[result.id]++;
    }
    for (uint32_t i = 0; i < CROWD; i++) {
        double sigma = sqrt(DRAWS * p[i] * (1 - p[i]));

        assert_true(fabs(seen[i] - DRAWS * p[i]) <= 5 * sigma + 1);
    }
    sampler_free(sampler);
}

static void draws_follow_the_distribution(void **state)
{
    struct rng rng;

    rng_init(&rng, 3);
    for (int i = 0; i < 24; i++) {
        struct sample_opts opts = {.temperature = (float)(0.3 + rng_unit(&rng) * 2),
                                   .top_p = rng_below(&rng, 2) ? (float)rng_unit(&rng) : 1,
                                   .min_p = rng_below(&rng, 3) ? 0 : (float)rng_unit(&rng) * 0.3f,
                                   .top_k = rng_below(&rng, 2) ? (uint32_t)rng_below(&rng, CROWD + 5) : 0,
                                   .seed = rng_u64(&rng)};
        check_distribution(&rng, &opts);
    }
}

/* All filters at the size of a real vocabulary:
 * no token outside the kept set, and most of the kept set occurs. */
static void large_vocabularies_keep_the_right_set(void **state)
{
    enum { LARGE = 49985 }; /* the last span has one token */
    const struct sample_opts cases[] = {
        {.temperature = 1, .top_p = 0.9f, .seed = 1},
        {.temperature = 1.5f, .top_p = 1, .top_k = 40, .seed = 2},
        {.temperature = 0.8f, .top_p = 0.95f, .top_k = 1000, .seed = 3},
        {.temperature = 2, .top_p = 1, .min_p = 0.02f, .seed = 4},
        {.temperature = 1, .top_p = 1, .seed = 5},
    };
    float *logits = malloc(LARGE * sizeof(*logits));
    double *p = malloc(LARGE * sizeof(*p));
    struct sampler *sampler;
    struct rng rng;

    assert_non_null(logits);
    assert_non_null(p);
    rng_init(&rng, 5);
    for (uint32_t i = 0; i < LARGE; i++) {
        double sum = 0; /* roughly normal */
        for (int j = 0; j < 4; j++)
            sum += rng_unit(&rng);
        logits[i] = (float)((sum - 2) * 6);
    }
    assert_int_equal(sampler_new(LARGE, &sampler), 0);
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        naive(LARGE, logits, &cases[c], p);
        for (uint64_t position = 0; position < 8; position++) {
            struct sample_result result;

            sampler_draw(sampler, logits, &cases[c], position, &result);
            assert_true(p[result.id] > 0);
        }
    }
    sampler_free(sampler);
    free(logits);
    free(p);
}

static void draws_depend_on_seed_and_position_only(void **state)
{
    float logits[VOCAB], other[VOCAB];
    struct sample_opts opts = plain;
    struct sample_result first[20], again;
    struct sampler *sampler;
    uint32_t n_differ = 0;

    for (uint32_t i = 0; i < VOCAB; i++) {
        logits[i] = (float)(i * 7 % 11) / 4;
        other[i] = (float)(i * 5 % 13);
    }
    assert_int_equal(sampler_new(VOCAB, &sampler), 0);
    for (uint64_t i = 0; i < 20; i++)
        sampler_draw(sampler, logits, &opts, i, &first[i]);
    for (uint64_t i = 20; i-- > 0;) { /* another order, with other work in between */
        sampler_draw(sampler, other, &opts, i, &again);
        sampler_draw(sampler, logits, &opts, i, &again);
        assert_int_equal(again.id, first[i].id);
    }
    opts.seed++;
    for (uint64_t i = 0; i < 20; i++) {
        sampler_draw(sampler, logits, &opts, i, &again);
        n_differ += again.id != first[i].id;
    }
    assert_true(n_differ > 10);
    sampler_free(sampler);
}

/* Samples are frozen, because other workers, perhaps of another version, continue answers.  The ids come from
 * an implementation in another language (sorting, big integers). */
static void draws_are_frozen(void **state)
{
    static const token_id expected[4][8] = {
        {32, 21, 5, 33, 4, 9, 4, 31},
        {31, 20, 4, 32, 4, 6, 4, 31},
        {33, 21, 31, 19, 4, 7, 4, 18},
        {4, 21, 18, 8, 37, 5, 31, 18},
    };
    const struct sample_opts cases[4] = {
        {.temperature = 1, .top_p = 1, .seed = 42},
        {.temperature = 0.7f, .top_p = 0.9f, .seed = 42},
        {.temperature = 1.3f, .top_p = 1, .top_k = 12, .seed = UINT64_MAX},
        {.temperature = 1, .top_p = 0.99f, .min_p = 0.05f, .top_k = 30, .seed = 0},
    };
    float logits[VOCAB];

    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = (float)((i * 37 + 11) % VOCAB) / 9 - 2;
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        for (uint64_t i = 0; i < 8; i++)
            assert_int_equal(draw(VOCAB, logits, &cases[c], 1000 + i).id, expected[c][i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_highest_and_lowest_id),
        cmocka_unit_test(odd_logits_are_survived),
        cmocka_unit_test(odd_logits_are_reported),
        cmocka_unit_test(large_logits_are_not_odd),
        cmocka_unit_test(extreme_options_are_survived),
        cmocka_unit_test(logprob_is_of_the_untempered_distribution),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(large_vocabularies_keep_the_right_set),
        cmocka_unit_test(draws_depend_on_seed_and_position_only),
        cmocka_unit_test(draws_are_frozen),
    };
    return cmocka_run_group_tests_name("compute/sample/sampler", tests, NULL, NULL);
}
