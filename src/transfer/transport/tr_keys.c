/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of data connections: proofs, and what happens when the keys change.
 *
 *     new keys ──> new connections use them
 *              └─> a connection whose peer proved a key that is gone is retired:
 *                    dialler: takes no new work, closes once it carries no push; a fresh one takes the work
 *                    acceptor: closes when it is idle, RETIRED_NS later at the earliest; io_timeout_ns after
 *                              that also when it is busy
 *
 * So a peer that follows the rotation loses only transfers that take longer than that.  A peer that does not follow
 * it loses its connection. */
#include "transfer/transport/tr_priv.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#define PROOF_LABEL "baton kv proof"
#define RETIRED_NS  (10 * NS_PER_S)

/* ---- proofs ---- */

/* mac = HMAC(key, label || side || speaker's HELLO || listener's HELLO) */
static int tr_keys_mac(const struct tr_conn *conn, bool of_peer, const uint8_t key[TR_KEY_BYTES],
                       uint8_t out[KV_FRAME_PROOF_BYTES])
{
    bool by_dialler = (conn->peer != NULL) != of_peer;
    uint8_t text[sizeof(PROOF_LABEL) + 2 * KV_FRAME_MAX_BYTES];
    uint8_t *at = text;
    unsigned len_bytes = 0;

    memcpy(at, PROOF_LABEL, sizeof(PROOF_LABEL) - 1);
    at += sizeof(PROOF_LABEL) - 1;
    *at++ = by_dialler ? KV_FRAME_DIALER : KV_FRAME_ACCEPTOR;
    memcpy(at, of_peer ? conn->peer_hello : conn->own_hello, KV_FRAME_MAX_BYTES);
    memcpy(at + KV_FRAME_MAX_BYTES, of_peer ? conn->own_hello : conn->peer_hello, KV_FRAME_MAX_BYTES);
    if (HMAC(EVP_sha256(), key, TR_KEY_BYTES, text, sizeof(text), out, &len_bytes) == NULL ||
        len_bytes != KV_FRAME_PROOF_BYTES)
        return E_INTERNAL;
    return 0;
}

int tr_keys_prove(const struct tr_conn *conn, uint8_t out[KV_FRAME_PROOF_BYTES])
{
    return tr_keys_mac(conn, false, conn->owner->opts.keys.current, out);
}

static bool tr_keys_match(const struct tr_conn *conn, const uint8_t key[TR_KEY_BYTES],
                          const uint8_t proof[KV_FRAME_PROOF_BYTES])
{
    uint8_t mac[KV_FRAME_PROOF_BYTES];

    return tr_keys_mac(conn, true, key, mac) == 0 && CRYPTO_memcmp(mac, proof, sizeof(mac)) == 0;
}

bool tr_keys_accept(struct tr_conn *conn, const uint8_t proof[KV_FRAME_PROOF_BYTES])
{
    const struct tr_keys *keys = &conn->owner->opts.keys;
    const uint8_t *key = tr_keys_match(conn, keys->current, proof)                      ? keys->current
                         : keys->has_second && tr_keys_match(conn, keys->second, proof) ? keys->second
                                                                                        : NULL;

    if (key == NULL)
        return false;
    memcpy(conn->peer_key, key, sizeof(conn->peer_key));
    return true;
}

/* ---- a change of keys ---- */

static bool tr_keys_has(const struct tr_keys *keys, const uint8_t key[TR_KEY_BYTES])
{
    return CRYPTO_memcmp(key, keys->current, TR_KEY_BYTES) == 0 ||
           (keys->has_second && CRYPTO_memcmp(key, keys->second, TR_KEY_BYTES) == 0);
}

static bool tr_conn_carries_push(const struct tr_conn *conn)
{
    list_for_each (at, &conn->peer->pushes) {
        const struct tr_push *push = container_of(at, struct tr_push, node);

        if ((push->carriers >> conn->index & 1) != 0 || push->rdma != NULL)
            return true;
    }
    return false;
}

static bool tr_conn_may_retire(const struct tr_conn *conn, uint64_t now_ns)
{
    if (conn->peer == NULL && now_ns - conn->retired_ns > RETIRED_NS + conn->owner->opts.io_timeout_ns)
        return true; /* even a peer that is always busy cannot keep an old key in use */
    if (conn->ops->is_busy(conn) || tr_stream_has_output(&conn->stream))
        return false;
    return conn->peer != NULL ? !tr_conn_carries_push(conn) : now_ns - conn->retired_ns > RETIRED_NS;
}

static void tr_conn_begin_retirement(struct tr_node *node, struct tr_conn *conn, uint64_t now_ns)
{
    struct fault fault = {0};

    conn->retired_ns = now_ns;
    log_info("kv_connection_retired", LOG_STR("peer", tr_conn_name(conn)));
    if (conn->peer == NULL || conn->ops->keeps_pushes)
        return;
    conn->is_leaving = true;
    if (!list_is_empty(&conn->peer->pushes) && tr_peer_connect(node, conn->peer, &fault) < 0)
        log_warn("kv_peer_unreachable", LOG_STR("peer", conn->peer->address), LOG_STR("reason", fault.text));
}

void tr_keys_check(struct tr_node *node)
{
    uint64_t now_ns = clock_now_ns();
    struct fault fault = {0};

    fault_set(&fault, E_CLOSED, "the peer's cluster key is not accepted any more");
    list_for_each_safe (at, spare, &node->conns) {
        struct tr_conn *conn = container_of(at, struct tr_conn, node);

        if (conn->state != TR_CONN_READY || tr_keys_has(&node->opts.keys, conn->peer_key))
            continue;
        if (conn->retired_ns == 0)
            tr_conn_begin_retirement(node, conn, now_ns);
        if (tr_conn_may_retire(conn, now_ns))
            tr_conn_fail(conn, &fault);
    }
    tr_conns_free_dead(node);
}

void tr_access_free(struct tr_access *access)
{
    if (access == NULL)
        return;
    SSL_CTX_free(access->tls_server);
    SSL_CTX_free(access->tls_client);
    OPENSSL_cleanse(access, sizeof(*access));
    free(access);
}

struct tr_access *tr_access_new(SSL_CTX *tls_server, SSL_CTX *tls_client, const struct tr_keys *keys)
{
    struct tr_access *access = calloc(1, sizeof(*access));

    if (access == NULL)
        return NULL;
    if (tls_server != NULL && SSL_CTX_up_ref(tls_server) == 1)
        access->tls_server = tls_server;
    if (tls_client != NULL && SSL_CTX_up_ref(tls_client) == 1)
        access->tls_client = tls_client;
    access->keys = *keys;
    return access;
}

void tr_keys_take(struct tr_node *node, struct tr_access *access)
{
    tr_access_free(node->access);
    node->access = access;
    node->opts.tls_server = access->tls_server;
    node->opts.tls_client = access->tls_client;
    node->opts.keys = access->keys;
}
