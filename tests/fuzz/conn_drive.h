/* SPDX-License-Identifier: Apache-2.0 */
/* A real server on one end of a socket pair, for fuzz targets that play its client: everything happens on the
 * calling thread, turn by turn. */
#ifndef TESTS_FUZZ_CONN_DRIVE_H
#define TESTS_FUZZ_CONN_DRIVE_H

#include "base/bytes.h"
#include "net/http/server.h"

/* What the handler does is decided by the path's second byte: 'l' answers a turn later, 's' streams, 'h'
 * never answers, 'n' refuses from the head, 'f' streams and ignores on_pause; the others echo the body. */
struct drive {
    struct http_server *server;
    int fd;            /* the client's end */
    struct buf answer; /* what came back so far */
    unsigned n_heads, n_requests, n_done, n_aborts, n_refused;
    bool is_closed;                /* the server has closed */
    struct http_exchange *late[8]; /* to be answered by the next turn */
    unsigned n_late;
};

void drive_begin(struct drive *drive, bool has_h2c);
/* Sends text, unless the server is gone, and lets the loop turn until nothing moves. */
void drive_send(struct drive *drive, struct bytes text);
/* The client closes its side; then the server is freed.  Whoever saw on_head has been answered or aborted,
 * once. */
void drive_end(struct drive *drive);

#endif
