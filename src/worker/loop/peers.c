/* SPDX-License-Identifier: Apache-2.0 */
/* Links to other workers, for the control of hand-offs and for block events (follow.c). The prefill worker of
 * a pair dials the decode worker. Each worker dials the workers in link.peers at its start, so workers know
 * each other without a router.
 *
 * The engine thread knows a peer by its slot number and by the facts of its HELLO.  This file tells it when a
 * link comes up or goes down, and passes on every hand-off message.  When all slots are taken, a dialled link that
 * is down or idle loses its slot to another one, unless it is configured (peer_slots_priv.h). */
#include "worker/loop/peer_slots_priv.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "proto/capabilities.h"
#include "proto/role.h"
#include "cache/kv/layout.h"

#define PEER_IDLE_NS  (10 * NS_PER_S) /* a link unused for this long may lose its slot to another */
#define PEERS_FULL_NS (30 * NS_PER_S) /* between two log lines */

static const struct link_events peer_calls;

static struct worker_peer *worker_peers_find(struct worker *worker, const struct link *link)
{
    for (uint32_t i = 0; i < worker->n_peers; i++)
        if (worker->peers[i].link == link)
            return &worker->peers[i];
    return NULL;
}

static void peer_report_down(struct worker *worker, const struct worker_peer *peer)
{
    struct command *command = command_new(COMMAND_PEER_DOWN, (uint32_t)(peer - worker->peers));

    if (command != NULL && worker_engine_send(worker->engine, command) < 0)
        log_error("engine_mailbox_full", LOG_STR("lost", "peer_down"));
}

/* Tasks that wait for this peer must not meet the next peer in the slot. */
static void peer_give_slot_back(struct worker *worker, struct worker_peer *peer)
{
    if (peer->is_up)
        log_info("peer_closed", LOG_STR("node", peer->node),
                 LOG_U64("idle_s", (clock_now_ns() - peer->used_ns) / NS_PER_S));
    peer->is_up = false;
    command_free(link_user(peer->link));
    link_close(peer->link);
    peer->link = NULL;
    worker_follow_down(worker, peer);
    peer_report_down(worker, peer);
}

static void peers_note_full(struct worker *worker, const char *node)
{
    uint64_t now_ns = clock_now_ns();

    if (worker->peers_full_ns != 0 && now_ns - worker->peers_full_ns < PEERS_FULL_NS)
        return;
    worker->peers_full_ns = now_ns;
    log_warn("peers_full", LOG_STR("node", node), LOG_U64("most", WORKER_MAX_PEERS),
             LOG_STR("effect", "no link to another worker; decode workers compute its prompts"));
}

/* node: the next peer's name; empty: it is not known yet. */
static struct worker_peer *spare_slot(struct worker *worker, const char *node)
{
    uint32_t slot = peer_slots_free(worker->peers, WORKER_MAX_PEERS);
    uint64_t now_ns = clock_now_ns();

    if (slot == PEER_NONE && listener_make_room(worker->peer_listener))
        slot =
            peer_slots_free(worker->peers, WORKER_MAX_PEERS); /* slot of a socket that never proved the key */
    if (slot == PEER_NONE) {
        slot = peer_slots_spare(worker->peers, WORKER_MAX_PEERS, worker->engine,
                                now_ns > PEER_IDLE_NS ? now_ns - PEER_IDLE_NS : 0);
        if (slot == PEER_NONE) {
            peers_note_full(worker, node);
            return NULL;
        }
        peer_give_slot_back(worker, &worker->peers[slot]);
    }
    if (slot >= worker->n_peers)
        worker->n_peers = slot + 1;
    return &worker->peers[slot];
}

static int worker_peers_on_hello(void *arg, struct link *link, const ProtobufCMessage *message,
                                 struct fault *fault)
{
    struct worker *worker = arg;
    struct worker_peer *peer = worker_peers_find(worker, link);
    const Baton__Hello *hello = (const Baton__Hello *)message;
    const struct engine_info *info = worker_engine_info(worker->engine);

    if (hello->kv == NULL || hello->model == NULL || hello->role == BATON__ROLE__ROLE_ROUTER)
        return fault_set(fault, E_PROTO, "a worker's peer is a worker");
    if (strcmp(hello->model->fingerprint, worker->model.fingerprint) != 0)
        return fault_set(fault, E_MISMATCH, "node %s serves another model (%s, fingerprint %.8s...)",
                         hello->node, hello->model->name, hello->model->fingerprint);
    if (hello->kv->layout != kv_layout_fingerprint(&info->layout, info->numerics_id))
        return fault_set(fault, E_MISMATCH,
                         "node %s keeps KV in another layout (kv.type, kv.block_tokens, kernels)",
                         hello->node);
    str_copy(peer->node, sizeof(peer->node), hello->node);
    peer->role = hello->role;
    peer->has_block_events =
        (capabilities_read(hello->capabilities) & CAPABILITY_TELLS) != 0 && hello->epoch != worker->epoch;
    struct command *command = command_new(COMMAND_PEER_UP, (uint32_t)(peer - worker->peers));
    if (command == NULL)
        return E_NOMEM;
    str_copy(command->as.facts.node, sizeof(command->as.facts.node), hello->node);
    str_copy(command->as.facts.tcp_address, sizeof(command->as.facts.tcp_address), hello->kv->tcp_address);
    str_copy(command->as.facts.unix_path, sizeof(command->as.facts.unix_path), hello->kv->unix_path);
    command->as.facts.rdma_rails = hello->kv->rdma_rails;
    command->as.facts.capabilities = capabilities_read(hello->capabilities);
    command->as.facts.is_same_host =
        hello->host_id[0] != '\0' && strcmp(hello->host_id, worker->host_id) == 0;
    command_free(link_user(link)); /* left by an attempt that ended before the link was up */
    link_set_user(link, command);  /* sent once both sides have accepted */
    return 0;
}

/* Tells the transport that this peer will dial its port to send KV.  During a flood of strangers, listeners
 * prefer known addresses. */
static void worker_peers_know(struct worker *worker, const struct link *link, const struct peer_facts *facts)
{
    struct tr_node *transport = worker_engine_transport(worker->engine);
    struct addr address;

    (void)tr_know_peer(transport, link_peer_address(link)); /* only a hint, lost if the thread is far
                                                             * behind */
    if (facts->tcp_address[0] != '\0')
        (void)tr_know_peer(transport, facts->tcp_address);
    if (addr_parse(link_peer_address(link), NULL, &address) == 0)
        listener_know(worker->peer_listener, &address);
}

static void worker_peers_on_up(void *arg, struct link *link)
{
    struct worker *worker = arg;
    struct worker_peer *peer = worker_peers_find(worker, link);
    struct command *command = link_user(link);

    struct transport_offer offer = worker_engine_offer(worker->engine);

    link_set_user(link, NULL);
    peer->is_up = true;
    worker_peers_know(worker, link, &command->as.facts);
    peer->transport = worker_choose_transport(&offer, &command->as.facts, &peer->transport_why);
    log_info("peer_up", LOG_STR("node", peer->node), LOG_STR("address", link_peer_address(link)),
             LOG_BOOL("dialled", peer->is_dialled),
             LOG_STR("kv_from_it", worker_transport_name(peer->transport)),
             LOG_STR("reason", peer->transport_why));
    if (worker_engine_send(worker->engine, command) < 0)
        log_error("engine_mailbox_full", LOG_STR("lost", "peer_up"));
    worker_follow_up(worker, peer);
}

static int peer_to_engine(struct worker *worker, struct worker_peer *peer, enum frame_type type,
                          const ProtobufCMessage *message)
{
    struct command *command = command_new(COMMAND_PEER_MESSAGE, (uint32_t)(peer - worker->peers));
    int rc;

    if (command == NULL)
        return E_NOMEM;
    peer->used_ns = clock_now_ns();
    rc = peer_message_from_wire(type, message, &command->as.peer);
    if (rc < 0) {
        command_free(command);
        return rc;
    }
    return worker_engine_send(worker->engine, command);
}

static void worker_peers_note_role(struct worker_peer *peer, const Baton__LoadReport *load)
{
    if (load != NULL && role_is_worker(load->role))
        peer->role = load->role;
}

static int worker_peers_on_message(void *arg, struct link *link, enum frame_type type,
                                   const ProtobufCMessage *message)
{
    struct worker *worker = arg;
    struct worker_peer *peer = worker_peers_find(worker, link);

    thread_owner_check(&worker->loop_thread);
    switch (type) {
    case FRAME_HEARTBEAT:
        worker_peers_note_role(peer, ((const Baton__Heartbeat *)message)->load);
        worker_follow_load(peer, ((const Baton__Heartbeat *)message)->load);
        return 0;
    case FRAME_GOODBYE:
        return 0;
    case FRAME_BLOCK_EVENTS:
        worker_follow_events(peer, (const Baton__BlockEvents *)message);
        return 0;
    case FRAME_BLOCKS_WANTED:
        worker_follow_wanted(peer, (const Baton__BlocksWanted *)message);
        return 0;
        FRAMES_PEER(FRAME_CASE)
        return peer_to_engine(worker, peer, type, message);
        FRAMES_LINK(FRAME_CASE)
        FRAMES_ROUTER(FRAME_CASE)
        FRAMES_WORKER(FRAME_CASE)
        FRAMES_ROUTER_WORKER(FRAME_CASE) /* not between workers */
        break;
    }
    /* Ignores an unknown message, because a newer peer may send some.
     * Closing the link would end its transfers. */
    log_debug("peer_message_ignored", LOG_STR("node", peer->node), LOG_STR("type", frame_type_name(type)));
    return 0;
}

static void worker_peers_on_down(void *arg, struct link *link, const struct fault *why)
{
    struct worker *worker = arg;
    struct worker_peer *peer = worker_peers_find(worker, link);
    struct command *command = link_user(link);

    link_set_user(link, NULL);
    command_free(command);
    if (peer == NULL)
        return;
    if (peer->is_up) {
        log_warn("peer_down", LOG_STR("node", peer->node), LOG_STR("reason", why->text));
        peer->is_up = false;
    } else {
        log_warn("peer_unreachable", LOG_STR("address", link_peer_address(link)),
                 LOG_STR("reason", why->text));
    }
    worker_follow_down(worker, peer);
    peer_report_down(worker, peer);
    if (!peer->is_dialled) {
        peer->link = NULL; /* the link frees itself */
        listener_release(worker->peer_listener);
    }
}

static const struct link_events peer_calls = {.on_hello = worker_peers_on_hello,
                                              .on_up = worker_peers_on_up,
                                              .on_message = worker_peers_on_message,
                                              .on_down = worker_peers_on_down};

int worker_peers_accept(struct worker *worker, int fd, struct stranger *stranger)
{
    struct worker_peer *peer = spare_slot(worker, "");
    struct link_opts opts;
    int rc;

    if (peer == NULL) {
        close(fd);
        stranger_leave(stranger);
        listener_release(worker->peer_listener);
        return E_LIMIT;
    }
    *peer = (struct worker_peer){.worker = worker, .used_ns = clock_now_ns()};
    worker->peer_link_opts.events = &peer_calls;
    opts = worker->peer_link_opts;
    opts.stranger = stranger;
    rc = link_accept(&opts, fd, &peer->link);
    if (rc < 0)
        listener_release(worker->peer_listener);
    return rc;
}

uint32_t worker_peer_for(struct worker *worker, const Baton__Peer *wanted)
{
    struct fault fault = {0};
    struct worker_peer *peer;
    struct addr address;

    for (uint32_t i = 0; i < worker->n_peers; i++) {
        peer = &worker->peers[i];
        if (peer->link != NULL && peer->is_dialled &&
            strcmp(link_peer_address(peer->link), wanted->link_address) == 0) {
            peer->used_ns = clock_now_ns();
            return i;
        }
    }
    peer = spare_slot(worker, wanted->node);
    if (peer == NULL)
        return PEER_NONE;
    *peer = (struct worker_peer){.worker = worker, .is_dialled = true, .used_ns = clock_now_ns()};
    str_copy(peer->node, sizeof(peer->node), wanted->node);
    if (addr_parse(wanted->link_address, NULL, &address) == 0)
        listener_know(worker->peer_listener, &address);
    worker->peer_link_opts.events = &peer_calls;
    if (link_dial(&worker->peer_link_opts, wanted->link_address, &fault, &peer->link) < 0) {
        log_warn("peer_address_refused", LOG_STR("node", wanted->node), LOG_STR("reason", fault.text));
        return PEER_NONE;
    }
    return (uint32_t)(peer - worker->peers);
}

static int worker_peers_configure(struct worker *worker, const char *address)
{
    Baton__Peer peer = BATON__PEER__INIT;
    uint32_t slot;

    peer.link_address = (char *)address;
    slot = worker_peer_for(worker, &peer);
    if (slot == PEER_NONE)
        return E_LIMIT;
    worker->peers[slot].is_configured = true;
    return 0;
}

int worker_peers_open(struct worker *worker, struct fault *fault)
{
    const struct config_list *addresses = &worker->conf->peers;

    if (addresses->n > WORKER_MAX_CONFIGURED)
        return fault_set(fault, E_LIMIT, "link.peers names %zu workers; %u are possible", addresses->n,
                         WORKER_MAX_CONFIGURED);
    for (size_t i = 0; i < addresses->n; i++)
        if (!discover_is_url(addresses->items[i]) && worker_peers_configure(worker, addresses->items[i]) < 0)
            return fault_set(fault, E_FORMAT, "link.peers: '%.200s' cannot be dialled", addresses->items[i]);
    return 0;
}

void worker_peers_list(struct worker *worker, const struct endpoints *list)
{
    const char *own = worker_link_address(worker);
    uint32_t n = 0;

    for (uint32_t i = 0; i < worker->n_peers; i++)
        if (worker->peers[i].link != NULL && worker->peers[i].is_dialled)
            worker->peers[i].is_configured = endpoints_have(list, link_peer_address(worker->peers[i].link));
    for (uint32_t i = 0; i < list->n && n < WORKER_MAX_CONFIGURED; i++)
        if (strcmp(list->address[i], own) != 0)
            n += worker_peers_configure(worker, list->address[i]) == 0;
}

bool worker_peers_have_room(const struct worker *worker)
{
    uint32_t n_used = 0;

    for (uint32_t i = 0; i < worker->n_peers; i++)
        n_used += worker->peers[i].link != NULL;
    return n_used < WORKER_MAX_PEERS * 3 / 4;
}

static int worker_peers_send_frame(void *arg, enum frame_type type, const ProtobufCMessage *wire)
{
    struct worker_peer *peer = arg;

    return link_send(peer->link, type, wire);
}

void worker_peers_send(struct worker *worker, const struct report *report)
{
    struct worker_peer *peer = &worker->peers[report->number];

    if (peer->link == NULL || !peer->is_up)
        return; /* the engine thread will learn that the link is lost */
    peer->used_ns = clock_now_ns();
    (void)peer_message_send(&report->peer, worker_peers_send_frame, peer);
}

void worker_peers_close(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->n_peers; i++) {
        if (worker->peers[i].link == NULL)
            continue;
        command_free(link_user(worker->peers[i].link));
        link_close(worker->peers[i].link);
        worker->peers[i].link = NULL;
    }
}
