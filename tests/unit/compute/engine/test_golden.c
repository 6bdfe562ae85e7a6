/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass compared with an independent implementation (tests/golden/make_golden.py).  Each file is a
 * tiny model with the tokens to feed and the logits expected after each, computed in double precision.
 *
 * Tolerances, as a share of the largest logit of a row:
 *   1e-4    KV in F32: float sums against double sums (seen: 4e-6)
 *   1e-3    with Q8_0 matrices, for which both sides round activations to eight bits per qblk: room for one
 *           of them to fall on the other side of a half (seen: 7e-7)
 *   4e-3    KV in F16: eleven bits of keys and values
 *   8e-2    both: what F16 changes, the rounding of activations (to 1/64 of a qblk's largest at worst)
 *           magnifies
 *   4e-2    with BF16 dots or tiles, which round activations to eight bits each
 *
 * A wrong angle, a transposed head or a missing bias is off by more than 1e-1. */
#include "base/check.h"
#include "compute/tensor/tensor.h"
#include "tests/unit/compute/engine/player.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static const struct golden {
    const char *file;
    bool has_q8_0;
} GOLDEN[] = {
    {"llama-f32.gguf", false},         {"llama-f16-linear.gguf", false}, {"llama-bf16-llama3.gguf", false},
    {"llama-q8_0-partial.gguf", true}, {"qwen2-f32-yarn.gguf", false},   {"qwen2-f16.gguf", false},
    {"qwen2-mixed.gguf", true},
};

struct expected {
    token_id *tokens;
    uint32_t n_tokens;
    float *logits; /* [n_tokens][vocab] */
    uint32_t vocab;
};

static void read_expected(const struct gguf *gguf, uint32_t vocab, struct expected *out)
{
    enum gguf_kind kind;
    uint64_t n, n_logits;

    assert_int_equal(gguf_array_len(gguf, "baton.golden.tokens", &kind, &n), 0);
    assert_int_equal(gguf_array_len(gguf, "baton.golden.logits", &kind, &n_logits), 0);
    assert_int_equal(n_logits, n * vocab);
    *out = (struct expected){.tokens = calloc(n, sizeof(token_id)),
                             .n_tokens = (uint32_t)n,
                             .logits = calloc(n_logits, sizeof(float)),
                             .vocab = vocab};
    for (uint64_t i = 0; i < n; i++) {
        int64_t token;

        assert_int_equal(gguf_array_i64(gguf, "baton.golden.tokens", i, &token), 0);
        out->tokens[i] = (token_id)token;
    }
    for (uint64_t i = 0; i < n_logits; i++) {
        double logit;

        assert_int_equal(gguf_array_f64(gguf, "baton.golden.logits", i, &logit), 0);
        out->logits[i] = (float)logit;
    }
}

static void check_file(const struct golden *golden, const struct model_opts *opts)
{
    const char *kernels = opts->kernels;
    bool has_dots = opts->bf16 != BF16_EXACT || opts->converts_f16;
    double q8 = !golden->has_q8_0 ? 1 : opts->kv_type == KV_F16 ? 20 : 10;
    double tolerance = has_dots ? 4e-2 : (opts->kv_type == KV_F16 ? 4e-3 : 1e-4) * q8;
    double worst = 0;
    struct expected expected;
    struct player player;
    char name[128], path[512];

    snprintf(name, sizeof(name), "tests/golden/%s", golden->file);
    if (player_source(name, path) == NULL)
        fail_msg("%s is not there", path);
    player_open(&player, path, opts, 64);
    read_expected(player.gguf, player.engine.info.vocab_size, &expected);
    for (uint32_t i = 0; i < expected.n_tokens; i++) {
        double apart;

        player_feed(&player, expected.tokens + i, 1, i);
        apart = player_distance(player_logits(&player), expected.logits + (size_t)i * expected.vocab,
                                expected.vocab);
        worst = apart > worst ? apart : worst;
        if (!(apart <= tolerance))
            fail_msg("%s, %s kernels: off by %g after token %u, more than %g", golden->file, kernels, apart,
                     i, tolerance);
    }
    print_message("%-24s %-11s KV %s%s: off by at most %.1e\n", golden->file, kernels,
                  opts->kv_type == KV_F16 ? "F16" : "F32",
                  !has_dots                  ? ""
                  : opts->bf16 == BF16_TILES ? ", tiles"
                                             : ", dots",
                  worst);
    free(expected.tokens);
    free(expected.logits);
    player_close(&player);
}

static void check_all(enum kv_type kv)
{
    const struct kern_table *table;

    for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++)
        for (size_t i = 0; i < ARRAY_LEN(GOLDEN); i++)
            check_file(&GOLDEN[i], &(struct model_opts){
                                       .kernels = kern_table_name(table), .kv_type = kv, .bf16 = BF16_EXACT});
}

static void logits_agree_with_f32_kv(void **state)
{
    (void)state;
    check_all(KV_F32);
}

static void logits_agree_with_f16_kv(void **state)
{
    (void)state;
    check_all(KV_F16);
}

static void check_rounded(enum bf16_math math)
{
    const struct kern_table *table;

    for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++)
        for (size_t i = 0; i < ARRAY_LEN(GOLDEN); i++)
            if (strstr(GOLDEN[i].file, "f16") != NULL)
                check_file(&GOLDEN[i], &(struct model_opts){.kernels = kern_table_name(table),
                                                            .kv_type = KV_F32,
                                                            .bf16 = math,
                                                            .converts_f16 = true});
}

static void dots_are_near(void **state)
{
    (void)state;
    check_rounded(BF16_DOTS);
}

static void tiles_are_near(void **state)
{
    (void)state;
    check_rounded(BF16_TILES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_agree_with_f32_kv),
        cmocka_unit_test(logits_agree_with_f16_kv),
        cmocka_unit_test(dots_are_near),
        cmocka_unit_test(tiles_are_near),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
