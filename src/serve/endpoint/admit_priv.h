/* SPDX-License-Identifier: Apache-2.0 */
/* Who may ask, for what, and how much: keys, their limits, and the words of every refusal.
 *
 *     head ──admit_key──> who ──admit_begin──> body ──admit_model──> tokens ──admit_reserve──> work
 * ──admit_settle
 *
 * Each returns 0 or fills in the error.  Loop thread only. */
#ifndef SERVE_ENDPOINT_ADMIT_PRIV_H
#define SERVE_ENDPOINT_ADMIT_PRIV_H

#include "serve/endpoint/front_priv.h"

/* 401: no valid key, or one that has expired; 429: too many wrong ones from there.  Without a key file
 * everybody is nobody. */
int admit_key(struct front *front, const struct http_exchange *exchange, struct auth_key *who,
              struct api_error *error);
/* 429: too many requests, or too many at once.  admit_settle is wanted in any case. */
int admit_begin(struct request *request, struct api_error *error);
/* 403: not with this key. */
int admit_model(struct request *request, const char *model, struct api_error *error);
/* 429: the prompt's tokens and the answer's, at their most, do not fit. */
int admit_reserve(struct request *request, struct api_error *error);
/* The end: counts what was really read (less what was cached) and written. */
void admit_settle(struct request *request);
/* Rate-limit fields of whoever sent the request, if anything limits him. */
void admit_put_fields(const struct http_exchange *exchange, struct http_fields *fields);
/* The same for answers that are no request's. */
void admit_put_fields_of(const struct http_exchange *exchange, const struct auth_key *who,
                         struct http_fields *fields);

#endif
