/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: keys, their limits, and the text of every refusal.
 *
 *     head ──admit_key──> who ──admit_begin──> body ──admit_model──> tokens
 *                         tokens ──admit_reserve──> work ──admit_settle──> end
 *
 *     the rest of a stream: ──admit_begin──> ... found ──admit_anew, if its answer is computed again──> work
 *
 * Each returns 0 or fills in the error.  Loop thread only. */
#ifndef SERVE_ENDPOINT_ADMIT_PRIV_H
#define SERVE_ENDPOINT_ADMIT_PRIV_H

#include "serve/endpoint/front_priv.h"

/* 401: the key is missing, wrong or expired; 429: too many wrong keys from this address.  Without a key
 * file all requests are anonymous. */
int admit_key(struct front *front, const struct http_exchange *exchange, struct auth_key *who,
              struct api_error *error);
/* 429: too many requests per minute, or too many at once.  Call admit_settle in either case.  The rest of a stream passes
 * here, except far beyond a limit, and at admit_reserve(): the request that began the stream was counted. */
int admit_begin(struct request *request, struct api_error *error);
/* True if admit_begin() has put off its check: this router has just started, and what others have spent is not known yet. */
bool admit_is_early(const struct request *request);
/* The check that was put off, if it was. */
int admit_late(struct request *request, struct api_error *error);
/* 403: this key may not use the model. */
int admit_model(struct request *request, const char *model, struct api_error *error);
/* Lowers the most tokens of its answer to the endpoint's bound.  Call it before anything reads that number. */
void admit_bound_answer(struct request *request);
/* 429: the prompt's tokens plus the maximum of answer tokens exceed a limit. */
int admit_reserve(struct request *request, struct api_error *error);
/* The stream whose rest the client asks for exists: this request counts no more. */
void admit_found(struct request *request);
/* 429: the rest of a stream is computed again and counts like a new request, which does not fit. */
int admit_anew(struct request *request, struct api_error *error);
/* Ends the request: counts the input tokens (less the cached ones) and output tokens that were really
 * used. */
void admit_settle(struct request *request);
/* Adds the rate-limit fields of the request's key, if a limit applies. */
void admit_put_fields(const struct http_exchange *exchange, struct http_fields *fields);
/* The same for answers that belong to no request. */
void admit_put_fields_of(const struct http_exchange *exchange, const struct auth_key *who,
                         struct http_fields *fields);

#endif
