/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in and out of a non-blocking socket, through TLS or not, with descriptors beside them on UNIX
 * sockets. */
#ifndef TRANSFER_TRANSPORT_TR_STREAM_PRIV_H
#define TRANSFER_TRANSPORT_TR_STREAM_PRIV_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/bytes.h"
#include "base/fault.h"

#define TR_MAX_IOV 64

struct tr_stream {
    int fd;
    SSL *ssl;       /* NULL: plain */
    bool is_unix;   /* descriptors may come with the bytes */
    struct buf out; /* accepted from the connection, not yet by the kernel (ciphertext under TLS) */
    size_t out_at;
    int fds[2]; /* that came */
    unsigned n_fds;
    bool has_moved;  /* bytes went in or out since the owner looked */
    bool is_blocked; /* the kernel took less than was offered: wait for EV_FD_WRITE */
    uint64_t until_rekey_bytes;
};

int tr_stream_init(struct tr_stream *stream, int fd, bool is_unix, SSL_CTX *tls,
                   bool is_server); /* takes fd */
void tr_stream_fini(struct tr_stream *stream);
/* 1: TLS is through (or there is none), 0: not yet, negative: it failed. */
int tr_stream_shake(struct tr_stream *stream, struct fault *fault);
/* Bytes read, 0: none now, E_CLOSED: end, E_IO. */
ssize_t tr_stream_read(struct tr_stream *stream, const struct iovec *iov, int n_iov);
/* Bytes accepted (copied), 0: none now, E_CLOSED, E_IO. */
ssize_t tr_stream_write(struct tr_stream *stream, const struct iovec *iov, int n_iov);
/* Queues a few bytes whatever the socket says.  E_NOMEM, E_FULL. */
int tr_stream_put(struct tr_stream *stream, const void *data, size_t len_bytes);
/* 1: all is with the kernel, 0: not yet, negative: it failed. */
int tr_stream_flush(struct tr_stream *stream);
int tr_stream_send_fds(struct tr_stream *stream, struct bytes with, const int fds[2]); /* 1 sent, 0 not now */
bool tr_stream_has_output(const struct tr_stream *stream); /* not with the kernel yet */

#endif
