/* SPDX-License-Identifier: Apache-2.0 */
/* Renders answers as JSON: whole messages, the data of stream events, counts and model lists.  Pure;
 * every function appends to out and returns 0 or E_NOMEM.  Output text is always valid UTF-8 on one line.
 *
 * More than 15 functions: one function for each event and object of the API. */
#ifndef SERVE_API_RENDER_H
#define SERVE_API_RENDER_H

#include "serve/api/gen.h"

struct api_usage { /* input + cache_read + created = prompt tokens */
    uint32_t input_tokens;
    uint32_t cache_read_tokens;
    uint32_t created_tokens[WORK_N_PINS]; /* written to the cache, by the pin that keeps them there */
    uint32_t output_tokens;
    uint32_t thinking_tokens; /* part of output_tokens */
};

void api_usage_add(struct api_usage *sum, const struct api_usage *usage); /* each member */
uint32_t api_usage_created(const struct api_usage *usage);                /* for all pins together */

struct api_answer {
    const char *id;                 /* "msg_..." */
    struct bytes model;             /* as the client named it */
    const struct gen_block *blocks; /* GEN_TEXT (empty ones are left out), GEN_THINKING and GEN_TOOL_USE */
    size_t n_blocks;
    enum gen_stop stop;
    struct bytes stop_sequence; /* the one that matched */
    struct api_usage usage;
};

int api_put_message(struct buf *out, const struct api_answer *answer);
/* Completes gen_request.history with the answer: a conversation in the form in which it is kept, as JSON. */
int api_put_thread(struct buf *history, const struct gen_block *blocks, size_t n);

/* Data of the events "message_start", "content_block_start", "content_block_delta", "content_block_stop"
 * and "message_delta".  The data of "ping" and "message_stop" is fixed. */
int api_put_message_start(struct buf *out, const char *id, struct bytes model, const struct api_usage *usage);
int api_put_text_start(struct buf *out, unsigned index);
int api_put_text_delta(struct buf *out, unsigned index, struct bytes text);
int api_put_thinking_start(struct buf *out, unsigned index);
int api_put_thinking_delta(struct buf *out, unsigned index, struct bytes text);
int api_put_signature_delta(struct buf *out, unsigned index, struct bytes signature);
int api_put_call_start(struct buf *out, unsigned index, const char *id, struct bytes name);
int api_put_call_delta(struct buf *out, unsigned index, struct bytes partial_json);
int api_put_block_stop(struct buf *out, unsigned index);
/* serving: the serving stats, added as usage.baton; NULL: none. */
int api_put_message_delta(struct buf *out, enum gen_stop stop, struct bytes stop_sequence,
                          const struct api_usage *usage, const struct gen_serving *serving);
/* Only the member: ,"baton":{...} */
void api_put_serving(struct buf *out, const struct gen_serving *serving);
#define API_PING         "{\"type\":\"ping\"}"
#define API_MESSAGE_STOP "{\"type\":\"message_stop\"}"

int api_put_count(struct buf *out, uint32_t input_tokens);

struct api_model {
    const char *name;
    uint32_t context_length;
    uint64_t created_unix_s;
};

struct api_page {       /* a page of GET /v1/models */
    uint32_t limit;     /* 1..1000 */
    const char *after;  /* id; NULL: from the first model */
    const char *before; /* id; NULL: to the last model */
};

int api_put_model(struct buf *out, const struct api_model *model);
int api_put_models(struct buf *out, const struct api_model *models, size_t n, const struct api_page *page);

const char *api_stop_reason(enum gen_stop stop); /* "end_turn" */

#endif
