/* SPDX-License-Identifier: Apache-2.0 */
/* See verbs_fake.h.  One lock around everything; the NIC thread takes it for one work request at a time. */
#include "tests/conformance/verbs_fake.h"

#include "tests/conformance/tr_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "base/list.h"

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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct device devices[MAX_DEVICES];
static struct list contexts, regions, windows, queues, pairs;
static unsigned n_devices = 1, next_number = 0x100;
static bool has_windows = true, is_held;
static uint64_t max_mr;
static int dmabuf_fd = -1;
static uint8_t *dmabuf_memory;
static struct fake_counts counts;
static struct {
    unsigned after, times;
} call_faults[FAKE_N_CALLS];
static struct {
    enum ibv_wc_status status;
    unsigned after;
} wc_faults[2];
static struct ibv_qp_attr last_rtr, last_rts;

/* ---- faults ---- */

static bool call_fails(enum fake_call call)
{
    if (call_faults[call].times == 0)
        return false;
    if (call_faults[call].after > 0) {
        call_faults[call].after--;
        return false;
    }
    call_faults[call].times--;
    return true;
}

static enum ibv_wc_status fault_of(enum fake_side side)
{
    enum ibv_wc_status status = wc_faults[side].status;

    if (status == IBV_WC_SUCCESS)
        return status;
    if (wc_faults[side].after > 0) {
        wc_faults[side].after--;
        return IBV_WC_SUCCESS;
    }
    wc_faults[side].status = IBV_WC_SUCCESS;
    return status;
}

static void ring_bell(int fd)
{
    uint64_t one = 1;

    ASSERT(write(fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
}

static bool take_bell(int fd)
{
    uint64_t one;

    return read(fd, &one, sizeof(one)) == (ssize_t)sizeof(one);
}

/* ---- completions and events, lock held ---- */

static void complete(struct queue *cq, const struct ibv_wc *wc, unsigned covers)
{
    int at = (cq->first + cq->n) % cq->cap;

    if (cq->n == cq->cap) { /* fatal on a real one */
        counts.n_overflows++;
        return;
    }
    cq->wcs[at] = *wc;
    cq->covers[at] = covers;
    cq->n++;
    if (!cq->is_armed)
        return;
    cq->is_armed = false;
    list_remove(&cq->waiting); /* it may wait already: one bell more does no harm */
    list_push_back(&cq->channel->events, &cq->waiting);
    ring_bell(cq->channel->base.fd);
}

static void raise_event(struct context *context, enum ibv_event_type type, struct ibv_qp *qp)
{
    struct event *event = calloc(1, sizeof(*event));

    event->event.event_type = type;
    if (qp != NULL)
        event->event.element.qp = qp;
    else
        event->event.element.port_num = 1;
    list_push_back(&context->events, &event->node);
    ring_bell(context->base.async_fd);
}

static void complete_send(struct pair *pair, const struct ibv_send_wr *wr, enum ibv_wc_status status)
{
    struct ibv_wc wc = {.wr_id = wr->wr_id,
                        .status = status,
                        .vendor_err = status != IBV_WC_SUCCESS ? 0x77 : 0,
                        .opcode = wr->opcode == IBV_WR_BIND_MW ? IBV_WC_BIND_MW : IBV_WC_RDMA_WRITE,
                        .qp_num = pair->base.qp_num};

    pair->since_signal++;
    if (status == IBV_WC_SUCCESS && (wr->send_flags & IBV_SEND_SIGNALED) == 0)
        return;
    complete(pair->cq, &wc, pair->since_signal);
    pair->since_signal = 0;
}

static void to_error(struct pair *pair)
{
    if (pair->base.state == IBV_QPS_ERR)
        return;
    pair->base.state = IBV_QPS_ERR;
    for (; pair->n_wrs > 0; pair->n_wrs--, pair->first_wr = (pair->first_wr + 1) % WR_KEEP)
        complete_send(pair, &pair->wrs[pair->first_wr], IBV_WC_WR_FLUSH_ERR);
    for (; pair->n_receives > 0; pair->n_receives--)
        complete(pair->cq,
                 &(struct ibv_wc){
                     .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV, .qp_num = pair->base.qp_num},
                 0);
}

/* ---- the NIC ---- */

static struct pair *find_pair(uint32_t number)
{
    list_for_each (at, &pairs) {
        struct pair *pair = container_of(at, struct pair, node);

        if (pair->base.qp_num == number)
            return pair;
    }
    return NULL;
}

static uint8_t *inside(const struct region *region, uint64_t address, uint64_t length)
{
    uint64_t base = (uintptr_t)region->base.addr;

    if (address < base || length > region->base.length || address - base > region->base.length - length)
        return NULL;
    return region->memory + (address - base);
}

static uint8_t *local_memory(const struct ibv_sge *sge)
{
    list_for_each (at, &regions) {
        struct region *region = container_of(at, struct region, node);

        if (region->base.lkey == sge->lkey)
            return inside(region, sge->addr, sge->length);
    }
    return NULL;
}

static uint8_t *remote_memory(const struct pair *to, uint32_t rkey, uint64_t address, uint64_t length)
{
    if ((to->access & IBV_ACCESS_REMOTE_WRITE) == 0)
        return NULL;
    list_for_each (at, &windows) {
        struct window *window = container_of(at, struct window, node);

        if (window->region != NULL && window->base.rkey == rkey && window->qpn == to->base.qp_num &&
            address >= window->address && length <= window->length &&
            address - window->address <= window->length - length)
            return inside(window->region, address, length);
    }
    list_for_each (at, &regions) {
        struct region *region = container_of(at, struct region, node);

        if (region->base.rkey == rkey && (region->access & IBV_ACCESS_REMOTE_WRITE) != 0 &&
            region->base.pd == to->base.pd)
            return inside(region, address, length);
    }
    return NULL;
}

static enum ibv_wc_status bind_window(struct pair *pair, const struct ibv_send_wr *wr)
{
    struct window *window = container_of(wr->bind_mw.mw, struct window, base);
    struct region *region = container_of(wr->bind_mw.bind_info.mr, struct region, base);

    if ((region->access & IBV_ACCESS_MW_BIND) == 0 ||
        inside(region, wr->bind_mw.bind_info.addr, wr->bind_mw.bind_info.length) == NULL)
        return IBV_WC_MW_BIND_ERR;
    if ((wr->bind_mw.bind_info.mw_access_flags & ~(unsigned)IBV_ACCESS_REMOTE_WRITE) != 0)
        counts.readable++;
    window->region = region;
    window->base.rkey = wr->bind_mw.rkey;
    window->qpn = pair->base.qp_num;
    window->address = wr->bind_mw.bind_info.addr;
    window->length = wr->bind_mw.bind_info.length;
    counts.bound_windows++;
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status deliver(struct pair *to, const struct ibv_send_wr *wr, uint32_t len_bytes)
{
    struct ibv_wc wc = {.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                        .qp_num = to->base.qp_num,
                        .imm_data = wr->imm_data,
                        .byte_len = len_bytes,
                        .wc_flags = IBV_WC_WITH_IMM};

    if (to->n_receives == 0) {
        counts.n_rnr++;
        return IBV_WC_RNR_RETRY_EXC_ERR;
    }
    to->n_receives--;
    wc.status = fault_of(FAKE_RECEIVER);
    complete(to->cq, &wc, 0);
    if (wc.status != IBV_WC_SUCCESS)
        to_error(to);
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status write_one(struct pair *pair, const struct ibv_send_wr *wr,
                                    const struct ibv_sge *sge)
{
    struct pair *to = find_pair(pair->rtr.dest_qp_num);
    uint8_t *source, *target;
    enum ibv_wc_status status =
        wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? fault_of(FAKE_SENDER) : IBV_WC_SUCCESS;

    if (status != IBV_WC_SUCCESS)
        return status;
    if (wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
        return IBV_WC_LOC_QP_OP_ERR;
    if (to == NULL || (to->base.state != IBV_QPS_RTR && to->base.state != IBV_QPS_RTS) ||
        to->rtr.dest_qp_num != pair->base.qp_num || to->rtr.rq_psn != pair->rts.sq_psn ||
        to->rtr.path_mtu != pair->rtr.path_mtu)
        return IBV_WC_RETRY_EXC_ERR;
    source = local_memory(sge);
    if (source == NULL)
        return IBV_WC_LOC_PROT_ERR;
    target = remote_memory(to, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, sge->length);
    if (target == NULL) {
        raise_event(container_of(to->base.context, struct context, base), IBV_EVENT_QP_ACCESS_ERR, &to->base);
        to_error(to);
        return IBV_WC_REM_ACCESS_ERR;
    }
    memcpy(target, source, sge->length);
    counts.n_writes++;
    counts.n_bytes += sge->length;
    return wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? deliver(to, wr, sge->length) : IBV_WC_SUCCESS;
}

static void do_one(struct pair *pair)
{
    struct ibv_send_wr wr = pair->wrs[pair->first_wr];
    struct ibv_sge sge = pair->sges[pair->first_wr];
    enum ibv_wc_status status;

    pair->first_wr = (pair->first_wr + 1) % WR_KEEP;
    pair->n_wrs--;
    status = wr.opcode == IBV_WR_BIND_MW ? bind_window(pair, &wr) : write_one(pair, &wr, &sge);
    complete_send(pair, &wr, status);
    if (status != IBV_WC_SUCCESS)
        to_error(pair);
}

static struct pair *next_busy(void)
{
    list_for_each (at, &pairs) {
        struct pair *pair = container_of(at, struct pair, node);

        if (pair->n_wrs > 0 && !is_held) {
            list_remove(&pair->node);
            list_push_back(&pairs, &pair->node);
            return pair;
        }
    }
    return NULL;
}

static void *nic_main(void *arg)
{
    for (;;) {
        struct pair *pair;

        pthread_mutex_lock(&lock);
        while ((pair = next_busy()) == NULL)
            pthread_cond_wait(&work, &lock);
        do_one(pair);
        pthread_mutex_unlock(&lock);
    }
    return arg;
}

static void set_defaults(void)
{
    for (unsigned i = 0; i < MAX_DEVICES; i++) {
        snprintf(devices[i].base.name, sizeof(devices[i].base.name), "fake%u", i);
        devices[i].state = IBV_PORT_ACTIVE;
        devices[i].mtu = IBV_MTU_4096;
    }
    n_devices = 1;
    has_windows = true;
    is_held = false;
    max_mr = UINT64_MAX;
    dmabuf_fd = -1;
    memset(call_faults, 0, sizeof(call_faults));
    memset(wc_faults, 0, sizeof(wc_faults));
    memset(&counts, 0, sizeof(counts));
}

static void begin(void)
{
    pthread_t thread;

    list_init(&contexts);
    list_init(&regions);
    list_init(&windows);
    list_init(&queues);
    list_init(&pairs);
    set_defaults();
    ASSERT(pthread_create(&thread, NULL, nic_main, NULL) == 0);
    pthread_detach(thread);
}

static void enter(void)
{
    pthread_once(&once, begin);
    pthread_mutex_lock(&lock);
}

static void leave(void)
{
    pthread_mutex_unlock(&lock);
}

/* ---- devices ---- */

static struct ibv_device **get_device_list(int *n_out)
{
    struct ibv_device **list = calloc(MAX_DEVICES + 1, sizeof(*list));

    enter();
    for (unsigned i = 0; i < n_devices; i++)
        list[i] = &devices[i].base;
    *n_out = (int)n_devices;
    leave();
    return list;
}

static void free_device_list(struct ibv_device **list)
{
    free(list);
}

static const char *get_device_name(struct ibv_device *device)
{
    return device->name;
}

static struct ibv_context *open_device(struct ibv_device *device)
{
    struct context *context;

    enter();
    if (call_fails(FAKE_OPEN_DEVICE)) {
        leave();
        errno = EACCES;
        return NULL;
    }
    context = calloc(1, sizeof(*context));
    context->device = container_of(device, struct device, base);
    context->base.async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    list_init(&context->events);
    list_push_back(&contexts, &context->node);
    counts.contexts++;
    leave();
    return &context->base;
}

static int close_device(struct ibv_context *base)
{
    struct context *context = container_of(base, struct context, base);
    struct list *at;

    enter();
    while ((at = list_pop_front(&context->events)) != NULL)
        free(container_of(at, struct event, node));
    list_remove(&context->node);
    close(base->async_fd);
    free(context);
    counts.contexts--;
    leave();
    return 0;
}

static int query_device(struct ibv_context *base, struct ibv_device_attr *out)
{
    int rc;

    enter();
    rc = call_fails(FAKE_QUERY_DEVICE) ? EIO : 0;
    *out = (struct ibv_device_attr){.max_mr_size = max_mr,
                                    .max_qp_wr = WR_KEEP,
                                    .max_mw = has_windows ? 1000 : 0,
                                    .phys_port_cnt = 1,
                                    .device_cap_flags = has_windows ? IBV_DEVICE_MEM_WINDOW_TYPE_2B : 0};
    leave();
    return rc;
}

static int query_port(struct ibv_context *base, uint8_t port, struct ibv_port_attr *out)
{
    struct context *context = container_of(base, struct context, base);
    int rc;

    enter();
    rc = port != 1 || call_fails(FAKE_QUERY_PORT) ? EINVAL : 0;
    *out = (struct ibv_port_attr){.state = context->device->state,
                                  .active_mtu = context->device->mtu,
                                  .max_mtu = IBV_MTU_4096,
                                  .link_layer = IBV_LINK_LAYER_ETHERNET};
    leave();
    return rc;
}

static ssize_t query_gid_table(struct ibv_context *base, struct ibv_gid_entry *entries, size_t max_entries)
{
    static const uint8_t mapped[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1}, local[16] = {0xfe, 0x80, [15] = 1};
    bool fails;

    enter();
    fails = call_fails(FAKE_QUERY_GIDS);
    leave();
    if (fails || max_entries < 3)
        return -EIO;
    for (unsigned i = 0; i < 3; i++) {
        entries[i] = (struct ibv_gid_entry){
            .gid_index = i, .port_num = 1, .gid_type = i == 1 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2};
        memcpy(entries[i].gid.raw, i == 0 ? local : mapped, 16);
    }
    return 3;
}

/* ---- memory ---- */

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = NULL;

    enter();
    if (!call_fails(FAKE_ALLOC_PD)) {
        pd = calloc(1, sizeof(*pd));
        pd->context = context;
        counts.pds++;
    }
    leave();
    errno = ENOMEM;
    return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
    enter();
    counts.pds--;
    leave();
    free(pd);
    return 0;
}

static struct ibv_mr *reg(struct ibv_pd *pd, uint64_t address, size_t len_bytes, int access, uint8_t *memory)
{
    struct region *region = NULL;

    enter();
    if (call_fails(FAKE_REG_MR) || len_bytes > max_mr || memory == NULL) {
        errno = ENOMEM;
    } else {
        region = calloc(1, sizeof(*region));
        region->base = (struct ibv_mr){.context = pd->context,
                                       .pd = pd,
                                       .addr = (void *)(uintptr_t)address,
                                       .length = len_bytes,
                                       .lkey = next_number,
                                       .rkey = next_number + 1};
        next_number += 0x100;
        region->access = access;
        region->memory = memory;
        list_push_back(&regions, &region->node);
        counts.mrs++;
        counts.remote_mrs += (access & IBV_ACCESS_REMOTE_WRITE) != 0;
        counts.readable += (access & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    }
    leave();
    return region != NULL ? &region->base : NULL;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *address, size_t len_bytes, int access)
{
    return reg(pd, (uintptr_t)address, len_bytes, access, address);
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len_bytes, uint64_t address,
                                    int fd, int access)
{
    return reg(pd, address, len_bytes, access, fd == dmabuf_fd ? dmabuf_memory + offset : NULL);
}

static int dereg_mr(struct ibv_mr *mr)
{
    struct region *region = container_of(mr, struct region, base);

    enter();
    list_for_each (at, &windows)
        ASSERT(container_of(at, struct window, node)->region != region); /* EBUSY on a real one */
    list_remove(&region->node);
    counts.mrs--;
    leave();
    free(region);
    return 0;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
    struct window *window = NULL;

    enter();
    if (!call_fails(FAKE_ALLOC_MW) && type == IBV_MW_TYPE_2) {
        window = calloc(1, sizeof(*window));
        window->base = (struct ibv_mw){.context = pd->context, .pd = pd, .rkey = next_number, .type = type};
        next_number += 0x100;
        list_push_back(&windows, &window->node);
        counts.mws++;
    }
    leave();
    errno = ENOMEM;
    return window != NULL ? &window->base : NULL;
}

static int dealloc_mw(struct ibv_mw *mw)
{
    struct window *window = container_of(mw, struct window, base);
    bool fails;

    enter();
    fails = call_fails(FAKE_DEALLOC_MW);
    if (!fails) {
        counts.mws--;
        counts.bound_windows -= window->region != NULL;
        list_remove(&window->node);
        free(window);
    }
    leave();
    return fails ? EIO : 0;
}

/* ---- queues ---- */

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *context)
{
    struct channel *channel = NULL;

    enter();
    if (!call_fails(FAKE_CREATE_CHANNEL)) {
        channel = calloc(1, sizeof(*channel));
        channel->base.context = context;
        channel->base.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
        list_init(&channel->events);
        counts.channels++;
    }
    leave();
    errno = EMFILE;
    return channel != NULL ? &channel->base : NULL;
}

static int destroy_comp_channel(struct ibv_comp_channel *base)
{
    enter();
    counts.channels--;
    leave();
    close(base->fd);
    free(container_of(base, struct channel, base));
    return 0;
}

static struct ibv_cq *create_cq(struct ibv_context *context, int n, void *cq_context,
                                struct ibv_comp_channel *channel, int vector)
{
    struct queue *cq = NULL;

    enter();
    if (!call_fails(FAKE_CREATE_CQ)) {
        cq = calloc(1, sizeof(*cq));
        cq->base =
            (struct ibv_cq){.context = context, .channel = channel, .cq_context = cq_context, .cqe = n};
        cq->channel = container_of(channel, struct channel, base);
        cq->cap = n;
        cq->wcs = calloc((size_t)n, sizeof(*cq->wcs));
        cq->covers = calloc((size_t)n, sizeof(*cq->covers));
        list_init(&cq->waiting);
        list_push_back(&queues, &cq->node);
        counts.cqs++;
    }
    leave();
    errno = ENOMEM;
    return cq != NULL ? &cq->base : NULL;
}

static int destroy_cq(struct ibv_cq *base)
{
    struct queue *cq = container_of(base, struct queue, base);
    bool fails;

    enter();
    fails = call_fails(FAKE_DESTROY_CQ);
    if (!fails) {
        list_remove(&cq->node);
        list_remove(&cq->waiting);
        counts.cqs--;
        free(cq->wcs);
        free(cq->covers);
        free(cq);
    }
    leave();
    return fails ? EBUSY : 0;
}

static int req_notify_cq(struct ibv_cq *base, int solicited_only)
{
    int rc;

    enter();
    rc = call_fails(FAKE_NOTIFY) ? EIO : 0;
    if (rc == 0)
        container_of(base, struct queue, base)->is_armed = true;
    leave();
    return rc;
}

static int get_cq_event(struct ibv_comp_channel *base, struct ibv_cq **cq_out, void **cq_context_out)
{
    struct channel *channel = container_of(base, struct channel, base);
    struct list *at = NULL;

    while (at == NULL) { /* a queue that went away leaves its bell behind */
        if (!take_bell(base->fd))
            return -1;
        enter();
        at = list_pop_front(&channel->events);
        if (at != NULL) {
            *cq_out = &container_of(at, struct queue, waiting)->base;
            *cq_context_out = (*cq_out)->cq_context;
        }
        leave();
    }
    return 0;
}

static void ack_cq_events(struct ibv_cq *cq, unsigned n)
{
}

static int poll_cq(struct ibv_cq *base, int n, struct ibv_wc *wc_out)
{
    struct queue *cq = container_of(base, struct queue, base);
    int i = 0;

    enter();
    if (call_fails(FAKE_POLL))
        i = -1;
    for (; i >= 0 && i < n && cq->n > 0; i++, cq->n--, cq->first = (cq->first + 1) % cq->cap) {
        struct pair *pair;

        wc_out[i] = cq->wcs[cq->first];
        pair = find_pair(wc_out[i].qp_num);
        if (pair != NULL)
            pair->n_sends -= cq->covers[cq->first];
    }
    leave();
    return i;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct pair *pair = NULL;

    enter();
    if (!call_fails(FAKE_CREATE_QP)) {
        pair = calloc(1, sizeof(*pair));
        pair->base = (struct ibv_qp){.context = pd->context,
                                     .qp_context = attr->qp_context,
                                     .pd = pd,
                                     .qp_num = next_number++,
                                     .qp_type = attr->qp_type};
        pair->cq = container_of(attr->send_cq, struct queue, base);
        pair->max_sends = attr->cap.max_send_wr;
        pair->max_receives = attr->cap.max_recv_wr;
        ASSERT(pair->max_sends <= WR_KEEP);
        list_push_back(&pairs, &pair->node);
        counts.qps++;
    }
    leave();
    errno = ENOMEM;
    return pair != NULL ? &pair->base : NULL;
}

static int modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
    struct pair *pair = container_of(base, struct pair, base);
    int rc = 0;

    enter();
    if (call_fails(FAKE_MODIFY_QP)) {
        rc = EINVAL;
    } else if (attr->qp_state == IBV_QPS_INIT && base->state == IBV_QPS_RESET) {
        pair->access = (int)attr->qp_access_flags;
        counts.readable += (pair->access & ~IBV_ACCESS_REMOTE_WRITE) != 0;
        base->state = IBV_QPS_INIT;
    } else if (attr->qp_state == IBV_QPS_RTR && base->state == IBV_QPS_INIT) {
        pair->rtr = last_rtr = *attr;
        base->state = IBV_QPS_RTR;
    } else if (attr->qp_state == IBV_QPS_RTS && base->state == IBV_QPS_RTR) {
        pair->rts = last_rts = *attr;
        base->state = IBV_QPS_RTS;
    } else if (attr->qp_state == IBV_QPS_ERR) {
        to_error(pair);
    } else {
        rc = EINVAL;
    }
    leave();
    return rc;
}

static int destroy_qp(struct ibv_qp *base)
{
    struct pair *pair = container_of(base, struct pair, base);
    bool fails;

    enter();
    fails = call_fails(FAKE_DESTROY_QP);
    if (!fails) {
        list_for_each_safe (at, spare, &contexts) {
            struct context *context = container_of(at, struct context, node);

            list_for_each_safe (event_at, event_spare, &context->events) {
                struct event *event = container_of(event_at, struct event, node);

                if (event->event.event_type <= IBV_EVENT_PATH_MIG_ERR && event->event.element.qp == base) {
                    list_remove(&event->node);
                    free(event);
                }
            }
        }
        list_remove(&pair->node);
        free(pair);
        counts.qps--;
    }
    leave();
    return fails ? EIO : 0;
}

static int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad_out)
{
    struct pair *pair = container_of(base, struct pair, base);
    int rc = 0;

    enter();
    if (call_fails(FAKE_POST_SEND))
        rc = EIO;
    for (; wr != NULL && rc == 0; wr = wr->next) {
        unsigned at = (pair->first_wr + pair->n_wrs) % WR_KEEP;

        if (pair->n_sends == pair->max_sends || pair->n_wrs == WR_KEEP) {
            counts.n_overflows++;
            rc = ENOMEM;
            break;
        }
        pair->wrs[at] = *wr;
        pair->wrs[at].next = NULL;
        if (wr->num_sge > 0)
            pair->sges[at] = wr->sg_list[0];
        pair->n_sends++;
        if (base->state == IBV_QPS_RTS)
            pair->n_wrs++;
        else
            complete_send(pair, wr, IBV_WC_WR_FLUSH_ERR);
    }
    *bad_out = wr;
    pthread_cond_signal(&work);
    leave();
    return rc;
}

static int post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_out)
{
    struct pair *pair = container_of(base, struct pair, base);
    int rc = 0;

    enter();
    if (call_fails(FAKE_POST_RECV))
        rc = EIO;
    for (; wr != NULL && rc == 0; wr = wr->next) {
        if (pair->n_receives == pair->max_receives) {
            counts.n_overflows++;
            rc = ENOMEM;
            break;
        }
        pair->n_receives++;
    }
    *bad_out = wr;
    leave();
    return rc;
}

/* ---- events ---- */

static int get_async_event(struct ibv_context *base, struct ibv_async_event *out)
{
    struct context *context = container_of(base, struct context, base);
    struct list *at = NULL;

    while (at == NULL) {
        if (!take_bell(base->async_fd))
            return -1;
        enter();
        at = list_pop_front(&context->events);
        leave();
    }
    *out = container_of(at, struct event, node)->event;
    free(container_of(at, struct event, node));
    return 0;
}

static void ack_async_event(struct ibv_async_event *event)
{
}

static const char *wc_status_str(enum ibv_wc_status status)
{
    return "a bad status";
}

static const char *event_type_str(enum ibv_event_type type)
{
    return "an event";
}

static int may_lock(size_t len_bytes, struct fault *fault)
{
    bool fails;

    enter();
    fails = call_fails(FAKE_MAY_LOCK);
    leave();
    return fails ? fault_set(fault, E_LIMIT, "set LimitMEMLOCK=infinity") : 0;
}

const struct verbs verbs_fake = {
    .get_device_list = get_device_list,
    .free_device_list = free_device_list,
    .get_device_name = get_device_name,
    .open_device = open_device,
    .close_device = close_device,
    .query_device = query_device,
    .query_port = query_port,
    .query_gid_table = query_gid_table,
    .alloc_pd = alloc_pd,
    .dealloc_pd = dealloc_pd,
    .reg_mr = reg_mr,
    .reg_dmabuf_mr = reg_dmabuf_mr,
    .dereg_mr = dereg_mr,
    .alloc_mw = alloc_mw,
    .dealloc_mw = dealloc_mw,
    .create_comp_channel = create_comp_channel,
    .destroy_comp_channel = destroy_comp_channel,
    .create_cq = create_cq,
    .destroy_cq = destroy_cq,
    .req_notify_cq = req_notify_cq,
    .get_cq_event = get_cq_event,
    .ack_cq_events = ack_cq_events,
    .poll_cq = poll_cq,
    .create_qp = create_qp,
    .modify_qp = modify_qp,
    .destroy_qp = destroy_qp,
    .post_send = post_send,
    .post_recv = post_recv,
    .get_async_event = get_async_event,
    .ack_async_event = ack_async_event,
    .wc_status_str = wc_status_str,
    .event_type_str = event_type_str,
    .may_lock = may_lock,
};

const struct verbs *const world_verbs = &verbs_fake;

/* ---- for tests ---- */

void fake_reset(void)
{
    enter();
    ASSERT(list_is_empty(&contexts) && list_is_empty(&pairs));
    set_defaults();
    leave();
}

void fake_fail_call(enum fake_call call, unsigned after, unsigned times)
{
    enter();
    call_faults[call].after = after;
    call_faults[call].times = times;
    leave();
}

void fake_fail_completion(enum fake_side side, enum ibv_wc_status status, unsigned after)
{
    enter();
    wc_faults[side].status = status;
    wc_faults[side].after = after;
    leave();
}

void fake_hold(bool held)
{
    enter();
    is_held = held;
    pthread_cond_signal(&work);
    leave();
}

void fake_raise(const char *device, enum ibv_event_type type)
{
    enter();
    list_for_each (at, &contexts) {
        struct context *context = container_of(at, struct context, node);

        if (device == NULL || strcmp(context->device->base.name, device) == 0)
            raise_event(context, type, NULL);
    }
    leave();
}

void fake_raise_qp(enum fake_side side, enum ibv_event_type type)
{
    enter();
    list_for_each (at, &pairs) {
        struct pair *pair = container_of(at, struct pair, node);

        if (((pair->access & IBV_ACCESS_REMOTE_WRITE) != 0) == (side == FAKE_RECEIVER)) {
            raise_event(container_of(pair->base.context, struct context, base), type, &pair->base);
            break;
        }
    }
    leave();
}

void fake_set_port(const char *device, enum ibv_port_state state, enum ibv_mtu mtu)
{
    enter();
    for (unsigned i = 0; i < MAX_DEVICES; i++)
        if (strcmp(devices[i].base.name, device) == 0) {
            devices[i].state = state;
            devices[i].mtu = mtu;
        }
    leave();
}

void fake_set_windows(bool has)
{
    enter();
    has_windows = has;
    leave();
}

void fake_set_max_mr(uint64_t len_bytes)
{
    enter();
    max_mr = len_bytes;
    leave();
}

void fake_set_devices(unsigned n)
{
    enter();
    n_devices = n;
    leave();
}

void fake_set_dmabuf(int fd, void *memory)
{
    enter();
    dmabuf_fd = fd;
    dmabuf_memory = memory;
    leave();
}

struct fake_counts fake_count(void)
{
    struct fake_counts copy;

    enter();
    copy = counts;
    copy.waiting = 0;
    list_for_each (at, &pairs)
        copy.waiting += container_of(at, struct pair, node)->n_wrs;
    leave();
    return copy;
}

void fake_last_connect(struct ibv_qp_attr *rtr_out, struct ibv_qp_attr *rts_out)
{
    enter();
    *rtr_out = last_rtr;
    *rts_out = last_rts;
    leave();
}
