/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the transport for KV from a peer.
 * The receiver chooses, and names its choice in each grant.  A pure function. */
#include "worker/runner/engine_thread.h"

/* The kind that kv.transport names. */
static enum tr_kind transport_configured(const struct transport_offer *own, const struct peer_facts *peer,
                                         const char **why_out)
{
    switch (own->preferred) {
    case TR_SHM:
        *why_out = "kv.transport = shm";
        return TR_SHM;
    case TR_TCP:
        *why_out = "kv.transport = tcp";
        return TR_TCP;
    case TR_RDMA:
        if (own->rdma_rails > 0 && peer->rdma_rails > 0) {
            *why_out = "kv.transport = rdma";
            return TR_RDMA;
        }
        *why_out = own->rdma_rails == 0 ? "kv.transport = rdma, but no rail is up here"
                                        : "kv.transport = rdma, but the peer has no rail";
        return TR_TCP;
    }
    return TR_TCP;
}

enum tr_kind worker_choose_transport(const struct transport_offer *own, const struct peer_facts *peer,
                                     const char **why_out)
{
    bool can_shm = peer->is_same_host && peer->unix_path[0] != '\0' && own->has_unix;
    bool can_rdma = peer->rdma_rails > 0 && own->rdma_rails > 0;

    if (!own->is_auto)
        return transport_configured(own, peer, why_out);
    if (can_shm) {
        *why_out = "auto: on the same host, both with a unix_path";
        return TR_SHM;
    }
    if (can_rdma) {
        *why_out = "auto: another host, both with a rail";
        return TR_RDMA;
    }
    *why_out = own->rdma_rails == 0 ? "auto: no shared host, no RDMA rail here"
                                    : "auto: no shared host, no RDMA rail there";
    return TR_TCP;
}

const char *worker_transport_name(enum tr_kind kind)
{
    switch (kind) {
#define X(name, text, socket)                                                                                \
    case TR_##name:                                                                                          \
        return #text;
        TR_KINDS(X)
#undef X
    }
    return "";
}
