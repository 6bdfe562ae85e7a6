/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that cancel a response that another router may run (cancels.c).  Loop thread. */
#ifndef SERVE_ENDPOINT_CANCELS_PRIV_H
#define SERVE_ENDPOINT_CANCELS_PRIV_H

#include "base/bytes.h"

struct front;
struct http_exchange;

/* Asks the other routers.  True: responses_answer_cancel() follows, unless the client goes away before. */
bool cancels_ask(struct front *front, struct http_exchange *exchange, const char *tenant, struct bytes id);
void cancels_abort(struct front *front, const struct http_exchange *exchange); /* the client went away */
void cancels_close(struct front *front);                                       /* the front ends */

#endif
