/* SPDX-License-Identifier: Apache-2.0 */
/* TLS between daemons: version 1.3 only, both sides authenticated, in one of two ways:
 *
 *   cluster key    the key is an external PSK (RFC 8446 section 4.2.11). No certificates, no tickets. During a
 *                  rotation two keys are accepted; the PSK identity tells which one the dialler uses.
 *   certificates   each side shows a certificate of link.ca; with names, one that carries such a name.
 *
 * An ephemeral key exchange keeps recorded traffic safe if a key leaks later. One suite: AES-256-GCM with SHA-384.
 * No early data. A daemon uses one of the two, and refuses a peer that uses the other.
 *
 * A context belongs to the loop thread; tls_context_open() and tls_context_free() may run on any thread while no
 * other uses the context. */
#ifndef NET_LINK_TLS_H
#define NET_LINK_TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fault.h"
#include "net/link/cluster_key.h"

struct tls_context;

struct tls_conf {                       /* borrowed */
    const char *ca, *certificate, *key; /* PEM files; all "" or NULL: the cluster key */
    const char *const *names;           /* DNS names of peers; ".example.org" stands for all below it */
    size_t n_names;                     /* 0: any certificate of the CA */
};

/* key: 32 bytes, the only cluster key; copied, and wiped on free. E_INTERNAL, E_NOMEM. */
int tls_context_new(const uint8_t key[32], struct fault *fault, struct tls_context **out);
/* The same with the keys of a key file, and optionally certificates. cluster_key_derive() derives the key for TLS,
 * so no purpose learns the key of another purpose. Errors of net/link/tls_files.h, E_INVAL (only some files are
 * given), E_INTERNAL, E_NOMEM. */
int tls_context_open(const struct cluster_keys *keys, const struct tls_conf *conf, struct fault *fault,
                     struct tls_context **out);
void tls_context_free(struct tls_context *tls); /* accepts NULL; connections keep what they use */
/* Reload: new connections use fresh's keys and certificate. Frees fresh. Loop thread. */
void tls_context_take(struct tls_context *tls, struct tls_context *fresh);
bool tls_has_certificate(const struct tls_context *tls);
/* The time when the certificate expires; 0: the cluster key is used. */
uint64_t tls_expiry_unix_s(const struct tls_context *tls);
/* Logs a warning, once a day, when the certificate expires soon. */
void tls_warn_expiry(struct tls_context *tls);

/* Borrowed, until the next tls_context_take(); SSL_new() works from any thread. A successful handshake has
 * authenticated the peer. */
SSL_CTX *tls_server(struct tls_context *tls);
SSL_CTX *tls_client(struct tls_context *tls);
/* A likely reason for a failed handshake: a hint for the operator, or the fault of a certificate. ssl may be NULL. */
const char *tls_hint(const struct tls_context *tls, const SSL *ssl);

/* ---- cluster keys over the life of a connection ----
 *
 * A connection outlives the key of its handshake. Each side proves in its heartbeats which keys it has now. So a
 * rotation cuts no link, and a dropped key ends the links of peers that have no other key. */

#define TLS_PROOF_BYTES 32
#define TLS_MAX_KEYS    2

struct tls_proof {
    uint32_t id; /* cluster_key_id() */
    uint8_t mac[TLS_PROOF_BYTES];
};

uint32_t tls_key_used(const SSL *ssl); /* id of the key of this handshake; 0: certificates */
/* Ids of the accepted keys, the current one first. Returns their number, 0 with certificates. */
unsigned tls_key_ids(const struct tls_context *tls, uint32_t ids_out[TLS_MAX_KEYS]);
/* Writes the proofs of this side's keys for one connection.  Returns their number; 0 if the handshake's key is the
 * only key. */
unsigned tls_prove(const struct tls_context *tls, SSL *ssl, struct tls_proof out[TLS_MAX_KEYS]);
/* True: the peer of this connection has the key of the proof, and this side accepts that key. */
bool tls_proof_holds(const struct tls_context *tls, SSL *ssl, const struct tls_proof *proof);

#endif
