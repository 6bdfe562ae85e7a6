/* SPDX-License-Identifier: Apache-2.0 */
/* Kept responses, and the routes under /v1/responses/ID. */
#ifndef SERVE_ENDPOINT_RESPONSES_PRIV_H
#define SERVE_ENDPOINT_RESPONSES_PRIV_H

#include "serve/endpoint/front_priv.h"

/* Collects the kept items that the request needs into request->recalled.  E_FORMAT: an item is not kept. */
int responses_recall(struct request *request, struct api_error *error);
/* Keeps the request's response for later requests, if the request asked for that.
 * output: its output items as text. */
void responses_keep(struct request *request, struct bytes text, struct bytes output);
/* Keeps a copy of another router's kept response, if text is one; empties text. */
void responses_take_kept(struct front *front, struct bytes id, const char *owner, struct buf *text);
bool responses_allow(enum http_method method, struct bytes path); /* true if a path under the route allows the
                                                                   * method */
void responses_serve(struct front *front, struct http_exchange *exchange);
/* Answers a client that cancels, with the answer of the router that ran the response; empty: none ran it. */
void responses_answer_cancel(struct front *front, struct http_exchange *exchange, struct bytes answer);
/* Shortens a tokenised conversation that exceeds the context, if the request asks for truncation
 * (truncate.c). Removes the oldest turns and tokenises again.  Runs in the job that tokenises.  E_NOMEM,
 * E_FORMAT, with error. */
int responses_truncate(struct request *request);
void responses_report(const struct request *request); /* logs the tools that were left out */

#endif
