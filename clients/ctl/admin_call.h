/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's side of a daemon's admin port (src/serve/endpoint/admin.h): one connection, authenticated by
 * a token that is derived from the cluster's key. */
#ifndef CLIENTS_CTL_ADMIN_CALL_H
#define CLIENTS_CTL_ADMIN_CALL_H

#include "base/bytes.h"
#include "base/fault.h"
#include "base/event/loop.h"

struct admin_door;

/* The token for a purpose ("admin", "metrics") as 64 hex digits, from the cluster's key. */
int admin_door_token(const char *key_path, const char *purpose, struct fault *fault, char out[65]);

struct admin_door_opts {
    const char *address;  /* of the daemon's http.admin */
    const char *key_path; /* the cluster's key */
};

/* Reads the key; sends nothing to the daemon yet. */
int admin_door_open(const struct admin_door_opts *opts, struct fault *fault, struct admin_door **out);
void admin_door_close(struct admin_door *door);           /* accepts NULL */
struct ev_loop *admin_door_loop(struct admin_door *door); /* runs during a call only */

/* Sends one request: GET, or POST when is_post.  Returns 0 with the body of a 200; otherwise an error whose
 * fault says what to do. */
int admin_door_ask(struct admin_door *door, bool is_post, const char *path, struct fault *fault,
                   struct buf *body_out);

#endif
