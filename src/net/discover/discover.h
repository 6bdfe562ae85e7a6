/* SPDX-License-Identifier: Apache-2.0 */
/* Finds daemons: merges the address lists of a set of sources (url.h), and registers this daemon in etcd.
 *
 * Each source has a thread, which may block on a name server or on etcd. The loop gets the merged list when it
 * changes. When a source fails or returns an empty list, its last list stays, so an outage of discovery removes no
 * address. The log has one line for each change of a source's state. */
#ifndef NET_DISCOVER_DISCOVER_H
#define NET_DISCOVER_DISCOVER_H

#include "base/event/loop.h"
#include "base/fault.h"
#include "net/discover/endpoints.h"
#include "net/discover/url.h"

struct discover;

enum discover_role { DISCOVER_ROUTERS, DISCOVER_WORKERS };

struct
    discover_tls { /* files for etcds://; empty or NULL: the system's authorities, no certificate of our own */
    const char *ca, *certificate, *key;
};

struct discover_opts {
    struct ev_loop *loop;     /* borrowed */
    const char *const *items; /* sources and plain addresses; borrowed during the call */
    size_t n_items;
    enum discover_role role; /* chooses the etcd keys to read */
    const char
        *fingerprint; /* etcd: workers of this model only; NULL: all. Copied, like the members of tls */
    struct discover_tls tls;
    /* The new list; valid during the call. Not called before the first source answers. Loop thread. */
    void (*on_list)(void *arg, const struct endpoints *list);
    void *arg;
};

/* Starts one thread for each source. If items has plain addresses only, *out is NULL. E_FORMAT (a source cannot be
 * parsed), E_NOMEM. Loop thread. */
int discover_open(const struct discover_opts *opts, struct fault *fault, struct discover **out);
void discover_close(struct discover *discover); /* ends the threads within milliseconds; accepts NULL */

/* ---- registration ---- */

struct discover_entry { /* this daemon's entry in etcd; borrowed during the call */
    enum discover_role role;
    const char *node;        /* the name of the key */
    const char *link;        /* "host:port" to dial */
    const char *phase;       /* "router", "prefill", "decode", "both" */
    const char *model;       /* NULL: none */
    const char *fingerprint; /* of the model; NULL: none */
    const char *admin;       /* http.admin, which is on the loopback of this daemon's host; NULL: none */
};

struct discover_registration;

/* Starts a thread that keeps the key PREFIX/routers/NODE or PREFIX/workers/NODE in etcd under a lease of 15 s,
 * until discover_unregister(). E_FORMAT: url is not an etcd source. E_NOMEM. Loop thread. */
int discover_register(const char *url, const struct discover_tls *tls, const struct discover_entry *entry,
                      struct fault *fault, struct discover_registration **out);
/* Revokes the lease (at most a second) and ends the thread; accepts NULL. */
void discover_unregister(struct discover_registration *registration);

/* ---- reading the registered daemons once ---- */

enum { DISCOVER_MAX_MEMBERS = 1024 };

struct discover_member { /* texts are visible ASCII; empty: the entry has none */
    char node[64], phase[16], link[ENDPOINT_BYTES], admin[64], host[65], model[128], fingerprint[40];
};

struct discover_members {
    uint32_t n, n_refused; /* entries without a node and a link, or beyond the bound */
    struct discover_member all[DISCOVER_MAX_MEMBERS];
};

/* Reads the daemons that registered under an etcd source, sorted by name; waits up to 10 s. E_FORMAT: url is not an etcd
 * source, or the answer is not etcd's. E_IO, E_AUTH, E_TIMEOUT, E_NOMEM. */
int discover_members_read(const char *url, const struct discover_tls *tls, struct fault *fault,
                          struct discover_members *out);
/* The name of this host, as entries have it. */
void discover_host(char out[65]);

#endif
