/* SPDX-License-Identifier: Apache-2.0 */
/* A real server on one end of a socket pair, for fuzz targets that act as its client.  All of it runs on the
 * calling thread, turn by turn. */
#ifndef TESTS_FUZZ_CONN_DRIVE_H
#define TESTS_FUZZ_CONN_DRIVE_H

#include "base/bytes.h"
#include "net/http/server.h"

/* The path's second byte chooses the handler's reaction: 'l' answers a turn later, 's' streams, 'h' never
 * answers, 'n' refuses from the head, 'f' streams and ignores on_pause; all others echo the body. */
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
/* Sends text, unless the server has closed, and lets the loop turn until nothing moves. */
void drive_send(struct drive *drive, struct bytes text);
/* Closes the client's side, then frees the server.
 * Every exchange that had on_head was answered or aborted once. */
void drive_end(struct drive *drive);

#endif
