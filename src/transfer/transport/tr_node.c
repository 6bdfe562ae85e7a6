/* SPDX-License-Identifier: Apache-2.0 */
/* The transport thread, and the calls that other threads make.
 *
 *     engine thread --tr_push(...)--> mailbox --> transport thread: loop of sockets, timers, commands
 *     engine thread <-- (owner's mailbox) <-- on_event()
 *
 * A command is one heap object that changes owner. A job (the blocks of one tr_push) travels inside it and
 * then moves to the push's queue. The mailbox holds MAX_COMMANDS commands. Its last quarter is reserved
 * for closing and stopping: if the thread is behind, it may refuse new work, but never the end of work.
 *
 * Only the node's thread touches a node's data, except the mailbox and the totals. */
#include "transfer/transport/tr_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

#define MAX_COMMANDS      4096
#define COMMANDS_PER_TURN 256

enum command_kind { OPEN_TICKET, CLOSE_TICKET, START_PUSH, PUSH, STOP_PUSH, KNOW_PEER, SET_ACCESS };

struct command {
    enum command_kind kind;
    uint64_t id;
    uint64_t ticket; /* START_PUSH */
    enum tr_kind target_kind;
    char address[128];
    uint32_t n;               /* number of blocks or pieces */
    uint32_t *blocks;         /* OPEN_TICKET: owned */
    struct tr_job *job;       /* PUSH: owned */
    struct tr_access *access; /* SET_ACCESS: owned */
};

/* ---- on the transport thread ---- */

void tr_node_event(struct tr_node *node, const struct tr_event *event)
{
    node->opts.on_event(node->opts.on_event_arg, event);
}

size_t tr_node_offset(uint32_t n_blocks, size_t piece_bytes, uint32_t layer, uint32_t block)
{
    return ((size_t)layer * n_blocks + block) * piece_bytes;
}

static void tr_node_free_command(struct command *command)
{
    free(command->blocks);
    free(command->job);
    tr_access_free(command->access);
    free(command);
}

static void tr_node_run_command(struct tr_node *node, struct command *command)
{
    struct tr_target target = {
        .kind = command->target_kind, .address = command->address, .ticket = command->ticket};

    switch (command->kind) {
    case OPEN_TICKET:
        tr_ticket_open(node, command->id, command->blocks, command->n);
        command->blocks = NULL;
        break;
    case CLOSE_TICKET:
        tr_ticket_close(node, command->id);
        break;
    case START_PUSH:
        tr_push_start(node, command->id, &target, command->n);
        break;
    case PUSH:
        tr_push_give(node, command->id, command->job);
        command->job = NULL;
        break;
    case STOP_PUSH:
        tr_push_stop(node, command->id);
        break;
    case KNOW_PEER:
        tr_listen_know(node, command->address);
        break;
    case SET_ACCESS:
        tr_keys_take(node, command->access);
        command->access = NULL;
        break;
    }
}

/* Runs up to max commands.  True: more may be waiting. */
static bool tr_node_run_commands(struct tr_node *node, unsigned max)
{
    for (unsigned n = 0; n < max; n++) {
        struct command *command = mailbox_receive(node->commands);

        if (command == NULL)
            return false;
        atomic_fetch_sub_explicit(&node->n_commands, 1, memory_order_relaxed);
        tr_node_run_command(node, command);
        tr_node_free_command(command);
    }
    return true;
}

void tr_node_catch_up(struct tr_node *node)
{
    tr_node_run_commands(node, MAX_COMMANDS);
}

static void tr_node_on_commands(void *arg, int fd, unsigned ready)
{
    struct tr_node *node = arg;

    mailbox_drain_fd(node->commands);
    if (tr_node_run_commands(node, COMMANDS_PER_TURN))
        mailbox_wake(node->commands);
    tr_conns_free_dead(node);
}

static void tr_node_on_check(void *arg)
{
    tr_conns_check(arg);
    tr_keys_check(arg);
    tr_rdma_check(arg);
}

static void *tr_node_thread_main(void *arg)
{
    struct tr_node *node = arg;
    int err = ev_loop_run(node->loop);

    if (err != 0)
        log_error("transport_loop_failed", LOG_ERR(err));
    return NULL;
}

/* ---- making and ending ---- */

static int tr_node_check_opts(const struct tr_opts *opts, struct fault *fault)
{
    const struct tr_geometry *geometry = &opts->geometry;
    size_t arena_bytes;

    if (opts->node == NULL || opts->node[0] == '\0' || strlen(opts->node) >= KV_FRAME_NODE_BYTES ||
        opts->on_event == NULL || opts->tcp_connections > TR_MAX_CONNECTIONS ||
        (opts->tls_server == NULL) != (opts->tls_client == NULL))
        return fault_set(fault, E_INVAL, "transport options");
    if (geometry->n_layers == 0 || geometry->n_blocks == 0 || geometry->piece_bytes == 0 ||
        geometry->piece_bytes > KV_FRAME_MAX_PIECE ||
        __builtin_mul_overflow((size_t)geometry->n_layers * geometry->n_blocks, geometry->piece_bytes,
                               &arena_bytes) ||
        arena_bytes > opts->arena.len_bytes)
        return fault_set(fault, E_INVAL, "%u layers of %u blocks of %zu bytes do not fit an arena of %zu",
                         geometry->n_layers, geometry->n_blocks, geometry->piece_bytes,
                         opts->arena.len_bytes);
    return 0;
}

/* Peers get a descriptor that they cannot map for writing.
 * Opening it through /proc is the only way to make one. */
static int tr_node_open_read_only(int fd)
{
    char path[64];
    int copy;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    copy = open(path, O_RDONLY | O_CLOEXEC);
    return copy >= 0 ? copy : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static int tr_node_open_parts(struct tr_node *node)
{
    int err = ev_loop_new(&node->loop);

    if (err == 0)
        err = mailbox_new(MAX_COMMANDS, &node->commands);
    if (err == 0)
        err = hashmap_new(sizeof(uint64_t), &node->tickets);
    if (err == 0)
        err = hashmap_new(sizeof(uint64_t), &node->pushes);
    if (err == 0)
        err = ev_fd_new(node->loop, mailbox_fd(node->commands), tr_node_on_commands, node,
                        &node->commands_watch);
    if (err == 0)
        err = ev_timer_new(node->loop, tr_node_on_check, node, &node->check_timer);
    if (err == 0 && (node->scratch = malloc(TR_SCRATCH_BYTES)) == NULL)
        err = E_NOMEM;
    if (err == 0 && node->opts.arena.fd >= 0) {
        err = tr_control_open(&node->control);
        node->arena_fd = tr_node_open_read_only(node->opts.arena.fd);
        if (err == 0 && node->arena_fd < 0)
            err = E_IO;
    }
    return err;
}

static int tr_node_start_thread(struct tr_node *node)
{
    if (thread_start(&node->thread, tr_node_thread_main, node) < 0)
        return E_IO;
    pthread_setname_np(node->thread, "transport");
    node->has_thread = true;
    return 0;
}

int tr_node_new(const struct tr_opts *opts, struct fault *fault, struct tr_node **out)
{
    struct tr_node *node;
    int err = tr_node_check_opts(opts, fault);

    if (err != 0)
        return err;
    node = calloc(1, sizeof(*node));
    if (node == NULL)
        return fault_set(fault, E_NOMEM, "no memory for a transport");
    node->opts = *opts;
    if (opts->tcp_connections == 0)
        node->opts.tcp_connections = 2;
    if (opts->io_timeout_ns == 0)
        node->opts.io_timeout_ns = 10 * NS_PER_S;
    str_copy(node->name, sizeof(node->name), opts->node);
    node->opts.node = node->name;
    node->arena_fd = node->tcp.fd = node->unix_.fd = -1;
    list_init(&node->dirty_tickets);
    list_init(&node->closing_tickets);
    list_init(&node->peers);
    list_init(&node->conns);
    list_init(&node->dead_conns);
    node->access = tr_access_new(opts->tls_server, opts->tls_client, &opts->keys);
    err = node->access == NULL ? E_NOMEM : tr_node_open_parts(node);
    if (err != 0)
        fault_set(fault, err, "cannot set the transport up: %s", err_text(err));
    if (err == 0 && opts->tcp_listen != NULL)
        err = tr_listen_tcp(node, opts->tcp_listen, fault);
    if (err == 0 && opts->unix_listen != NULL)
        err = tr_listen_unix(node, opts->unix_listen, fault);
    if (err == 0)
        err = tr_rdma_open(node, fault);
    if (err == 0) {
        /* often enough for the limit of handshakes too, which is shorter than a long timeout */
        uint64_t check_ns = node->opts.io_timeout_ns / 8 + NS_PER_MS;

        ev_timer_repeat(node->check_timer, check_ns < NS_PER_S ? check_ns : NS_PER_S);
        err = tr_node_start_thread(node);
    }
    if (err != 0) {
        tr_node_free(node);
        return err;
    }
    *out = node;
    return 0;
}

static void tr_node_no_event(void *arg, const struct tr_event *event)
{
}

void tr_node_free(struct tr_node *node)
{
    struct command *command;

    if (node == NULL)
        return;
    if (node->has_thread) {
        ev_loop_stop(node->loop);
        pthread_join(node->thread, NULL);
    }
    if (node->commands != NULL)
        while ((command = mailbox_receive(node->commands)) != NULL)
            tr_node_free_command(command);
    node->opts.on_event = tr_node_no_event;
    tr_conns_free(node);
    tr_listen_close(node);
    tr_rdma_close(node);
    tr_pushes_free(node);
    tr_tickets_free(node);
    tr_control_close(node->control);
    ev_fd_free(node->commands_watch);
    ev_timer_free(node->check_timer);
    ev_loop_free(node->loop);
    mailbox_free(node->commands);
    if (node->arena_fd >= 0)
        close(node->arena_fd);
    free(node->scratch);
    tr_access_free(node->access);
    free(node);
}

/* ---- calls from other threads ---- */

const char *tr_node_tcp_address(const struct tr_node *node)
{
    return node->tcp_address;
}

const char *tr_node_rdma_text(const struct tr_node *node)
{
    return node->rdma_text;
}

unsigned tr_node_rdma_rails(const struct tr_node *node)
{
    return atomic_load_explicit(&node->totals.rdma_rails_up, memory_order_relaxed);
}

unsigned tr_node_rdma_opened(const struct tr_node *node)
{
    return node->n_rdma_opened;
}

const char *tr_node_unix_path(const struct tr_node *node)
{
    return node->unix_path;
}

void tr_node_counts(const struct tr_node *node, struct tr_counts *out)
{
    const struct tr_totals *totals = &node->totals;

#define GET_AT(field) atomic_load_explicit(&totals->field, memory_order_relaxed)
#define GET(field)    .field = GET_AT(field)
    *out = (struct tr_counts){GET(bytes_sent),         GET(bytes_received),   GET(pieces_sent),
                              GET(pieces_received),    GET(connections_made), GET(connections_accepted),
                              GET(connections_failed), GET(frames_rejected),  GET(copies_revoked),
                              GET(rdma_failures),      GET(connections_open)};
    for (unsigned i = 0; i < STRANGER_N_ENDS; i++) {
        out->tcp_evicted[i] = GET_AT(strangers_evicted[0][i]);
        out->unix_evicted[i] = GET_AT(strangers_evicted[1][i]);
    }
#undef GET
#undef GET_AT
}

/* Takes the command's members, also on failure. is_ending: may use the reserved room. */
static int tr_node_post(struct tr_node *node, const struct command *command, bool is_ending)
{
    unsigned most = is_ending ? MAX_COMMANDS : MAX_COMMANDS / 4 * 3;
    struct command *copy = malloc(sizeof(*copy));
    int err = copy == NULL ? E_NOMEM : 0;

    if (atomic_fetch_add_explicit(&node->n_commands, 1, memory_order_relaxed) >= most)
        err = E_FULL;
    if (err == 0) {
        *copy = *command;
        err = mailbox_send(node->commands, copy);
    }
    if (err != 0) {
        atomic_fetch_sub_explicit(&node->n_commands, 1, memory_order_relaxed);
        free(copy);
        free(command->blocks);
        free(command->job);
        tr_access_free(command->access);
    }
    return err;
}

static bool tr_node_are_blocks(const struct tr_node *node, const uint32_t *blocks, uint32_t n)
{
    if (n == 0 || n > node->opts.geometry.n_blocks)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (blocks[i] >= node->opts.geometry.n_blocks)
            return false;
    return true;
}

int tr_open_ticket(struct tr_node *node, uint64_t ticket, const uint32_t *blocks, uint32_t n_blocks)
{
    struct command command = {.kind = OPEN_TICKET, .id = ticket, .n = n_blocks};

    if (!tr_node_are_blocks(node, blocks, n_blocks))
        return E_INVAL;
    command.blocks = malloc(n_blocks * sizeof(*blocks));
    if (command.blocks == NULL)
        return E_NOMEM;
    memcpy(command.blocks, blocks, n_blocks * sizeof(*blocks));
    return tr_node_post(node, &command, false);
}

int tr_close_ticket(struct tr_node *node, uint64_t ticket)
{
    return tr_node_post(node, &(struct command){.kind = CLOSE_TICKET, .id = ticket}, true);
}

int tr_start_push(struct tr_node *node, uint64_t push, const struct tr_target *target, uint32_t n_pieces)
{
    struct command command = {
        .kind = START_PUSH, .id = push, .ticket = target->ticket, .target_kind = target->kind, .n = n_pieces};

    if (!str_copy(command.address, sizeof(command.address), target->address))
        return E_INVAL;
    return tr_node_post(node, &command, false);
}

int tr_push(struct tr_node *node, uint64_t push, const struct tr_pieces *pieces)
{
    struct command command = {.kind = PUSH, .id = push};
    struct tr_job *job;

    if (!tr_node_are_blocks(node, pieces->blocks, pieces->n) || pieces->layer >= node->opts.geometry.n_layers)
        return E_INVAL;
    job = malloc(sizeof(*job) + pieces->n * sizeof(job->blocks[0]));
    if (job == NULL)
        return E_NOMEM;
    *job = (struct tr_job){.layer = pieces->layer, .first = pieces->first_index, .n = pieces->n};
    list_init(&job->node);
    memcpy(job->blocks, pieces->blocks, pieces->n * sizeof(*pieces->blocks));
    command.job = job;
    return tr_node_post(node, &command, false);
}

int tr_stop_push(struct tr_node *node, uint64_t push)
{
    return tr_node_post(node, &(struct command){.kind = STOP_PUSH, .id = push}, true);
}

int tr_know_peer(struct tr_node *node, const char *address)
{
    struct command command = {.kind = KNOW_PEER};

    if (!str_copy(command.address, sizeof(command.address), address))
        return E_INVAL;
    return tr_node_post(node, &command, false);
}

int tr_node_set_access(struct tr_node *node, SSL_CTX *tls_server, SSL_CTX *tls_client,
                       const struct tr_keys *keys)
{
    struct command command = {.kind = SET_ACCESS, .access = tr_access_new(tls_server, tls_client, keys)};

    return command.access == NULL ? E_NOMEM : tr_node_post(node, &command, true);
}
