/* SPDX-License-Identifier: Apache-2.0 */
/* The RDMA objects of this machine: rails, registered regions, queue pairs. See tr_rdma_priv.h. */
#ifndef TRANSFER_TRANSPORT_TR_RDMA_QP_PRIV_H
#define TRANSFER_TRANSPORT_TR_RDMA_QP_PRIV_H

#include "transfer/transport/tr_priv.h"
#include "transfer/transport/verbs_priv.h"

#define TR_RAIL_SPIN_NS   UINT64_C(30000)   /* silence before the loop sleeps again */
#define TR_RAIL_TURN_NS   UINT64_C(2000000) /* polling time before sockets get a turn */
#define TR_RDMA_QPS       2   /* per rail and connection; bonds and ECMP choose the path by queue pair */
#define TR_RDMA_SENDS     256 /* work requests posted at the same time, per queue pair */
#define TR_RDMA_CHUNK_WRS 160 /* maximum for one chunk */
#define TR_RDMA_RECEIVES  512 /* posted on each queue pair of a receiver */
#define TR_RDMA_WRITE     ((size_t)512 << 10) /* maximum bytes of one work request */
#define TR_RDMA_CHUNK     ((size_t)1 << 20)   /* bytes of one chunk; more only if one piece is longer */
#define TR_RDMA_FLYING                                                                                       \
    ((size_t)4 << 20) /* posted and incomplete, per queue pair; more only if one chunk is longer */
#define TR_RDMA_STOP_NS (500 * NS_PER_MS) /* wait for STOPPED; after it the queue pairs are killed */

struct rdma_rail;
struct rdma_side;

/* ---- tr_rdma_mr.c ---- */

struct rdma_regions { /* the arena on one rail */
    struct ibv_mr **mrs;
    unsigned n;
    size_t each_bytes; /* size of all regions but the last; a multiple of the piece */
    size_t len_bytes;
    bool has_windows; /* else peers get the keys of the regions themselves */
};

int rdma_regions_open(struct rdma_rail *rail, struct fault *fault);
void rdma_regions_close(struct rdma_rail *rail);
size_t rdma_region_bytes(const struct rdma_regions *regions, unsigned i);

struct rdma_windows { /* over all regions, for one queue pair */
    struct ibv_mw *mws[KV_RDMA_MAX_REGIONS];
    uint32_t rkeys[KV_RDMA_MAX_REGIONS];
    unsigned n, n_bound;
};

struct rdma_qp;

int rdma_windows_open(struct rdma_qp *qp, struct fault *fault);
/* Posts the binds; n_bound counts their completions. */
int rdma_windows_bind(struct rdma_qp *qp, struct fault *fault);
bool rdma_windows_close(struct rdma_qp *qp); /* revokes; false: the device refused */

/* ---- tr_rdma_qp.c ---- */

struct rdma_flight { /* a chunk whose work requests are posted */
    struct rdma_push *rdma_push;
    uint32_t chunk;
    unsigned n_wrs;
    size_t n_bytes;
};

struct rdma_qp {
    struct list hot; /* in rail->hot: the queue pair is polled */
    struct rdma_side *side;
    struct rdma_rail *rail;
    unsigned rail_index, index; /* numbers by which the peer knows it */
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    uint32_t psn, peer_qpn, peer_psn;
    bool is_receiver;
    unsigned n_receives; /* receiver: total number posted; see KV_FRAME_CREDIT */
    uint32_t n_posted, n_announced, n_consumed;
    /* sender */
    uint32_t credit, n_immediates; /* both count from the start and wrap */
    unsigned n_wrs;
    size_t n_bytes;
    struct rdma_flight flights[TR_RDMA_SENDS]; /* ring */
    unsigned first_flight, n_flights;
    struct rdma_windows *windows; /* receiver */
};

int rdma_qp_new(struct rdma_side *side, struct rdma_rail *rail, bool is_receiver, struct fault *fault,
                struct rdma_qp **out);
/* Moves the queue pair to RTS and connects it to the queue pair that peer describes under this index. */
int rdma_qp_connect(struct rdma_qp *qp, const struct kv_frame_rail *peer, struct fault *fault);
int rdma_qp_post_receives(struct rdma_qp *qp, unsigned n, struct fault *fault);
unsigned rdma_qp_poll(struct rdma_qp *qp); /* returns the number of completions handled; kills nothing */
/* True: the queue pair can no longer read or write memory, and is freed.
 * False: the device refused; call again. */
bool rdma_qp_kill(struct rdma_qp *qp);

/* ---- tr_rdma_rail.c ---- */

struct rdma_rail {
    struct tr_node *node;
    const struct verbs *verbs;
    char name[80];    /* "rxe0:1" */
    char address[48]; /* the GID of this address is used */
    unsigned index;
    uint8_t port, gid_index;
    bool is_up;
    struct ibv_context *context;
    struct ibv_device_attr device;
    struct ibv_port_attr port_attr;
    union ibv_gid gid;
    struct ibv_pd *pd;
    struct rdma_regions regions;
    struct ibv_comp_channel *channel;
    struct ev_fd *channel_watch, *async_watch;
    struct ev_timer *again; /* the turn ended with work left */
    struct list hot;
};

struct rdma_rail_name {
    char device[64];
    uint8_t port;     /* 0: all ports */
    char address[48]; /* "": the address of the listener */
};

struct rdma_port { /* where to open a rail */
    struct ibv_device *device;
    uint8_t port;        /* from 1 */
    const char *address; /* numeric, IPv4 or IPv6 */
};
int rdma_rail_open(struct tr_node *node, const struct rdma_port *at, struct fault *fault,
                   struct rdma_rail **out);
void rdma_rail_close(struct rdma_rail *rail);
void rdma_side_moved(struct rdma_qp *qp); /* completions came: post the work that now has room */
/* Reports a failed queue pair: logs it; the connection's next step ends all queue pairs. wc NULL: no
 * completion reported the failure. */
void rdma_break(struct rdma_qp *qp, const struct ibv_wc *wc, const char *what);
void rdma_break_rail(struct rdma_rail *rail, const char *what); /* all queue pairs on this rail */
/* Poll the queue pair from now on, until it is silent. */
void rdma_rail_heat(struct rdma_qp *qp);
/* Returns the index of the RoCE v2 entry (InfiniBand:
 * the first entry) whose GID matches the address, or E_NOT_FOUND. */
int rdma_gid_find(const struct ibv_gid_entry *entries, size_t n, uint8_t port, const char *address);

/* ---- tr_rdma_rails.c ---- */

struct tr_rdma {
    const struct verbs *verbs;
    struct rdma_rail *rails[KV_RDMA_MAX_RAILS];
    unsigned n_rails;
    struct list rests;  /* struct rdma_rest: rails that failed towards a peer */
    struct list undead; /* struct rdma_side: queue pairs that the device refused to end */
};

/* Parses one entry of the configured list; pure. E_FORMAT. */
int rdma_rail_name_parse(struct bytes text, struct fault *fault, struct rdma_rail_name *out);
bool rdma_may_use(const struct tr_node *node, const struct rdma_rail *rail, const char *peer);
void rdma_let_rest(struct tr_node *node, const struct rdma_rail *rail, const char *peer);

#endif
