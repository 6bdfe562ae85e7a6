/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies and random answers for the tests of the grammar engine. */
#ifndef TESTS_UNIT_SAMPLE_GRAMMAR_HELP_H
#define TESTS_UNIT_SAMPLE_GRAMMAR_HELP_H

#include "base/rng.h"
#include "text/grammar/grammar.h"

/* All single bytes, some longer tokens that JSON has, parts of characters, and <|im_end|>, which ends
 * answers, and <tool>, a control token. */
struct grammar_vocab *small_vocab(struct tokenizer **tokenizer_out);

/* Compiles or fails the test with the fault. */
struct grammar *grammar_must(struct grammar_vocab *vocab, const char *text);
/* "" or the fault's text. */
const char *grammar_refusal(struct grammar_vocab *vocab, const char *text);

/* Can text be written, token by token in every byte, and is the constraint complete then? */
bool grammar_takes(struct grammar_vocab *vocab, struct tokenizer *tokenizer, const char *constraint,
                   const char *text);

/* Draws at most n tokens, all allowed ones being equally likely; the answer's text goes to out.  True: it
 * ended with a stop id or is complete. */
bool draw_answer(struct grammar *grammar, struct tokenizer *tokenizer, struct rng *rng, uint32_t n,
                 struct buf *out);

#endif
