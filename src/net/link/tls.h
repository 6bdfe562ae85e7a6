/* SPDX-License-Identifier: Apache-2.0 */
/* TLS between daemons: version 1.3 only. The cluster key, as an external PSK (RFC 8446 section 4.2.11),
 * authenticates both sides. An ephemeral key exchange keeps recorded traffic safe if the key leaks later.
 * One suite: AES-256-GCM with SHA-384. No certificates, no tickets, no early data. */
#ifndef NET_LINK_TLS_H
#define NET_LINK_TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fault.h"

struct tls_context;

/* key: 32 bytes, the cluster key; copied, and wiped on free. cluster_key_derive() derives the key for the
 * wire, so no purpose learns the key of another purpose. E_INTERNAL, E_NOMEM. */
int tls_context_new(const uint8_t key[32], struct fault *fault, struct tls_context **out);
void tls_context_free(struct tls_context *tls); /* call it after every SSL made from it is freed */
/* Borrowed; SSL_new() works from any thread. A successful handshake has authenticated the peer. */
SSL_CTX *tls_server(struct tls_context *tls);
SSL_CTX *tls_client(struct tls_context *tls);

/* Reads a key file: 64 hex digits and a newline. E_AUTH: users other than owner and group may read or
 * write it. */
int cluster_key_load(const char *path, struct fault *fault, uint8_t key_out[32]);
/* Creates a file with a new random key, mode 0600. E_EXISTS. */
int cluster_key_create(const char *path, struct fault *fault);
/* Creates a file with this key, mode 0600. E_EXISTS, E_IO. */
int cluster_key_store(const char *path, const uint8_t key[32], struct fault *fault);
/* Derives 32 bytes for one purpose ("link", "prefix", "kv") by HMAC-SHA-256(key, label). E_INTERNAL. */
int cluster_key_derive(const uint8_t key[32], const char *label, uint8_t out[32]);

#endif
