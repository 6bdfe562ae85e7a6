/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies and random answers for the tests of the grammar engine. */
#ifndef TESTS_UNIT_SAMPLE_GRAMMAR_HELP_H
#define TESTS_UNIT_SAMPLE_GRAMMAR_HELP_H

#include "base/rng.h"
#include "text/grammar/grammar.h"

/* All single bytes, some longer tokens that occur in JSON, parts of characters, <|im_end|>, which ends
 * answers, and <tool>, a control token. */
struct grammar_vocab *small_vocab(struct tokenizer **tokenizer_out);

/* Compiles the text; a fault fails the test. */
struct grammar *grammar_must(struct grammar_vocab *vocab, const char *text);
/* Returns "" or the fault's text. */
const char *grammar_refusal(struct grammar_vocab *vocab, const char *text);

/* True if text can be written, with each byte as its own token, and completes the constraint. */
bool grammar_takes(struct grammar_vocab *vocab, struct tokenizer *tokenizer, const char *constraint,
                   const char *text);

/* Samples at most n tokens, all allowed ones equally likely; out receives the answer's text.  True: it ended
 * with a stop id or is complete. */
bool draw_answer(struct grammar *grammar, struct tokenizer *tokenizer, struct rng *rng, uint32_t n,
                 struct buf *out);

#endif
