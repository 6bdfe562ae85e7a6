/* SPDX-License-Identifier: Apache-2.0 */
/* One small request: sends it and waits for its whole answer. */
#ifndef CLIENTS_COMMON_FETCH_H
#define CLIENTS_COMMON_FETCH_H

#include "net/http/client.h"

struct fetch_opts {
    struct ev_loop *loop;       /* borrowed; runs during the fetch */
    struct http_client *client; /* on that loop */
    enum http_method method;
    const char *path;
    const struct http_fields *fields; /* NULL: none */
    struct bytes body;
    uint64_t timeout_ns;
    size_t max_bytes; /* of the body */
};

/* Returns the answer's status (any) with its body in body_out (cleared first), or an error with its fault.
 * E_CANCELLED when another caller stopped the loop. */
int fetch(const struct fetch_opts *opts, struct fault *fault, struct buf *body_out);

#endif
