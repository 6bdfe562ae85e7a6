/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a grammar per token, beside the other cost of a token.
 *
 *     bench_grammar VOCABULARY.gguf [STEP_MS [ROUNDS]]
 *
 * For each schema the benchmark writes a typical answer token by token, again and again: it computes the mask,
 * then accepts the token.  The first answer finds no known state (*first*: its slowest mask; *answer*: all of
 * its masks and accepts together).  The next answers show the cost of a running grammar (median, p99, worst of
 * mask + accept).  Beside them: one sample (temperature 0.8, top-p 0.95) over the same number of logits,
 * applying the mask to the logits, and a step of STEP_MS (10) milliseconds, as of a small model on a large
 * machine.  `ratio` is (mask + accept + apply) / (step + sample) of the median; `first ratio` is the first
 * answer's grammar time over its tokens' steps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "text/grammar/grammar.h"
#include "compute/sample/sampler.h"
#include "tests/bench/bench_help.h"

#define TOKENS_MAX 4096u

static const struct {
    const char *name, *shape, *text;
} cases[] = {
    {"any json", "{\"json\": true}",
     "{\"title\": \"The tides of the Bay of Fundy\", \"heights\": [16.3, 11.9, 14.1], \"nested\": {\"deep\": "
     "{\"deeper\": [true, null, \"naïve café\", {\"x\": -1.5e3}]}}, \"note\": \"It was \\\"measured\\\" by "
     "hand.\\n\"}"},
    {"tool call",
     "{\"json\": {\"type\": \"object\", \"properties\": {\"path\": {\"type\": \"string\"}, \"line\": "
     "{\"type\": \"integer\", \"minimum\": 1, \"maximum\": 100000}, \"mode\": {\"enum\": [\"read\", "
     "\"write\", \"append\"]}, \"text\": {\"type\": \"string\"}}, \"required\": [\"path\", \"mode\"], "
     "\"additionalProperties\": false}}",
     "{\"path\": \"src/compute/sample/sampler.c\", \"line\": 1234, \"mode\": \"write\", \"text\": \"int "
     "main(void)\\n{\\n    "
     "return puts(\\\"hello, world\\\") < 0;\\n}\\n\"}"},
    {"array of objects",
     "{\"json\": {\"type\": \"array\", \"minItems\": 2, \"maxItems\": 50, \"items\": {\"type\": \"object\", "
     "\"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 40}, \"age\": {\"type\": "
     "\"integer\"}, "
     "\"tags\": {\"type\": \"array\", \"items\": {\"type\": \"string\"}}}, \"required\": [\"name\", "
     "\"age\"]}}}",
     "[\n  {\n    \"name\": \"Ada Lovelace\",\n    \"age\": 36,\n    \"tags\": [\"mathematics\", "
     "\"poetry\"]\n  },\n  "
     "{\n    \"name\": \"Alan Turing\",\n    \"age\": 41,\n    \"tags\": []\n  },\n  {\"name\": \"Grace "
     "Hopper\", "
     "\"age\": 85}\n]"},
    {"formats and patterns",
     "{\"json\": {\"type\": \"object\", \"properties\": {\"id\": {\"type\": \"string\", \"format\": "
     "\"uuid\"}, "
     "\"when\": {\"type\": \"string\", \"format\": \"date-time\"}, \"mail\": {\"type\": \"string\", "
     "\"format\": "
     "\"email\"}, \"code\": {\"type\": \"string\", \"pattern\": \"^[A-Z]{3}-[0-9]{4}$\"}, \"word\": "
     "{\"type\": "
     "\"string\", \"pattern\": \"^[a-z ]+$\"}}, \"required\": [\"id\", \"when\", \"mail\", \"code\", "
     "\"word\"]}}",
     "{\"id\": \"123e4567-e89b-12d3-a456-426614174000\", \"when\": \"2024-02-29T12:34:56Z\", \"mail\": "
     "\"ada.lovelace@example.org\", \"code\": \"ABC-1234\", \"word\": \"the quick brown fox jumps over\"}"},
    {"recursive tree",
     "{\"json\": {\"$defs\": {\"node\": {\"type\": \"object\", \"properties\": {\"value\": {\"type\": "
     "\"string\"}, "
     "\"children\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/node\"}}}, \"required\": "
     "[\"value\", "
     "\"children\"], \"additionalProperties\": false}}, \"$ref\": \"#/$defs/node\"}}",
     "{\"value\": \"root of it all\", \"children\": [{\"value\": \"left branch\", \"children\": [{\"value\": "
     "\"leaf "
     "one\", \"children\": []}]}, {\"value\": \"right branch\", \"children\": []}]}"},
    {"thinking, then a call",
     "{\"seq\": [{\"free\": {\"until\": [\"</think>\"], \"max_tokens\": 1000}}, {\"text\": \"</think>\\n\"}, "
     "{\"mark\": "
     "\"<tool_call>\"}, {\"text\": \"\\n\"}, {\"json\": {\"type\": \"object\", \"properties\": {\"name\": "
     "{\"const\": "
     "\"get_weather\"}, \"arguments\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": "
     "\"string\"}}, "
     "\"required\": [\"city\"]}}, \"required\": [\"name\", \"arguments\"]}}, {\"text\": \"\\n\"}, {\"mark\": "
     "\"</tool_call>\"}]}",
     "The user wants to know whether x < y holds and what the weather in Paris is. I should call the tool "
     "with the city "
     "name.</think>\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
     "\"Paris\"}}\n</tool_call>"},
};

struct bench {
    struct tokenizer *tokenizer;
    struct grammar_vocab *vocab;
    uint32_t n_vocab;
    float *logits, *masked;
    struct sampler *sampler;
    double draw_us, apply_us, step_us;
    uint32_t n_rounds;
};

static double since_us(uint64_t began_ns)
{
    return (double)(clock_now_ns() - began_ns) / 1e3;
}

/* Sets the logits of forbidden tokens to -inf. */
static void apply(struct bench *b, const uint64_t *mask)
{
    for (uint32_t word = 0; word * 64 < b->n_vocab; word++) {
        uint32_t n = b->n_vocab - word * 64 < 64 ? b->n_vocab - word * 64 : 64;

        for (uint32_t i = 0; i < n && mask[word] != UINT64_MAX; i++)
            if ((mask[word] >> i & 1) == 0)
                b->masked[word * 64 + i] = -INFINITY;
    }
}

/* A mask that allows most tokens: inside a string. */
static void fill_mask(struct bench *b, uint64_t *mask)
{
    struct grammar *grammar;
    struct grammar_run *run;

    ASSERT(grammar_new(b->vocab, bytes_str("{\"json\": {\"type\": \"string\"}}"), NULL, &grammar) == 0);
    ASSERT(grammar_run_new(grammar, &run) == 0);
    ASSERT(grammar_accept(run, tokenizer_find(b->tokenizer, bytes_str("\""))) == 0);
    memcpy(mask, grammar_mask(run, 1000), ((size_t)b->n_vocab + 63) / 64 * sizeof(*mask));
    grammar_run_free(run);
    grammar_unref(grammar);
}

static void measure_sampler(struct bench *b)
{
    struct sample_opts opts = {.temperature = 0.8f, .top_p = 0.95f, .seed = 1};
    struct sample_result result;
    double draws[200], applies[200];
    uint64_t *mask = malloc((b->n_vocab / 64 + 1) * sizeof(*mask));
    struct rng rng;

    rng_init(&rng, 5);
    for (uint32_t i = 0; i < b->n_vocab; i++)
        b->logits[i] = (float)(8 * rng_unit(&rng) + 4 * rng_unit(&rng) * rng_unit(&rng));
    ASSERT(mask != NULL);
    fill_mask(b, mask);
    for (uint32_t i = 0; i < 200; i++) {
        uint64_t began_ns = clock_now_ns();
        sampler_draw(b->sampler, b->logits, &opts, i, &result);
        draws[i] = since_us(began_ns);
        memcpy(b->masked, b->logits, b->n_vocab * sizeof(float));
        began_ns = clock_now_ns();
        apply(b, mask);
        applies[i] = since_us(began_ns);
    }
    free(mask);
    qsort(draws, 200, sizeof(double), bench_by_value);
    qsort(applies, 200, sizeof(double), bench_by_value);
    b->draw_us = draws[100];
    b->apply_us = applies[100];
    printf("vocabulary of %u tokens: one draw %.1f us, applying a mask %.1f us, step %.1f us\n\n", b->n_vocab,
           b->draw_us, b->apply_us, b->step_us);
}

/* Mask + accept of each token, in microseconds. */
static void write_answer(struct grammar *grammar, const struct token_ids *ids, double *times_us)
{
    struct grammar_run *run;

    ASSERT(grammar_run_new(grammar, &run) == 0);
    for (uint32_t i = 0; i < ids->n; i++) {
        uint64_t began_ns = clock_now_ns();
        const uint64_t *mask = grammar_mask(run, 4000 - i);
        bool is_allowed = mask[ids->ids[i] / 64] >> (ids->ids[i] % 64) & 1;
        int rc = grammar_accept(run, ids->ids[i]);

        times_us[i] = since_us(began_ns);
        if (!is_allowed || rc != 0) {
            fprintf(stderr, "token %u is not allowed\n", i);
            exit(1);
        }
    }
    ASSERT(grammar_is_complete(run));
    grammar_run_free(run);
}

static void measure_case(struct bench *b, size_t which)
{
    struct token_ids ids = {0};
    struct grammar *grammar;
    struct fault fault = {0};
    uint64_t began_ns = clock_now_ns();

    if (grammar_new(b->vocab, bytes_str(cases[which].shape), &fault, &grammar) != 0)
        exit((fprintf(stderr, "%s: %s\n", cases[which].name, fault.text), 1));
    double compile_us = since_us(began_ns), answer_us = 0;
    ASSERT(tokenizer_encode(b->tokenizer, bytes_str(cases[which].text), TOKEN_PARSE_SPECIAL, TOKENS_MAX,
                            &ids) == 0);
    double *times_us = malloc(ids.n * b->n_rounds * sizeof(*times_us));
    ASSERT(times_us != NULL);

    write_answer(grammar, &ids, times_us);
    for (size_t i = 0; i < ids.n; i++)
        answer_us += times_us[i];
    qsort(times_us, ids.n, sizeof(double), bench_by_value);
    double first_us = times_us[ids.n - 1], typical_us = times_us[ids.n / 2];
    for (uint32_t i = 0; i < b->n_rounds; i++)
        write_answer(grammar, &ids, times_us + i * ids.n);
    size_t n = ids.n * b->n_rounds;
    qsort(times_us, n, sizeof(double), bench_by_value);
    double token_us = b->step_us + b->draw_us, median_us = times_us[n / 2];
    printf("%-22s %5.2f ms | first answer: %3zu tokens, median %6.1f us, worst %7.1f us, all %8.1f us (%5.2f "
           "%%) | later: "
           "median %5.2f us, p99 %6.2f us, worst %7.1f us (%4.2f %%)\n",
           cases[which].name, compile_us / 1e3, ids.n, typical_us, first_us, answer_us,
           100 * (answer_us / (double)ids.n + b->apply_us) / token_us, median_us, times_us[n * 99 / 100],
           times_us[n - 1], 100 * (median_us + b->apply_us) / token_us);
    free(times_us);
    token_ids_fini(&ids);
    grammar_unref(grammar);
}

int main(int argc, char **argv)
{
    struct bench b = {.step_us = argc > 2 ? atof(argv[2]) * 1e3 : 10e3,
                      .n_rounds = argc > 3 ? (uint32_t)atoi(argv[3]) : 50};
    struct fault fault = {0};
    struct gguf *gguf;

    if (argc < 2)
        return fprintf(stderr, "usage: bench_grammar VOCABULARY.gguf [STEP_MS [ROUNDS]]\n"), 2;
    if (gguf_open(argv[1], &fault, &gguf) != 0 || tokenizer_new(gguf, &fault, &b.tokenizer) != 0)
        return fprintf(stderr, "%s: %s\n", argv[1], fault.text), 1;
    uint64_t began_ns = clock_now_ns();
    ASSERT(grammar_vocab_new(b.tokenizer, &b.vocab) == 0);
    printf("the vocabulary's trees, once: %.1f ms\n", since_us(began_ns) / 1e3);
    b.n_vocab = tokenizer_vocab_size(b.tokenizer);
    b.logits = malloc(b.n_vocab * sizeof(float));
    b.masked = malloc(b.n_vocab * sizeof(float));
    ASSERT(b.logits != NULL && b.masked != NULL && sampler_new(b.n_vocab, &b.sampler) == 0 && b.n_rounds > 0);
    measure_sampler(&b);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        measure_case(&b, i);
    sampler_free(b.sampler);
    free(b.logits);
    free(b.masked);
    grammar_vocab_unref(b.vocab);
    tokenizer_unref(b.tokenizer);
    gguf_close(gguf);
    return 0;
}
