/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in and out of a non-blocking socket, with or without TLS. On UNIX sockets descriptors travel
 * beside the bytes. */
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
    SSL *ssl;       /* NULL: no TLS */
    bool is_unix;   /* descriptors may arrive with the bytes */
    struct buf out; /* accepted from the connection, not yet by the kernel (ciphertext under TLS) */
    size_t out_at;
    int fds[2]; /* received descriptors */
    unsigned n_fds;
    bool has_moved;  /* bytes moved since the owner last looked */
    bool is_blocked; /* the kernel took less than offered: wait for EV_FD_WRITE */
    uint64_t until_rekey_bytes;
};

int tr_stream_init(struct tr_stream *stream, int fd, bool is_unix, SSL_CTX *tls,
                   bool is_server); /* takes fd */
void tr_stream_fini(struct tr_stream *stream);
/* 1: the TLS handshake is done, or there is no TLS; 0: not yet; negative: it failed. */
int tr_stream_shake(struct tr_stream *stream, struct fault *fault);
/* Returns bytes read; 0: none now; E_CLOSED: end of stream; E_IO. */
ssize_t tr_stream_read(struct tr_stream *stream, const struct iovec *iov, int n_iov);
/* Returns bytes accepted (copied); 0: none now; E_CLOSED, E_IO. */
ssize_t tr_stream_write(struct tr_stream *stream, const struct iovec *iov, int n_iov);
/* Queues a few bytes, even if the socket is blocked. E_NOMEM, E_FULL. */
int tr_stream_put(struct tr_stream *stream, const void *data, size_t len_bytes);
/* 1: the kernel has all bytes; 0: not yet; negative: it failed. */
int tr_stream_flush(struct tr_stream *stream);
/* 1: sent; 0: not now. */
int tr_stream_send_fds(struct tr_stream *stream, struct bytes with, const int fds[2]);
bool tr_stream_has_output(const struct tr_stream *stream); /* bytes that the kernel has not taken yet */

#endif
