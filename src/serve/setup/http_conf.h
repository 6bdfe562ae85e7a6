/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of [http] that the router and the workers share: one struct, one table, and what they set in the endpoint.
 *
 * The router has more keys of [http] of its own: limits, deadlines and the console. */
#ifndef SERVE_SETUP_HTTP_CONF_H
#define SERVE_SETUP_HTTP_CONF_H

#include "base/config/config.h"
#include "net/http/https.h"
#include "serve/endpoint/front.h"

struct http_conf { /* part of a daemon's configuration */
    struct config_list listen;
    char *api_keys;
    char *tls_certificate, *tls_key;
    int tls_min; /* enum http_tls_min */
    bool http2, h2c;
    char *congestion_control;
    struct config_list cors_origin;
    char *admin;
    int metrics_for; /* enum front_metrics_for */
};

/* The keys of struct http_conf, as rows of a daemon's table.  KEY(field): offset of the field in its configuration;
 * listen_at, admin_at: the addresses without a key; about: whose endpoint it is. */
/* clang-format off */
#define HTTP_CONF_KEYS(KEY, listen_at, admin_at, about)                                                      \
    {"http", "listen", CONFIG_LIST, KEY(http.listen), listen_at, 0, 0, NULL, false,                          \
     about ", host:port; repeat the key for more. Only loopback is allowed unless an API key file is "       \
     "given."},                                                                                              \
    {"http", "api_keys", CONFIG_PATH, KEY(http.api_keys), "", 0, 0, NULL, true,                              \
     "File of API key hashes, one 'sha256-hex tenant [name] [limit=value ...]' per line ('batonctl "         \
     "new-key' makes one). Empty: requests need no key, which is allowed on loopback only."},                \
    {"http", "tls_certificate", CONFIG_PATH, KEY(http.tls_certificate), "", 0, 0, NULL, true,                \
     "PEM file: this daemon's certificate, then its chain. Together with tls_key it turns on TLS for "       \
     "every http.listen. Read again on SIGHUP and when either file changes; if the two do not match, the "   \
     "old pair stays in use."},                                                                              \
    {"http", "tls_key", CONFIG_PATH, KEY(http.tls_key), "", 0, 0, NULL, true,                                \
     "PEM file: the private key of tls_certificate, not encrypted, not readable by other users."},           \
    {"http", "tls_min", CONFIG_ENUM, KEY(http.tls_min), "1.2", 0, 0, "1.2|1.3", true,                        \
     "Oldest TLS version that clients may use."},                                                            \
    {"http", "http2", CONFIG_BOOL, KEY(http.http2), "yes", 0, 0, NULL, false,                                \
     "Offer HTTP/2 to clients that use TLS."},                                                               \
    {"http", "h2c", CONFIG_BOOL, KEY(http.h2c), "no", 0, 0, NULL, false,                                     \
     "Accept HTTP/2 without TLS too, from clients (proxies) that start with it directly."},                  \
    {"http", "congestion_control", CONFIG_STR, KEY(http.congestion_control), "", 0, 0, NULL, false,          \
     "TCP congestion control of client connections, such as cubic. The kernel lists its algorithms in "      \
     "/proc/sys/net/ipv4/tcp_available_congestion_control. Empty: the system's. Small packets, one for "     \
     "each token, cost more under bbr than under cubic."},                                                   \
    {"http", "cors_origin", CONFIG_LIST, KEY(http.cors_origin), "", 0, 0, NULL, false,                       \
     "Origin whose pages may send requests from a browser, such as https://app.example; repeat for more; "   \
     "* for any. None: no CORS header is sent."},                                                            \
    {"http", "admin", CONFIG_ADDRESS, KEY(http.admin), admin_at, 0, 0, NULL, false,                          \
     "Address for batonctl (status, metrics, drain, reload). Loopback only."},                               \
    {"http", "metrics", CONFIG_ENUM, KEY(http.metrics_for), "admin", 0, 0, "admin|clients", false,           \
     "Access to /metrics, whose labels name tenants, models and workers. admin: only with the admin "        \
     "token, on http.admin. clients: also with any API key, on http.listen."},
/* clang-format on */

struct https_conf http_conf_https(const struct http_conf *conf); /* borrows */
/* Sets what the keys say in the options of the endpoint, except opts->tls.  Borrows conf. */
void http_conf_fill(const struct http_conf *conf, struct front_opts *opts);

#endif
