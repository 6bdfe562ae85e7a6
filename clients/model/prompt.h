/* SPDX-License-Identifier: Apache-2.0 */
/* The three forms of a prompt on the command line: ids, raw text, a chat turn. */
#ifndef MODEL_PROMPT_H
#define MODEL_PROMPT_H

#include "text/token/chat.h"

struct prompt_source {    /* exactly one of ids, text and chat is set */
    const char *ids;      /* "1,403,407" */
    const char *text;     /* raw text, BOS before it if the model wants one */
    const char *chat;     /* a user's turn, in the model's chat format */
    const char *system;   /* with chat only; NULL: none */
    bool parses_special;  /* control tokens spelled out in text become what they spell */
    struct fault refusal; /* without a tokeniser: why this file's cannot be used */
};

/* Appends the prompt to out.  tokenizer may be NULL for ids.  E_INVAL: an empty prompt, not exactly one
 * source, or text without tokenizer. */
int prompt_read(const struct prompt_source *source, const struct tokenizer *tokenizer, struct fault *fault,
                struct token_ids *out);

#endif
