/* SPDX-License-Identifier: Apache-2.0 */
/* All rails of a node: which exist, and which are at rest.
 *
 * A rail whose queue pairs failed towards a peer rests towards that peer for rdma_rest_ns. Each further
 * failure doubles the rest, up to five minutes. So a broken path costs one failed transfer now and then
 * instead of one each time, and a peer whose host is off does not take the rail from other peers. A port
 * that goes down is unusable for all peers until it comes back.
 *
 * The node also works without a rail: the worker moves KV over TCP, and the node's RDMA text gives the
 * reason. */
#include "transfer/transport/tr_rdma_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"

#define MAX_REST_NS   (300 * NS_PER_S)
#define FORGIVE_NS    (2 * MAX_REST_NS) /* without a failure: the next one counts as the first again */
#define MAX_RESTS     256
#define MAX_LIST_TEXT 1024

struct rdma_rest {
    struct list node;
    char peer[128];
    const struct rdma_rail *rail;
    uint64_t since_ns, rest_ns;
};

/* ---- names ---- */

int rdma_rail_name_parse(struct bytes text, struct fault *fault, struct rdma_rail_name *out)
{
    struct rdma_rail_name name = {.port = 1};
    char copy[sizeof(name.device) + sizeof(name.address) + 8];
    char *at, *colon;

    if (text.len_bytes == 0 || text.len_bytes >= sizeof(copy) ||
        memchr(text.data, '\0', text.len_bytes) != NULL)
        return fault_set(fault, E_FORMAT, "an RDMA rail is device, device:port or device:port@address");
    memcpy(copy, text.data, text.len_bytes);
    copy[text.len_bytes] = '\0';
    at = strchr(copy, '@');
    if (at != NULL)
        *at++ = '\0';
    colon = strchr(copy, ':');
    if (colon != NULL) {
        char *end;
        unsigned long port = strtoul(colon + 1, &end, 10);

        *colon = '\0';
        if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || port < 1 || port > 254)
            return fault_set(fault, E_FORMAT, "'%s:%s': a port of a device is a number from 1 to 254", copy,
                             colon + 1);
        name.port = (uint8_t)port;
    }
    if (copy[0] == '\0' || !str_copy(name.device, sizeof(name.device), copy) ||
        (at != NULL && (*at == '\0' || !str_copy(name.address, sizeof(name.address), at))))
        return fault_set(fault, E_FORMAT, "'%s': not the name of an RDMA rail", copy);
    *out = name;
    return 0;
}

/* The listener's address; "" if it listens on all addresses. */
static void rdma_rails_own_address(const struct tr_node *node, char *out, size_t out_bytes)
{
    size_t from = node->tcp_address[0] == '[';
    const char *colon = strrchr(node->tcp_address, ':');
    size_t len_bytes = colon != NULL ? (size_t)(colon - node->tcp_address) - 2 * from : 0;

    out[0] = '\0';
    if (len_bytes == 0 || len_bytes >= out_bytes)
        return;
    memcpy(out, node->tcp_address + from, len_bytes);
    out[len_bytes] = '\0';
    if (strcmp(out, "0.0.0.0") == 0 || strcmp(out, "::") == 0)
        out[0] = '\0';
}

/* ---- opening ---- */

static void rdma_rails_note(struct tr_node *node, const char *text)
{
    size_t used = strlen(node->rdma_text);

    snprintf(node->rdma_text + used, sizeof(node->rdma_text) - used, "%s%s", used > 0 ? "; " : "", text);
}

static const char *rdma_rails_mtu_text(enum ibv_mtu mtu)
{
    static const char *const texts[] = {"?", "256", "512", "1024", "2048", "4096"};

    return texts[mtu >= 1 && mtu <= 5 ? mtu : 0];
}

static int rdma_rails_open_one(struct tr_node *node, struct ibv_device *device, uint8_t port,
                               const char *address, struct fault *fault)
{
    struct tr_rdma *rdma = node->rdma;
    struct rdma_rail *rail;
    char text[256];
    int err;

    if (rdma->n_rails == KV_RDMA_MAX_RAILS)
        return fault_set(fault, E_LIMIT, "more than %d rails", KV_RDMA_MAX_RAILS);
    err = rdma_rail_open(node, &(struct rdma_port){device, port, address}, fault, &rail);
    if (err != 0)
        return err;
    rail->index = rdma->n_rails;
    rdma->rails[rdma->n_rails++] = rail;
    snprintf(text, sizeof(text), "%s %s MTU %s, %s", rail->name, address,
             rdma_rails_mtu_text(rail->port_attr.active_mtu),
             rail->regions.has_windows ? "windows"
                                       : "keys of the whole arena (the device has no type-2 windows)");
    rdma_rails_note(node, text);
    log_info("kv_rdma_rail", LOG_STR("rail", rail->name), LOG_STR("address", address),
             LOG_U64("gid_index", rail->gid_index),
             LOG_STR("mtu", rdma_rails_mtu_text(rail->port_attr.active_mtu)),
             LOG_U64("regions", rail->regions.n), LOG_BOOL("windows", rail->regions.has_windows));
    if (!rail->regions.has_windows)
        log_warn("kv_rdma_no_windows", LOG_STR("rail", rail->name),
                 LOG_STR("meaning",
                         "peers get plain keys: a key is revoked only by ending its queue pair's domain"));
    return 0;
}

/* Opens every port whose GID matches our address. InfiniBand ports have no such GID and must be named. */
static void rdma_rails_open_auto(struct tr_node *node, struct ibv_device **devices, int n)
{
    char address[48];

    rdma_rails_own_address(node, address, sizeof(address));
    if (address[0] == '\0') {
        rdma_rails_note(node,
                        "auto needs one address: kv.tcp_listen has every one of the host, so name the rails");
        return;
    }
    for (int i = 0; i < n; i++) {
        struct ibv_device_attr device;
        struct ibv_context *context = node->rdma->verbs->open_device(devices[i]);
        unsigned n_ports = 0;

        if (context != NULL && node->rdma->verbs->query_device(context, &device) == 0)
            n_ports = device.phys_port_cnt;
        if (context != NULL)
            node->rdma->verbs->close_device(context);
        if (n_ports == 0) {
            struct fault fault;

            fault_set(&fault, E_IO, "%s cannot be opened", node->rdma->verbs->get_device_name(devices[i]));
            rdma_rails_note(node, fault.text);
        }
        for (unsigned port = 1; port <= n_ports; port++) {
            struct fault fault = {0};

            if (rdma_rails_open_one(node, devices[i], (uint8_t)port, address, &fault) != 0)
                rdma_rails_note(node, fault.text);
        }
    }
}

static void rdma_rails_open_named(struct tr_node *node, struct ibv_device **devices, int n,
                                  const struct rdma_rail_name *name)
{
    struct fault fault = {0};
    char address[48];

    rdma_rails_own_address(node, address, sizeof(address));
    fault_set(&fault, E_NOT_FOUND, "there is no RDMA device '%s'", name->device);
    for (int i = 0; i < n; i++)
        if (strcmp(node->rdma->verbs->get_device_name(devices[i]), name->device) == 0 &&
            rdma_rails_open_one(node, devices[i], name->port,
                                name->address[0] != '\0' ? name->address : address, &fault) == 0)
            return;
    rdma_rails_note(node, fault.text);
    log_warn("kv_rdma_rail_refused", LOG_STR("rail", name->device), LOG_STR("reason", fault.text));
}

static int rdma_rails_open_list(struct tr_node *node, struct ibv_device **devices, int n, struct fault *fault)
{
    const char *at = node->opts.rdma_devices;

    while (*(at += strspn(at, ", \t")) != '\0') {
        struct rdma_rail_name name;
        size_t len_bytes = strcspn(at, ", \t");
        int err;

        if (len_bytes == 4 && memcmp(at, "auto", 4) == 0) {
            rdma_rails_open_auto(node, devices, n);
        } else {
            err = rdma_rail_name_parse(bytes_of(at, len_bytes), fault, &name);
            if (err != 0)
                return err;
            rdma_rails_open_named(node, devices, n, &name);
        }
        at += len_bytes;
    }
    return 0;
}

int tr_rdma_open(struct tr_node *node, struct fault *fault)
{
    struct tr_rdma *rdma;
    struct ibv_device **devices;
    int n = 0, err;

    if (node->opts.rdma_devices == NULL || node->opts.rdma_devices[0] == '\0') {
        rdma_rails_note(node, "none: not configured");
        return 0;
    }
    rdma = calloc(1, sizeof(*rdma));
    if (rdma == NULL)
        return fault_set(fault, E_NOMEM, "no memory for RDMA");
    rdma->verbs = node->opts.verbs != NULL ? node->opts.verbs : &verbs_system;
    list_init(&rdma->rests);
    list_init(&rdma->undead);
    node->rdma = rdma;
    devices = rdma->verbs->get_device_list(&n);
    if (devices == NULL || n == 0)
        rdma_rails_note(node, "none: this host has no RDMA device");
    err = rdma_rails_open_list(node, devices, devices != NULL ? n : 0, fault);
    if (devices != NULL)
        rdma->verbs->free_device_list(devices);
    node->n_rdma_opened = rdma->n_rails;
    if (err == 0 && rdma->n_rails == 0)
        log_info("kv_rdma_unused", LOG_STR("reason", node->rdma_text));
    return err;
}

int tr_rails_check(const char *devices, bool is_needed, struct fault *fault)
{
    struct ibv_device **found;
    int n = 0;

    for (const char *at = devices; *(at += strspn(at, ", \t")) != '\0'; at += strcspn(at, ", \t")) {
        struct rdma_rail_name name;
        int rc = rdma_rail_name_parse(bytes_of(at, strcspn(at, ", \t")), fault, &name);

        if (rc != 0)
            return rc;
    }
    if (!is_needed)
        return 0;
    found = verbs_system.get_device_list(&n);
    if (found != NULL)
        verbs_system.free_device_list(found);
    return n > 0 ? 0 : fault_set(fault, E_NOT_FOUND, "rdma is not possible: this host has no RDMA device");
}

void tr_rdma_close(struct tr_node *node)
{
    struct tr_rdma *rdma = node->rdma;
    struct list *at;

    if (rdma == NULL)
        return;
    while ((at = list_pop_front(&rdma->undead)) != NULL)
        rdma_side_free(container_of(at, struct rdma_side, undead));
    while ((at = list_pop_front(&rdma->rests)) != NULL)
        free(container_of(at, struct rdma_rest, node));
    for (unsigned i = 0; i < rdma->n_rails; i++)
        rdma_rail_close(rdma->rails[i]);
    free(rdma);
    node->rdma = NULL;
}

void tr_rdma_check(struct tr_node *node)
{
    if (node->rdma == NULL)
        return;
    list_for_each_safe (at, spare, &node->rdma->undead) {
        struct rdma_side *side = container_of(at, struct rdma_side, undead);

        if (rdma_kill_all(side)) {
            log_info("kv_rdma_queue_pairs_ended_late");
            rdma_side_free(side);
        }
    }
}

/* ---- resting ---- */

static struct rdma_rest *rdma_rails_find_rest(const struct tr_node *node, const struct rdma_rail *rail,
                                              const char *peer)
{
    list_for_each (at, &node->rdma->rests) {
        struct rdma_rest *rest = container_of(at, struct rdma_rest, node);

        if (rest->rail == rail && strcmp(rest->peer, peer) == 0)
            return rest;
    }
    return NULL;
}

bool rdma_may_use(const struct tr_node *node, const struct rdma_rail *rail, const char *peer)
{
    const struct rdma_rest *rest = rdma_rails_find_rest(node, rail, peer);

    return rail->is_up && (rest == NULL || clock_now_ns() - rest->since_ns >= rest->rest_ns);
}

bool rdma_may_reach(const struct tr_node *node, const char *peer)
{
    for (unsigned i = 0; node->rdma != NULL && i < node->rdma->n_rails; i++)
        if (rdma_may_use(node, node->rdma->rails[i], peer))
            return true;
    return false;
}

static struct rdma_rest *rdma_rails_new_rest(struct tr_node *node, const struct rdma_rail *rail,
                                             const char *peer)
{
    struct rdma_rest *rest;
    unsigned n = 0;

    list_for_each (at, &node->rdma->rests)
        n++;
    if (n >= MAX_RESTS)
        free(container_of(list_pop_front(&node->rdma->rests), struct rdma_rest, node));
    rest = calloc(1, sizeof(*rest));
    if (rest == NULL)
        return NULL;
    rest->rail = rail;
    str_copy(rest->peer, sizeof(rest->peer), peer);
    list_push_back(&node->rdma->rests, &rest->node);
    return rest;
}

void rdma_rest_all(struct tr_node *node, const char *peer)
{
    for (unsigned i = 0; node->rdma != NULL && i < node->rdma->n_rails; i++)
        rdma_let_rest(node, node->rdma->rails[i], peer);
}

void rdma_let_rest(struct tr_node *node, const struct rdma_rail *rail, const char *peer)
{
    uint64_t first_ns = node->opts.rdma_rest_ns != 0 ? node->opts.rdma_rest_ns : 30 * NS_PER_S;
    struct rdma_rest *rest = rdma_rails_find_rest(node, rail, peer);
    uint64_t now_ns = clock_now_ns();

    if (rest != NULL && now_ns - rest->since_ns < rest->rest_ns)
        return; /* the second queue pair of the same failure */
    if (rest == NULL)
        rest = rdma_rails_new_rest(node, rail, peer);
    if (rest == NULL)
        return; /* harmless: the rail is only tried again too soon */
    if (rest->rest_ns == 0 || now_ns - rest->since_ns > FORGIVE_NS)
        rest->rest_ns = first_ns;
    else
        rest->rest_ns = rest->rest_ns * 2 < MAX_REST_NS ? rest->rest_ns * 2 : MAX_REST_NS;
    rest->since_ns = now_ns;
    log_warn("kv_rdma_rail_rests", LOG_STR("rail", rail->name), LOG_STR("peer", peer),
             LOG_U64("for_ms", rest->rest_ns / NS_PER_MS));
}
