/* SPDX-License-Identifier: Apache-2.0 */
/* libibverbs behind the table of verbs_priv.h. Only may_lock has logic: pinning the arena needs
 * RLIMIT_MEMLOCK, and the library reports a small limit as "cannot allocate memory", which misleads
 * people. */
#include "transfer/transport/verbs_priv.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/err.h"

#define CAP_IPC_LOCK_BIT 14
#define SLACK_BYTES      ((size_t)16 << 20) /* for queues and the library itself */

static const char *verbs_get_device_name(struct ibv_device *device)
{
    return ibv_get_device_name(device);
}

static int verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *out)
{
    return ibv_query_port(context, port, out);
}

static ssize_t verbs_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                                     size_t max_entries)
{
    return ibv_query_gid_table(context, entries, max_entries, 0);
}

static struct ibv_mr *verbs_reg_mr(struct ibv_pd *pd, void *address, size_t len_bytes, int access)
{
    return ibv_reg_mr(pd, address, len_bytes, access);
}

static struct ibv_mw *verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
    return ibv_alloc_mw(pd, type);
}

static int verbs_dealloc_mw(struct ibv_mw *mw)
{
    return ibv_dealloc_mw(mw);
}

static int verbs_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    return ibv_req_notify_cq(cq, solicited_only);
}

static int verbs_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc_out)
{
    return ibv_poll_cq(cq, n, wc_out);
}

static int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_out)
{
    return ibv_post_send(qp, wr, bad_out);
}

static int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_out)
{
    return ibv_post_recv(qp, wr, bad_out);
}

static bool verbs_has_lock_capability(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    unsigned long long bits = 0;
    char line[256];

    if (file == NULL)
        return false;
    while (fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "CapEff:", 7) == 0)
            bits = strtoull(line + 7, NULL, 16);
    fclose(file);
    return (bits >> CAP_IPC_LOCK_BIT & 1) != 0;
}

static int verbs_may_lock(size_t len_bytes, struct fault *fault)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur / 2 >= len_bytes / 2 + SLACK_BYTES / 2 || verbs_has_lock_capability())
        return 0;
    return fault_set(
        fault, E_LIMIT,
        "only %llu KiB may be locked and the KV arena has %zu: set LimitMEMLOCK=infinity in the unit "
        "(ulimit -l unlimited in a shell)",
        (unsigned long long)limit.rlim_cur >> 10, len_bytes >> 10);
}

const struct verbs verbs_system = {
    .get_device_list = ibv_get_device_list,
    .free_device_list = ibv_free_device_list,
    .get_device_name = verbs_get_device_name,
    .open_device = ibv_open_device,
    .close_device = ibv_close_device,
    .query_device = ibv_query_device,
    .query_port = verbs_query_port,
    .query_gid_table = verbs_query_gid_table,
    .alloc_pd = ibv_alloc_pd,
    .dealloc_pd = ibv_dealloc_pd,
    .reg_mr = verbs_reg_mr,
    .reg_dmabuf_mr = ibv_reg_dmabuf_mr,
    .dereg_mr = ibv_dereg_mr,
    .alloc_mw = verbs_alloc_mw,
    .dealloc_mw = verbs_dealloc_mw,
    .create_comp_channel = ibv_create_comp_channel,
    .destroy_comp_channel = ibv_destroy_comp_channel,
    .create_cq = ibv_create_cq,
    .destroy_cq = ibv_destroy_cq,
    .req_notify_cq = verbs_req_notify_cq,
    .get_cq_event = ibv_get_cq_event,
    .ack_cq_events = ibv_ack_cq_events,
    .poll_cq = verbs_poll_cq,
    .create_qp = ibv_create_qp,
    .modify_qp = ibv_modify_qp,
    .destroy_qp = ibv_destroy_qp,
    .post_send = verbs_post_send,
    .post_recv = verbs_post_recv,
    .get_async_event = ibv_get_async_event,
    .ack_async_event = ibv_ack_async_event,
    .wc_status_str = ibv_wc_status_str,
    .event_type_str = ibv_event_type_str,
    .may_lock = verbs_may_lock,
};
