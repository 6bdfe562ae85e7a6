/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a POST -> struct gen_request, fully checked.  Pure: any thread. */
#ifndef SERVE_API_PARSE_H
#define SERVE_API_PARSE_H

#include "serve/api/error.h"
#include "serve/api/gen.h"

enum api_call {
    API_MESSAGES,     /* /v1/messages */
    API_COUNT_TOKENS, /* .../count_tokens: max_tokens may be absent; generation fields are checked and ignored
                       */
    API_CHAT,         /* /v1/chat/completions */
    API_COMPLETIONS,  /* /v1/completions */
    API_TOKENIZE,     /* /tokenize: prompts has one, or there are messages */
    API_DETOKENIZE    /* /detokenize: prompts has one, of tokens */
};

bool api_call_is_openai(enum api_call call);
bool api_call_generates(enum api_call call); /* an answer by the model */

/* On success *out is to be given up with gen_request_fini.  On failure (E_FORMAT with the error filled,
 * E_NOMEM as a 503) *out holds nothing.  Of a request that continues a thread there are only thread_id and
 * cache_salt: the caller looks the thread up and parses the body again, with its history. */
int api_parse_request(struct bytes body, enum api_call call, struct gen_request *out,
                      struct api_error *error);
/* history: what api_put_thread() wrote.  Then as above, of the whole conversation. */
int api_parse_continued(struct bytes body, struct bytes history, enum api_call call, struct gen_request *out,
                        struct api_error *error);
/* Refuses a thread in the way that makes clients resend the whole conversation without one. */
int api_refuse_thread(struct api_error *error);
void gen_request_fini(struct gen_request *request);

#endif
