/* SPDX-License-Identifier: Apache-2.0 */
/* The part of `batonctl top` above the status table: the pools of a router, and the last minutes as lines of bars.
 * Pure functions from the JSON of /admin/status; 80 columns. */
#ifndef CLIENTS_CTL_TOP_VIEW_H
#define CLIENTS_CTL_TOP_VIEW_H

#include "base/bytes.h"

enum { TOP_LOOKS = 50 }; /* bars in a line */

enum top_line { TOP_PLACED, TOP_HANDED_OFF, TOP_RUNNING, TOP_WAITING, TOP_LINES };

struct top_history {                     /* zeroed: no refresh yet */
    double values[TOP_LINES][TOP_LOOKS]; /* the latest is the last */
    unsigned n;                          /* number of refreshes in it */
    double placed, handed_off;           /* counters at the latest refresh */
    bool has_counters;
};

/* Adds a status, elapsed_s after the previous one.  False: it is not a router's status, and nothing changes. */
bool top_history_take(struct top_history *history, struct bytes json, double elapsed_s);
/* Appends bars of one line, scaled to its largest value: eighths of a block, or ASCII. */
void top_put_bars(const double *values, unsigned n, bool is_utf8, struct buf *out);
/* Appends pools and lines of a router; nothing for other daemons.  E_NOMEM. */
int top_view_render(const struct top_history *history, struct bytes json, bool is_utf8, struct buf *out);

#endif
