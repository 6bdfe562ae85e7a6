/* SPDX-License-Identifier: Apache-2.0 */
/* Renders answers in OpenAI's format: whole answers, stream chunks, tokens.  Pure; every function appends
 * to out and returns 0 or E_NOMEM.  Output text is always valid UTF-8 on one line. */
#ifndef SERVE_API_RENDER_OPENAI_H
#define SERVE_API_RENDER_OPENAI_H

#include "serve/api/gen.h"
#include "serve/api/render.h"

struct api_chunk { /* the fields that every answer and every stream chunk carries */
    bool is_chat;  /* chat completion; false: text completion */
    const char *id;
    uint64_t created_unix_s;
    struct bytes model;                /* as the client named it */
    const char *fingerprint;           /* of the model; empty: left out */
    bool has_usage;                    /* chunks carry usage: null, because a chunk with the usage follows */
    uint32_t index;                    /* of the choice */
    struct bytes logprobs;             /* of a chunk's text: an object as JSON; data NULL: null */
    const struct gen_serving *serving; /* serving stats, added as "baton"; NULL: none */
};

struct api_choice {
    const struct gen_block *blocks; /* GEN_TEXT, GEN_THINKING, GEN_TOOL_USE */
    size_t n_blocks;
    struct bytes before; /* text before the blocks' text (echo) */
    enum gen_stop stop;
    struct bytes logprobs; /* as above */
};

/* Choices are numbered from 0.  The fields of common that concern one choice are ignored. */
int api_put_completion(struct buf *out, const struct api_chunk *common, const struct api_choice *choices,
                       size_t n, const struct api_usage *usage);

int api_put_chunk_role(struct buf *out, const struct api_chunk *chunk);
/* GEN_TEXT or GEN_THINKING. */
int api_put_chunk_text(struct buf *out, const struct api_chunk *chunk, enum gen_block_kind kind,
                       struct bytes text);
/* call: the call's number in the choice, from 0. */
int api_put_chunk_call(struct buf *out, const struct api_chunk *chunk, unsigned call, const char *id,
                       struct bytes name);
int api_put_chunk_arguments(struct buf *out, const struct api_chunk *chunk, unsigned call,
                            struct bytes piece);
int api_put_chunk_end(struct buf *out, const struct api_chunk *chunk, enum gen_stop stop);
int api_put_chunk_usage(struct buf *out, const struct api_chunk *chunk, const struct api_usage *usage);
#define API_DONE "[DONE]"

const char *api_finish_reason(enum gen_stop stop); /* "stop", "length", "tool_calls" */

int api_put_tokens(struct buf *out, const uint32_t *tokens, size_t n, uint32_t context_length);
int api_put_detokenized(struct buf *out, struct bytes text);

#endif
