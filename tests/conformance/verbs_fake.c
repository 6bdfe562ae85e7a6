/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of verbs_fake.h's table. */
#include "tests/conformance/verbs_fake_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "tests/conformance/tr_world.h"

/* ---- devices ---- */

static struct ibv_device **get_device_list(int *n_out)
{
    struct ibv_device **list = calloc(MAX_DEVICES + 1, sizeof(*list));

    fake_enter();
    for (unsigned i = 0; i < fake.n_devices; i++)
        list[i] = &fake.devices[i].base;
    *n_out = (int)fake.n_devices;
    fake_leave();
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

    fake_enter();
    if (fake_call_fails(FAKE_OPEN_DEVICE)) {
        fake_leave();
        errno = EACCES;
        return NULL;
    }
    context = calloc(1, sizeof(*context));
    context->device = container_of(device, struct device, base);
    context->base.async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    list_init(&context->events);
    list_push_back(&fake.contexts, &context->node);
    fake.counts.contexts++;
    fake_leave();
    return &context->base;
}

static int close_device(struct ibv_context *base)
{
    struct context *context = container_of(base, struct context, base);
    struct list *at;

    fake_enter();
    while ((at = list_pop_front(&context->events)) != NULL)
        free(container_of(at, struct event, node));
    list_remove(&context->node);
    close(base->async_fd);
    free(context);
    fake.counts.contexts--;
    fake_leave();
    return 0;
}

static int query_device(struct ibv_context *base, struct ibv_device_attr *out)
{
    int rc;

    fake_enter();
    rc = fake_call_fails(FAKE_QUERY_DEVICE) ? EIO : 0;
    *out = (struct ibv_device_attr){.max_mr_size = fake.max_mr,
                                    .max_qp_wr = WR_KEEP,
                                    .max_mw = fake.has_windows ? 1000 : 0,
                                    .phys_port_cnt = 1,
                                    .device_cap_flags = fake.has_windows ? IBV_DEVICE_MEM_WINDOW_TYPE_2B : 0};
    fake_leave();
    return rc;
}

static int query_port(struct ibv_context *base, uint8_t port, struct ibv_port_attr *out)
{
    struct context *context = container_of(base, struct context, base);
    int rc;

    fake_enter();
    rc = port != 1 || fake_call_fails(FAKE_QUERY_PORT) ? EINVAL : 0;
    *out = (struct ibv_port_attr){.state = context->device->state,
                                  .active_mtu = context->device->mtu,
                                  .max_mtu = IBV_MTU_4096,
                                  .link_layer = IBV_LINK_LAYER_ETHERNET};
    fake_leave();
    return rc;
}

static ssize_t query_gid_table(struct ibv_context *base, struct ibv_gid_entry *entries, size_t max_entries)
{
    static const uint8_t mapped[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1}, local[16] = {0xfe, 0x80, [15] = 1};
    bool fails;

    fake_enter();
    fails = fake_call_fails(FAKE_QUERY_GIDS);
    fake_leave();
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

    fake_enter();
    if (!fake_call_fails(FAKE_ALLOC_PD)) {
        pd = calloc(1, sizeof(*pd));
        pd->context = context;
        fake.counts.pds++;
    }
    fake_leave();
    errno = ENOMEM;
    return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
    fake_enter();
    fake.counts.pds--;
    fake_leave();
    free(pd);
    return 0;
}

static struct ibv_mr *reg(struct ibv_pd *pd, uint64_t address, size_t len_bytes, int access, uint8_t *memory)
{
    struct region *region = NULL;

    fake_enter();
    if (fake_call_fails(FAKE_REG_MR) || len_bytes > fake.max_mr || memory == NULL) {
        errno = ENOMEM;
    } else {
        region = calloc(1, sizeof(*region));
        region->base = (struct ibv_mr){.context = pd->context,
                                       .pd = pd,
                                       .addr = (void *)(uintptr_t)address,
                                       .length = len_bytes,
                                       .lkey = fake.next_number,
                                       .rkey = fake.next_number + 1};
        fake.next_number += 0x100;
        region->access = access;
        region->memory = memory;
        list_push_back(&fake.regions, &region->node);
        fake.counts.mrs++;
        fake.counts.remote_mrs += (access & IBV_ACCESS_REMOTE_WRITE) != 0;
        fake.counts.readable += (access & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    }
    fake_leave();
    return region != NULL ? &region->base : NULL;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *address, size_t len_bytes, int access)
{
    return reg(pd, (uintptr_t)address, len_bytes, access, address);
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len_bytes, uint64_t address,
                                    int fd, int access)
{
    return reg(pd, address, len_bytes, access, fd == fake.dmabuf_fd ? fake.dmabuf_memory + offset : NULL);
}

static int dereg_mr(struct ibv_mr *mr)
{
    struct region *region = container_of(mr, struct region, base);

    fake_enter();
    list_for_each (at, &fake.windows)
        ASSERT(container_of(at, struct window, node)->region != region); /* EBUSY on a real one */
    list_remove(&region->node);
    fake.counts.mrs--;
    fake_leave();
    free(region);
    return 0;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
    struct window *window = NULL;

    fake_enter();
    if (!fake_call_fails(FAKE_ALLOC_MW) && type == IBV_MW_TYPE_2) {
        window = calloc(1, sizeof(*window));
        window->base =
            (struct ibv_mw){.context = pd->context, .pd = pd, .rkey = fake.next_number, .type = type};
        fake.next_number += 0x100;
        list_push_back(&fake.windows, &window->node);
        fake.counts.mws++;
    }
    fake_leave();
    errno = ENOMEM;
    return window != NULL ? &window->base : NULL;
}

static int dealloc_mw(struct ibv_mw *mw)
{
    struct window *window = container_of(mw, struct window, base);
    bool fails;

    fake_enter();
    fails = fake_call_fails(FAKE_DEALLOC_MW);
    if (!fails) {
        fake.counts.mws--;
        fake.counts.bound_windows -= window->region != NULL;
        list_remove(&window->node);
        free(window);
    }
    fake_leave();
    return fails ? EIO : 0;
}

/* ---- queues ---- */

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *context)
{
    struct channel *channel = NULL;

    fake_enter();
    if (!fake_call_fails(FAKE_CREATE_CHANNEL)) {
        channel = calloc(1, sizeof(*channel));
        channel->base.context = context;
        channel->base.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
        list_init(&channel->events);
        fake.counts.channels++;
    }
    fake_leave();
    errno = EMFILE;
    return channel != NULL ? &channel->base : NULL;
}

static int destroy_comp_channel(struct ibv_comp_channel *base)
{
    fake_enter();
    fake.counts.channels--;
    fake_leave();
    close(base->fd);
    free(container_of(base, struct channel, base));
    return 0;
}

static struct ibv_cq *create_cq(struct ibv_context *context, int n, void *cq_context,
                                struct ibv_comp_channel *channel, int vector)
{
    struct queue *cq = NULL;

    fake_enter();
    if (!fake_call_fails(FAKE_CREATE_CQ)) {
        cq = calloc(1, sizeof(*cq));
        cq->base =
            (struct ibv_cq){.context = context, .channel = channel, .cq_context = cq_context, .cqe = n};
        cq->channel = container_of(channel, struct channel, base);
        cq->cap = n;
        cq->wcs = calloc((size_t)n, sizeof(*cq->wcs));
        cq->covers = calloc((size_t)n, sizeof(*cq->covers));
        list_init(&cq->waiting);
        list_push_back(&fake.queues, &cq->node);
        fake.counts.cqs++;
    }
    fake_leave();
    errno = ENOMEM;
    return cq != NULL ? &cq->base : NULL;
}

static int destroy_cq(struct ibv_cq *base)
{
    struct queue *cq = container_of(base, struct queue, base);
    bool fails;

    fake_enter();
    fails = fake_call_fails(FAKE_DESTROY_CQ);
    if (!fails) {
        list_remove(&cq->node);
        list_remove(&cq->waiting);
        fake.counts.cqs--;
        free(cq->wcs);
        free(cq->covers);
        free(cq);
    }
    fake_leave();
    return fails ? EBUSY : 0;
}

static int req_notify_cq(struct ibv_cq *base, int solicited_only)
{
    int rc;

    fake_enter();
    rc = fake_call_fails(FAKE_NOTIFY) ? EIO : 0;
    if (rc == 0)
        container_of(base, struct queue, base)->is_armed = true;
    fake_leave();
    return rc;
}

static int get_cq_event(struct ibv_comp_channel *base, struct ibv_cq **cq_out, void **cq_context_out)
{
    struct channel *channel = container_of(base, struct channel, base);
    struct list *at = NULL;

    while (at == NULL) { /* a queue that went away leaves its bell behind */
        if (!fake_take_bell(base->fd))
            return -1;
        fake_enter();
        at = list_pop_front(&channel->events);
        if (at != NULL) {
            *cq_out = &container_of(at, struct queue, waiting)->base;
            *cq_context_out = (*cq_out)->cq_context;
        }
        fake_leave();
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

    fake_enter();
    if (fake_call_fails(FAKE_POLL))
        i = -1;
    for (; i >= 0 && i < n && cq->n > 0; i++, cq->n--, cq->first = (cq->first + 1) % cq->cap) {
        struct pair *pair;

        wc_out[i] = cq->wcs[cq->first];
        pair = fake_find_pair(wc_out[i].qp_num);
        if (pair != NULL)
            pair->n_sends -= cq->covers[cq->first];
    }
    fake_leave();
    return i;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct pair *pair = NULL;

    fake_enter();
    if (!fake_call_fails(FAKE_CREATE_QP)) {
        pair = calloc(1, sizeof(*pair));
        pair->base = (struct ibv_qp){.context = pd->context,
                                     .qp_context = attr->qp_context,
                                     .pd = pd,
                                     .qp_num = fake.next_number++,
                                     .qp_type = attr->qp_type};
        pair->cq = container_of(attr->send_cq, struct queue, base);
        pair->max_sends = attr->cap.max_send_wr;
        pair->max_receives = attr->cap.max_recv_wr;
        ASSERT(pair->max_sends <= WR_KEEP);
        list_push_back(&fake.pairs, &pair->node);
        fake.counts.qps++;
    }
    fake_leave();
    errno = ENOMEM;
    return pair != NULL ? &pair->base : NULL;
}

static int modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
    struct pair *pair = container_of(base, struct pair, base);
    int rc = 0;

    fake_enter();
    if (fake_call_fails(FAKE_MODIFY_QP)) {
        rc = EINVAL;
    } else if (attr->qp_state == IBV_QPS_INIT && base->state == IBV_QPS_RESET) {
        pair->access = (int)attr->qp_access_flags;
        fake.counts.readable += (pair->access & ~IBV_ACCESS_REMOTE_WRITE) != 0;
        base->state = IBV_QPS_INIT;
    } else if (attr->qp_state == IBV_QPS_RTR && base->state == IBV_QPS_INIT) {
        pair->rtr = fake.last_rtr = *attr;
        base->state = IBV_QPS_RTR;
    } else if (attr->qp_state == IBV_QPS_RTS && base->state == IBV_QPS_RTR) {
        pair->rts = fake.last_rts = *attr;
        base->state = IBV_QPS_RTS;
    } else if (attr->qp_state == IBV_QPS_ERR) {
        fake_to_error(pair);
    } else {
        rc = EINVAL;
    }
    fake_leave();
    return rc;
}

static int destroy_qp(struct ibv_qp *base)
{
    struct pair *pair = container_of(base, struct pair, base);
    bool fails;

    fake_enter();
    fails = fake_call_fails(FAKE_DESTROY_QP);
    if (!fails) {
        list_for_each_safe (at, spare, &fake.contexts) {
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
        fake.counts.qps--;
    }
    fake_leave();
    return fails ? EIO : 0;
}

static int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad_out)
{
    struct pair *pair = container_of(base, struct pair, base);
    int rc = 0;

    fake_enter();
    if (fake_call_fails(FAKE_POST_SEND))
        rc = EIO;
    for (; wr != NULL && rc == 0; wr = wr->next) {
        unsigned at = (pair->first_wr + pair->n_wrs) % WR_KEEP;

        if (pair->n_sends == pair->max_sends || pair->n_wrs == WR_KEEP) {
            fake.counts.n_overflows++;
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
            fake_complete_send(pair, wr, IBV_WC_WR_FLUSH_ERR);
    }
    *bad_out = wr;
    pthread_cond_signal(&fake.work);
    fake_leave();
    return rc;
}

static int post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_out)
{
    struct pair *pair = container_of(base, struct pair, base);
    int rc = 0;

    fake_enter();
    if (fake_call_fails(FAKE_POST_RECV))
        rc = EIO;
    for (; wr != NULL && rc == 0; wr = wr->next) {
        if (pair->n_receives == pair->max_receives) {
            fake.counts.n_overflows++;
            rc = ENOMEM;
            break;
        }
        pair->n_receives++;
    }
    *bad_out = wr;
    fake_leave();
    return rc;
}

/* ---- events ---- */

static int get_async_event(struct ibv_context *base, struct ibv_async_event *out)
{
    struct context *context = container_of(base, struct context, base);
    struct list *at = NULL;

    while (at == NULL) {
        if (!fake_take_bell(base->async_fd))
            return -1;
        fake_enter();
        at = list_pop_front(&context->events);
        fake_leave();
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

    fake_enter();
    fails = fake_call_fails(FAKE_MAY_LOCK);
    fake_leave();
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
