/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon's access to its cluster: the keys of link.cluster_key, and the TLS context of its links.
 *
 * The daemon reads it at start. A reload reads it again on a job thread, and the loop swaps it in. */
#ifndef SERVE_SETUP_LINK_ACCESS_H
#define SERVE_SETUP_LINK_ACCESS_H

#include "base/config/config.h"
#include "base/event/loop.h"
#include "base/metrics/metrics.h"
#include "net/link/tls.h"

struct link_conf { /* part of a daemon's configuration: the keys of [link] that concern access */
    char *cluster_key;
    char *ca, *certificate, *key; /* "": none */
    struct config_list names;
};

/* The keys of struct link_conf, as rows of a daemon's table.  KEY(field): offset of the field in its configuration. */
/* clang-format off */
#define LINK_CONF_KEYS(KEY)                                                                                  \
    {"link", "cluster_key", CONFIG_PATH, KEY(link.cluster_key), "", 0, 0, NULL, false,                       \
     "File with the cluster's key (64 hex digits, not readable by other users; 'batonctl new-cluster-key"    \
     " FILE' makes one). Every daemon of a cluster has the same key. Empty: the credential 'cluster.key'"    \
     " of the systemd unit."},                                                                               \
    {"link", "ca", CONFIG_PATH, KEY(link.ca), "", 0, 0, NULL, true,                                          \
     "PEM file with the authorities that sign the daemons' certificates. With link.certificate and "         \
     "link.key, links and KV connections are authenticated by certificates instead of the cluster key, "     \
     "on all daemons; admin tokens and stored data still derive from the key."},                             \
    {"link", "certificate", CONFIG_PATH, KEY(link.certificate), "", 0, 0, NULL, true,                        \
     "PEM file: this daemon's certificate for links, for client and server use, then its chain."},           \
    {"link", "key", CONFIG_PATH, KEY(link.key), "", 0, 0, NULL, true,                                        \
     "PEM file: the private key of link.certificate, not encrypted, not readable by other users."},          \
    {"link", "names", CONFIG_LIST, KEY(link.names), "", 0, 0, NULL, true,                                    \
     "A DNS name that the certificate of a peer must have; '.workers.example.org' stands for every name "    \
     "below. Repeat for more. Empty: any certificate of link.ca."},
/* clang-format on */

struct link_access {
    struct cluster_keys keys;
    struct tls_context *tls;
    struct ev_timer *watch; /* NULL: no certificate, or not in use yet */
    struct metric *expiry;
};

/* Reads key file and certificates. The fault names the file. Errors of cluster_keys_load and tls_context_open.
 * Any thread. */
int link_access_read(const struct link_conf *conf, struct fault *fault, struct link_access **out);
/* The same for a reload.  E_UNSUPPORTED: only a restart can change links from the key to certificates, or back. */
int link_access_read_again(const struct link_conf *conf, bool has_certificate, struct fault *fault,
                           struct link_access **out);
/* Puts fresh in place of access, frees fresh, and logs the keys' ids. Loop thread. */
void link_access_take(struct link_access *access, struct link_access *fresh);
void link_access_free(struct link_access *access); /* accepts NULL */

/* Derives a key for a purpose from each accepted key, the current one first. Returns their number, or
 * E_INTERNAL. */
int link_access_derive(const struct link_access *access, const char *purpose,
                       uint8_t out[TLS_MAX_KEYS][CLUSTER_KEY_BYTES]);
/* Keeps a gauge of the certificate's expiry, and warns once a day when the expiry is near. Does nothing without a
 * certificate. E_NOMEM. Loop thread. */
int link_access_watch(struct link_access *access, struct ev_loop *loop, struct metrics *metrics);
/* Appends `"link_keys": {...}, ` for the status of a daemon. */
void link_access_put(const struct link_access *access, struct buf *out);
/* Appends `, "keys": {...}` about the keys of one link, if any are known. */
void link_access_put_peer(uint32_t used, uint32_t current, uint32_t second, struct buf *out);

/* Checks the keys of [link] that concern access: key file, certificates and their dates. */
void link_access_check(struct config_check *check, const struct link_conf *conf);

#endif
