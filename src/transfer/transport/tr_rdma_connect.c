/* SPDX-License-Identifier: Apache-2.0 */
/* How an RDMA connection becomes READY, over a socket whose ends have authenticated each other.
 *
 *     dialler                                           acceptor
 *     queue pairs to INIT on each rail it may use
 *     RAIL x n  ------------------------------------->  pairs each with a rail, queue pairs INIT to RTS,
 *                                                       receives posted, windows bound
 *               <-------------------------------------  RAIL, REGION x m, for each
 *     queue pairs to RTS; READY                         READY
 *
 * Rails are paired by their place in the two lists if both lists are long enough, else with any free rail.
 * A rail without a partner is left out. If no pair is left, the connection fails and the pushes go over
 * TCP. The receiver is ready before it sends its addresses, so the sender's first write cannot come too
 * early. */
#include "transfer/transport/tr_rdma_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"

static int rdma_connect_make_side(struct tr_conn *conn, struct fault *fault)
{
    struct rdma_side *side = calloc(1, sizeof(*side));

    if (side == NULL)
        return fault_set(fault, E_NOMEM, "no memory for a connection");
    list_init(&side->undead);
    list_init(&side->pushes);
    list_init(&side->due);
    side->node = conn->owner;
    side->conn = conn;
    side->is_dialler = conn->peer != NULL;
    conn->moving = side;
    return 0;
}

static void rdma_connect_drop_pair(struct rdma_pair *pair)
{
    unsigned n_left = 0;

    for (unsigned i = 0; i < pair->n_qps; i++)
        if (!rdma_qp_kill(pair->qps[i])) /* never connected, so a leak is harmless */
            n_left++;
    if (n_left > 0)
        log_error("kv_rdma_queue_pair_stuck", LOG_STR("rail", pair->rail->name));
    pair->n_qps = 0;
    pair->rail = NULL;
}

static int rdma_connect_make_qps(struct rdma_side *side, struct rdma_pair *pair, unsigned n,
                                 struct fault *fault)
{
    for (unsigned i = 0; i < n; i++) {
        int err = rdma_qp_new(side, pair->rail, !side->is_dialler, fault, &pair->qps[i]);

        if (err != 0)
            return err;
        pair->qps[i]->rail_index = (unsigned)(pair - side->pairs);
        pair->qps[i]->index = i;
        pair->n_qps = i + 1;
    }
    return 0;
}

static int rdma_connect_send_rail(struct rdma_side *side, const struct rdma_pair *pair, unsigned n_rails)
{
    struct kv_frame frame = {.type = KV_FRAME_RAIL};
    struct kv_frame_rail *rail = &frame.as.rail;

    *rail = (struct kv_frame_rail){.index = (uint8_t)(pair - side->pairs),
                                   .n_rails = (uint8_t)n_rails,
                                   .n_qps = (uint8_t)pair->n_qps,
                                   .mtu = 1,
                                   .link = KV_RDMA_ETHERNET};
    if (pair->rail != NULL) {
        rail->mtu = (uint8_t)pair->rail->port_attr.active_mtu;
        rail->link = pair->rail->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET ? KV_RDMA_ETHERNET
                                                                                 : KV_RDMA_INFINIBAND;
        rail->lid = pair->rail->port_attr.lid;
        memcpy(rail->gid, pair->rail->gid.raw, sizeof(rail->gid));
        if (!side->is_dialler) {
            rail->n_receives = pair->qps[0]->n_receives;
            rail->n_regions = pair->rail->regions.n;
        }
    }
    for (unsigned i = 0; i < pair->n_qps; i++) {
        rail->qpn[i] = pair->qps[i]->qp->qp_num;
        rail->psn[i] = pair->qps[i]->psn;
    }
    return rdma_send_frame(side, &frame);
}

/* ---- dialler ---- */

static int rdma_connect_offer(struct rdma_side *side, struct fault *fault)
{
    struct tr_rdma *rdma = side->node->rdma;
    unsigned n = 0;

    for (unsigned i = 0; i < rdma->n_rails; i++) {
        struct rdma_pair *pair = &side->pairs[n];

        if (!rdma_may_use(side->node, rdma->rails[i], side->conn->peer->address))
            continue;
        pair->rail = rdma->rails[i];
        if (rdma_connect_make_qps(side, pair, TR_RDMA_QPS, fault) != 0) {
            log_warn("kv_rdma_rail_unused", LOG_STR("rail", pair->rail->name),
                     LOG_STR("reason", fault->text));
            rdma_connect_drop_pair(pair);
            continue;
        }
        n++;
    }
    side->n_pairs = n;
    for (unsigned i = 0; i < n; i++)
        if (rdma_connect_send_rail(side, &side->pairs[i], n) != 0)
            return fault_set(fault, E_IO, "connection lost");
    return n > 0
               ? 0
               : fault_set(fault, E_UNSUPPORTED, "no rail can be used towards %s", tr_conn_name(side->conn));
}

static int rdma_connect_on_rail_answer(struct rdma_side *side, const struct kv_frame_rail *rail,
                                       struct fault *fault)
{
    struct rdma_pair *pair = &side->pairs[rail->index];

    if (rail->index >= side->n_pairs || rail->n_rails != side->n_pairs || pair->has_answer ||
        rail->n_qps > pair->n_qps || (rail->n_qps > 0 && (rail->n_receives == 0 || rail->n_regions == 0)))
        return fault_set(fault, E_PROTO, "RAIL %u of %u with %u queue pairs as an answer", rail->index,
                         rail->n_rails, rail->n_qps);
    pair->has_answer = true;
    pair->theirs = *rail;
    side->n_answered++;
    if (rail->n_qps == 0) {
        rdma_connect_drop_pair(pair);
        return 0;
    }
    while (pair->n_qps > rail->n_qps)
        (void)rdma_qp_kill(pair->qps[--pair->n_qps]);
    pair->regions = calloc(rail->n_regions, sizeof(*pair->regions));
    return pair->regions != NULL ? 0 : fault_set(fault, E_NOMEM, "no memory for regions");
}

/* Checks that regions come in order, without a gap, have one length except the last, consist of whole
 * pieces, and cover exactly the arena. */
static int rdma_connect_on_region(struct rdma_side *side, const struct kv_frame_region *region,
                                  struct fault *fault)
{
    const struct kv_frame_hello *peer = &side->conn->peer_geometry;
    struct rdma_pair *pair = &side->pairs[region->rail];
    unsigned __int128 arena_bytes = (unsigned __int128)peer->n_layers * peer->n_blocks * peer->piece_bytes;
    unsigned __int128 before_bytes;
    bool is_last;

    if (region->rail >= side->n_pairs || pair->regions == NULL || region->index != pair->n_regions ||
        region->index >= pair->theirs.n_regions)
        return fault_set(fault, E_PROTO, "REGION %u of rail %u out of turn", region->index, region->rail);
    pair->regions[pair->n_regions++] = *region;
    is_last = pair->n_regions == pair->theirs.n_regions;
    before_bytes = (unsigned __int128)pair->regions[0].len_bytes * region->index;
    if (region->len_bytes % peer->piece_bytes != 0 ||
        (!is_last && region->len_bytes != pair->regions[0].len_bytes) ||
        (is_last &&
         (region->len_bytes > pair->regions[0].len_bytes || before_bytes + region->len_bytes != arena_bytes)))
        return fault_set(fault, E_PROTO, "REGION %u of rail %u does not fit the arena", region->index,
                         region->rail);
    return 0;
}

static bool rdma_connect_has_all_answers(const struct rdma_side *side)
{
    if (side->n_answered < side->n_pairs)
        return false;
    for (unsigned i = 0; i < side->n_pairs; i++)
        if (side->pairs[i].rail != NULL && side->pairs[i].n_regions < side->pairs[i].theirs.n_regions)
            return false;
    return true;
}

static int rdma_connect_connect_all(struct rdma_side *side, struct fault *fault)
{
    unsigned n = 0;

    for (unsigned p = 0; p < side->n_pairs; p++)
        for (unsigned i = 0; i < side->pairs[p].n_qps; i++, n++) {
            int err = rdma_qp_connect(side->pairs[p].qps[i], &side->pairs[p].theirs, fault);

            if (err != 0)
                return err;
            side->pairs[p].qps[i]->credit = side->pairs[p].theirs.n_receives;
        }
    if (n == 0)
        return fault_set(fault, E_UNSUPPORTED, "%s pairs none of our rails", tr_conn_name(side->conn));
    log_info("kv_rdma_ready", LOG_STR("peer", tr_conn_name(side->conn)), LOG_U64("queue_pairs", n));
    return 1;
}

static int rdma_connect_as_dialler(struct rdma_side *side, struct fault *fault)
{
    struct kv_frame frame;
    int rc = side->n_pairs == 0 ? rdma_connect_offer(side, fault) : 0;

    if (rc != 0)
        return rc;
    while (!rdma_connect_has_all_answers(side)) {
        rc = tr_conn_read_frame(side->conn, fault, &frame);
        if (rc <= 0)
            return rc;
        if (frame.type == KV_FRAME_RAIL)
            rc = rdma_connect_on_rail_answer(side, &frame.as.rail, fault);
        else if (frame.type == KV_FRAME_REGION)
            rc = rdma_connect_on_region(side, &frame.as.region, fault);
        else
            rc = fault_set(fault, E_PROTO, "frame type %d while rails are paired", frame.type);
        if (rc < 0)
            return rc;
    }
    return rdma_connect_connect_all(side, fault);
}

/* ---- acceptor ---- */

static struct rdma_rail *rdma_connect_choose_rail(const struct rdma_side *side,
                                                  const struct kv_frame_rail *theirs)
{
    const struct tr_rdma *rdma = side->node->rdma;
    struct rdma_rail *best = NULL;

    for (unsigned i = 0; i < rdma->n_rails; i++) {
        struct rdma_rail *rail = rdma->rails[i];
        bool is_ethernet = rail->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET, is_taken = false;

        for (unsigned p = 0; p < side->n_pairs; p++)
            is_taken = is_taken || side->pairs[p].rail == rail;
        if (is_taken || !rail->is_up || is_ethernet != (theirs->link == KV_RDMA_ETHERNET))
            continue;
        if (best == NULL || i == theirs->index)
            best = rail;
    }
    return best;
}

static int rdma_connect_accept_pair(struct rdma_side *side, struct rdma_pair *pair, struct fault *fault)
{
    unsigned n = pair->theirs.n_qps < TR_RDMA_QPS ? pair->theirs.n_qps : TR_RDMA_QPS;
    int err = rdma_connect_make_qps(side, pair, n, fault);

    for (unsigned i = 0; i < pair->n_qps && err == 0; i++) {
        err = rdma_qp_post_receives(pair->qps[i], pair->qps[i]->n_receives, fault);
        if (err == 0)
            err = rdma_qp_connect(pair->qps[i], &pair->theirs, fault);
        if (err == 0)
            err = rdma_windows_bind(pair->qps[i], fault);
        pair->qps[i]->n_announced = pair->qps[i]->n_posted;
    }
    return err;
}

static int rdma_connect_on_rail_offer(struct rdma_side *side, const struct kv_frame_rail *rail,
                                      struct fault *fault)
{
    struct rdma_pair *pair = &side->pairs[side->n_pairs];
    int err;

    if (rail->index != side->n_pairs ||
        (side->n_pairs > 0 && rail->n_rails != side->pairs[0].theirs.n_rails) || rail->n_qps == 0)
        return fault_set(fault, E_PROTO, "RAIL %u of %u out of turn", rail->index, rail->n_rails);
    pair->theirs = *rail;
    pair->rail = rdma_connect_choose_rail(side, rail);
    side->n_pairs++;
    if (pair->rail == NULL)
        return 0;
    err = rdma_connect_accept_pair(side, pair, fault);
    if (err != 0) {
        log_warn("kv_rdma_rail_unused", LOG_STR("rail", pair->rail->name),
                 LOG_STR("peer", tr_conn_name(side->conn)), LOG_STR("reason", fault->text));
        rdma_connect_drop_pair(pair);
    }
    return 0;
}

static bool rdma_connect_is_all_bound(const struct rdma_side *side)
{
    for (unsigned p = 0; p < side->n_pairs; p++)
        for (unsigned i = 0; i < side->pairs[p].n_qps; i++)
            if (side->pairs[p].qps[i]->windows->n_bound < side->pairs[p].rail->regions.n)
                return false;
    return true;
}

static int rdma_connect_send_regions(struct rdma_side *side, const struct rdma_pair *pair)
{
    const struct rdma_regions *regions = &pair->rail->regions;
    int err = 0;

    for (unsigned r = 0; r < regions->n && err == 0; r++) {
        struct kv_frame frame = {.type = KV_FRAME_REGION};

        frame.as.region = (struct kv_frame_region){.rail = (uint8_t)(pair - side->pairs),
                                                   .index = r,
                                                   .len_bytes = rdma_region_bytes(regions, r),
                                                   .address = (uintptr_t)side->node->opts.arena.base +
                                                              r * regions->each_bytes};
        for (unsigned i = 0; i < pair->n_qps; i++)
            frame.as.region.rkey[i] = pair->qps[i]->windows->rkeys[r];
        err = rdma_send_frame(side, &frame);
    }
    return err;
}

static int rdma_connect_as_acceptor(struct rdma_side *side, struct fault *fault)
{
    struct kv_frame frame;
    int rc;

    while (side->n_pairs == 0 || side->n_pairs < side->pairs[0].theirs.n_rails) {
        rc = tr_conn_read_frame(side->conn, fault, &frame);
        if (rc <= 0)
            return rc;
        rc = frame.type == KV_FRAME_RAIL
                 ? rdma_connect_on_rail_offer(side, &frame.as.rail, fault)
                 : fault_set(fault, E_PROTO, "frame type %d instead of RAIL", frame.type);
        if (rc < 0)
            return rc;
    }
    if (!rdma_connect_is_all_bound(side))
        return 0; /* a completion wakes this connection */
    for (unsigned i = 0; i < side->n_pairs; i++) {
        rc = rdma_connect_send_rail(side, &side->pairs[i], side->n_pairs);
        if (rc == 0 && side->pairs[i].n_qps > 0)
            rc = rdma_connect_send_regions(side, &side->pairs[i]);
        if (rc != 0)
            return fault_set(fault, rc, "connection lost");
    }
    return 1;
}

int rdma_connect(struct tr_conn *conn, struct fault *fault)
{
    struct rdma_side *side;

    if (conn->moving == NULL && rdma_connect_make_side(conn, fault) != 0)
        return fault->code;
    side = conn->moving;
    if (side->is_broken) {
        *fault = side->fault;
        return fault->code;
    }
    return side->is_dialler ? rdma_connect_as_dialler(side, fault) : rdma_connect_as_acceptor(side, fault);
}
