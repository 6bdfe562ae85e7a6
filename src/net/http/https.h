/* SPDX-License-Identifier: Apache-2.0 */
/* What a daemon's [http] keys say about TLS, made into what net/http/tls.h wants; and how it may listen. */
#ifndef NET_HTTP_HTTPS_H
#define NET_HTTP_HTTPS_H

#include "base/fault.h"
#include "net/http/tls.h"

struct https_conf {
    const char *certificate, *key; /* "" for none */
    int min;                       /* enum http_tls_min */
    bool has_http2;
    const char *congestion; /* http.congestion_control */
};

/* *out stays NULL when no certificate is configured. */
int https_open(const struct https_conf *conf, struct ev_loop *loop, struct metrics *metrics,
               struct fault *fault, struct http_tls **out);
/* For a reload: new files, or the same ones read again.  TLS is neither begun nor ended by it. */
int https_reload(struct http_tls *tls, const struct https_conf *conf, struct fault *fault);
/* Without API keys only loopback is opened (E_AUTH).  Elsewhere, without TLS, everybody on the way can read
 * keys and prompts: that is logged. */
int https_may_listen(const char *address, bool has_keys, bool has_tls, struct fault *fault);
/* "libevent 2.1.12-stable, OpenSSL 3.0.19, nghttp2 1.52.0": what runs, which need not be what was compiled
 * against. */
const char *https_libraries(void);
/* Logs a warning for each library older than the oldest that is not known to be faulty. */
void https_warn_outdated(void);

#endif
