/* SPDX-License-Identifier: Apache-2.0 */
/* A generation request and its answer as structs: the meaning of the Messages API without JSON, sockets
 * or tokens.  Also the serving stats that every answer carries. */
#ifndef SERVE_API_GEN_H
#define SERVE_API_GEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "compute/order/work.h"

enum gen_role { GEN_USER, GEN_ASSISTANT, GEN_SYSTEM };
enum gen_block_kind { GEN_TEXT, GEN_TOOL_USE, GEN_TOOL_RESULT, GEN_THINKING };

struct gen_block {
    enum gen_block_kind kind;
    struct bytes text;      /* TEXT, THINKING; TOOL_RESULT: its content as flat text */
    struct bytes id;        /* TOOL_USE, TOOL_RESULT */
    struct bytes name;      /* TOOL_USE */
    struct bytes input;     /* TOOL_USE: one JSON object in the client's key order, canonically serialised */
    struct bytes signature; /* THINKING */
    bool is_error;          /* TOOL_RESULT */
};

struct gen_message {
    enum gen_role role;
    struct gen_block *blocks;
    size_t n_blocks;
};

struct gen_tool {
    struct bytes name;
    struct bytes description;
    struct bytes input_schema; /* JSON text */
    struct bytes short_schema; /* if input_schema is long: only its properties' types; else empty */
    bool is_strict;            /* its arguments must match the schema, with any tool_choice */
};

enum gen_tool_choice { GEN_TOOLS_AUTO, GEN_TOOLS_ANY, GEN_TOOLS_ONE, GEN_TOOLS_NONE };

enum gen_thinking { GEN_THINKING_UNSAID, GEN_THINKING_ON, GEN_THINKING_OFF };

struct gen_mark { /* a cache breakpoint: after n_blocks blocks of message n_messages - 1 */
    bool is_set;
    size_t n_messages;   /* 0: tools and system only */
    size_t n_blocks;     /* of the last of these messages */
    size_t system_bytes; /* with n_messages 0: bytes of the system text before it; 0: all of it */
};

enum gen_format {
    GEN_FORMAT_TEXT,       /* any text */
    GEN_FORMAT_JSON,       /* any JSON object */
    GEN_FORMAT_JSON_SCHEMA /* JSON that matches request.schema */
};

struct gen_prompt { /* a prompt without a conversation: text or tokens */
    struct bytes text;
    uint32_t *tokens; /* [n_tokens]; NULL: text */
    size_t n_tokens;
};

struct gen_response {      /* the fields of /v1/responses beside the prompt */
    bool is_stored;        /* keep the response for later requests */
    bool wants_summary;    /* thinking is given as a summary, not as content */
    bool wants_signature;  /* include: reasoning.encrypted_content */
    bool truncates;        /* drop the oldest turns of a conversation that exceeds the context */
    struct bytes previous; /* previous_response_id; empty: none */
    struct bytes *wanted;  /* [n_wanted]: ids of kept responses that the parser needs first */
    size_t n_wanted;       /* 0: the request is complete */
    struct bytes items;    /* all input items in the form that is kept: JSON objects, ",\n" between them */
    struct bytes echo;     /* the members of the response that repeat the request: ,"name":value ... */
    struct bytes warnings; /* a JSON list; empty: none */
    struct bytes left_out; /* types of the tools that were left out, for the log; empty: none */
};

enum gen_thread { GEN_THREAD_NONE, GEN_THREAD_CREATE, GEN_THREAD_CONTINUE };

struct gen_request { /* all memory but the history comes from the arena */
    struct arena arena;
    /* Sampling and limits. max_new_tokens as the client wrote it (0: only compute the prompt); sample.temperature
     * NaN: the model's default. The endpoint adds the request id, the tenant and the cache marks. */
    struct work work;
    struct bytes model;
    struct bytes system;
    struct gen_message *messages; /* adjacent messages of one role are merged */
    size_t n_messages;
    struct bytes prefill; /* text of a last assistant message, which the answer continues; not in messages */
    struct gen_mark marks[WORK_N_PINS]; /* the last cache breakpoint with the pin's ttl or a longer one */
    struct gen_tool *tools;
    size_t n_tools;
    enum gen_tool_choice tool_choice;
    struct bytes tool_choice_name;
    bool is_single_call; /* disable_parallel_tool_use */
    bool is_stream;
    enum gen_thinking thinking;
    uint32_t thinking_budget; /* tokens; 0: not given */
    bool hides_thinking;      /* the client asked for display: omitted */
    struct bytes effort;      /* thinking effort: "low", "medium", "high", ...; empty: not given */
    enum gen_format format;
    struct bytes schema; /* GEN_FORMAT_JSON_SCHEMA: JSON text, the client's key order */
    bool has_seed;
    uint32_t n_choices;         /* answers per prompt; 0 counts as 1 */
    struct gen_prompt *prompts; /* [n_prompts]; with prompts there are no messages */
    size_t n_prompts;
    uint32_t embedding_dims;  /* keep this many leading numbers of an embedding; 0: all */
    bool embedding_is_base64; /* as base64 of 32-bit floats, little-endian; false: a list of numbers */
    bool adds_special;        /* a text prompt begins with BOS if the model uses one */
    bool echoes;              /* the answer begins with the prompt */
    bool wants_usage;         /* the client wants usage in a chunk at the end of a stream */
    const char *call_prefix;  /* prefix of call ids; static; NULL: "toolu_" */
    struct bytes *stop_sequences;
    size_t n_stop_sequences;
    enum gen_thread thread; /* keep the conversation for later requests, or continue a kept one */
    struct bytes thread_id; /* GEN_THREAD_CONTINUE: the id of the message that the request continues */
    struct buf history;     /* of a conversation: what api_put_thread() completes, heap; empty: too long */
    struct gen_response *response; /* of /v1/responses; NULL: another API */
    struct bytes user_id;          /* metadata.user_id */
    struct bytes service_tier;     /* names a class; empty: none */
    struct bytes cache_salt;       /* splits a tenant's cache: other salts share nothing; empty: none */
};

/* Why an answer ended: X(stop, stop_reason of Messages, finish_reason of OpenAI's APIs, status of a response).
 * CANCELLED: the client cancelled it by its id, which only responses have. */
#define GEN_STOP_TABLE(X)                                                                                    \
    X(END_TURN, "end_turn", "stop", COMPLETED)                                                               \
    X(MAX_TOKENS, "max_tokens", "length", INCOMPLETE)                                                        \
    X(SEQUENCE, "stop_sequence", "stop", COMPLETED)                                                          \
    X(TOOL_USE, "tool_use", "tool_calls", COMPLETED)                                                         \
    X(CONTEXT, "model_context_window_exceeded", "length", INCOMPLETE)                                        \
    X(CANCELLED, "cancelled", "stop", CANCELLED)

enum gen_stop {
#define X(stop, stop_reason, finish_reason, status) GEN_STOP_##stop,
    GEN_STOP_TABLE(X)
#undef X
};

/* Figures that each worker reports for its part of an answer: X(type, member, field of Serving in control.proto).
 * Those of a pair's two workers add up.  Of several choices, counts add up and the longest time counts.
 *
 *     computed_tokens     prompt tokens computed, on any worker
 *     reused_tokens       prompt tokens found in a prefix cache; of a pair: by the worker that prefilled
 *     transferred_tokens  prompt tokens whose KV moved from the prefill to the decode worker
 *     drafted_tokens      draft tokens verified
 *     accepted_tokens     draft tokens accepted: answer tokens without a step of their own
 *     attention_bytes     of a hand-off: keys and values; recurrent_bytes, index_bytes, mtp_bytes: its other kinds
 *     transfer_ns         first to last byte of KV; most of it overlaps the prefill
 *     exposed_ns          the part of it that delayed the answer: first token sampled, no decoding */
#define GEN_SERVING_COUNTS(X)                                                                                \
    X(uint32_t, computed_tokens, computed)                                                                   \
    X(uint32_t, reused_tokens, reused)                                                                       \
    X(uint32_t, transferred_tokens, transferred)                                                             \
    X(uint32_t, n_preempted, preempted)                                                                      \
    X(uint32_t, drafted_tokens, drafted)                                                                     \
    X(uint32_t, accepted_tokens, accepted)                                                                   \
    X(uint64_t, attention_bytes, attention_bytes)                                                            \
    X(uint64_t, recurrent_bytes, recurrent_bytes)                                                            \
    X(uint64_t, index_bytes, index_bytes)                                                                    \
    X(uint64_t, mtp_bytes, mtp_bytes)
#define GEN_SERVING_TIMES(X)                                                                                 \
    X(uint64_t, queue_ns, queue_ns)                                                                          \
    X(uint64_t, prefill_ns, prefill_ns)                                                                      \
    X(uint64_t, transfer_ns, transfer_ns)                                                                    \
    X(uint64_t, exposed_ns, exposed_ns)                                                                      \
    X(uint64_t, decode_ns, decode_ns)

struct gen_serving { /* serving stats of an answer, summed over all workers that took part */
#define GEN_SERVING_MEMBER(type, member, field) type member;
    GEN_SERVING_COUNTS(GEN_SERVING_MEMBER)
    GEN_SERVING_TIMES(GEN_SERVING_MEMBER)
#undef GEN_SERVING_MEMBER
    uint32_t prompt_tokens;
    uint32_t drawn_tokens;   /* answer tokens */
    uint32_t n_redispatched; /* number of times a worker was replaced in mid-request */
    uint64_t ttft_ns, total_ns;
    uint64_t ended_unix_s;   /* of one answer; 0: not known */
    char prefill_worker[64]; /* empty: the decode worker also ran the prefill */
    char decode_worker[64];
    char transport[16];  /* "shm", "tcp", "rdma", "" */
    char class_name[32]; /* that the router placed it in; empty: a worker answers without a router */
};

#endif
