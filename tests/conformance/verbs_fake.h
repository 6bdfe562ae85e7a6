/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA devices that exist only in this process, behind the table of transfer/transport/verbs_priv.h: fake0
 * and fake1, one port each with the address 127.0.0.1.  Queue pairs of one process reach each other.  A
 * thread acts as the NICs, one work request after another, and is as strict as a NIC may be: keys, bounds,
 * rights, windows, packet numbers, queue lengths, receives.  It fails on demand. */
#ifndef TESTS_VERBS_FAKE_H
#define TESTS_VERBS_FAKE_H

#include <stdbool.h>

#include "transfer/transport/verbs_priv.h"

enum fake_call {
    FAKE_OPEN_DEVICE,
    FAKE_QUERY_DEVICE,
    FAKE_QUERY_PORT,
    FAKE_QUERY_GIDS,
    FAKE_ALLOC_PD,
    FAKE_REG_MR,
    FAKE_ALLOC_MW,
    FAKE_DEALLOC_MW,
    FAKE_CREATE_CHANNEL,
    FAKE_CREATE_CQ,
    FAKE_DESTROY_CQ,
    FAKE_NOTIFY,
    FAKE_POLL,
    FAKE_CREATE_QP,
    FAKE_MODIFY_QP,
    FAKE_DESTROY_QP,
    FAKE_POST_SEND,
    FAKE_POST_RECV,
    FAKE_MAY_LOCK,
    FAKE_N_CALLS
};

enum fake_side { FAKE_SENDER, FAKE_RECEIVER };

struct fake_counts { /* of what exists now, unless said otherwise */
    unsigned contexts, pds, mrs, mws, channels, cqs, qps;
    unsigned bound_windows;
    unsigned waiting;            /* work requests posted and not begun */
    uint64_t n_writes, n_bytes;  /* done in all times */
    unsigned n_rnr, n_overflows; /* receiver-not-ready, full queues: bugs of the user */
    unsigned remote_mrs;         /* regions with remote rights */
    unsigned readable; /* regions, windows or queue pairs that could be read or changed atomically */
};

extern const struct verbs verbs_fake;

void fake_reset(void);                                                    /* defaults; nothing may be open */
void fake_fail_call(enum fake_call call, unsigned after, unsigned times); /* after so many good ones */
/* The completion of a sender's chunk or of a receive gets this status, after so many good ones. */
void fake_fail_completion(enum fake_side side, enum ibv_wc_status status, unsigned after);
void fake_hold(bool is_held); /* the NICs rest: work requests wait */
void fake_raise(const char *device,
                enum ibv_event_type type); /* on all contexts of the device, or NULL: of all */
void fake_raise_qp(enum fake_side side, enum ibv_event_type type); /* on one queue pair of that side */
void fake_set_port(const char *device, enum ibv_port_state state, enum ibv_mtu mtu);
void fake_set_windows(bool has_windows);
void fake_set_max_mr(uint64_t len_bytes);
void fake_set_devices(unsigned n); /* 0 to 2 */
void fake_set_dmabuf(int fd, void *memory);
struct fake_counts fake_count(void);
void fake_last_connect(struct ibv_qp_attr *rtr_out,
                       struct ibv_qp_attr *rts_out); /* attributes as last given */

#endif
