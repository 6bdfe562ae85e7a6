/* SPDX-License-Identifier: Apache-2.0 */
/* A data connection by hand, so that tests can send wrong data on it.  Blocking, with time limits. */
#ifndef TESTS_TR_RAW_H
#define TESTS_TR_RAW_H

#include "proto/kv_frame.h"
#include "tests/conformance/tr_world.h"

struct raw {
    int fd;
    SSL *ssl;
    bool is_dialler;
    uint8_t own_hello[KV_FRAME_MAX_BYTES], peer_hello[KV_FRAME_MAX_BYTES];
    struct tr_geometry geometry;
    struct mem_region arena;   /* shared memory: the announced region */
    struct mem_region control; /* slot 0 has generation 1 */
};

/* Errors to make in the handshake. */
struct raw_lies {
    uint64_t layout;     /* 0: the truth */
    uint16_t version;    /* 0: the truth */
    uint8_t key;         /* first byte; 0: the truth */
    bool reflects_proof; /* sends the received proof back */
    uint8_t kind;        /* KV_FRAME_TCP and so on; 0: that of the socket */
    bool skips_share;    /* shared memory: stops before MEMORY */
};

void raw_dial(struct raw *raw, const struct worker *to);
void raw_take(struct raw *raw, int fd,
              const struct tr_geometry *geometry); /* an accepted socket; TLS server */
void raw_close(struct raw *raw);
/* False: the other side closed before the end. */
bool raw_greet(struct raw *raw, const struct raw_lies *lies);
bool raw_share(struct raw *raw, const int *fds, unsigned n_fds);

bool raw_send(struct raw *raw, const void *data, size_t len_bytes);
bool raw_receive(struct raw *raw, void *data, size_t len_bytes); /* false: closed, or 10 s went by */
bool raw_is_closed(struct raw *raw);                             /* reads until the end; within 10 s */
bool raw_expect_reject(struct raw *raw, uint64_t ticket, int code);

/* Sends a DATA frame up to its payload, or its trailer. */
bool raw_send_head(struct raw *raw, const struct kv_frame_data *run, uint8_t flags);
bool raw_send_trailer(struct raw *raw, uint64_t digest, unsigned status);
struct raw_pieces {
    uint32_t layer, first, n;
    uint64_t seed; /* contents are piece_fill(seed + i) */
};
/* Sends honest pieces of the kind under test. */
bool raw_send_pieces(struct raw *raw, uint64_t ticket, const struct raw_pieces *pieces);
bool raw_send_announce(struct raw *raw, const struct kv_frame_announce *announce, const uint32_t *blocks);

#endif
