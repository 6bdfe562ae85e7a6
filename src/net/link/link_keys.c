/* SPDX-License-Identifier: Apache-2.0 */
/* Which cluster keys the peer of a link has, from the handshake and from the proofs in its heartbeats.
 *
 *     handshake with A      proven: A
 *     their heartbeat: B    proven: A, B      this side accepts A: checked against its own copy of B only
 *     reload: B alone       B is proven, so the link stays
 *     reload: C alone       nothing proven is accepted: the link ends after GRACE_BEATS
 *
 * This side ignores a proof for a key that it does not have. The peer repeats its proofs in each heartbeat, so the
 * order of reloads does not matter. The grace covers a peer that reloads a moment later. */
#include "net/link/link_priv.h"

#include <event2/bufferevent_ssl.h>
#include <string.h>

#include "base/check.h"

#define GRACE_BEATS 3

static SSL *link_keys_ssl(const struct link *link)
{
    if (link->opts.is_plaintext || link->bev == NULL || tls_has_certificate(link->opts.tls))
        return NULL;
    return bufferevent_openssl_get_ssl(link->bev);
}

static bool link_keys_has(const struct link *link, uint32_t id)
{
    for (size_t i = 0; i < ARRAY_LEN(link->proven); i++)
        if (id != 0 && link->proven[i] == id)
            return true;
    return false;
}

static void link_keys_add(struct link *link, uint32_t id)
{
    if (id != 0 && !link_keys_has(link, id))
        link->proven[link->n_proven++ % ARRAY_LEN(link->proven)] = id;
}

void link_keys_begin(struct link *link)
{
    const SSL *ssl = link_keys_ssl(link);

    memset(link->proven, 0, sizeof(link->proven));
    link->n_proven = link->n_keyless_beats = 0;
    link->keys = (struct link_keys){0};
    if (ssl == NULL)
        return;
    link->keys.used = link->keys.current = tls_key_used(ssl);
    link_keys_add(link, link->keys.used);
}

unsigned link_keys_prove(struct link *link, struct tls_proof out[TLS_MAX_KEYS])
{
    SSL *ssl = link_keys_ssl(link);

    return ssl == NULL ? 0 : tls_prove(link->opts.tls, ssl, out);
}

void link_keys_receive(struct link *link, const Baton__Heartbeat *beat)
{
    SSL *ssl = link_keys_ssl(link);
    uint32_t ids[TLS_MAX_KEYS] = {0};

    if (ssl == NULL)
        return;
    for (size_t i = 0; i < beat->n_keys && i < TLS_MAX_KEYS; i++) {
        struct tls_proof proof = {.id = beat->keys[i]->id};

        memcpy(proof.mac, beat->keys[i]->mac.data, sizeof(proof.mac)); /* proto/frame_check.c checked its
                                                                        * length */
        if (!tls_proof_holds(link->opts.tls, ssl, &proof))
            continue;
        ids[i] = proof.id;
        link_keys_add(link, proof.id);
    }
    link->keys.current = beat->n_keys > 0 ? ids[0] : link->keys.used;
    link->keys.second = ids[1];
}

bool link_keys_are_gone(struct link *link)
{
    uint32_t ids[TLS_MAX_KEYS];
    unsigned n;

    if (link_keys_ssl(link) == NULL)
        return false;
    n = tls_key_ids(link->opts.tls, ids);
    for (unsigned i = 0; i < n; i++)
        if (link_keys_has(link, ids[i])) {
            link->n_keyless_beats = 0;
            return false;
        }
    return ++link->n_keyless_beats > GRACE_BEATS;
}

struct link_keys link_peer_keys(const struct link *link)
{
    return link->bev != NULL ? link->keys : (struct link_keys){0};
}
