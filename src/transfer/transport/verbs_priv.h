/* SPDX-License-Identifier: Apache-2.0 */
/* The libibverbs calls that the transport makes, as a table, so that a test can substitute a device that
 * fails on demand. Each entry is the library function of the same name without `ibv_` and keeps its
 * contract: it returns 0 or an errno number, or NULL with errno set. Inline functions of the library's
 * header become functions here.
 *
 * Only files that are built with libibverbs include this header. */
#ifndef TRANSFER_TRANSPORT_VERBS_PRIV_H
#define TRANSFER_TRANSPORT_VERBS_PRIV_H

#include <infiniband/verbs.h>

#include "base/fault.h"

struct verbs {
    /* devices and ports */
    struct ibv_device **(*get_device_list)(int *n_out);
    void (*free_device_list)(struct ibv_device **list);
    const char *(*get_device_name)(struct ibv_device *device);
    struct ibv_context *(*open_device)(struct ibv_device *device);
    int (*close_device)(struct ibv_context *context);
    int (*query_device)(struct ibv_context *context, struct ibv_device_attr *out);
    int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *out);
    ssize_t (*query_gid_table)(struct ibv_context *context, struct ibv_gid_entry *entries,
                               size_t max_entries);

    /* memory */
    struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
    int (*dealloc_pd)(struct ibv_pd *pd);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *address, size_t len_bytes, int access);
    struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t len_bytes, uint64_t address,
                                    int fd, int access);
    int (*dereg_mr)(struct ibv_mr *mr);
    struct ibv_mw *(*alloc_mw)(struct ibv_pd *pd, enum ibv_mw_type type);
    int (*dealloc_mw)(struct ibv_mw *mw);

    /* queues */
    struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *context);
    int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
    struct ibv_cq *(*create_cq)(struct ibv_context *context, int n, void *cq_context,
                                struct ibv_comp_channel *channel, int vector);
    int (*destroy_cq)(struct ibv_cq *cq);
    int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
    int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq_out, void **cq_context_out);
    void (*ack_cq_events)(struct ibv_cq *cq, unsigned n);
    int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc_out);
    struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    int (*destroy_qp)(struct ibv_qp *qp);
    int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_out);
    int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_out);

    /* failures */
    int (*get_async_event)(struct ibv_context *context, struct ibv_async_event *out);
    void (*ack_async_event)(struct ibv_async_event *event);
    const char *(*wc_status_str)(enum ibv_wc_status status);
    const char *(*event_type_str)(enum ibv_event_type type);

    /* Not a library call: checks whether this process may lock so much memory (RLIMIT_MEMLOCK). E_LIMIT;
     * the fault says what to do. */
    int (*may_lock)(size_t len_bytes, struct fault *fault);
};

extern const struct verbs verbs_system;

#endif
