/* SPDX-License-Identifier: Apache-2.0 */
/* A checked request -> the prompt's tokens, and where its cache breakpoints fall among them.  Pure; any
 * thread. */
#ifndef SERVE_PROMPT_PROMPT_H
#define SERVE_PROMPT_PROMPT_H

#include "serve/api/error.h"
#include "serve/api/render.h"
#include "serve/api/gen.h"
#include "serve/prompt/served_model.h"
#include "serve/conversation/replay.h"

struct prompt {
    struct token_ids ids;
    uint32_t mark_tokens;    /* up to the last breakpoint; 0: none */
    uint32_t mark_1h_tokens; /* up to the last one with a ttl of an hour */
    uint32_t base_tokens;    /* up to where the assistant's turn opens; 0: that is not to be told */
    uint64_t base_sum;       /* chat_sum() of these */
    struct buf text;         /* of a raw prompt that is to be echoed */
    bool opens_thinking;     /* it ends where the model's thinking begins */
    uint32_t n_replayed;     /* answers whose own tokens are in it */
    struct buf shape;        /* of the answer (serve/prompt/shape.h); empty: any */
};

/* Renders and tokenises.  replay (may be NULL): answers of ours that stand in the conversation; their tokens
 * are used where that continues the prompt they answered.  Scratch comes from the request's arena.  On
 * failure the error is filled and nothing is held. */
int prompt_make(const struct gen_model *model, struct gen_request *request, const struct replay *replay,
                struct prompt *out, struct api_error *error);
/* The same prompt for people: text with control tokens spelled out, or ids.  It is what prompt_make() gives,
 * but for the generation prompt, which may be left out. */
enum prompt_show { PROMPT_SHOW_TEXT = 0, PROMPT_SHOW_IDS = 1, PROMPT_SHOW_CLOSED = 2 };
int prompt_show(const struct gen_model *model, struct gen_request *request, unsigned how, struct buf *out,
                struct api_error *error);
/* The request's raw prompt number index, in the same way. */
int prompt_make_raw(const struct gen_model *model, const struct gen_request *request, size_t index,
                    struct prompt *out, struct api_error *error);
void prompt_fini(struct prompt *prompt);

/* The answers of /tokenize and /detokenize.  E_NOMEM, E_FORMAT, with the error filled. */
int prompt_put_tokens(const struct gen_model *model, const struct prompt *prompt, struct buf *out,
                      struct api_error *error);
int prompt_put_detokenized(const struct gen_model *model, const struct gen_request *request, struct buf *out,
                           struct api_error *error);

/* The prompt's tokens, cached_tokens of them reused, as the API accounts for them.  output_tokens is left
 * alone. */
void prompt_account(const struct prompt *prompt, uint32_t cached_tokens, uint32_t block_tokens,
                    struct api_usage *usage);

#endif
