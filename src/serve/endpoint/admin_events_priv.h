/* SPDX-License-Identifier: Apache-2.0 */
/* GET /admin/events: the status and the placements of a daemon as server-sent events, once a second.
 *
 * All watchers get the same text, which is made once.  A slow watcher misses whole events and gets no partial one.
 * Loop thread only. */
#ifndef SERVE_ENDPOINT_ADMIN_EVENTS_PRIV_H
#define SERVE_ENDPOINT_ADMIN_EVENTS_PRIV_H

#include "base/bytes.h"
#include "base/event/loop.h"

struct http_exchange;
struct admin_events;

/* Calls ask when the next events are due.  The caller answers with admin_events_send() and then
 * admin_events_sent(), at once or later.  E_NOMEM. */
int admin_events_new(struct ev_loop *loop, ev_call ask, void *arg, struct admin_events **out);
void admin_events_free(struct admin_events *events); /* accepts NULL */
/* Begins the answer.  E_LIMIT, E_NOMEM: nothing was sent. */
int admin_events_watch(struct admin_events *events, struct http_exchange *exchange);
/* False: the exchange is not a watcher's. */
bool admin_events_drop(struct admin_events *events, const struct http_exchange *exchange);
void admin_events_pause(struct admin_events *events, const struct http_exchange *exchange, bool is_paused);
/* Ends the answers of all watchers. */
void admin_events_end(struct admin_events *events);
/* Sends one event to all watchers. json is one line, with or without a newline at its end. */
void admin_events_send(struct admin_events *events, const char *name, struct bytes json);
void admin_events_sent(struct admin_events *events); /* all events of this round were sent */

#endif
