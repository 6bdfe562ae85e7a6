/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate a server shows its clients: read, checked, watched, replaced while connections go on.
 *
 * TLS 1.3 and, unless told otherwise, 1.2 with ephemeral keys and authenticated ciphers only; no compression,
 * no renegotiation, no early data.  Tickets are sealed with keys that live as long as the context: they are
 * replaced with every load, and every 12 hours without one.  Loop thread only, but for http_tls_check. */
#ifndef NET_HTTP_TLS_H
#define NET_HTTP_TLS_H

#include <openssl/ssl.h>

#include "base/fault.h"
#include "base/event/loop.h"
#include "base/metrics/metrics.h"

struct http_tls;

enum http_tls_min { HTTP_TLS_1_2, HTTP_TLS_1_3 };

struct http_tls_files {
    const char *certificate; /* PEM: the server's own first, then the chain */
    const char *key;         /* PEM, not encrypted, closed to other users */
    enum http_tls_min min;
};

struct http_tls_opts {
    struct http_tls_files files; /* copied */
    bool has_http2;              /* offers h2 beside http/1.1 */
    struct ev_loop *loop;        /* borrowed: the watch runs there */
    struct metrics *metrics;     /* borrowed; NULL: none */
    uint64_t poll_ns;            /* how often the files are looked at; 0: 10 s */
};

/* Would http_tls_new take these?  0, or the fault: E_NOT_FOUND, E_IO, E_FORMAT (not PEM, encrypted, too
 * weak), E_AUTH (others may read the key), E_INVAL (they do not belong together; expired or not yet valid).
 * Any thread. */
int http_tls_check(const struct http_tls_files *files, struct fault *fault);
/* As http_tls_check, and E_NOMEM. */
int http_tls_new(const struct http_tls_opts *opts, struct fault *fault, struct http_tls **out);
void http_tls_free(struct http_tls *tls); /* NULL is fine; connections keep what they began with */
/* Reads these files (paths may have changed) for connections to come; on failure the old ones stay. */
int http_tls_reload(struct http_tls *tls, const struct http_tls_files *files, struct fault *fault);
/* For one accepted connection; the caller's.  NULL: out of memory. */
SSL *http_tls_accept(struct http_tls *tls);
/* When the certificate shown ends. */
uint64_t http_tls_expiry_unix_s(const struct http_tls *tls);

#endif
