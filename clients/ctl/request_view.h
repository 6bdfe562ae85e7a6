/* SPDX-License-Identifier: Apache-2.0 */
/* A request's placements for people: pure functions from the JSON of /admin/request/ID to text of 80 columns. */
#ifndef CLIENTS_CTL_REQUEST_VIEW_H
#define CLIENTS_CTL_REQUEST_VIEW_H

#include "base/bytes.h"

/* The reasons of each attempt's placement: the candidates with their estimates.  E_FORMAT, E_NOMEM. */
int request_view_why(struct bytes json, struct buf *out);
/* The time of each part, as bars on one scale.  E_FORMAT, E_NOMEM. */
int request_view_trace(struct bytes json, struct buf *out);

#endif
