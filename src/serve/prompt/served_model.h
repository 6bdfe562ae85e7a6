/* SPDX-License-Identifier: Apache-2.0 */
/* A served model as the endpoint knows it: its names, vocabulary, chat format and sizes. */
#ifndef SERVE_PROMPT_SERVED_MODEL_H
#define SERVE_PROMPT_SERVED_MODEL_H

#include "text/token/chat.h"

struct gen_model {  /* one served model, reference-counted: each request holds its model while it lives */
    char name[128]; /* the name that clients use */
    char fingerprint[33];
    struct tokenizer *tokenizer; /* borrowed from the model */
    struct chat_format *chat;
    struct verdicts *verdicts; /* cached schema checks (serve/prompt/verdicts.h); NULL: no cache */
    uint32_t context_length;
    uint32_t block_tokens;
    uint64_t created_unix_s;
};

#endif
