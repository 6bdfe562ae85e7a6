/* SPDX-License-Identifier: Apache-2.0 */
/* A front's calls for the messages of other routers.  Loop thread. */
#ifndef SERVE_ENDPOINT_FRONT_SHARED_H
#define SERVE_ENDPOINT_FRONT_SHARED_H

#include "base/bytes.h"

struct front;

/* Another router deleted a kept response. */
void front_forget_response(struct front *front, const char *tenant, struct bytes id);
/* Another router's client cancels a response: if it runs here, it ends, and the answer for that client is appended.
 * False: it does not run here. */
bool front_cancel_response(struct front *front, const char *tenant, struct bytes id, struct buf *answer);
/* The answer to a question of front_opts.on_cancel(), with its number. */
void front_cancelled(struct front *front, uint64_t number, struct bytes answer);

#endif
