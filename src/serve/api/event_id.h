/* SPDX-License-Identifier: Apache-2.0 */
/* The id of a stream's event: "REQUEST.CACHED.TAG.NUMBER".  A client sends it to get the rest of the stream.
 *
 *    REQUEST   the request's id; alone it stands for the whole stream
 *    CACHED    prompt tokens that came from a cache: a part of the answer's usage that its tokens do not tell
 *    TAG       8 hex digits, a keyed hash of the two (serve/access/sign.h)
 *    NUMBER    of the event in its stream, from 1
 *
 * Pure. */
#ifndef SERVE_API_EVENT_ID_H
#define SERVE_API_EVENT_ID_H

#include "serve/api/ids.h"

#define EVENT_ID_PREFIX_BYTES (IDS_BYTES + 24) /* room for an id without its number */

struct event_id {
    char request_id[IDS_BYTES];
    bool has_event; /* false: only a request's id, and the other fields are 0 */
    uint32_t cached_tokens;
    uint32_t tag;
    uint64_t number;
};

/* E_FORMAT: not an event id. */
int event_id_parse(struct bytes text, struct event_id *out);
/* Writes the id up to the last dot. */
void event_id_put_prefix(const struct event_id *id, char out[EVENT_ID_PREFIX_BYTES]);

#endif
