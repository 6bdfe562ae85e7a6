/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the body of a POST into struct gen_request and checks all of it.  Pure; any thread. */
#ifndef SERVE_API_PARSE_H
#define SERVE_API_PARSE_H

#include "serve/api/error.h"
#include "serve/api/gen.h"

/* Limit on a conversation that is kept for later requests: of a response, and of its input; of a thread. */
#define API_MAX_KEPT_BYTES ((size_t)4 << 20)

/* The endpoints that parse a body.  COUNT_TOKENS: max_tokens is optional; generation fields are only checked.
 * DETOKENIZE: one prompt of tokens.  INPUT_TOKENS: the body of RESPONSES. EMBEDDINGS: each prompt's answer is its
 * embedding.  X(name, route, name in the access log, operation in traces, whose API, what a worker computes) */
#define API_CALL_TABLE(X)                                                                                    \
    X(MESSAGES, "/v1/messages", "messages", "chat", ANTHROPIC, TEXT)                                         \
    X(COUNT_TOKENS, "/v1/messages/count_tokens", "count_tokens", "count_tokens", ANTHROPIC, NOTHING)         \
    X(CHAT, "/v1/chat/completions", "chat_completions", "chat", OPENAI, TEXT)                                \
    X(COMPLETIONS, "/v1/completions", "completions", "text_completion", OPENAI, TEXT)                        \
    X(TOKENIZE, "/tokenize", "tokenize", "tokenize", OPENAI, NOTHING)                                        \
    X(DETOKENIZE, "/detokenize", "detokenize", "detokenize", OPENAI, NOTHING)                                \
    X(RESPONSES, "/v1/responses", "responses", "chat", OPENAI, TEXT)                                         \
    X(INPUT_TOKENS, "/v1/responses/input_tokens", "input_tokens", "count_tokens", OPENAI, NOTHING)           \
    X(EMBEDDINGS, "/v1/embeddings", "embeddings", "embeddings", OPENAI, EMBEDDING)

enum api_call {
#define X(name, ...) API_##name,
    API_CALL_TABLE(X)
#undef X
};

/* Whose API an endpoint is of: it decides the form of errors and the headers of limits. */
enum api_dialect { API_DIALECT_ANTHROPIC, API_DIALECT_OPENAI };
/* What a worker computes for a request. */
enum api_work { API_WORK_NOTHING, API_WORK_TEXT, API_WORK_EMBEDDING };

struct api_call_info {
    const char *route, *log_name, *operation;
    enum api_dialect dialect;
    enum api_work work;
};
const struct api_call_info *api_call_info(enum api_call call);
bool api_call_is_openai(enum api_call call);
bool api_call_generates(enum api_call call); /* a worker computes an answer */
bool api_call_embeds(enum api_call call);    /* and it is an embedding */
/* The same for a path: one of these routes, a path below it, or a route of OpenAI's API that is not served. */
bool api_path_is_openai(struct bytes path);
bool api_call_is_response(enum api_call call); /* true if the body is that of /v1/responses */

/* On success the caller frees *out with gen_request_fini.  On failure (E_FORMAT with the error filled,
 * E_NOMEM as a 503) *out holds nothing.  A request that continues a conversation yields only thread_id
 * and cache_salt: the caller looks the conversation up and parses the body again with its history.  A
 * request that needs kept responses yields only response->wanted, and is parsed again in the same way. */
int api_parse_request(struct bytes body, enum api_call call, struct gen_request *out,
                      struct api_error *error);
/* history: the text that api_put_thread() wrote, or for /v1/responses
 * {"previous":[items],"items":[items]}: the conversation before the input, and items that references
 * name.  The result and errors are as above, for the whole conversation. */
int api_parse_continued(struct bytes body, struct bytes history, enum api_call call, struct gen_request *out,
                        struct api_error *error);
/* Refuses a conversation id with the error that makes clients resend the whole conversation without an
 * id. */
int api_refuse_thread(struct api_error *error);
void gen_request_fini(struct gen_request *request);

#endif
