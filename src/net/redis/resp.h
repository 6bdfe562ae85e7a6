/* SPDX-License-Identifier: Apache-2.0 */
/* RESP, the protocol of Redis and Valkey, versions 2 and 3: bytes in, items out.
 *
 * A reply is one item, or an aggregate item (array, map, set, push) and the items that follow it.  The parser
 * returns one item at a time: an aggregate item has the number of items that follow it.  So no reply makes the
 * parser recurse or allocate.
 *
 * Pure functions; any thread. */
#ifndef NET_REDIS_RESP_H
#define NET_REDIS_RESP_H

#include "base/bytes.h"

enum {
    RESP_MAX_LINE = 4096,             /* bytes of a line: a number, a simple string, an error */
    RESP_MAX_ITEMS = 1 << 16,         /* of one reply */
    RESP_MAX_BULK = 512 * 1024 * 1024 /* the servers' own limit of a value */
};

enum resp_kind {
    RESP_TEXT,    /* a simple, bulk or verbatim string, a double or a big number: text */
    RESP_ERROR,   /* text */
    RESP_INTEGER, /* number; also booleans, 0 or 1 */
    RESP_NULL,    /* nothing; also null strings and null arrays of version 2 */
    RESP_LIST,    /* array or set: number of items follow */
    RESP_MAP,     /* number of items follow, keys and values in turns */
    RESP_PUSH,    /* out of band; number of items follow, and the reply is still to come */
    RESP_NOTE     /* an attribute: number of items follow, then the item that they describe */
};

struct resp_item {
    enum resp_kind kind;
    struct bytes text; /* borrowed from the input */
    int64_t number;
};

/* Reads the first item.  Returns 0, and sets *used_out to its length.  E_AGAIN: more bytes are needed; *used_out is
 * the total if it is known, else 0.  E_PROTO: not RESP, or over a limit. */
int resp_item_parse(struct bytes image, struct resp_item *out, size_t *used_out);
/* The length of the first reply, its items and attributes included.  E_AGAIN (as above), E_PROTO. */
int resp_reply_bytes(struct bytes image, size_t *used_out);
/* Appends a command of n arguments, as the servers expect it in both versions.  E_NOMEM. */
int resp_command(struct buf *out, const struct bytes *args, unsigned n);
/* Appends n of a command's arguments.  Its first line, "*" and the number of all, is the caller's.  E_NOMEM. */
int resp_args(struct buf *out, const struct bytes *args, unsigned n);

#endif
