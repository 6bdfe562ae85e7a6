/* SPDX-License-Identifier: Apache-2.0 */
/* What transcript.c and drawn_ids.c share. */
#ifndef SERVE_ANSWER_TRANSCRIPT_PRIV_H
#define SERVE_ANSWER_TRANSCRIPT_PRIV_H

#include "serve/answer/transcript.h"

/* The JSON library takes about a microsecond for a value, on the loop. The calls of an answer have at most these. */
#define MAX_TREE_BYTES  ((size_t)256 << 10)
#define MAX_TREE_VALUES 2048

/* transcript.c: copies both texts, one behind the other, to the answer's memory.  False: no memory. */
bool transcript_copy(struct cached_answer *answer, struct bytes before, struct bytes text, struct bytes *out);

/* drawn_ids.c: in some formats the model gives its calls ids of its own, and results must name these.  Finds them in
 * the text of these ids and sets answer->drawn_ids; or is_keyless, if one may stand so far from the end that to
 * find it would hold up the loop.  E_NOMEM, E_RANGE. */
int transcript_copy_drawn_ids(const struct gen_model *model, const struct token_ids *ids,
                              struct cached_answer *answer);

#endif
