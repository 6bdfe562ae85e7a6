/* SPDX-License-Identifier: Apache-2.0 */
/* A streamed answer of POST /v1/messages, read event by event: text as it arrives; at the end the usage, the
 * stop reason and Baton's serving stats.  No sockets. */
#ifndef CLIENTS_COMMON_ANSWER_H
#define CLIENTS_COMMON_ANSWER_H

#include "base/bytes.h"
#include "net/http/sse_parse.h"

enum answer_part {
    ANSWER_TEXT,
    ANSWER_THINKING,
    ANSWER_TOOL,       /* a call begins: its name; tool_id has the id */
    ANSWER_TOOL_INPUT, /* a piece of its input */
    ANSWER_BLOCK_END   /* the open block is complete; no text */
};

/* A piece of the answer: whole UTF-8 characters, valid during the call. */
typedef void (*answer_call)(void *arg, enum answer_part part, struct bytes text);

struct answer_serving { /* the server's serving stats of one request (header baton-proof: stream) */
    bool is_there;
    uint64_t prompt, computed, reused, transferred, drawn; /* tokens */
    uint64_t redispatched, preempted;                      /* times */
    double queue_ms, prefill_ms, transfer_ms, decode_ms, ttft_ms, total_ms;
    char prefill[64], decode[64]; /* workers; "" none */
    char transport[16];           /* "" nothing was handed off */
};

struct answer {
    struct sse_parser *sse;
    answer_call call;
    void *arg;
    bool is_begun;  /* message_start came */
    bool is_whole;  /* message_stop came */
    bool is_failed; /* an error event, or an invalid event */
    uint64_t input_tokens, cache_read_tokens, cache_creation_tokens, output_tokens;
    char tool_id[80]; /* of the open call, or the last one */
    char stop_reason[48];
    char error_type[48];
    char error_text[512];
    struct answer_serving serving;
};

/* Cached ones, too. */
static inline uint64_t answer_prompt_tokens(const struct answer *answer)
{
    return answer->input_tokens + answer->cache_read_tokens + answer->cache_creation_tokens;
}

int answer_init(struct answer *answer, answer_call call, void *arg); /* E_NOMEM; call may be NULL */
void answer_fini(struct answer *answer);
/* Returns 0, or E_PROTO, E_LIMIT, E_NOMEM with the error fields filled: nothing more can be read. */
int answer_feed(struct answer *answer, struct bytes text);
/* Fills the error fields from the body of an answer with another status than 200, which need not be JSON. */
void answer_refused(struct answer *answer, int status, struct bytes body);

#endif
