/* SPDX-License-Identifier: Apache-2.0 */
/* Server-sent events: the reader's side, fed with pieces of any size.  A pure state machine with a bounded
 * buffer. */
#ifndef NET_HTTP_SSE_PARSE_H
#define NET_HTTP_SSE_PARSE_H

#include "base/bytes.h"

struct sse_parser;

/* name is "message" when the event has none; both are valid during the call only.  Return nonzero to stop
 * feeding. */
typedef int (*sse_event_call)(void *arg, struct bytes name, struct bytes data);

/* max_event_bytes: of one event's data. */
int sse_parser_new(size_t max_event_bytes, sse_event_call call, void *arg, struct sse_parser **out);
void sse_parser_free(struct sse_parser *parser);
/* 0; what the call returned when nonzero; E_LIMIT for an event (or line) over the bound; E_NOMEM.  After a
 * failure the parser takes nothing more. */
int sse_parser_feed(struct sse_parser *parser, struct bytes text);

#endif
