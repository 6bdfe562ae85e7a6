/* SPDX-License-Identifier: Apache-2.0 */
/* A connection to a Redis or Valkey server, for a thread that may wait.
 *
 *     redis_conn_open: TCP, TLS, HELLO 3 (or AUTH and RESP2), SELECT
 *     redis_conn_send: commands, as many as the caller likes, before ...
 *     redis_conn_reply: ... their replies, in order
 *
 * Every wait ends: after stall_ns without a byte, or when *is_ending is set.  After E_IO, E_CLOSED, E_TIMEOUT or
 * E_PROTO the connection is unusable; close it.  One thread for each connection. */
#ifndef NET_REDIS_REDIS_CONN_H
#define NET_REDIS_REDIS_CONN_H

#include <stdatomic.h>

#include "net/redis/redis_url.h"
#include "net/redis/resp.h"

struct redis_conn;

struct redis_conn_opts { /* borrowed for the life of the connection */
    const struct redis_url *url;
    void *tls;                    /* SSL_CTX, from redis_tls_new(); NULL without TLS */
    uint64_t stall_ns;            /* a wait without a byte for this long ends with E_TIMEOUT */
    size_t max_reply_bytes;       /* a longer reply is E_PROTO */
    const atomic_bool *is_ending; /* set: waits end with E_CANCELLED.  NULL: never */
    bool reads_replicas;          /* sends READONLY: a replica of a cluster answers reads */
};

/* The settings that all TLS connections of a store share. ca_path: a file with the authorities that sign the
 * server's certificate; empty: the system's authorities.  E_IO, E_NOMEM. */
int redis_tls_new(const char *ca_path, struct fault *fault, void **out);
void redis_tls_free(void *tls);

/* E_IO (no connection), E_TIMEOUT, E_AUTH (TLS or password), E_PROTO, E_NOMEM, E_CANCELLED. */
int redis_conn_open(const struct redis_conn_opts *opts, const struct redis_node *node, struct fault *fault,
                    struct redis_conn **out);
void redis_conn_close(struct redis_conn *conn);

/* Sends n parts, one after the other, without a copy.  Changes the list. */
int redis_conn_send(struct redis_conn *conn, struct bytes *parts, unsigned n);
/* Until it is called again: on_part gets the beginning of each long string while the rest arrives, longer with each
 * call, borrowed for the call.  NULL: it is not called. */
void redis_conn_watch(struct redis_conn *conn, void (*on_part)(void *arg, struct bytes beginning), void *arg);
/* Returns the next reply, without pushes: its first item, and all of its bytes.  Both are valid until the next
 * call. */
int redis_conn_reply(struct redis_conn *conn, struct resp_item *item_out, struct bytes *all_out);
/* Sends a command, whose words end with NULL, and returns its reply. */
int redis_conn_ask(struct redis_conn *conn, const char *const *words, struct resp_item *item_out,
                   struct bytes *all_out);

#endif
