/* SPDX-License-Identifier: Apache-2.0 */
/* Kept responses, and the routes under /v1/responses/ID. */
#ifndef SERVE_ENDPOINT_RESPONSES_PRIV_H
#define SERVE_ENDPOINT_RESPONSES_PRIV_H

#include "serve/endpoint/front_priv.h"

/* Collects the kept items that the request needs into request->recalled.  E_FORMAT: something is not kept. */
int responses_recall(struct request *request, struct api_error *error);
/* Keeps the request's response for later requests, if it asked for that.  output: the output items, in text. */
void responses_keep(struct request *request, struct bytes text, struct bytes output);
bool responses_allow(enum http_method method, struct bytes path); /* the methods of a path under the route */
void responses_serve(struct front *front, struct http_exchange *exchange);
/* Leaves out the oldest turns of a tokenised conversation that exceeds the context, if the request asks for
 * that, and tokenises again (truncate.c).  In the job that tokenises.  E_NOMEM, E_FORMAT, with the error. */
int responses_truncate(struct request *request);
void responses_report(const struct request *request); /* logs which tools were left out */

#endif
