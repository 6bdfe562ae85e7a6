/* SPDX-License-Identifier: Apache-2.0 */
/* A request's placements for people: pure functions from the JSON of /admin/request/ID to text of 80 columns. */
#ifndef CLIENTS_CTL_REQUEST_VIEW_H
#define CLIENTS_CTL_REQUEST_VIEW_H

#include "base/bytes.h"

/* Why each attempt went where it did: the candidates with their estimates.  E_FORMAT, E_NOMEM. */
int request_view_why(struct bytes json, struct buf *out);
/* Where the time went: a bar for each part, on one scale.  E_FORMAT, E_NOMEM. */
int request_view_trace(struct bytes json, struct buf *out);

#endif
