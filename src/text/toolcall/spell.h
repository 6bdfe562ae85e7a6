/* SPDX-License-Identifier: Apache-2.0 */
/* Writes calls in the form of their tool-call format, from its row of the table (formats.h). Used for histories
 * that a chat template cannot show. Pure; any thread. */
#ifndef TEXT_TOOLCALL_SPELL_H
#define TEXT_TOOLCALL_SPELL_H

#include "text/toolcall/formats.h"

struct calls_span {
    size_t from, to;
};

struct calls_spelling { /* zeroed: empty. The caller owns both buffers; is_bad in one: no memory */
    struct buf text;
    struct buf own; /* struct calls_span: bytes that come from the row, among them its control tokens */
    size_t n_calls;
};

/* Appends a call. arguments: a JSON object; other text is copied unchanged. */
void calls_spell(enum calls_format format, struct bytes name, struct bytes arguments,
                 struct calls_spelling *out);
void calls_spell_end(enum calls_format format, struct calls_spelling *out); /* after the last call */

#endif
