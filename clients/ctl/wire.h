/* SPDX-License-Identifier: Apache-2.0 */
/* One TLS connection with deadlines, for commands that talk to one peer at a time.  No call waits beyond its deadline
 * (clock_now_ns()).  The peer proves the same key, or wire_shake() fails before a byte of ours is sent. */
#ifndef CLIENTS_CTL_WIRE_H
#define CLIENTS_CTL_WIRE_H

#include <openssl/ssl.h>

#include "base/bytes.h"
#include "base/fault.h"

struct wire {
    int fd; /* non-blocking; -1: closed */
    SSL *ssl;
};

/* Connects to "host:port". E_FORMAT, E_NOT_FOUND (name), E_IO (refused, unreachable), E_TIMEOUT; the fault says it in plain
 * words. */
int wire_dial(const char *address, uint64_t until_ns, struct fault *fault, struct wire *out);
/* Starts TLS on a connected socket.  Takes the socket, also on failure. */
int wire_wrap(int fd, SSL_CTX *ctx, bool is_server, struct wire *out);
/* One step of the handshake. 0: done; E_AGAIN with *events_out for poll(); E_AUTH: the peer has another key. */
int wire_step(struct wire *wire, short *events_out);
/* The whole handshake of a dialled connection. E_AUTH, E_TIMEOUT, E_CLOSED. */
int wire_shake(struct wire *wire, SSL_CTX *ctx, uint64_t until_ns, struct fault *fault);
int wire_write(struct wire *wire, struct bytes data, uint64_t until_ns, struct fault *fault);
/* Appends bytes until out holds at least len_bytes, or for len_bytes 0 at least one more. */
int wire_read(struct wire *wire, size_t len_bytes, uint64_t until_ns, struct fault *fault, struct buf *out);
unsigned wire_mtu(const struct wire *wire); /* of the path, as the kernel knows it; 0: unknown */
void wire_close(struct wire *wire);         /* accepts a closed one */

#endif
