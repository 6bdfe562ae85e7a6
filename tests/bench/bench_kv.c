/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of the small parts of a step: prefix look-ups, hashing, taking blocks, sampling a token.
 *
 * Not a test: it prints a table and always succeeds.  Each figure is the best of several rounds, which shows
 * the code; the mean would measure other load on the machine. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cache/kv/pool.h"
#include "cache/kv/pool_cache.h"
#include "compute/sample/state.h"

#define N_BLOCKS     100000
#define CHAIN        1000
#define BLOCK_TOKENS 32
#define VOCAB        151936
#define ROUNDS       20
#define DRAWS        20

static void *grab(size_t n, size_t size)
{
    void *memory = calloc(n, size);

    ASSERT(memory);
    return memory;
}

static void report(const char *what, uint64_t best_ns, double n, const char *unit)
{
    printf("%-44s %12.1f ns per %-8s %14.0f per s\n", what, (double)best_ns / n, unit,
           n * (double)NS_PER_S / (double)best_ns);
}

/* A pool full of cached blocks; looks up the chain at the front many times. */
static void bench_pool(void)
{
    struct kv_pool_opts opts = {.n_blocks = N_BLOCKS, .block_tokens = BLOCK_TOKENS};
    struct block_hash *hashes = grab(N_BLOCKS, sizeof(*hashes));
    kv_block_id *ids = grab(N_BLOCKS, sizeof(*ids));
    uint32_t *tokens = grab((size_t)CHAIN * BLOCK_TOKENS, sizeof(*tokens));
    struct prefix_key key = {{0}};
    struct kv_pool *pool;
    struct rng rng;
    uint64_t match_ns = UINT64_MAX, hash_ns = UINT64_MAX, take_ns = UINT64_MAX;

    rng_init(&rng, 1);
    for (uint32_t i = 0; i < CHAIN * BLOCK_TOKENS; i++)
        tokens[i] = (uint32_t)rng_below(&rng, VOCAB);
    for (uint32_t i = CHAIN; i < N_BLOCKS; i++) {
        for (int j = 0; j < 16; j++)
            hashes[i].bytes[j] = (uint8_t)rng_u64(&rng);
    }
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin_ns = clock_now_ns();

        prefix_hash_chain(&key, tokens, CHAIN * BLOCK_TOKENS, BLOCK_TOKENS, hashes);
        uint64_t took_ns = clock_now_ns() - begin_ns;
        hash_ns = took_ns < hash_ns ? took_ns : hash_ns;
    }

    ASSERT(kv_pool_new(&opts, &pool) == 0);
    ASSERT(kv_take(pool, N_BLOCKS, ids) == 0);
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        kv_seal(pool, ids[i], &hashes[i]);
    for (uint32_t i = N_BLOCKS; i-- > 0;)
        kv_unref(pool, ids[i]);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin_ns = clock_now_ns();
        uint32_t n = kv_match(pool, hashes, CHAIN, ids);

        for (uint32_t i = n; i-- > 0;)
            kv_unref(pool, ids[i]);
        uint64_t took_ns = clock_now_ns() - begin_ns;
        match_ns = took_ns < match_ns ? took_ns : match_ns;
        ASSERT(n == CHAIN);

        begin_ns = clock_now_ns();
        ASSERT(kv_take(pool, CHAIN, ids) == 0); /* evicts */
        took_ns = clock_now_ns() - begin_ns;
        take_ns = took_ns < take_ns ? took_ns : take_ns;
        for (uint32_t i = 0; i < CHAIN; i++)
            kv_unref(pool, ids[i]);
    }
    report("prefix_hash_chain", hash_ns, CHAIN, "block");
    report("kv_match and kv_unref", match_ns, CHAIN, "block");
    report("kv_take, evicting or free", take_ns, CHAIN, "block");
    kv_pool_free(pool);
    free(tokens);
    free(ids);
    free(hashes);
}

static void bench_sampler(void)
{
    const struct {
        const char *name;
        struct sample_opts opts;
    } cases[] = {
        {"draw: greedy", {.top_p = 1}},
        {"draw: greedy with logprob", {.top_p = 1, .wants_logprob = true}},
        {"draw: temperature 1", {.temperature = 1, .top_p = 1}},
        {"draw: temperature 1, top-k 40", {.temperature = 1, .top_p = 1, .top_k = 40}},
        {"draw: temperature 1, top-p 0.95", {.temperature = 1, .top_p = 0.95f}},
        {"draw: temperature 2, top-p 0.999", {.temperature = 2, .top_p = 0.999f}},
        {"draw: temperature 1, min-p 0.05", {.temperature = 1, .top_p = 1, .min_p = 0.05f}},
    };
    float *logits = grab(VOCAB, sizeof(*logits));
    struct sampler *sampler;
    struct rng rng;

    rng_init(&rng, 2);
    for (uint32_t i = 0; i < VOCAB; i++) { /* roughly normal, with a few outliers */
        double sum = 0;
        for (int j = 0; j < 4; j++)
            sum += rng_unit(&rng);
        logits[i] = (float)((sum - 2) * 4 + (rng_below(&rng, 5000) == 0 ? 10 : 0));
    }
    ASSERT(sampler_new(VOCAB, &sampler) == 0);
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        uint64_t best_ns = UINT64_MAX;

        for (uint64_t position = 0; position < DRAWS; position++) {
            struct sample_result result;
            uint64_t begin_ns = clock_now_ns();

            sampler_draw(sampler, logits, &cases[c].opts, position, &result);
            uint64_t took_ns = clock_now_ns() - begin_ns;
            best_ns = took_ns < best_ns ? took_ns : best_ns;
        }
        report(cases[c].name, best_ns, 1, "token");
    }
    sampler_free(sampler);
    free(logits);
}

/* The cost that a sequence's own tokens add to a sample. */
static void bench_state(const char *name, const struct sample_opts *opts, float *logits, uint32_t n_distinct)
{
    struct sample_place place = {.tokens_left = 1000};
    struct sampler *sampler;
    uint64_t best_ns = UINT64_MAX;

    ASSERT(sampler_new(VOCAB, &sampler) == 0);
    ASSERT(sample_state_new(opts, NULL, VOCAB, 2 * n_distinct + 1, &place.state) == 0);
    for (uint32_t i = 0; i < n_distinct; i++) {
        token_id id = i * 7919 % VOCAB;

        sample_state_prompt(place.state, &id, 1);
        ASSERT(sample_state_push(place.state, id) == 0);
    }
    for (; place.position < DRAWS; place.position++) {
        struct sample_result result;
        uint64_t begin_ns = clock_now_ns();

        sampler_draw_at(sampler, logits, opts, &place, &result);
        uint64_t took_ns = clock_now_ns() - begin_ns;
        best_ns = took_ns < best_ns ? took_ns : best_ns;
    }
    report(name, best_ns, 1, "token");
    sample_state_free(place.state);
    sampler_free(sampler);
}

static void bench_states(void)
{
    struct sample_opts penalties = {
        .temperature = 1, .top_p = 1, .frequency_penalty = 0.5f, .repetition_penalty = 1.1f};
    struct sample_opts tops = {.temperature = 1, .top_p = 1, .wants_logprob = true, .n_top = SAMPLE_MAX_TOP};
    float *logits = grab(VOCAB, sizeof(*logits));
    struct rng rng;

    rng_init(&rng, 3);
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = (float)(rng_unit(&rng) * 20 - 10);
    bench_state("draw: temperature 1, penalties, 100 tokens", &penalties, logits, 100);
    bench_state("draw: temperature 1, penalties, 4000 tokens", &penalties, logits, 4000);
    bench_state("draw: temperature 1, 20 likeliest", &tops, logits, 0);
    free(logits);
}

int main(void)
{
    printf("%u blocks of %u tokens, vocabulary of %u\n", N_BLOCKS, BLOCK_TOKENS, VOCAB);
    bench_pool();
    bench_sampler();
    bench_states();
    return 0;
}
