/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a daemon's [http] keys for TLS into the options of net/http/tls.h, and decides where the daemon
 * may listen. */
#ifndef NET_HTTP_HTTPS_H
#define NET_HTTP_HTTPS_H

#include "base/fault.h"
#include "net/http/tls.h"

struct https_conf {
    const char *certificate, *key; /* "": none */
    int min;                       /* enum http_tls_min */
    bool has_http2;
    const char *congestion; /* http.congestion_control */
};

/* *out stays NULL if no certificate is configured. */
int https_open(const struct https_conf *conf, struct ev_loop *loop, struct metrics *metrics,
               struct fault *fault, struct http_tls **out);
/* Reload: reads new files, or the same files again, for http_tls_take(). It turns TLS neither on nor off. *out stays
 * NULL without TLS. Any thread. */
int https_read(const struct https_conf *conf, bool has_tls, struct fault *fault, struct http_tls_fresh **out);
/* Without API keys only loopback addresses are allowed (E_AUTH). On other addresses without TLS, anyone on
 * the path can read keys and prompts, so the daemon logs a warning. */
int https_may_listen(const char *address, bool has_keys, bool has_tls, struct fault *fault);
/* Versions of the libraries at run time, which may differ from those at build time: "libevent
 * 2.1.12-stable, OpenSSL 3.0.19, nghttp2 1.52.0". */
const char *https_libraries(void);
/* Logs a warning for each library that is older than the oldest version without known faults. */
void https_warn_outdated(void);

#endif
