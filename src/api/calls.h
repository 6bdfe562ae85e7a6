/* SPDX-License-Identifier: Apache-2.0 */
/* A model's text -> text and tool calls, as it streams.
 *
 * Calls are in the Hermes format, <tool_call>{"name": N, "arguments": {...}}</tool_call>.  Their arguments
 * are passed on as they come and are valid JSON at every moment.  A call that cannot be understood before
 * anything of it was passed on comes out as text. */
#ifndef API_CALLS_H
#define API_CALLS_H

#include "base/bytes.h"

struct calls;

enum calls_end {
    CALLS_WHOLE, /* the arguments are complete */
    CALLS_CUT,   /* the answer ended inside them; what came is a prefix of valid JSON */
    CALLS_BROKEN /* they went on in a way that is not JSON; on_text with the raw text of the whole call
                    follows, unless it is cut */
};

struct calls_events { /* 0 to go on; a negative result ends the feeding for good and is returned */
    int (*on_text)(void *arg, struct bytes text);
    int (*on_begin)(void *arg, struct bytes name);
    int (*on_arguments)(void *arg, struct bytes piece);
    int (*on_end)(void *arg, enum calls_end how);
};

/* events and arg are borrowed. */
int calls_new(const struct calls_events *events, void *arg, struct calls **out);
void calls_free(struct calls *calls);
/* text holds whole characters. */
int calls_feed(struct calls *calls, struct bytes text);
/* The answer is over.  is_cut: by a limit; then the beginning of a call is dropped instead of given as text.
 */
int calls_finish(struct calls *calls, bool is_cut);
/* Inside a call (or what may become one). */
bool calls_is_inside(const struct calls *calls);

#endif
