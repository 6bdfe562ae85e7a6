/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars: constraints on the text of an answer, and masks of the tokens that may come next.
 *
 * A grammar is compiled from a JSON text, a *constraint* (CON below):
 *
 *     {"text": "abc"}                       these characters
 *     {"mark": "<tool_call>"}               the control token with this spelling, or these characters if the
 *                                           vocabulary has no such token
 *     {"json": SCHEMA, "closed": true}      a JSON value that the schema allows ({} or true: any)
 *                                           closed (optional): arguments; only objects, and an object gets no
 *                                           properties when the schema says nothing about any
 *     {"tagged": SCHEMA, "until": "</v>", "inner": true, "not": PATTERN}
 *                                           a string of the schema, unquoted, that does not contain until
 *                                           inner (optional): no line end at either side
 *                                           not (optional): the pattern is not found in it
 *     {"free": {"until": ["</think>"], "max_tokens": N}}
 *                                           any text up to the first of these marks, the mark excluded (no "until":
 *                                           to the end).  After N tokens (absent: no limit) it can only end.
 *                                           Control tokens are not text.
 *     {"seq": [CON, ...], "root": SCHEMA}   one after another
 *                                           root (optional): the references of the schemas in CON lead into this schema,
 *                                           as "#" and "#/a", and not into themselves
 *     {"any": [CON, ...]}                   one of them, decided as characters come
 *     {"rep": CON, "min": N, "max": M}      N to M times (max absent: no limit)
 *
 * "path" beside "json", "tagged" or "root" names the schema in faults, instead of "$".
 *
 * A stop id of the vocabulary is allowed where the constraint is complete.  Where the constraint cannot
 * continue, only a stop id is allowed.
 *
 * More than 15 functions: three objects (vocabulary, grammar, run) that are meaningless apart. */
#ifndef TEXT_GRAMMAR_GRAMMAR_H
#define TEXT_GRAMMAR_GRAMMAR_H

#include "base/fault.h"
#include "text/token/tokenizer.h"

struct grammar_vocab; /* a tokeniser's pieces as a tree; immutable, counted, any thread */
struct grammar; /* a constraint compiled for one vocabulary; counted; its mask cache binds it to one thread */
struct grammar_run; /* one answer's position in a grammar; on the grammar's thread only */

int grammar_vocab_new(struct tokenizer *tokenizer, struct grammar_vocab **out); /* E_NOMEM */
void grammar_vocab_unref(struct grammar_vocab *vocab);

struct grammar_schema {
    struct bytes text; /* JSON */
    const char *path;  /* its name in faults */
    bool is_closed;    /* see above */
};

#define GRAMMAR_MAX_STEPS 4000000u /* work of one compilation; a step takes some nanoseconds */

/* Checks that these schemas can be enforced together, within the work allowed for one request.
 * E_UNSUPPORTED, E_FORMAT, E_LIMIT: the fault names the keyword and its path ("PATH.properties.a.pattern:
 * ...").  *steps_out (may be NULL): the work it took.  Pure; any thread. */
int grammar_check_schemas(const struct grammar_schema *schemas, size_t n, struct fault *fault,
                          uint64_t *steps_out);
int grammar_check_schema(struct bytes schema, struct fault *fault); /* one schema, with the path "$" */
/* Checks that grammar_new() would accept this text, with a vocabulary of this tokeniser.  NULL: a vocabulary
 * without control tokens.  Errors and *steps_out as above. */
int grammar_check(const struct tokenizer *tokenizer, struct bytes text, struct fault *fault,
                  uint64_t *steps_out);

/* Compiles text; borrows it for the call, keeps a reference to vocab.  Errors as above. */
int grammar_new(struct grammar_vocab *vocab, struct bytes text, struct fault *fault, struct grammar **out);
struct grammar *grammar_ref(struct grammar *grammar);
void grammar_unref(struct grammar *grammar);
uint32_t grammar_vocab_size(const struct grammar *grammar); /* number of tokens: bits of a mask */

int grammar_run_new(struct grammar *grammar, struct grammar_run **out); /* keeps a reference; E_NOMEM */
void grammar_run_free(struct grammar_run *run);

/* The tokens that may come next, when tokens_left may still be drawn (this one included).  One bit a token,
 * [(vocab_size + 63) / 64], valid until the next call with this run's grammar.  NULL: all tokens.  When few
 * are left, only tokens after which the constraint can still be completed, as long as that was possible
 * before. */
const uint64_t *grammar_mask(struct grammar_run *run, uint32_t tokens_left);
/* Advances the run by the drawn token.  0; E_INVAL when it is not allowed (the run stays).  E_NOMEM. */
int grammar_accept(struct grammar_run *run, token_id id);
/* Takes back the last n accepted tokens.  They must be newer than the last grammar_commit(). */
void grammar_rewind(struct grammar_run *run, uint32_t n);
void grammar_commit(struct grammar_run *run);
bool grammar_is_complete(const struct grammar_run *run); /* the answer may end here */
/* The tokens that must come next with any logits, at most max: draft tokens that are always right.
 * Returns their number (0: none). */
uint32_t grammar_forced(struct grammar_run *run, token_id *ids_out, uint32_t max);

#endif
