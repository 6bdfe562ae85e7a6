/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies and random answers for tests of the grammar engine.
 *
 * The worst sampling is used: every token that the mask allows is equally likely, so no learned habit of a
 * model helps the constraint. */
#include "tests/unit/text/grammar/grammar_help.h"

#include "base/check.h"
#include "tests/unit/check.h"
#include "tests/unit/text/token/vocabularies.h"

#include <stdlib.h>
#include <string.h>

static const char *const merges[] = {"a b",  "ab c", "\" ,", "\" :",  "{ \"", "\" }", "1 2",
                                     "12 3", "t r",  "u e",  "tr ue", "\\ n", "] ,",  "} ,",
                                     "[ [",  "[[ [", ", \"", "x y",   NULL};
static const struct token_spec extra[] = {
    {"<|im_end|>", 3, 0}, {"<tool>", 3, 0}, {"<pad>", 3, 0}, {NULL, 0, 0}};

struct grammar_vocab *small_vocab(struct tokenizer **tokenizer_out)
{
    struct grammar_vocab *vocab;
    struct buf image = {0};

    byte_level_image("gpt-2", merges, extra, NULL, &image);
    *tokenizer_out = tokenizer_of_image(&image);
    assert_int_equal(grammar_vocab_new(*tokenizer_out, &vocab), 0);
    return vocab;
}

struct grammar *grammar_must(struct grammar_vocab *vocab, const char *text)
{
    struct fault fault = {0};
    struct grammar *grammar = NULL;

    if (grammar_new(vocab, bytes_str(text), &fault, &grammar) != 0)
        fail_msg("%s: %s", text, fault.text);
    return grammar;
}

const char *grammar_refusal(struct grammar_vocab *vocab, const char *text)
{
    static struct fault fault;
    struct grammar *grammar = NULL;

    fault = (struct fault){0};
    if (grammar_new(vocab, bytes_str(text), &fault, &grammar) == 0)
        grammar_unref(grammar);
    return fault.text;
}

static bool is_set(const uint64_t *mask, token_id id)
{
    return mask[id / 64] >> (id % 64) & 1;
}

bool grammar_takes(struct grammar_vocab *vocab, struct tokenizer *tokenizer, const char *constraint,
                   const char *text)
{
    struct grammar *grammar = grammar_must(vocab, constraint);
    struct token_ids ids = {0};
    struct grammar_run *run;
    bool is_taken = true;

    assert_int_equal(grammar_run_new(grammar, &run), 0);
    assert_int_equal(tokenizer_encode(tokenizer, bytes_str(text), 0, 100000, &ids), 0);
    for (size_t i = 0; i < ids.n && is_taken; i++) {
        bool is_allowed = is_set(grammar_mask(run, 100000), ids.ids[i]);
        is_taken = grammar_accept(run, ids.ids[i]) == 0;
        assert_int_equal(is_taken, is_allowed); /* mask and accept agree */
    }
    is_taken = is_taken && grammar_is_complete(run);
    grammar_run_free(run);
    grammar_unref(grammar);
    token_ids_fini(&ids);
    return is_taken;
}

bool draw_answer(struct grammar *grammar, struct tokenizer *tokenizer, struct rng *rng, uint32_t n,
                 struct buf *out)
{
    uint32_t n_tokens = tokenizer_vocab_size(tokenizer);
    token_id *allowed = calloc(n_tokens, sizeof(*allowed));
    struct grammar_run *run;
    bool is_ended = false;

    assert_non_null(allowed);
    assert_int_equal(grammar_run_new(grammar, &run), 0);
    for (; n > 0 && !is_ended; n--) {
        const uint64_t *mask = grammar_mask(run, n);
        uint32_t n_allowed = 0, n_stops = 0;

        for (token_id id = 0; id < n_tokens; id++)
            if (is_set(mask, id))
                allowed[n_allowed++] = id;
        assert_true(n_allowed > 0);
        token_id id = allowed[rng_below(rng, n_allowed)];
        assert_int_equal(grammar_accept(run, id), 0);
        size_t n_ids;
        const token_id *stops = tokenizer_stop_ids(tokenizer, &n_ids);
        for (size_t i = 0; i < n_ids; i++)
            n_stops += stops[i] == id;
        is_ended = n_stops > 0;
        struct bytes piece = tokenizer_piece(tokenizer, id);
        if (!is_ended)
            buf_append(out, piece.data, piece.len_bytes);
    }
    is_ended |= grammar_is_complete(run);
    grammar_run_free(run);
    free(allowed);
    return is_ended;
}
