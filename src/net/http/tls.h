/* SPDX-License-Identifier: Apache-2.0 */
/* The server's TLS certificate for its clients: load, check, watch and replace it while connections go on.
 *
 * TLS 1.3 and, unless configured otherwise, TLS 1.2 with ephemeral keys and authenticated ciphers only. No
 * compression, no renegotiation, no early data. Ticket keys are replaced with every load, and every 12
 * hours without a load. Loop thread only, except http_tls_check and http_tls_read. */
#ifndef NET_HTTP_TLS_H
#define NET_HTTP_TLS_H

#include <openssl/ssl.h>

#include "base/fault.h"
#include "base/event/loop.h"
#include "base/metrics/metrics.h"

struct http_tls;
struct http_tls_fresh; /* files that are loaded but not in use yet */

enum http_tls_min { HTTP_TLS_1_2, HTTP_TLS_1_3 };

struct http_tls_files {
    const char *certificate; /* PEM: the server's certificate first, then the chain */
    const char *key;         /* PEM, not encrypted, not readable by other users */
    enum http_tls_min min;
};

struct http_tls_opts {
    struct http_tls_files files; /* copied */
    bool has_http2;              /* offers h2 beside http/1.1 */
    struct ev_loop *loop;        /* borrowed: runs the watch */
    struct metrics *metrics;     /* borrowed; NULL: none */
    uint64_t poll_ns;            /* how often to check the files; 0 means 10 s */
};

/* Checks whether http_tls_new would accept these files. Returns 0, or E_NOT_FOUND, E_IO, E_FORMAT (not
 * PEM, encrypted, or too weak), E_AUTH (other users may read the key), E_INVAL (key and certificate do not
 * match; expired or not yet valid). Any thread. */
int http_tls_check(const struct http_tls_files *files, struct fault *fault);
/* Errors as http_tls_check, and E_NOMEM. */
int http_tls_new(const struct http_tls_opts *opts, struct fault *fault, struct http_tls **out);
void http_tls_free(struct http_tls *tls); /* accepts NULL; open connections keep their certificate */
/* Reads these files (paths may have changed) for new connections. On failure the old certificate stays. */
int http_tls_reload(struct http_tls *tls, const struct http_tls_files *files, struct fault *fault);
/* The same in two parts: any thread reads the files, the loop takes the result. */
int http_tls_read(const struct http_tls_files *files, bool has_http2, struct fault *fault,
                  struct http_tls_fresh **out);
void http_tls_take(struct http_tls *tls, struct http_tls_fresh *fresh); /* frees fresh */
void http_tls_fresh_free(struct http_tls_fresh *fresh);                 /* accepts NULL */
/* Makes the SSL of one accepted connection; the caller owns it. NULL: out of memory. */
SSL *http_tls_accept(struct http_tls *tls);
/* The time when the current certificate expires. */
uint64_t http_tls_expiry_unix_s(const struct http_tls *tls);

#endif
