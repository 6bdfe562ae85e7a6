/* SPDX-License-Identifier: Apache-2.0 */
/* A message of one router to all others, as it goes through the shared store (net/state, which seals it), or through
 * workers (relay.c).
 *
 *     version 1 | epoch 8 | length of the name 1 | name | sections: kind 1 | length 4 | bytes
 *
 * Numbers are little endian.  A reader skips sections that it does not know.  Pure; any thread. */
#ifndef FLEET_ROUTER_ROUTER_MESSAGE_PRIV_H
#define FLEET_ROUTER_ROUTER_MESSAGE_PRIV_H

#include "base/bytes.h"

enum { ROUTER_MESSAGE_VERSION = 1, ROUTER_MESSAGE_NODE_BYTES = 64, ROUTER_MESSAGE_LOGIN_BYTES = 24 };

enum router_message_kind {
    ROUTER_MESSAGE_SPENDING = 1,  /* the payload of SPENDING (proto/frame.h) */
    ROUTER_MESSAGE_LOGINS = 2,    /* wrong keys: address 16, hash 8, for each */
    ROUTER_MESSAGE_FORGET = 3,    /* a response that its owner deleted: tenant, NUL, id */
    ROUTER_MESSAGE_GOODBYE = 4,   /* empty: this router ends */
    ROUTER_MESSAGE_SERVED = 5,    /* service of tenants (served.c) */
    ROUTER_MESSAGE_CANCEL = 6,    /* a client cancels a response that the sender does not run (cancels.c) */
    ROUTER_MESSAGE_CANCELLED = 7, /* the answer of the router that ran it */
    ROUTER_MESSAGE_MARGINS = 8,   /* margins of predictions (margins.c) ... */
    ROUTER_MESSAGE_MOVES = 9      /* ... and what their own samples moved them by, in a section before */
};

struct router_message {
    uint64_t epoch;
    char node[ROUTER_MESSAGE_NODE_BYTES];
    struct bytes sections; /* borrowed from the message */
};

/* Clears out and begins a message.  Append sections with router_message_put().  Out of memory sets the buffer's is_bad. */
void router_message_begin(struct buf *out, uint64_t epoch, const char *node);
void router_message_put(struct buf *out, enum router_message_kind kind, struct bytes section);
/* E_FORMAT, E_TRUNCATED, E_VERSION. */
int router_message_parse(struct bytes message, struct router_message *out);
/* Returns the next section; start with a copy of received.sections.  False: no more, or malformed. */
bool router_message_next(struct bytes *sections, unsigned *kind_out, struct bytes *section_out);

#endif
