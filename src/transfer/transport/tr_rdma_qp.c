/* SPDX-License-Identifier: Apache-2.0 */
/* One queue pair. Hot path: no malloc, no log.
 *
 *     INIT --> RTR --> RTS ..... ERR --> gone
 *              connect          kill: no completion is lost, then no access is left
 *
 * A receiver's queue pair has posted receives and bound windows, and the peer may write through it. A
 * sender's queue pair has neither, and the peer may not. Each queue pair has its own completion queue, as
 * long as both its queues, so it cannot overrun; leftover completions vanish with it. Retries are finite:
 * 7 would mean "for ever" to some drivers. The first packet number is random, so that an attacker who
 * cannot see the packets cannot inject one.
 *
 * Completions of one queue pair come in order. A sender signals only the last request of each chunk, so a
 * good completion means that a whole chunk is done; flights[] remembers which. */
#include "transfer/transport/tr_rdma_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"

#define ACK_TIMEOUT   14 /* 4.096 us << 14 = 67 ms; the device may round it */
#define RETRIES       6
#define RNR_RETRIES   6
#define RNR_TIMER     12 /* 0.64 ms */
#define HOP_LIMIT     64
#define POLL_BATCH    16
#define DRAIN_BATCHES 256

static int rdma_qp_create(struct rdma_qp *qp, struct fault *fault)
{
    struct rdma_rail *rail = qp->rail;
    unsigned n_sends = qp->is_receiver ? rail->regions.n + 1 : TR_RDMA_SENDS;
    unsigned n_receives = qp->is_receiver ? qp->n_receives : 1;
    struct ibv_qp_init_attr attr = {
        .qp_context = qp,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = n_sends, .max_recv_wr = n_receives, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                               .port_num = rail->port,
                               .qp_access_flags = qp->is_receiver ? IBV_ACCESS_REMOTE_WRITE : 0};
    int rc;

    qp->cq = rail->verbs->create_cq(rail->context, (int)(n_sends + n_receives), qp, rail->channel, 0);
    if (qp->cq == NULL)
        return fault_set(fault, E_IO, "%s: no completion queue: %s", rail->name, strerror(errno));
    rc = rail->verbs->req_notify_cq(qp->cq, 0);
    if (rc != 0)
        return fault_set(fault, E_IO, "%s: completions cannot be announced: %s", rail->name, strerror(rc));
    attr.send_cq = attr.recv_cq = qp->cq;
    qp->qp = rail->verbs->create_qp(rail->pd, &attr);
    if (qp->qp == NULL)
        return fault_set(fault, E_IO, "%s: no queue pair: %s", rail->name, strerror(errno));
    rc = rail->verbs->modify_qp(qp->qp, &init,
                                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (rc != 0)
        return fault_set(fault, E_IO, "%s: queue pair not to INIT: %s", rail->name, strerror(rc));
    return qp->is_receiver ? rdma_windows_open(qp, fault) : 0;
}

int rdma_qp_new(struct rdma_side *side, struct rdma_rail *rail, bool is_receiver, struct fault *fault,
                struct rdma_qp **out)
{
    struct rdma_qp *qp = calloc(1, sizeof(*qp));
    unsigned most = (unsigned)rail->device.max_qp_wr;
    int err;

    if (qp == NULL)
        return fault_set(fault, E_NOMEM, "no memory for a queue pair");
    list_init(&qp->hot);
    qp->side = side;
    qp->rail = rail;
    qp->is_receiver = is_receiver;
    qp->n_receives = most < TR_RDMA_RECEIVES ? most : TR_RDMA_RECEIVES;
    rng_system(&qp->psn, sizeof(qp->psn));
    qp->psn &= 0xffffff;
    err = rdma_qp_create(qp, fault);
    if (err != 0) {
        rdma_qp_kill(qp); /* no peer can reach it yet; if the device refuses to end it, it leaks */
        return err;
    }
    *out = qp;
    return 0;
}

static int rdma_qp_to_rtr(struct rdma_qp *qp, const struct kv_frame_rail *peer)
{
    const struct rdma_rail *rail = qp->rail;
    uint8_t mtu = (uint8_t)rail->port_attr.active_mtu;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = (enum ibv_mtu)(peer->mtu < mtu ? peer->mtu : mtu),
                               .dest_qp_num = qp->peer_qpn,
                               .rq_psn = qp->peer_psn,
                               .max_dest_rd_atomic = 0,
                               .min_rnr_timer = RNR_TIMER,
                               .ah_attr = {.dlid = peer->lid, .port_num = rail->port}};

    if (rail->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
        attr.ah_attr.is_global = 1;
        memcpy(attr.ah_attr.grh.dgid.raw, peer->gid, sizeof(peer->gid));
        attr.ah_attr.grh.sgid_index = rail->gid_index;
        attr.ah_attr.grh.hop_limit = HOP_LIMIT;
    }
    return rail->verbs->modify_qp(qp->qp, &attr,
                                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int rdma_qp_connect(struct rdma_qp *qp, const struct kv_frame_rail *peer, struct fault *fault)
{
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                              .timeout = ACK_TIMEOUT,
                              .retry_cnt = RETRIES,
                              .rnr_retry = RNR_RETRIES,
                              .sq_psn = qp->psn,
                              .max_rd_atomic = 0};
    int rc;

    qp->peer_qpn = peer->qpn[qp->index];
    qp->peer_psn = peer->psn[qp->index];
    rc = rdma_qp_to_rtr(qp, peer);
    if (rc != 0)
        return fault_set(fault, E_IO, "%s: queue pair %u not to RTR (GID %u, peer's %u): %s", qp->rail->name,
                         qp->qp->qp_num, qp->rail->gid_index, qp->peer_qpn, strerror(rc));
    rc = qp->rail->verbs->modify_qp(qp->qp, &rts,
                                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    if (rc != 0)
        return fault_set(fault, E_IO, "%s: queue pair %u not to RTS: %s", qp->rail->name, qp->qp->qp_num,
                         strerror(rc));
    return 0;
}

int rdma_qp_post_receives(struct rdma_qp *qp, unsigned n, struct fault *fault)
{
    struct ibv_recv_wr chain[POLL_BATCH], *bad;

    while (n > 0) {
        unsigned n_now = n < POLL_BATCH ? n : POLL_BATCH;
        int rc;

        /* No buffer: only an immediate uses it. */
        for (unsigned i = 0; i < n_now; i++)
            chain[i] = (struct ibv_recv_wr){.next = i + 1 < n_now ? &chain[i + 1] : NULL};
        rc = qp->rail->verbs->post_recv(qp->qp, chain, &bad);
        if (rc != 0)
            return fault_set(fault, E_IO, "%s: receives not posted: %s", qp->rail->name, strerror(rc));
        qp->n_posted += n_now;
        n -= n_now;
    }
    return 0;
}

/* ---- completions ---- */

static void rdma_qp_take_good(struct rdma_qp *qp, const struct ibv_wc *wc)
{
    switch ((unsigned)wc->opcode) {
    case IBV_WC_BIND_MW:
        qp->windows->n_bound++;
        if (qp->side->conn != NULL)
            tr_conn_wake(qp->side->conn);
        break;
    case IBV_WC_RECV_RDMA_WITH_IMM:
        qp->n_consumed++;
        rdma_recv_arrived(qp, ntohl(wc->imm_data));
        break;
    case IBV_WC_RDMA_WRITE:
        rdma_send_done(qp);
        break;
    default:
        rdma_break(qp, wc, "a completion without a request");
        break;
    }
}

unsigned rdma_qp_poll(struct rdma_qp *qp)
{
    struct ibv_wc wcs[POLL_BATCH];
    int n = qp->rail->verbs->poll_cq(qp->cq, POLL_BATCH, wcs);

    if (n < 0) {
        rdma_break(qp, NULL, "its completion queue cannot be polled");
        return 0;
    }
    for (int i = 0; i < n; i++)
        if (wcs[i].status == IBV_WC_SUCCESS)
            rdma_qp_take_good(qp, &wcs[i]);
        else
            rdma_break(qp, &wcs[i], qp->rail->verbs->wc_status_str(wcs[i].status));
    return (unsigned)n;
}

/* ---- the end ---- */

/* Polls the completions once more: chunks that arrived before the end still count. */
static void rdma_qp_drain(struct rdma_qp *qp)
{
    struct ibv_wc wcs[POLL_BATCH];

    for (unsigned turn = 0; turn < DRAIN_BATCHES; turn++) {
        int n = qp->rail->verbs->poll_cq(qp->cq, POLL_BATCH, wcs);

        if (n <= 0)
            return;
        for (int i = 0; i < n; i++)
            if (wcs[i].status == IBV_WC_SUCCESS && wcs[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM)
                rdma_recv_arrived(qp, ntohl(wcs[i].imm_data));
            else if (wcs[i].status == IBV_WC_SUCCESS && wcs[i].opcode == IBV_WC_RDMA_WRITE)
                rdma_send_done(qp);
    }
}

bool rdma_qp_kill(struct rdma_qp *qp)
{
    const struct verbs *verbs = qp->rail->verbs;
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};

    list_remove(&qp->hot);
    if (qp->qp != NULL) {
        (void)verbs->modify_qp(qp->qp, &error,
                               IBV_QP_STATE); /* a device that is gone refuses; destroy_qp decides */
        rdma_qp_drain(qp);
        if (!rdma_windows_close(qp))
            return false;
        if (verbs->destroy_qp(qp->qp) != 0)
            return false;
        qp->qp = NULL;
    }
    if (!rdma_windows_close(qp))
        return false;
    /* If the completion queue stays, it may still refer to this object. Then leak the object: that is
     * harmless. */
    if (qp->cq == NULL || verbs->destroy_cq(qp->cq) == 0)
        free(qp);
    return true;
}
