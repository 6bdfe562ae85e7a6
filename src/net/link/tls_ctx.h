/* SPDX-License-Identifier: Apache-2.0 */
/* The settings that all of Baton's TLS connections share: between daemons (net/link/tls.c) and with HTTP clients
 * (net/http/tls.c). No compression, no renegotiation, no early data, no session cache; the server chooses the
 * suite. A connection cut without a closing alert is a normal end: frames and HTTP messages carry their lengths.
 * Partial writes, and idle connections keep no buffers. Any thread. */
#ifndef NET_LINK_TLS_CTX_H
#define NET_LINK_TLS_CTX_H

#include <openssl/ssl.h>
#include <stddef.h>
#include <stdint.h>

struct tls_ctx_opts {
    int min_version;       /* TLS1_2_VERSION, TLS1_3_VERSION */
    const char *groups;    /* of the key exchange, OpenSSL's names */
    size_t n_tickets;      /* sent after a handshake; 0: no tickets at all */
    uint64_t more_options; /* SSL_OP_..., beside those that all share */
};

/* The caller owns it. NULL: out of memory, or OpenSSL refuses a setting. */
SSL_CTX *tls_ctx_new(const SSL_METHOD *method, const struct tls_ctx_opts *opts);

#endif
