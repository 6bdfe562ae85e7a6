/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of a Redis or Valkey server, as clients of these servers write them:
 *
 *     redis://[user:password@]host[:port][/db]
 *     rediss://...                                   over TLS
 *     redis+cluster://[user:password@]host[:port][,host[:port]...][/?replicas=yes]    rediss+cluster:// over TLS
 *
 * User and password may have %XX escapes.  A password alone is ":password@".  Pure; any thread. */
#ifndef NET_REDIS_REDIS_URL_H
#define NET_REDIS_REDIS_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/fault.h"

enum { REDIS_PORT = 6379, REDIS_MAX_SEEDS = 8, REDIS_HOST_BYTES = 256, REDIS_SECRET_BYTES = 256 };

struct redis_node {
    char host[REDIS_HOST_BYTES]; /* without brackets */
    uint16_t port;
};

struct redis_url {
    bool is_tls, is_cluster;
    bool reads_replicas;                                         /* replicas of a cluster may answer reads */
    char user[REDIS_SECRET_BYTES], password[REDIS_SECRET_BYTES]; /* empty: none */
    struct redis_node seeds[REDIS_MAX_SEEDS];                    /* one, unless is_cluster */
    unsigned n_seeds;
    unsigned db;
};

bool redis_url_is(const char *text); /* whether it begins with one of these schemes */
/* E_FORMAT; the text of the fault never has the password. */
int redis_url_parse(const char *text, struct fault *fault, struct redis_url *out);
/* Takes the login from "user:password" or "password", without escapes.  E_FORMAT. */
int redis_url_login(struct redis_url *url, const char *login, struct fault *fault);
/* Parses "host", "host:port", "[v6]", "[v6]:port".  E_FORMAT. */
int redis_node_parse(struct bytes text, struct redis_node *out);

#endif
