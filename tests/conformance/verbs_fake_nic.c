/* SPDX-License-Identifier: Apache-2.0 */
/* The NICs behind verbs_fake.h: completions, events, a thread that executes one work request at a time under
 * the only lock, and the faults that tests can switch on. */
#include "tests/conformance/verbs_fake_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

struct fake_world fake = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .next_number = 0x100};

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- faults ---- */

bool fake_call_fails(enum fake_call call)
{
    if (fake.call_faults[call].times == 0)
        return false;
    if (fake.call_faults[call].after > 0) {
        fake.call_faults[call].after--;
        return false;
    }
    fake.call_faults[call].times--;
    return true;
}

static enum ibv_wc_status fault_of(enum fake_side side)
{
    enum ibv_wc_status status = fake.wc_faults[side].status;

    if (status == IBV_WC_SUCCESS)
        return status;
    if (fake.wc_faults[side].after > 0) {
        fake.wc_faults[side].after--;
        return IBV_WC_SUCCESS;
    }
    fake.wc_faults[side].status = IBV_WC_SUCCESS;
    return status;
}

static void ring_bell(int fd)
{
    uint64_t one = 1;

    ASSERT(write(fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
}

bool fake_take_bell(int fd)
{
    uint64_t one;

    return read(fd, &one, sizeof(one)) == (ssize_t)sizeof(one);
}

/* ---- completions and events, lock held ---- */

static void complete(struct queue *cq, const struct ibv_wc *wc, unsigned covers)
{
    int at = (cq->first + cq->n) % cq->cap;

    if (cq->n == cq->cap) { /* fatal on a real one */
        fake.counts.n_overflows++;
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

void fake_complete_send(struct pair *pair, const struct ibv_send_wr *wr, enum ibv_wc_status status)
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

void fake_to_error(struct pair *pair)
{
    if (pair->base.state == IBV_QPS_ERR)
        return;
    pair->base.state = IBV_QPS_ERR;
    for (; pair->n_wrs > 0; pair->n_wrs--, pair->first_wr = (pair->first_wr + 1) % WR_KEEP)
        fake_complete_send(pair, &pair->wrs[pair->first_wr], IBV_WC_WR_FLUSH_ERR);
    for (; pair->n_receives > 0; pair->n_receives--)
        complete(pair->cq,
                 &(struct ibv_wc){
                     .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV, .qp_num = pair->base.qp_num},
                 0);
}

/* ---- the NIC ---- */

struct pair *fake_find_pair(uint32_t number)
{
    list_for_each (at, &fake.pairs) {
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
    list_for_each (at, &fake.regions) {
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
    list_for_each (at, &fake.windows) {
        struct window *window = container_of(at, struct window, node);

        if (window->region != NULL && window->rkey == rkey && window->qpn == to->base.qp_num &&
            address >= window->address && length <= window->length &&
            address - window->address <= window->length - length)
            return inside(window->region, address, length);
    }
    list_for_each (at, &fake.regions) {
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
        fake.counts.readable++;
    window->region = region;
    window->rkey = wr->bind_mw.rkey;
    window->qpn = pair->base.qp_num;
    window->address = wr->bind_mw.bind_info.addr;
    window->length = wr->bind_mw.bind_info.length;
    fake.counts.bound_windows++;
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
        fake.counts.n_rnr++;
        return IBV_WC_RNR_RETRY_EXC_ERR;
    }
    to->n_receives--;
    wc.status = fault_of(FAKE_RECEIVER);
    complete(to->cq, &wc, 0);
    if (wc.status != IBV_WC_SUCCESS)
        fake_to_error(to);
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status write_one(struct pair *pair, const struct ibv_send_wr *wr,
                                    const struct ibv_sge *sge)
{
    struct pair *to = fake_find_pair(pair->rtr.dest_qp_num);
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
        fake_to_error(to);
        return IBV_WC_REM_ACCESS_ERR;
    }
    memcpy(target, source, sge->length);
    fake.counts.n_writes++;
    fake.counts.n_bytes += sge->length;
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
    fake_complete_send(pair, &wr, status);
    if (status != IBV_WC_SUCCESS)
        fake_to_error(pair);
}

static struct pair *next_busy(void)
{
    list_for_each (at, &fake.pairs) {
        struct pair *pair = container_of(at, struct pair, node);

        if (pair->n_wrs > 0 && !fake.is_held) {
            list_remove(&pair->node);
            list_push_back(&fake.pairs, &pair->node);
            return pair;
        }
    }
    return NULL;
}

static void *nic_main(void *arg)
{
    for (;;) {
        struct pair *pair;

        pthread_mutex_lock(&fake.lock);
        while ((pair = next_busy()) == NULL)
            pthread_cond_wait(&fake.work, &fake.lock);
        do_one(pair);
        pthread_mutex_unlock(&fake.lock);
    }
    return arg;
}

static void set_defaults(void)
{
    for (unsigned i = 0; i < MAX_DEVICES; i++) {
        snprintf(fake.devices[i].base.name, sizeof(fake.devices[i].base.name), "fake%u", i);
        fake.devices[i].state = IBV_PORT_ACTIVE;
        fake.devices[i].mtu = IBV_MTU_4096;
    }
    fake.n_devices = 1;
    fake.has_windows = true;
    fake.is_held = false;
    fake.max_mr = UINT64_MAX;
    fake.dmabuf_fd = -1;
    memset(fake.call_faults, 0, sizeof(fake.call_faults));
    memset(fake.wc_faults, 0, sizeof(fake.wc_faults));
    memset(&fake.counts, 0, sizeof(fake.counts));
}

static void begin(void)
{
    pthread_t thread;

    list_init(&fake.contexts);
    list_init(&fake.regions);
    list_init(&fake.windows);
    list_init(&fake.queues);
    list_init(&fake.pairs);
    set_defaults();
    ASSERT(pthread_create(&thread, NULL, nic_main, NULL) == 0);
    pthread_detach(thread);
}

void fake_enter(void)
{
    pthread_once(&once, begin);
    pthread_mutex_lock(&fake.lock);
}

void fake_leave(void)
{
    pthread_mutex_unlock(&fake.lock);
}

/* ---- for tests ---- */

void fake_reset(void)
{
    fake_enter();
    ASSERT(list_is_empty(&fake.contexts) && list_is_empty(&fake.pairs));
    set_defaults();
    fake_leave();
}

void fake_fail_call(enum fake_call call, unsigned after, unsigned times)
{
    fake_enter();
    fake.call_faults[call].after = after;
    fake.call_faults[call].times = times;
    fake_leave();
}

void fake_fail_completion(enum fake_side side, enum ibv_wc_status status, unsigned after)
{
    fake_enter();
    fake.wc_faults[side].status = status;
    fake.wc_faults[side].after = after;
    fake_leave();
}

void fake_hold(bool held)
{
    fake_enter();
    fake.is_held = held;
    pthread_cond_signal(&fake.work);
    fake_leave();
}

void fake_raise(const char *device, enum ibv_event_type type)
{
    fake_enter();
    list_for_each (at, &fake.contexts) {
        struct context *context = container_of(at, struct context, node);

        if (device == NULL || strcmp(context->device->base.name, device) == 0)
            raise_event(context, type, NULL);
    }
    fake_leave();
}

void fake_raise_qp(enum fake_side side, enum ibv_event_type type)
{
    fake_enter();
    list_for_each (at, &fake.pairs) {
        struct pair *pair = container_of(at, struct pair, node);

        if (((pair->access & IBV_ACCESS_REMOTE_WRITE) != 0) == (side == FAKE_RECEIVER)) {
            raise_event(container_of(pair->base.context, struct context, base), type, &pair->base);
            break;
        }
    }
    fake_leave();
}

void fake_set_port(const char *device, enum ibv_port_state state, enum ibv_mtu mtu)
{
    fake_enter();
    for (unsigned i = 0; i < MAX_DEVICES; i++)
        if (strcmp(fake.devices[i].base.name, device) == 0) {
            fake.devices[i].state = state;
            fake.devices[i].mtu = mtu;
        }
    fake_leave();
}

void fake_set_windows(bool has)
{
    fake_enter();
    fake.has_windows = has;
    fake_leave();
}

void fake_set_max_mr(uint64_t len_bytes)
{
    fake_enter();
    fake.max_mr = len_bytes;
    fake_leave();
}

void fake_set_devices(unsigned n)
{
    fake_enter();
    fake.n_devices = n;
    fake_leave();
}

void fake_set_dmabuf(int fd, void *memory)
{
    fake_enter();
    fake.dmabuf_fd = fd;
    fake.dmabuf_memory = memory;
    fake_leave();
}

struct fake_counts fake_count(void)
{
    struct fake_counts copy;

    fake_enter();
    copy = fake.counts;
    copy.waiting = 0;
    list_for_each (at, &fake.pairs)
        copy.waiting += container_of(at, struct pair, node)->n_wrs;
    fake_leave();
    return copy;
}

void fake_last_connect(struct ibv_qp_attr *rtr_out, struct ibv_qp_attr *rts_out)
{
    fake_enter();
    *rtr_out = fake.last_rtr;
    *rts_out = fake.last_rts;
    fake_leave();
}
