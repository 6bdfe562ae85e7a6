/* SPDX-License-Identifier: Apache-2.0 */
/* The client's own types: what both kinds of clients (load.c, remote.c) share. */
#ifndef TESTS_BENCH_LOAD_PRIV_H
#define TESTS_BENCH_LOAD_PRIV_H

#include "base/bytes.h"
#include "tests/bench/streams/streams.h"

struct client {
    int fd;            /* -1: ended, or it has none */
    uint32_t n_events; /* of text, read so far */
    uint8_t n_matched; /* of the mark of such an event, at the end of the bytes read so far */
    bool has_begun;

    /* remote.c */
    bool is_open;              /* answered our SYN, and has not ended */
    bool is_owed;              /* an acknowledgement */
    uint32_t send_at, take_at; /* the next numbers in both sequences */
};

struct load {
    const struct load_opts *opts;
    struct client *clients;
    struct remote *remote; /* NULL: clients are sockets of this machine */
    int epoll;
    uint32_t n_open; /* asked for */
    uint32_t n_begun;
    bool is_measuring;
    uint64_t n_events, n_lost;
    uint32_t *histogram; /* [HISTOGRAM_US + 1], the last one for all beyond */
    uint64_t worst_ns;
};

/* What stream number i asks for. */
void load_put_request(const struct load *load, uint32_t i, struct buf *out);
/* The next bytes of a stream's answer came then. */
void load_take(struct load *load, uint32_t number, const char *data, size_t n, uint64_t now_ns);
void load_lose(struct load *load, uint32_t number); /* it ended or failed */

/* ---- clients on another machine ---- */

/* Makes the device they are behind; it goes with the process.  -1, said on stderr: not allowed. */
int remote_new(struct load *load);
void remote_ask(struct load *load, uint32_t number); /* begins a stream */
void remote_turn(struct load *load);                 /* takes and acknowledges received packets */
void remote_free(struct load *load);                 /* all clients leave */

#endif
