/* SPDX-License-Identifier: Apache-2.0 */
/* A message of one router to all others, as it goes through the shared store (net/state, which seals it), or through
 * workers (relay.c).
 *
 *     version 1 | epoch 8 | length of the name 1 | name | sections: kind 1 | length 4 | bytes
 *
 * Numbers are little endian.  A reader skips sections that it does not know.  Pure; any thread. */
#ifndef FLEET_ROUTER_NEWS_PRIV_H
#define FLEET_ROUTER_NEWS_PRIV_H

#include "base/bytes.h"

enum { NEWS_VERSION = 1, NEWS_NODE_BYTES = 64, NEWS_LOGIN_BYTES = 24 };

enum news_kind {
    NEWS_SPENDING = 1, /* the payload of SPENDING (proto/frame.h) */
    NEWS_LOGINS = 2,   /* wrong keys: address 16, hash 8, for each */
    NEWS_FORGET = 3,   /* a response that its owner deleted: tenant, NUL, id */
    NEWS_GOODBYE = 4,  /* empty: this router ends */
    NEWS_SERVED = 5,   /* service of tenants (served.c) */
    NEWS_CANCEL = 6,   /* a client cancels a response that the sender does not run (cancels.c) */
    NEWS_CANCELLED = 7 /* the answer of the router that ran it */
};

struct news {
    uint64_t epoch;
    char node[NEWS_NODE_BYTES];
    struct bytes sections; /* borrowed from the message */
};

/* Clears out and begins a message.  Append sections with news_put().  Out of memory sets the buffer's is_bad. */
void news_begin(struct buf *out, uint64_t epoch, const char *node);
void news_put(struct buf *out, enum news_kind kind, struct bytes section);
/* E_FORMAT, E_TRUNCATED, E_VERSION. */
int news_parse(struct bytes message, struct news *out);
/* Returns the next section; start with a copy of news.sections.  False: no more, or malformed. */
bool news_next(struct bytes *sections, unsigned *kind_out, struct bytes *section_out);

#endif
