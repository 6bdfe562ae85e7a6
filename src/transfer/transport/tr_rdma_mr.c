/* SPDX-License-Identifier: Apache-2.0 */
/* The arena as registered memory of a NIC.
 *
 *     arena    [ piece ][ piece ] ...                      ...[ piece ][ piece ]
 *     regions  |<------- each_bytes -------->|<-- each_bytes -->|<- rest ->|     no piece in two
 *     windows   one over each region for each queue pair that a peer writes through
 *
 * Each rail registers the arena once, at start. A NIC may limit the size of a registration, so the arena
 * is cut at the limit, rounded down to whole pieces. The regions themselves grant no remote rights. A
 * sender needs none. A receiver binds type-2 windows over them: a window works only through its own queue
 * pair, has a fresh key each time and is revoked by one call. A device without such windows gets remotely
 * writable regions. Their keys are then only as secret as the connection that carried them; the log says
 * so.
 *
 * A dma-buf is registered by descriptor. arena.base is then an address inside the device, and no code of
 * any kind may dereference it. */
#include "transfer/transport/tr_rdma_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* Type 2B windows belong to a queue pair; type 2A windows belong to a queue pair and its key's owner. Both
 * can be revoked without the region. */
#define WINDOW_CAPS (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)

static struct ibv_mr *rdma_mr_register_part(struct rdma_rail *rail, size_t at, size_t len_bytes)
{
    const struct tr_opts *opts = &rail->node->opts;
    int access =
        IBV_ACCESS_LOCAL_WRITE | (rail->regions.has_windows ? IBV_ACCESS_MW_BIND : IBV_ACCESS_REMOTE_WRITE);

    switch (opts->arena_kind) {
    case TR_ARENA_HOST:
        return rail->verbs->reg_mr(rail->pd, (uint8_t *)opts->arena.base + at, len_bytes, access);
    case TR_ARENA_DMABUF:
        return rail->verbs->reg_dmabuf_mr(rail->pd, opts->dmabuf_offset + at, len_bytes,
                                          (uintptr_t)opts->arena.base + at, opts->dmabuf_fd, access);
    }
    return NULL;
}

int rdma_regions_open(struct rdma_rail *rail, struct fault *fault)
{
    const struct tr_geometry *geometry = &rail->node->opts.geometry;
    struct rdma_regions *regions = &rail->regions;
    size_t piece_bytes = geometry->piece_bytes, most = rail->device.max_mr_size;
    size_t n;

    regions->len_bytes = (size_t)geometry->n_layers * geometry->n_blocks * piece_bytes;
    regions->has_windows = (rail->device.device_cap_flags & WINDOW_CAPS) != 0 && rail->device.max_mw > 0;
    most = most < regions->len_bytes ? most / piece_bytes * piece_bytes : regions->len_bytes;
    n = most == 0 ? SIZE_MAX : (regions->len_bytes + most - 1) / most;
    if (n > KV_RDMA_MAX_REGIONS)
        return fault_set(fault, E_LIMIT,
                         "%s registers at most %llu bytes at once, too few for an arena of %zu", rail->name,
                         (unsigned long long)rail->device.max_mr_size, regions->len_bytes);
    if (rail->verbs->may_lock(regions->len_bytes, fault) != 0)
        return fault->code;
    regions->each_bytes = most;
    regions->mrs = calloc(n, sizeof(*regions->mrs));
    if (regions->mrs == NULL)
        return fault_set(fault, E_NOMEM, "no memory for regions");
    for (size_t at = 0; at < regions->len_bytes; at += most, regions->n++) {
        size_t len_bytes = regions->len_bytes - at < most ? regions->len_bytes - at : most;

        regions->mrs[regions->n] = rdma_mr_register_part(rail, at, len_bytes);
        if (regions->mrs[regions->n] == NULL)
            return fault_set(
                fault, E_IO,
                "%s: cannot register %zu bytes at %zu of the arena: %s (is LimitMEMLOCK=infinity set?)",
                rail->name, len_bytes, at, strerror(errno));
    }
    return 0;
}

void rdma_regions_close(struct rdma_rail *rail)
{
    struct rdma_regions *regions = &rail->regions;

    while (regions->n > 0)
        rail->verbs->dereg_mr(regions->mrs[--regions->n]);
    free(regions->mrs);
    regions->mrs = NULL;
}

size_t rdma_region_bytes(const struct rdma_regions *regions, unsigned i)
{
    return i + 1 < regions->n ? regions->each_bytes
                              : regions->len_bytes - (regions->n - 1) * regions->each_bytes;
}

/* ---- windows ---- */

int rdma_windows_open(struct rdma_qp *qp, struct fault *fault)
{
    struct rdma_rail *rail = qp->rail;
    struct rdma_windows *windows = calloc(1, sizeof(*windows));

    if (windows == NULL)
        return fault_set(fault, E_NOMEM, "no memory for windows");
    qp->windows = windows;
    for (unsigned i = 0; i < rail->regions.n; i++) {
        if (!rail->regions.has_windows) {
            windows->rkeys[windows->n_bound++] = rail->regions.mrs[i]->rkey;
            continue;
        }
        windows->mws[i] = rail->verbs->alloc_mw(rail->pd, IBV_MW_TYPE_2);
        if (windows->mws[i] == NULL)
            return fault_set(fault, E_IO, "%s: no memory window: %s", rail->name, strerror(errno));
        windows->n++;
    }
    return 0;
}

int rdma_windows_bind(struct rdma_qp *qp, struct fault *fault)
{
    struct rdma_rail *rail = qp->rail;
    struct rdma_windows *windows = qp->windows;

    for (unsigned i = 0; i < windows->n; i++) {
        struct ibv_mr *mr = rail->regions.mrs[i];
        struct ibv_send_wr wr = {.wr_id = i, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;
        int rc;

        windows->rkeys[i] = ibv_inc_rkey(windows->mws[i]->rkey);
        wr.bind_mw.mw = windows->mws[i];
        wr.bind_mw.rkey = windows->rkeys[i];
        wr.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = mr,
                                                         .addr = (uintptr_t)rail->node->opts.arena.base +
                                                                 i * rail->regions.each_bytes,
                                                         .length = rdma_region_bytes(&rail->regions, i),
                                                         .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
        rc = rail->verbs->post_send(qp->qp, &wr, &bad);
        if (rc != 0)
            return fault_set(fault, E_IO, "%s: cannot bind a window: %s", rail->name, strerror(rc));
        /* A caller that posts binds itself must store the key itself. */
        windows->mws[i]->rkey = windows->rkeys[i];
    }
    return 0;
}

bool rdma_windows_close(struct rdma_qp *qp)
{
    struct rdma_windows *windows = qp->windows;

    if (windows == NULL)
        return true;
    while (windows->n > 0) {
        if (qp->rail->verbs->dealloc_mw(windows->mws[windows->n - 1]) != 0)
            return false;
        windows->n--;
    }
    free(windows);
    qp->windows = NULL;
    return true;
}
