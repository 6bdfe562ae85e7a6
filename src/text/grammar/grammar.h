/* SPDX-License-Identifier: Apache-2.0 */
/* What an answer must look like, and which tokens may come next.
 *
 * A grammar is compiled from a text, which is JSON: one *shape*.
 *
 *     {"text": "abc"}                       these characters
 *     {"mark": "<tool_call>"}               the control token so spelled, or, where the vocabulary has none,
 *                                           these characters
 *     {"json": SCHEMA, "closed": true}      a JSON value that the schema allows ({} or true: any); closed
 * (may be left out): arguments, an object without properties where the schema says nothing of any
 *     {"tagged": SCHEMA, "until": "</v>", "inner": true, "not": PATTERN}
 *                                           a string of the schema as it is, without until, without a line
 * end at either side (inner), and not found by the pattern (both may be left out)
 *     {"free": {"until": ["</think>"], "max_tokens": N}}
 *                                           any text up to the first of these marks, which is not part
 *                                           of it (no "until": to the end); after N tokens (absent: no
 *                                           bound) it may only end.  Control tokens are not text.
 *     {"seq": [SHAPE, ...]}                 one after another
 *     {"any": [SHAPE, ...]}                 one of them, decided as characters come
 *     {"rep": SHAPE, "min": N, "max": M}    N to M times (max absent: no bound)
 *
 * "path" beside "json" or "tagged" is what faults call the schema, instead of "$".
 *
 * A stop id of the vocabulary may be drawn where the shape is complete, and nothing else where it cannot go
 * on. */
#ifndef TEXT_GRAMMAR_GRAMMAR_H
#define TEXT_GRAMMAR_GRAMMAR_H

#include "base/fault.h"
#include "text/token/tokenizer.h"

struct grammar_vocab; /* a tokeniser's pieces as a tree; immutable, counted, any thread */
struct grammar; /* a compiled shape for one vocabulary; counted; its cache of masks makes it one thread's */
struct grammar_run; /* one answer's place in a grammar; one thread, that of the grammar */

int grammar_vocab_new(struct tokenizer *tokenizer, struct grammar_vocab **out); /* E_NOMEM */
void grammar_vocab_unref(struct grammar_vocab *vocab);

struct grammar_schema {
    struct bytes text; /* JSON */
    const char *path;  /* what faults call it */
    bool is_closed;    /* see above */
};

#define GRAMMAR_MAX_STEPS 4000000u /* work of one compilation; a step is some nanoseconds */

/* Can these schemas be held to, together, with the work that one request may be?  E_UNSUPPORTED, E_FORMAT,
 * E_LIMIT: the fault names the keyword and its path ("PATH.properties.a.pattern: ...").  *steps_out (may be
 * NULL): the work it was.  Pure; any thread. */
int grammar_check_schemas(const struct grammar_schema *schemas, size_t n, struct fault *fault,
                          uint64_t *steps_out);
int grammar_check_schema(struct bytes schema, struct fault *fault); /* one, whose path is "$" */
/* Would grammar_new() take this text, with a vocabulary of this tokeniser?  NULL: one without control tokens.
 */
int grammar_check(const struct tokenizer *tokenizer, struct bytes text, struct fault *fault,
                  uint64_t *steps_out);

/* Borrows text, keeps a reference to vocab.  Errors as above. */
int grammar_new(struct grammar_vocab *vocab, struct bytes text, struct fault *fault, struct grammar **out);
struct grammar *grammar_ref(struct grammar *grammar);
void grammar_unref(struct grammar *grammar);
uint32_t grammar_vocab_size(const struct grammar *grammar); /* tokens: so many bits has a mask */

int grammar_run_new(struct grammar *grammar, struct grammar_run **out); /* keeps a reference */
void grammar_run_free(struct grammar_run *run);

/* Which tokens may come next, with tokens_left to be drawn (this one included): one bit a token, [(vocab_size
 * + 63) / 64], valid until the next call with this run's grammar.  NULL: all.  When little is left, only
 * tokens after which the shape can still be completed (as long as that was possible before). */
const uint64_t *grammar_mask(struct grammar_run *run, uint32_t tokens_left);
/* It was drawn.  0; E_INVAL when it is not allowed (the run stays where it was).  E_NOMEM. */
int grammar_accept(struct grammar_run *run, token_id id);
/* Takes back the last n tokens accepted since the run was new or grammar_settle() was called. */
void grammar_rewind(struct grammar_run *run, uint32_t n);
void grammar_settle(struct grammar_run *run);
bool grammar_is_complete(const struct grammar_run *run); /* may end here */
/* Tokens that must come next whatever the logits say, at most max of them: guesses that are always right.
 * Returns how many (0: none). */
uint32_t grammar_forced(struct grammar_run *run, token_id *ids_out, uint32_t max);

#endif
