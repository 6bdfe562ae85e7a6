/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the fake devices: their objects, and the interface between their two files. */
#ifndef TESTS_VERBS_FAKE_PRIV_H
#define TESTS_VERBS_FAKE_PRIV_H

#include <pthread.h>

#include "base/list.h"
#include "tests/conformance/verbs_fake.h"

#define MAX_DEVICES 2
#define WR_KEEP     512

struct device {
    struct ibv_device base;
    enum ibv_port_state state;
    enum ibv_mtu mtu;
};

struct context {
    struct ibv_context base;
    struct list node, events; /* struct event */
    struct device *device;
};

struct event {
    struct list node;
    struct ibv_async_event event;
};

struct region {
    struct ibv_mr base;
    struct list node;
    int access;
    uint8_t *memory; /* behind base.addr */
};

struct window {
    struct ibv_mw base;
    struct list node;
    struct region *region; /* NULL: not bound */
    uint32_t rkey;         /* as bound; that in base is the user's to keep */
    uint32_t qpn;
    uint64_t address, length;
};

struct queue {
    struct ibv_cq base;
    struct list node, waiting; /* waiting: in its channel */
    struct channel *channel;
    struct ibv_wc *wcs;
    unsigned *covers; /* send requests that a completion sets free */
    int n, cap, first;
    bool is_armed;
};

struct channel {
    struct ibv_comp_channel base;
    struct list events; /* struct queue */
};

struct pair {
    struct ibv_qp base;
    struct list node;
    struct queue *cq;
    struct ibv_qp_attr rtr, rts;
    int access;
    struct ibv_send_wr wrs[WR_KEEP];
    struct ibv_sge sges[WR_KEEP];
    unsigned first_wr, n_wrs, n_sends, max_sends, n_receives, max_receives, since_signal;
};

struct fake_world { /* all of it under lock */
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct device devices[MAX_DEVICES];
    struct list contexts, regions, windows, queues, pairs;
    unsigned n_devices, next_number;
    bool has_windows, is_held;
    uint64_t max_mr;
    int dmabuf_fd;
    uint8_t *dmabuf_memory;
    struct fake_counts counts;
    struct {
        unsigned after, times;
    } call_faults[FAKE_N_CALLS];
    struct {
        enum ibv_wc_status status;
        unsigned after;
    } wc_faults[2];
    struct ibv_qp_attr last_rtr, last_rts;
};

extern struct fake_world fake;

void fake_enter(void); /* takes the lock, and starts the NICs the first time */
void fake_leave(void);
bool fake_call_fails(enum fake_call call);
bool fake_take_bell(int fd);
void fake_complete_send(struct pair *pair, const struct ibv_send_wr *wr, enum ibv_wc_status status);
void fake_to_error(struct pair *pair); /* flushes posted requests */
struct pair *fake_find_pair(uint32_t number);

#endif
