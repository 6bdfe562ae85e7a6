/* SPDX-License-Identifier: Apache-2.0 */
/* What RDMA is made of on this machine: rails, registered regions, queue pairs.  See tr_rdma_priv.h. */
#ifndef TRANSFER_TRANSPORT_TR_RDMA_QP_PRIV_H
#define TRANSFER_TRANSPORT_TR_RDMA_QP_PRIV_H

#include "transfer/transport/tr_priv.h"
#include "transfer/transport/verbs_priv.h"

#define TR_RAIL_SPIN_NS   UINT64_C(30000)   /* of silence before the loop sleeps again */
#define TR_RAIL_TURN_NS   UINT64_C(2000000) /* of polling before sockets get their turn */
#define TR_RDMA_QPS       2   /* per rail and connection: paths of a bond or of ECMP differ by queue pair */
#define TR_RDMA_SENDS     256 /* work requests posted at once, per queue pair */
#define TR_RDMA_CHUNK_WRS 160 /* at most for one chunk */
#define TR_RDMA_RECEIVES  512 /* posted on each queue pair of a receiver */
#define TR_RDMA_WRITE     ((size_t)512 << 10) /* bytes of one work request at most */
#define TR_RDMA_CHUNK     ((size_t)1 << 20)   /* bytes of one chunk, unless a piece is longer */
#define TR_RDMA_FLYING                                                                                       \
    ((size_t)4 << 20) /* posted and not complete, per queue pair, unless a chunk is longer */
#define TR_RDMA_STOP_NS (500 * NS_PER_MS) /* for the soft stop, then the queue pairs go */

struct rdma_rail;
struct rdma_side;

/* ---- tr_rdma_mr.c ---- */

struct rdma_regions { /* the arena on one rail */
    struct ibv_mr **mrs;
    unsigned n;
    size_t each_bytes; /* of all but the last; a multiple of the piece */
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
int rdma_windows_bind(struct rdma_qp *qp, struct fault *fault); /* posts; n_bound counts the completions */
bool rdma_windows_close(struct rdma_qp *qp);                    /* revokes; false: the device would not */

/* ---- tr_rdma_qp.c ---- */

struct rdma_flight { /* a chunk whose work requests are posted */
    struct rdma_shipment *shipment;
    uint32_t chunk;
    unsigned n_wrs;
    size_t n_bytes;
};

struct rdma_qp {
    struct list hot; /* in rail->hot: is being polled */
    struct rdma_side *side;
    struct rdma_rail *rail;
    unsigned rail_index, index; /* as the peer knows it */
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    uint32_t psn, peer_qpn, peer_psn;
    bool is_receiver;
    unsigned n_receives; /* receiver: posted in all times; see KV_FRAME_CREDIT */
    uint32_t n_posted, n_told, n_consumed;
    /* sender */
    uint32_t credit, n_immediates; /* both count from the beginning and wrap */
    unsigned n_wrs;
    size_t n_bytes;
    struct rdma_flight flights[TR_RDMA_SENDS]; /* ring */
    unsigned first_flight, n_flights;
    struct rdma_windows *windows; /* receiver */
};

int rdma_qp_new(struct rdma_side *side, struct rdma_rail *rail, bool is_receiver, struct fault *fault,
                struct rdma_qp **out);
/* To RTS, towards the queue pair that peer describes under this index. */
int rdma_qp_connect(struct rdma_qp *qp, const struct kv_frame_rail *peer, struct fault *fault);
int rdma_qp_post_receives(struct rdma_qp *qp, unsigned n, struct fault *fault);
unsigned rdma_qp_poll(struct rdma_qp *qp); /* completions handled; kills nothing */
/* After true nothing of it reads or writes memory any more, and it is freed.  False: the device would not do
 * it; call again. */
bool rdma_qp_kill(struct rdma_qp *qp);

/* ---- tr_rdma_rail.c ---- */

struct rdma_rail {
    struct tr_node *node;
    const struct verbs *verbs;
    char name[80];    /* "rxe0:1" */
    char address[48]; /* whose GID is used */
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
    struct ev_timer *again; /* turn over with work left */
    struct list hot;
};

struct rdma_rail_name {
    char device[64];
    uint8_t port;     /* 0: every port */
    char address[48]; /* "": that of the listener */
};

/* device "mlx5_0", port 1; address numeric, IPv4 or IPv6. */
int rdma_rail_open(struct tr_node *node, struct ibv_device *device, uint8_t port, const char *address,
                   struct fault *fault, struct rdma_rail **out);
void rdma_rail_close(struct rdma_rail *rail);
void rdma_side_moved(struct rdma_qp *qp); /* completions came: post what has room now */
/* Something is wrong with the queue pair: logged, and the next step of the connection ends all of them.  wc
 * NULL: no completion said so. */
void rdma_break(struct rdma_qp *qp, const struct ibv_wc *wc, const char *what);
void rdma_break_rail(struct rdma_rail *rail, const char *what); /* all that use it */
void rdma_rail_heat(struct rdma_qp *qp);                        /* poll it from now on, until it is silent */
/* Index of the RoCE v2 entry (InfiniBand: of the first) whose GID is that of the address, E_NOT_FOUND. */
int rdma_gid_find(const struct ibv_gid_entry *entries, size_t n, uint8_t port, const char *address);

/* ---- tr_rdma_rails.c ---- */

struct tr_rdma {
    const struct verbs *verbs;
    struct rdma_rail *rails[KV_RDMA_MAX_RAILS];
    unsigned n_rails;
    struct list rests;  /* struct rdma_rest: rails that failed towards a peer */
    struct list undead; /* struct rdma_side: queue pairs the device would not end */
};

/* One entry of the list in the configuration; pure.  E_FORMAT. */
int rdma_rail_name_parse(struct bytes text, struct fault *fault, struct rdma_rail_name *out);
bool rdma_may_use(const struct tr_node *node, const struct rdma_rail *rail, const char *peer);
void rdma_let_rest(struct tr_node *node, const struct rdma_rail *rail, const char *peer);

#endif
