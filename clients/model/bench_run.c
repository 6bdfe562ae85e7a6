/* SPDX-License-Identifier: Apache-2.0 */
/* One benchmark test: seats, a context, and the clock around the steps.
 *
 * Prompts are random tokens.  A context that a test only reads (--depth, batches) is filled with random
 * numbers.  Reading them costs the same as reading computed KV, and saves 4096 tokens of prefill per test. */
#include "clients/model/bench_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

static uint32_t first_position(const struct bench_test *test)
{
    if (test->kind == BENCH_BATCH && test->depth == 0)
        return BENCH_BATCH_DEPTH;
    return test->depth;
}

/* Numbers between -1 and 1 in the arena's type. */
static void fill_context(struct rig *rig)
{
    enum kv_type type = model_kv_layout(rig->model)->type;
    size_t n_words = rig->arena.len_bytes / sizeof(uint64_t);
    uint64_t *words = rig->arena.base;
    struct rng rng;

    rng_init(&rng, 7);
    for (size_t i = 0; i < n_words; i++) {
        uint64_t bits = rng_u64(&rng);

        /* Random sign and fraction, and an exponent for a size of a quarter to one. */
        if (type != KV_F32)
            words[i] = (bits & UINT64_C(0x87ff87ff87ff87ff)) | UINT64_C(0x3000300030003000);
        else
            words[i] = (bits & UINT64_C(0x80ffffff80ffffff)) | UINT64_C(0x3e8000003e800000);
    }
}

/* Positions that a sequence of the test needs. */
static uint64_t bench_positions(const struct bench_test *test)
{
    return (uint64_t)first_position(test) + (test->kind == BENCH_BATCH ? BENCH_BATCH_STEPS : test->n);
}

int bench_check(const struct rig *rig, const struct bench_test *test, struct fault *fault)
{
    if (bench_positions(test) > model_config(rig->model)->context_length)
        return fault_set(fault, E_RANGE, "%llu tokens are more than the model's context of %u",
                         (unsigned long long)bench_positions(test), model_config(rig->model)->context_length);
    return 0;
}

int bench_prepare(struct rig *rig, const struct bench_test *test, struct fault *fault)
{
    struct rig_seats seats = {
        .n_sequences = 1, .batch_tokens = 1, .n_tokens = (uint32_t)bench_positions(test)};
    struct bench_test once = *test;
    double unused;
    int rc;

    if (test->kind == BENCH_PREFILL)
        seats.batch_tokens = test->n < test->chunk ? test->n : test->chunk;
    if (test->kind == BENCH_BATCH)
        seats.n_sequences = seats.batch_tokens = test->n;
    rc = rig_start(rig, &seats, fault);
    if (rc < 0)
        return rc;
    fill_context(rig);
    if (test->kind == BENCH_DECODE && test->n > 4)
        once.n = 4;
    rc = bench_once(rig, &once, &unused);
    return rc < 0 ? fault_set(fault, rc, "%s", err_text(rc)) : 0;
}

/* ---- the three kinds ---- */

static int run_prefill(struct rig *rig, const struct bench_test *test, const token_id *tokens)
{
    const struct sample_opts greedy = {.top_p = 1};
    struct rig_feed feed = {
        .tokens = tokens, .n_tokens = test->n, .position = test->depth, .sample = &greedy};
    struct sample_result drawn;

    return rig_feed(rig, &feed, &drawn);
}

static int run_decode(struct rig *rig, const struct bench_test *test, const token_id *tokens)
{
    const struct sample_opts greedy = {.top_p = 1};
    struct sample_result drawn;
    int rc = 0;

    for (uint32_t i = 0; i < test->n && rc == 0; i++) {
        struct rig_feed feed = {
            .tokens = tokens + i, .n_tokens = 1, .position = test->depth + i, .sample = &greedy};

        rc = rig_feed(rig, &feed, &drawn);
    }
    return rc;
}

static int run_batch(struct rig *rig, const struct bench_test *test, const token_id *tokens)
{
    struct engine_item *items = calloc(test->n, sizeof(*items));
    struct kv_state_cut *cuts = calloc(test->n, sizeof(*cuts));
    struct sample_result *drawn = calloc(test->n, sizeof(*drawn));
    int rc = items && cuts && drawn ? 0 : E_NOMEM;

    for (uint32_t step = 0; step < BENCH_BATCH_STEPS && rc == 0; step++) {
        for (uint32_t i = 0; i < test->n; i++) {
            items[i] = (struct engine_item){.tokens = tokens + i,
                                            .n_tokens = 1,
                                            .position = first_position(test) + step,
                                            .blocks = rig->blocks + (size_t)i * rig->per_sequence,
                                            .n_blocks = rig->per_sequence,
                                            .wants_token = true,
                                            .sample = {.top_p = 1}};
            rig_put_state(rig, i, &items[i], &cuts[i]);
        }
        rc = rig_is_interrupted()
                 ? E_CANCELLED
                 : engine_step(&rig->engine, &(struct engine_batch){.items = items, .n_items = test->n},
                               drawn);
    }
    free(items);
    free(cuts);
    free(drawn);
    return rc;
}

int bench_once(struct rig *rig, const struct bench_test *test, double *seconds_out)
{
    uint32_t vocab = rig->engine.info.vocab_size;
    token_id *tokens = calloc(test->n, sizeof(*tokens));
    uint64_t began_ns;
    struct rng rng;
    int rc = E_INTERNAL;

    if (tokens == NULL)
        return E_NOMEM;
    rng_init(&rng, test->n);
    for (uint32_t i = 0; i < test->n; i++)
        tokens[i] = (token_id)rng_below(&rng, vocab);
    began_ns = clock_now_ns();
    switch (test->kind) {
    case BENCH_PREFILL:
        rc = run_prefill(rig, test, tokens);
        break;
    case BENCH_DECODE:
        rc = run_decode(rig, test, tokens);
        break;
    case BENCH_BATCH:
        rc = run_batch(rig, test, tokens);
        break;
    }
    if (rc == 0)
        *seconds_out = (double)(clock_now_ns() - began_ns) / NS_PER_S;
    free(tokens);
    return rc;
}
