/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a checked request into the prompt's tokens and the positions of its cache breakpoints.  Pure; any
 * thread. */
#ifndef SERVE_PROMPT_PROMPT_H
#define SERVE_PROMPT_PROMPT_H

#include "serve/api/error.h"
#include "serve/api/render.h"
#include "serve/api/gen.h"
#include "serve/prompt/served_model.h"
#include "serve/conversation/replay.h"

#define PROMPT_MAX_TOKENS                                                                                    \
    (100u << 20) /* bound on the memory of a prompt; the model's context is checked later */

struct prompt {
    struct token_ids ids;
    uint32_t mark_tokens[WORK_N_PINS]; /* tokens up to each of gen_request.marks; 0: none */
    uint32_t base_tokens;   /* tokens up to where the assistant's turn opens; 0: no marker begins there */
    uint64_t base_sum;      /* chat_sum() of these tokens */
    uint32_t public_tokens; /* leading tokens that are public (public_prefix.h); the endpoint sets it */
    struct buf text;        /* text of a raw prompt, for echo */
    bool opens_thinking;    /* the prompt ends where the model's thinking begins */
    uint32_t n_replayed;    /* earlier answers whose own tokens are in the prompt */
    struct buf constraint;  /* of all answers, in the first prompt (serve/prompt/constraint.h); empty: none */
};

/* Renders and tokenises.  replay (may be NULL): our own earlier answers in the conversation.  Their
 * tokens are used where they continue the prompt that they answered.  Scratch memory comes from the
 * request's arena.  On failure the error is filled and nothing is held. */
int prompt_make(const struct gen_model *model, struct gen_request *request, const struct replay *replay,
                struct prompt *out, struct api_error *error);
/* The same prompt in readable form: text with control tokens spelled out, or ids.  It equals the result
 * of prompt_make(), except that the generation prompt may be left out. */
enum prompt_show { PROMPT_SHOW_TEXT = 0, PROMPT_SHOW_IDS = 1, PROMPT_SHOW_CLOSED = 2 };
int prompt_show(const struct gen_model *model, struct gen_request *request, unsigned how, struct buf *out,
                struct api_error *error);
/* Makes the raw prompt with this index, in the same way. */
int prompt_make_raw(const struct gen_model *model, const struct gen_request *request, size_t index,
                    struct prompt *out, struct api_error *error);
void prompt_fini(struct prompt *prompt);

/* The answers of /tokenize and /detokenize.  E_NOMEM, E_FORMAT, with the error filled. */
int prompt_put_tokens(const struct gen_model *model, const struct prompt *prompt, struct buf *out,
                      struct api_error *error);
int prompt_put_detokenized(const struct gen_model *model, const struct gen_request *request, struct buf *out,
                           struct api_error *error);

/* Fills the prompt's part of the API's usage: its tokens, and the cached_tokens that were reused among them.
 * Leaves output_tokens unchanged. */
void prompt_account(const struct prompt *prompt, uint32_t cached_tokens, uint32_t block_tokens,
                    struct api_usage *usage);

#endif
