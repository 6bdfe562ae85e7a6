/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of server-sent events, fed with pieces of any size. A pure state machine with a bounded buffer. */
#ifndef NET_HTTP_SSE_PARSE_H
#define NET_HTTP_SSE_PARSE_H

#include "base/bytes.h"

struct sse_parser;

/* name is "message" if the event has none. Both are valid only during the call. Return nonzero to stop
 * feeding. */
typedef int (*sse_event_call)(void *arg, struct bytes name, struct bytes data);

/* max_event_bytes limits the data of one event. */
int sse_parser_new(size_t max_event_bytes, sse_event_call call, void *arg, struct sse_parser **out);
void sse_parser_free(struct sse_parser *parser);
/* Returns 0, or the nonzero result of the callback. E_LIMIT: an event or a line is over the bound.
 * E_NOMEM. After a failure the parser accepts no more input. */
int sse_parser_feed(struct sse_parser *parser, struct bytes text);
/* The id of the last complete event with an id; "": no event had one. Valid until the next feed. */
const char *sse_parser_last_id(const struct sse_parser *parser);
/* The connection is lost, and another one continues after the last event. Drops the incomplete event. */
void sse_parser_restart(struct sse_parser *parser);

#endif
