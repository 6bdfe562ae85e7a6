/* SPDX-License-Identifier: Apache-2.0 */
/* Classes and hottest prefixes among a router's latest placements, for batonctl top.  A pure function from the JSON of
 * /admin/placements; 80 columns, 6 lines at most. */
#ifndef CLIENTS_CTL_TOP_RECENT_H
#define CLIENTS_CTL_TOP_RECENT_H

#include "base/bytes.h"

/* Appends a table of the classes on the left and one of the prefixes on the right, each with the most frequent first.
 * Nothing is appended for another daemon's answer, or without a placement.  E_NOMEM. */
int top_recent_render(struct bytes json, struct buf *out);

#endif
