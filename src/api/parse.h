/* SPDX-License-Identifier: Apache-2.0 */
/* The body of POST /v1/messages and /v1/messages/count_tokens -> struct gen_request, fully checked.  Pure:
 * any thread. */
#ifndef API_PARSE_H
#define API_PARSE_H

#include "api/error.h"
#include "api/gen.h"

enum api_call {
    API_MESSAGES,
    API_COUNT_TOKENS /* max_tokens may be absent; generation fields are checked and ignored */
};

/* On success *out is to be given up with gen_request_fini.  On failure (E_FORMAT with the error filled,
 * E_NOMEM as a 503) *out holds nothing. */
int api_parse_request(struct bytes body, enum api_call call, struct gen_request *out,
                      struct api_error *error);
void gen_request_fini(struct gen_request *request);

#endif
