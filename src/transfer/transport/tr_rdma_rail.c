/* SPDX-License-Identifier: Apache-2.0 */
/* One rail: a port of a NIC, the arena registered with it, and its two descriptors in the transport's
 * loop.
 *
 * The GID is never guessed. A port has several: link-local, one per address, each as RoCE v1 and v2. With
 * the wrong GID queue pairs come up, but no data arrives. So the rail takes the RoCE v2 entry that matches
 * its own address. If there is none, the rail is refused and the table is logged.
 *
 *     completion descriptor --> hot queue pairs --> polled until silent for TR_RAIL_SPIN_NS
 *                               --> armed --> polled once
 *     event descriptor      --> the port went or came back; a queue pair failed
 *
 * After arming, the rail polls once more, because a completion that came before arming gives no wake-up.
 * An event is copied and acknowledged before it is handled, because ending a queue pair waits for the
 * acknowledgement of its events. */
#include "transfer/transport/tr_rdma_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"

#define MAX_GIDS 1024

/* ---- GID ---- */

static bool rdma_rail_gid_of_address(const char *address, uint8_t out[16])
{
    struct in_addr v4;

    if (inet_pton(AF_INET, address, &v4) == 1) {
        memset(out, 0, 10);
        out[10] = out[11] = 0xff;
        memcpy(out + 12, &v4, 4);
        return true;
    }
    return inet_pton(AF_INET6, address, out) == 1;
}

int rdma_gid_find(const struct ibv_gid_entry *entries, size_t n, uint8_t port, const char *address)
{
    uint8_t wanted[16];

    if (!rdma_rail_gid_of_address(address, wanted))
        return E_NOT_FOUND;
    for (size_t i = 0; i < n; i++)
        if (entries[i].port_num == port && entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 &&
            memcmp(entries[i].gid.raw, wanted, sizeof(wanted)) == 0)
            return (int)entries[i].gid_index;
    return E_NOT_FOUND;
}

static void rdma_rail_show_table(const struct rdma_rail *rail, const struct ibv_gid_entry *entries, size_t n)
{
    static const char *const types[] = {"InfiniBand", "RoCE v1", "RoCE v2"};

    for (size_t i = 0; i < n; i++) {
        char gid[INET6_ADDRSTRLEN] = "", netdev[IF_NAMESIZE] = "";

        if (entries[i].port_num != rail->port)
            continue;
        inet_ntop(AF_INET6, entries[i].gid.raw, gid, sizeof(gid));
        if_indextoname(entries[i].ndev_ifindex, netdev);
        log_info("kv_rdma_gid", LOG_STR("rail", rail->name), LOG_U64("index", entries[i].gid_index),
                 LOG_STR("type", entries[i].gid_type <= 2 ? types[entries[i].gid_type] : "?"),
                 LOG_STR("gid", gid), LOG_STR("netdev", netdev));
    }
}

static int rdma_rail_choose_gid(struct rdma_rail *rail, struct fault *fault)
{
    struct ibv_gid_entry *entries;
    ssize_t n;
    int index = 0;

    if (rail->port_attr.link_layer != IBV_LINK_LAYER_ETHERNET)
        return 0; /* InfiniBand addresses by LID */
    entries = calloc(MAX_GIDS, sizeof(*entries));
    if (entries == NULL)
        return fault_set(fault, E_NOMEM, "no memory for a GID table");
    n = rail->verbs->query_gid_table(rail->context, entries, MAX_GIDS);
    index = n < 0 ? E_IO : rdma_gid_find(entries, (size_t)n, rail->port, rail->address);
    if (index < 0) {
        rdma_rail_show_table(rail, entries, n < 0 ? 0 : (size_t)n);
        fault_set(fault, E_NOT_FOUND, "%s has no RoCE v2 GID for %s", rail->name,
                  rail->address[0] != '\0' ? rail->address : "an address (name one: device:port@address)");
    } else {
        rail->gid_index = (uint8_t)index;
        for (ssize_t i = 0; i < n; i++)
            if (entries[i].port_num == rail->port && entries[i].gid_index == (uint32_t)index)
                rail->gid = entries[i].gid;
    }
    free(entries);
    return index < 0 ? fault->code : 0;
}

/* ---- completions ---- */

void rdma_rail_heat(struct rdma_qp *qp)
{
    list_remove(&qp->hot);
    list_push_back(&qp->rail->hot, &qp->hot);
}

static unsigned rdma_rail_poll_all(struct rdma_rail *rail)
{
    unsigned n = 0;

    list_for_each_safe (at, spare, &rail->hot) {
        struct rdma_qp *qp = container_of(at, struct rdma_qp, hot);
        unsigned n_now = rdma_qp_poll(qp);

        n += n_now;
        if (n_now > 0)
            rdma_side_moved(qp);
    }
    return n;
}

/* Arms every hot queue pair. Queue pairs that stay silent then wait for the descriptor. */
static void rdma_rail_cool(struct rdma_rail *rail)
{
    list_for_each_safe (at, spare, &rail->hot) {
        struct rdma_qp *qp = container_of(at, struct rdma_qp, hot);

        if (rail->verbs->req_notify_cq(qp->cq, 0) != 0) {
            rdma_break(qp, NULL, "its completions cannot be announced");
            list_remove(&qp->hot);
        } else if (rdma_qp_poll(qp) > 0) {
            rdma_side_moved(qp);
        } else {
            list_remove(&qp->hot);
        }
    }
}

static void rdma_rail_turn(struct rdma_rail *rail)
{
    uint64_t begin_ns = clock_now_ns(), now_ns = begin_ns, moved_ns = begin_ns;

    while (!list_is_empty(&rail->hot) && now_ns - begin_ns < TR_RAIL_TURN_NS) {
        if (rdma_rail_poll_all(rail) > 0)
            moved_ns = clock_now_ns();
        now_ns = clock_now_ns();
        if (now_ns - moved_ns >= TR_RAIL_SPIN_NS)
            rdma_rail_cool(rail);
    }
    tr_tickets_report(rail->node);
    if (!list_is_empty(&rail->hot))
        ev_timer_start(rail->again, 0);
}

static void rdma_rail_on_again(void *arg)
{
    rdma_rail_turn(arg);
}

static void rdma_rail_on_channel(void *arg, int fd, unsigned ready)
{
    struct rdma_rail *rail = arg;
    struct ibv_cq *cq;
    void *context;

    while (rail->verbs->get_cq_event(rail->channel, &cq, &context) == 0) {
        rail->verbs->ack_cq_events(cq, 1);
        rdma_rail_heat(context);
    }
    rdma_rail_turn(rail);
}

/* ---- events of the device ---- */

static void rdma_rail_set_up(struct rdma_rail *rail, bool is_up, const char *why)
{
    if (rail->is_up == is_up)
        return;
    rail->is_up = is_up;
    if (is_up) {
        atomic_fetch_add_explicit(&rail->node->totals.rdma_rails_up, 1, memory_order_relaxed);
        log_info("kv_rdma_rail_up", LOG_STR("rail", rail->name), LOG_STR("reason", why));
        return;
    }
    atomic_fetch_sub_explicit(&rail->node->totals.rdma_rails_up, 1, memory_order_relaxed);
    log_warn("kv_rdma_rail_down", LOG_STR("rail", rail->name), LOG_STR("reason", why));
    rdma_break_rail(rail, why);
}

static void rdma_rail_on_port_change(struct rdma_rail *rail, const char *why)
{
    struct fault fault = {0};

    if (rail->verbs->query_port(rail->context, rail->port, &rail->port_attr) != 0 ||
        rail->port_attr.state != IBV_PORT_ACTIVE)
        rdma_rail_set_up(rail, false, why);
    else if (rdma_rail_choose_gid(rail, &fault) != 0)
        rdma_rail_set_up(rail, false, fault.text);
    else
        rdma_rail_set_up(rail, true, why);
}

static void rdma_rail_handle_event(struct rdma_rail *rail, enum ibv_event_type type, struct rdma_qp *qp,
                                   uint8_t port)
{
    const char *text = rail->verbs->event_type_str(type);

    switch ((unsigned)type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_CQ_ERR:
        rdma_break(qp, NULL, text);
        return;
    case IBV_EVENT_DEVICE_FATAL:
        rdma_rail_set_up(rail, false, text);
        return;
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_GID_CHANGE:
        if (port == rail->port)
            rdma_rail_on_port_change(rail, text);
        return;
    default:
        log_debug("kv_rdma_event", LOG_STR("rail", rail->name), LOG_STR("what", text));
        return;
    }
}

static void rdma_rail_on_async(void *arg, int fd, unsigned ready)
{
    struct rdma_rail *rail = arg;
    struct ibv_async_event event;

    while (rail->verbs->get_async_event(rail->context, &event) == 0) {
        struct rdma_qp *qp = NULL;
        uint8_t port = 0;

        if (event.event_type == IBV_EVENT_CQ_ERR)
            qp = event.element.cq->cq_context;
        else if (event.event_type <= IBV_EVENT_PATH_MIG_ERR ||
                 event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
            qp = event.element.qp->qp_context;
        else
            port = (uint8_t)event.element.port_num;
        rail->verbs->ack_async_event(&event);
        rdma_rail_handle_event(rail, event.event_type, qp, port);
    }
}

/* ---- opening ---- */

static int rdma_rail_query(struct rdma_rail *rail, struct fault *fault)
{
    if (rail->verbs->query_device(rail->context, &rail->device) != 0 || rail->port == 0 ||
        rail->port > rail->device.phys_port_cnt ||
        rail->verbs->query_port(rail->context, rail->port, &rail->port_attr) != 0)
        return fault_set(fault, E_IO, "%s: no such port", rail->name);
    if (rail->port_attr.state != IBV_PORT_ACTIVE)
        return fault_set(fault, E_CLOSED, "%s: the port is not active", rail->name);
    if (rail->device.max_qp_wr < TR_RDMA_SENDS)
        return fault_set(fault, E_UNSUPPORTED, "%s: queues of %d are too short", rail->name,
                         rail->device.max_qp_wr);
    return rdma_rail_choose_gid(rail, fault);
}

static int rdma_rail_watch(struct rdma_rail *rail)
{
    struct ev_loop *loop = rail->node->loop;
    int err;

    fcntl(rail->channel->fd, F_SETFL, fcntl(rail->channel->fd, F_GETFL) | O_NONBLOCK);
    fcntl(rail->context->async_fd, F_SETFL, fcntl(rail->context->async_fd, F_GETFL) | O_NONBLOCK);
    err = ev_fd_new(loop, rail->channel->fd, rdma_rail_on_channel, rail, &rail->channel_watch);
    if (err == 0)
        err = ev_fd_new(loop, rail->context->async_fd, rdma_rail_on_async, rail, &rail->async_watch);
    if (err == 0)
        err = ev_timer_new(loop, rdma_rail_on_again, rail, &rail->again);
    return err;
}

static int rdma_rail_open_parts(struct rdma_rail *rail, struct ibv_device *device, struct fault *fault)
{
    int err;

    rail->context = rail->verbs->open_device(device);
    if (rail->context == NULL)
        return fault_set(fault, E_IO, "%s: cannot be opened: %s", rail->name, strerror(errno));
    err = rdma_rail_query(rail, fault);
    if (err != 0)
        return err;
    rail->pd = rail->verbs->alloc_pd(rail->context);
    if (rail->pd == NULL)
        return fault_set(fault, E_IO, "%s: no protection domain: %s", rail->name, strerror(errno));
    err = rdma_regions_open(rail, fault);
    if (err != 0)
        return err;
    rail->channel = rail->verbs->create_comp_channel(rail->context);
    if (rail->channel == NULL)
        return fault_set(fault, E_IO, "%s: no completion channel: %s", rail->name, strerror(errno));
    err = rdma_rail_watch(rail);
    return err != 0 ? fault_set(fault, err, "%s: %s", rail->name, err_text(err)) : 0;
}

int rdma_rail_open(struct tr_node *node, const struct rdma_port *at, struct fault *fault,
                   struct rdma_rail **out)
{
    struct rdma_rail *rail = calloc(1, sizeof(*rail));
    int err;

    if (rail == NULL)
        return fault_set(fault, E_NOMEM, "no memory for a rail");
    list_init(&rail->hot);
    rail->node = node;
    rail->verbs = node->rdma->verbs;
    rail->port = at->port;
    snprintf(rail->name, sizeof(rail->name), "%s:%u", rail->verbs->get_device_name(at->device), at->port);
    str_copy(rail->address, sizeof(rail->address), at->address);
    err = rdma_rail_open_parts(rail, at->device, fault);
    if (err != 0) {
        rdma_rail_close(rail);
        return err;
    }
    rail->is_up = true;
    atomic_fetch_add_explicit(&node->totals.rdma_rails_up, 1, memory_order_relaxed);
    *out = rail;
    return 0;
}

void rdma_rail_close(struct rdma_rail *rail)
{
    if (rail->is_up)
        atomic_fetch_sub_explicit(&rail->node->totals.rdma_rails_up, 1, memory_order_relaxed);
    ev_fd_free(rail->channel_watch);
    ev_fd_free(rail->async_watch);
    ev_timer_free(rail->again);
    if (rail->channel != NULL)
        rail->verbs->destroy_comp_channel(rail->channel);
    rdma_regions_close(rail);
    if (rail->pd != NULL)
        rail->verbs->dealloc_pd(rail->pd);
    if (rail->context != NULL)
        rail->verbs->close_device(rail->context);
    free(rail);
}
