/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon's status for people: pure functions from the JSON of /admin/status to text. */
#ifndef CLIENTS_CTL_STATUS_H
#define CLIENTS_CTL_STATUS_H

#include "base/bytes.h"

struct status_work { /* the figures that drain waits for and top shows */
    bool is_draining;
    uint64_t n_running; /* requests that the daemon has not finished */
    uint64_t n_placed;  /* router: requests placed since its start */
};

/* Appends a table of several lines, or (is_line) one short line; both end in a newline.  Control characters in
 * names become '?'.  E_FORMAT: not the status of a daemon; E_NOMEM. */
int status_render(struct bytes json, bool is_line, struct buf *out);
/* The role of a worker by its node's name: the daemon's own, or one that the router lists. E_NOT_FOUND, E_FORMAT. */
int status_role(struct bytes json, const char *node, char role_out[64]);
int status_work(struct bytes json, struct status_work *out); /* E_FORMAT */

#endif
