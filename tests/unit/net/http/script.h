/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the client: a server that answers each request with exactly the given bytes, whole or in small
 * pieces, valid or not.  One connection at a time. */
#ifndef TESTS_HTTP_SCRIPT_H
#define TESTS_HTTP_SCRIPT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum after { STAY, CLOSE, HANG };

struct line {           /* the reaction to one request */
    const char *answer; /* NULL: no answer */
    enum after after;   /* HANG: sends it and waits until the client closes */
};

struct script {
    struct line lines[8]; /* one for each request, over all connections */
    size_t piece_bytes;   /* 0: all at once */
    int listener;
    uint16_t port;
    pthread_t thread;
    atomic_bool is_over;
    unsigned at; /* next line */
    atomic_uint n_conns;
    atomic_uint n_closed_by_client;
    char request[4096]; /* the last request */
};

void script_listen(struct script *script); /* on a free port of the loopback address */
void script_serve(struct script *script);  /* on a thread of its own */
/* Call it after the client closed its connections. */
void script_end(struct script *script);

#endif
