/* SPDX-License-Identifier: Apache-2.0 */
/* The effect of a sequence's own tokens on a sample: the rules by example, and random histories compared with
 * a plain count of the tokens.  The sample does not depend on how a history came about.  The logits are
 * restored. */
#include "tests/unit/check.h"
#include "tests/unit/text/grammar/grammar_help.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "compute/sample/state.h"

#define VOCAB  150 /* more than two spans, the last one short */
#define TOKENS 200

static struct rng dice;

static uint32_t below(uint32_t n)
{
    return (uint32_t)rng_below(&dice, n);
}

static struct sample_result draw(float *logits, uint32_t vocab, const struct sample_opts *opts,
                                 struct sample_state *state)
{
    struct sampler *sampler;
    struct sample_result result;
    struct sample_place place = {.position = 5, .state = state, .tokens_left = 1};

    assert_int_equal(sampler_new(vocab, &sampler), 0);
    sampler_draw_at(sampler, logits, opts, &place, &result);
    sampler_free(sampler);
    return result;
}

static void nothing_asked_for_is_no_state(void **state)
{
    struct sample_opts opts = {.repetition_penalty = 1, .temperature = 1, .top_p = 1};
    struct sample_state *none;
    float logits[] = {1, 2, 3};

    assert_int_equal(sample_state_new(&opts, NULL, 3, 10, &none), 0);
    assert_null(none);
    sample_state_prompt(none, (token_id[]){1}, 1);
    assert_int_equal(sample_state_push(none, 1), 0);
    sample_state_pop(none, (token_id[]){1}, 1);
    sample_state_commit(none);
    assert_null(sample_state_mask(none, 1));
    assert_true(sample_state_is_complete(none));
    assert_int_equal(sample_state_forced(none, NULL, 4), 0);
    opts.temperature = 0;
    assert_int_equal(draw(logits, 3, &opts, none).id, 2);
    sample_state_free(none);
}

static void penalties_by_example(void **state)
{
    struct sample_bias bias[] = {{.id = 4, .bias = 3},
                                 {.id = 99, .bias = 100}}; /* one id beyond the vocabulary */
    struct sample_opts opts = {.frequency_penalty = 0.5f,
                               .presence_penalty = 0.25f,
                               .repetition_penalty = 2,
                               .bias = bias,
                               .n_bias = 2};
    const token_id prompt[] = {0, 1, 1};
    struct sample_state *past;

    assert_int_equal(sample_state_new(&opts, NULL, 6, 10, &past), 0);
    sample_state_prompt(past, prompt, 3);
    assert_int_equal(sample_state_push(past, 1), 0);
    assert_int_equal(sample_state_push(past, 2), 0);
    assert_int_equal(sample_state_push(past, 2), 0);
    assert_true(sample_state_bent(past, 0, 4) == 2);                /* in the prompt only: repeated */
    assert_true(sample_state_bent(past, 0, -4) == -8);              /* below 0 in the other direction */
    assert_true(sample_state_bent(past, 1, 4) == 2 - 0.5f - 0.25f); /* in both, answered once */
    assert_true(sample_state_bent(past, 2, -1) == -2 - 2 * 0.5f - 0.25f);
    assert_true(sample_state_bent(past, 3, 7) == 7);
    assert_true(sample_state_bent(past, 4, 1) == 4);
    sample_state_pop(past, (token_id[]){2}, 1);
    assert_true(sample_state_bent(past, 2, -1) == -2 - 0.5f - 0.25f);
    sample_state_free(past);
}

static void stop_ids_are_barred_before_min_tokens(void **state)
{
    static const token_id stops[] = {0, 99}; /* one beyond the vocabulary */
    struct sample_bias bias[] = {{.id = 0, .bias = 100}};
    struct sample_opts opts = {
        .bias = bias, .n_bias = 1, .min_tokens = 2, .stop_ids = stops, .n_stop_ids = 2};
    float logits[] = {1, 3, 2, -8};
    struct sample_state *past;

    assert_int_equal(sample_state_new(&opts, NULL, 4, 10, &past), 0);
    for (float t = 0; t < 3; t++) {
        opts.temperature = t;
        assert_int_not_equal(draw(logits, 4, &opts, past).id, 0);
    }
    assert_false(draw(logits, 4, &opts, past).is_spoilt);
    assert_int_equal(sample_state_push(past, 1), 0);
    assert_true(sample_state_bars_stops(past));
    assert_int_equal(sample_state_push(past, 2), 0);
    assert_false(sample_state_bars_stops(past));
    assert_int_equal(draw(logits, 4, &opts, past).id, 0);
    sample_state_pop(past, (token_id[]){2}, 1); /* a rejected draft token */
    assert_int_not_equal(draw(logits, 4, &opts, past).id, 0);
    assert_true(logits[0] == 1 && logits[1] == 3);
    sample_state_free(past);

    opts.n_bias = opts.n_stop_ids = 0; /* nothing ends the answer */
    assert_int_equal(sample_state_new(&opts, NULL, 4, 10, &past), 0);
    assert_null(past);
}

/* Log probabilities come from the model's logits, before penalties and masks. */
static void logprobs_are_of_the_logits_as_they_came(void **state)
{
    struct sample_bias bias[] = {{.id = 0, .bias = 100}};
    struct sample_opts opts = {.wants_logprob = true, .n_top = 2, .bias = bias, .n_bias = 1};
    float logits[] = {1, 3, 2, -8};
    double sum = exp(1) + exp(3) + exp(2) + exp(-8);
    struct sample_state *past;
    struct sample_result result;

    assert_int_equal(sample_state_new(&opts, NULL, 4, 10, &past), 0);
    result = draw(logits, 4, &opts, past);
    assert_int_equal(result.id, 0);
    assert_true(fabs(result.logprob - (1 - log(sum))) < 1e-6);
    assert_int_equal(result.n_top, 2);
    assert_int_equal(result.top[0].id, 1);
    assert_int_equal(result.top[1].id, 2);
    assert_true(fabs(result.top[0].logprob - (3 - log(sum))) < 1e-6);
    assert_true(logits[0] == 1);
    sample_state_free(past);
}

static const float *order_logits; /* for qsort */

static int likelier_first(const void *a, const void *b)
{
    token_id i = *(const token_id *)a, j = *(const token_id *)b;

    if (order_logits[i] != order_logits[j])
        return order_logits[i] > order_logits[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

static void tops_are_the_head_of_a_sort(void **state)
{
    token_id order[VOCAB];
    float logits[VOCAB];

    rng_init(&dice, 3);
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t vocab = 1 + below(VOCAB), n_high = 0;
        struct sample_opts opts = {.temperature = 1, .top_p = 1, .wants_logprob = true, .n_top = below(26)};
        struct sample_result result;

        for (uint32_t i = 0; i < vocab; i++) {
            logits[i] = below(20) ? (float)below(40) / 4 - 5 : -INFINITY; /* equal values are frequent */
            n_high += logits[i] > -INFINITY;
            order[i] = i;
        }
        order_logits = logits;
        qsort(order, vocab, sizeof(order[0]), likelier_first);
        result = draw(logits, vocab, &opts, NULL);
        uint32_t n = opts.n_top < SAMPLE_MAX_TOP ? opts.n_top : SAMPLE_MAX_TOP;
        assert_int_equal(result.n_top, n < n_high ? n : n_high);
        for (uint32_t i = 0; i < result.n_top; i++) {
            assert_int_equal(result.top[i].id, order[i]);
            if (order[i] == result.id)
                assert_true(result.top[i].logprob == result.logprob);
        }
    }
}

/* ---- random histories ---- */

struct history {
    token_id tokens[TOKENS];
    uint32_t n_prompt, n;
};

static float plain_bent(const struct history *history, const struct sample_opts *opts, token_id id,
                        float logit)
{
    uint32_t n_prompt = 0, n_drawn = 0;

    for (uint32_t i = 0; i < opts->n_stop_ids && history->n - history->n_prompt < opts->min_tokens; i++)
        if (opts->stop_ids[i] == id)
            return -FLT_MAX;
    for (uint32_t i = 0; i < history->n; i++) {
        n_prompt += i < history->n_prompt && history->tokens[i] == id;
        n_drawn += i >= history->n_prompt && history->tokens[i] == id;
    }
    if (opts->repetition_penalty > 0 && n_prompt + n_drawn > 0)
        logit = logit > 0 ? logit / opts->repetition_penalty : logit * opts->repetition_penalty;
    if (n_drawn > 0)
        logit = logit - opts->frequency_penalty * (float)n_drawn - opts->presence_penalty;
    for (uint32_t i = 0; i < opts->n_bias; i++)
        logit += opts->bias[i].id == id ? opts->bias[i].bias : 0;
    return logit;
}

/* Pushes the answer, with draft tokens that are taken back in between. */
static void walk(struct sample_state *past, const struct history *history)
{
    sample_state_prompt(past, history->tokens, history->n_prompt);
    for (uint32_t i = history->n_prompt; i < history->n; i++) {
        token_id drafts[4];
        uint32_t n = below(5);

        for (uint32_t k = 0; k < n; k++) {
            drafts[k] = below(VOCAB);
            assert_int_equal(sample_state_push(past, drafts[k]), 0);
        }
        sample_state_pop(past, drafts, n);
        assert_int_equal(sample_state_push(past, history->tokens[i]), 0);
        sample_state_commit(past);
    }
}

static void draws_follow_from_the_tokens_alone(void **state)
{
    rng_init(&dice, 1);
    for (uint32_t round = 0; round < 300; round++) {
        struct sample_bias bias[2] = {{.id = below(VOCAB / 2), .bias = 1.5f},
                                      {.id = VOCAB / 2 + below(VOCAB), .bias = -2}};
        const token_id stops[2] = {below(VOCAB), below(VOCAB)};
        struct sample_opts opts = {.temperature = (float)below(3) / 2,
                                   .top_p = below(2) ? 1 : 0.8f,
                                   .top_k = below(2) ? 0 : 1 + below(30),
                                   .seed = round,
                                   .frequency_penalty = (float)below(5) / 4 - 0.5f,
                                   .presence_penalty = (float)below(5) / 4 - 0.5f,
                                   .repetition_penalty = below(2) ? 0 : 1.3f,
                                   .bias = bias,
                                   .n_bias = below(3),
                                   .min_tokens = below(2) ? 0 : below(TOKENS / 2),
                                   .stop_ids = stops,
                                   .n_stop_ids = below(3)};
        struct history history = {.n_prompt = below(TOKENS / 2)};
        float logits[VOCAB], bent[VOCAB], before[VOCAB];
        struct sample_state *past;

        history.n = history.n_prompt + below(TOKENS / 2);
        for (uint32_t i = 0; i < history.n; i++)
            history.tokens[i] = below(1 + below(VOCAB));
        for (uint32_t i = 0; i < VOCAB; i++)
            logits[i] = (float)below(1000) / 100 - 5;
        for (uint32_t i = 0; i < VOCAB; i++)
            bent[i] = plain_bent(&history, &opts, i, logits[i]);
        memcpy(before, logits, sizeof(before));
        assert_int_equal(sample_state_new(&opts, NULL, VOCAB, TOKENS, &past), 0);
        if (past != NULL)
            walk(past, &history);
        for (uint32_t i = 0; i < VOCAB; i++)
            assert_true(sample_state_bent(past, i, logits[i]) == bent[i]);
        assert_int_equal(draw(logits, VOCAB, &opts, past).id, draw(bent, VOCAB, &opts, NULL).id);
        assert_memory_equal(logits, before, sizeof(before));
        sample_state_free(past);
    }
}

/* ---- shapes ---- */

#define ROWS 400 /* more rows than the grammar's vocabulary: rows without a token are never sampled */

/* Penalties may make a finite logit infinite, which is no damage.  A logit that was infinite before is, with
 * and without penalties. */
static void penalties_are_not_taken_for_damage(void **state)
{
    struct sample_bias bias[] = {{.id = 1, .bias = FLT_MAX}};
    struct sample_opts opts = {
        .repetition_penalty = 1e-30f, .bias = bias, .n_bias = 1, .wants_logprob = true};
    float logits[] = {1e30f, FLT_MAX, 2, -8};
    struct sample_state *past;

    assert_int_equal(sample_state_new(&opts, NULL, 4, 10, &past), 0);
    assert_int_equal(sample_state_push(past, 0), 0);
    assert_true(isinf(sample_state_bent(past, 0, logits[0])));
    assert_true(isinf(sample_state_bent(past, 1, logits[1])));
    assert_false(draw(logits, 4, &opts, past).is_spoilt);
    for (uint32_t i = 0; i < 4; i++) {
        float before = logits[i];

        logits[i] = NAN;
        assert_true(draw(logits, 4, &opts, past).is_spoilt);
        opts.wants_logprob = false;
        assert_true(draw(logits, 4, &opts, past).is_spoilt);
        opts.wants_logprob = true;
        logits[i] = before;
    }
    assert_false(draw(logits, 4, &opts, past).is_spoilt);
    sample_state_free(past);
}

static bool is_set(const uint64_t *mask, token_id id)
{
    return (mask[id / 64] >> id % 64 & 1) != 0;
}

/* A mask equals -inf for all tokens that it forbids, with all other options. */
static void a_masked_draw_is_a_draw_without_the_others(void **state)
{
    struct tokenizer *tokenizer;
    struct grammar_vocab *vocab = small_vocab(&tokenizer);
    struct grammar *grammar = grammar_must(vocab, "{\"json\": {}}");

    rng_init(&dice, 9);
    for (uint32_t round = 0; round < 60; round++) {
        struct sample_opts opts = {.temperature = (float)below(3) / 2,
                                   .top_p = below(2) ? 1 : 0.8f,
                                   .top_k = below(2) ? 0 : 1 + below(30),
                                   .min_p = below(2) ? 0 : 0.1f,
                                   .wants_logprob = true,
                                   .n_top = 3,
                                   .presence_penalty = below(2) ? 0 : 0.5f};
        float logits[ROWS], masked[ROWS];
        struct sample_state *past;

        assert_int_equal(sample_state_new(&opts, grammar, ROWS, TOKENS, &past), 0);
        for (uint32_t left = 30; left > 0; left--) {
            const uint64_t *mask = sample_state_mask(past, left);
            struct sample_result got, plain;
            struct sampler *sampler;

            opts.seed = rng_u64(&dice);
            for (uint32_t i = 0; i < ROWS; i++) {
                logits[i] = (float)below(1000) / 100 - 5;
                masked[i] = is_set(mask, i) ? sample_state_bent(past, i, logits[i]) : -INFINITY;
                assert_true(i < grammar_vocab_size(grammar) || !is_set(mask, i));
            }
            struct sample_place place = {.position = 5, .state = past, .tokens_left = left};
            assert_int_equal(sampler_new(ROWS, &sampler), 0);
            sampler_draw_at(sampler, logits, &opts, &place, &got);
            sampler_draw(sampler, masked, &opts, 5, &plain);
            assert_int_equal(got.id, plain.id);
            sampler_draw(sampler, logits, &opts, 5, &plain);
            assert_int_equal(got.n_top, 3);
            assert_memory_equal(got.top, plain.top, sizeof(got.top));
            sampler_free(sampler);
            if (sample_state_push(past, got.id) < 0)
                fail_msg("%u was drawn and is not allowed", got.id);
            if (sample_state_is_complete(past) && below(3) == 0)
                break;
        }
        sample_state_free(past);
    }
    grammar_unref(grammar);
    grammar_vocab_unref(vocab);
    tokenizer_unref(tokenizer);
}

static bool is_one_of(const token_id *ids, size_t n, token_id id)
{
    while (n > 0 && ids[n - 1] != id)
        n--;
    return n > 0;
}

/* Where only a stop id is allowed, it ends the answer.  Where something else is, it is not drawn. */
static void a_complete_grammar_ends_before_min_tokens(void **state)
{
    struct tokenizer *tokenizer;
    struct grammar_vocab *vocab = small_vocab(&tokenizer);
    struct grammar *grammar = grammar_must(vocab, "{\"json\": {}}");
    size_t n_stops;
    const token_id *stops = tokenizer_stop_ids(tokenizer, &n_stops);
    struct sample_opts opts = {
        .top_p = 1, .min_tokens = TOKENS, .stop_ids = stops, .n_stop_ids = (uint32_t)n_stops};
    uint32_t n_complete = 0;

    rng_init(&dice, 21);
    for (uint32_t round = 0; round < 40; round++) {
        float logits[ROWS];
        struct sample_state *past;
        bool is_over = false;

        opts.temperature = (float)below(3) / 2;
        assert_int_equal(sample_state_new(&opts, grammar, ROWS, TOKENS, &past), 0);
        for (uint32_t left = 30; left > 0 && !is_over; left--) {
            const uint64_t *mask = sample_state_mask(past, 1);
            bool has_other = false;
            struct sample_result got;

            opts.seed = rng_u64(&dice);
            for (uint32_t i = 0; i < ROWS; i++) {
                logits[i] = is_one_of(stops, n_stops, i) ? 50 : (float)below(1000) / 100 - 5;
                has_other |= is_set(mask, i) && !is_one_of(stops, n_stops, i);
            }
            got = draw(logits, ROWS, &opts, past);
            is_over = got.id == TOKEN_NONE || is_one_of(stops, n_stops, got.id);
            assert_int_equal(is_over, !has_other);
            if (is_over)
                assert_true(sample_state_is_complete(past));
            else
                assert_int_equal(sample_state_push(past, got.id), 0);
        }
        n_complete += is_over;
        sample_state_free(past);
    }
    assert_true(n_complete > 0);
    grammar_unref(grammar);
    grammar_vocab_unref(vocab);
    tokenizer_unref(tokenizer);
}

/* Under a mask, damaged logits are detected among allowed tokens,
 * and among forbidden tokens of their spans. */
static void damage_is_reported_under_a_mask(void **state)
{
    struct tokenizer *tokenizer;
    struct grammar_vocab *vocab = small_vocab(&tokenizer);
    struct grammar *grammar = grammar_must(vocab, "{\"json\": {}}");
    struct sample_opts opts = {.temperature = 1, .top_p = 1};
    struct sample_state *past;
    float logits[ROWS];
    const uint64_t *mask;

    assert_int_equal(sample_state_new(&opts, grammar, ROWS, TOKENS, &past), 0);
    for (uint32_t i = 0; i < ROWS; i++)
        logits[i] = (float)(i % 13);
    assert_false(draw(logits, ROWS, &opts, past).is_spoilt);
    mask = sample_state_mask(past, 1);
    for (uint32_t i = 0; i < ROWS; i++) {
        float before = logits[i];

        if (mask[i / 64] == 0)
            continue;
        logits[i] = NAN;
        assert_true(draw(logits, ROWS, &opts, past).is_spoilt);
        logits[i] = before;
    }
    sample_state_free(past);
    grammar_unref(grammar);
    grammar_vocab_unref(vocab);
    tokenizer_unref(tokenizer);
}

/* With infinite logits a grammar still gets one of its tokens.  If it allows none, that is reported. */
static void a_grammar_holds_for_any_logits(void **state)
{
    struct tokenizer *tokenizer;
    struct grammar_vocab *vocab = small_vocab(&tokenizer);
    struct grammar *grammar = grammar_must(vocab, "{\"text\": \"ab\"}");
    struct sample_opts opts = {.temperature = 1, .top_p = 1, .wants_logprob = true};
    struct sample_state *past;
    float logits[ROWS];
    size_t n;
    const token_id *stop_ids = tokenizer_stop_ids(tokenizer, &n);

    for (uint32_t i = 0; i < ROWS; i++)
        logits[i] = i % 2 ? NAN : -INFINITY;
    assert_int_equal(sample_state_new(&opts, grammar, ROWS, TOKENS, &past), 0);
    while (!sample_state_is_complete(past)) {
        const uint64_t *mask = sample_state_mask(past, 1); /* as draw() does */
        token_id lowest = 0;

        while (!is_set(mask, lowest))
            lowest++;
        struct sample_result result = draw(logits, ROWS, &opts, past);
        assert_int_equal(result.id, lowest);
        assert_int_equal(sample_state_push(past, result.id), 0);
    }
    assert_int_equal(draw(logits, ROWS, &opts, past).id, stop_ids[0]);
    assert_int_equal(sample_state_push(past, stop_ids[0]), 0);
    sample_state_free(past);
    grammar_unref(grammar);
    grammar_vocab_unref(vocab);
    tokenizer_unref(tokenizer);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_asked_for_is_no_state),
        cmocka_unit_test(penalties_by_example),
        cmocka_unit_test(stop_ids_are_barred_before_min_tokens),
        cmocka_unit_test(a_complete_grammar_ends_before_min_tokens),
        cmocka_unit_test(logprobs_are_of_the_logits_as_they_came),
        cmocka_unit_test(penalties_are_not_taken_for_damage),
        cmocka_unit_test(damage_is_reported_under_a_mask),
        cmocka_unit_test(tops_are_the_head_of_a_sort),
        cmocka_unit_test(draws_follow_from_the_tokens_alone),
        cmocka_unit_test(a_masked_draw_is_a_draw_without_the_others),
        cmocka_unit_test(a_grammar_holds_for_any_logits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
