/* SPDX-License-Identifier: Apache-2.0 */
/* Two transport nodes, as two workers of one host have them.  A push goes from one arena to the other, layer
 * by layer, as the KV of a prompt does. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "clients/bench/kv.h"
#include "net/link/tls.h"
#include "transfer/transport/transport.h"

struct end { /* one node's part of the pair */
    struct kv_pair *pair;
    struct tr_node *node;
    clockid_t used; /* processor time of its thread; the thread itself reports it */
    sem_t is_done;  /* posted at the end of each transfer */
};

struct kv_pair {
    struct end ends[2];      /* from, to */
    struct tls_context *tls; /* NULL: plain, or shared memory */
    enum tr_kind kind;
    uint32_t *blocks; /* [n_blocks] all of them */
    uint32_t n_blocks;
    uint64_t number; /* of the transfer */
    _Atomic uint64_t arrived_ns;
};

/* Runs on the end's transport thread. */
static void kv_nodes_on_event(void *arg, const struct tr_event *event)
{
    struct end *end = arg;
    bool has_left = event->kind == TR_PUSH_SENT && event->n_pieces == event->n_total;

    if (event->kind == TR_TICKET_FAILED || event->kind == TR_PUSH_FAILED)
        kv_die("%s", event->fault.text);
    if (event->kind == TR_TICKET_COMPLETE)
        end->pair->arrived_ns = clock_now_ns();
    if (!has_left && event->kind != TR_TICKET_COMPLETE)
        return;
    if (pthread_getcpuclockid(pthread_self(), &end->used) != 0)
        kv_die("no clock of a thread's processor time");
    sem_post(&end->is_done);
}

static uint64_t kv_nodes_used_ns(const struct end *end)
{
    struct timespec used = {0};

    clock_gettime(end->used, &used);
    return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

static void open_end(struct kv_pair *pair, const struct kv_bench *bench, unsigned which)
{
    struct end *end = &pair->ends[which];
    char path[64];
    char listen[64];
    struct tr_opts opts = {
        .arena = bench->arenas[which],
        .geometry = {.n_layers = KV_LAYERS, .n_blocks = pair->n_blocks, .piece_bytes = KV_PIECE_BYTES},
        .layout = 1,
        .node = which == 0 ? "from" : "to",
        .tcp_listen = listen,
        .rdma_devices = pair->kind == TR_RDMA ? "auto" : NULL,
        .unix_listen = path,
        .tls_server = pair->tls != NULL ? tls_server(pair->tls) : NULL,
        .tls_client = pair->tls != NULL ? tls_client(pair->tls) : NULL,
        .tcp_connections = bench->n_connections,
        .on_event = kv_nodes_on_event,
        .on_event_arg = end};
    struct fault fault;

    snprintf(listen, sizeof(listen), strchr(bench->address, ':') ? "[%s]:0" : "%s:0", bench->address);
    snprintf(path, sizeof(path), "/tmp/baton-bench-kv-%d-%u", (int)getpid(), which);
    end->pair = pair;
    end->used = CLOCK_PROCESS_CPUTIME_ID; /* the first transfer connects; it is not counted */
    sem_init(&end->is_done, 0, 0);
    if (tr_node_new(&opts, &fault, &end->node) != 0)
        kv_die("%s", fault.text);
}

static enum tr_kind kv_transport_of(enum kv_kind kind)
{
    switch (kind) {
    case KV_TCP:
    case KV_TLS:
        return TR_TCP;
    case KV_SHM:
        return TR_SHM;
    case KV_RDMA:
        return TR_RDMA;
    }
    return TR_TCP;
}

struct kv_pair *kv_pair_open(const struct kv_bench *bench, enum kv_kind kind)
{
    static const uint8_t key[32] = {1}; /* both ends are this process */
    struct kv_pair *pair = calloc(1, sizeof(*pair));

    if (pair == NULL)
        kv_die("out of memory");
    pair->kind = kv_transport_of(kind);
    pair->n_blocks = (uint32_t)(bench->total_bytes / (KV_LAYERS * KV_PIECE_BYTES));
    pair->blocks = calloc(pair->n_blocks, sizeof(*pair->blocks));
    if (pair->blocks == NULL)
        kv_die("out of memory");
    for (uint32_t i = 0; i < pair->n_blocks; i++)
        pair->blocks[i] = i;
    if (kind == KV_TLS && tls_context_new(key, NULL, &pair->tls) != 0)
        kv_die("cannot set up TLS");
    for (unsigned i = 0; i < 2; i++)
        open_end(pair, bench, i);
    if (kind == KV_RDMA && tr_node_rdma_rails(pair->ends[0].node) == 0) {
        kv_pair_close(pair);
        return NULL;
    }
    return pair;
}

static void check_and_clear(const struct tr_node *from, const struct kv_bench *bench)
{
    struct tr_counts counts;

    tr_node_counts(from, &counts);
    if (counts.rdma_failures > 0)
        kv_die("RDMA failed, and TCP took over");
    if (memcmp(bench->arenas[0].base, bench->arenas[1].base, bench->total_bytes) != 0)
        kv_die("the bytes that arrived are not those that were sent");
    memset(bench->arenas[1].base, 0, bench->total_bytes);
}

struct kv_move kv_pair_move(struct kv_pair *pair, const struct kv_bench *bench)
{
    struct tr_node *from = pair->ends[0].node, *to = pair->ends[1].node;
    uint64_t id = ++pair->number;
    struct tr_target target = {.kind = pair->kind,
                               .address = tr_kind_socket(pair->kind) == TR_SHM ? tr_node_unix_path(to)
                                                                               : tr_node_tcp_address(to),
                               .ticket = id};
    struct kv_move move = {.used_ns = {kv_nodes_used_ns(&pair->ends[0]), kv_nodes_used_ns(&pair->ends[1])}};
    uint64_t begin_ns = clock_now_ns();

    if (tr_open_ticket(to, id, pair->blocks, pair->n_blocks) != 0 ||
        tr_start_push(from, id, &target, pair->n_blocks * KV_LAYERS) != 0)
        kv_die("a transfer cannot begin");
    for (uint32_t layer = 0; layer < KV_LAYERS; layer++)
        if (tr_push(from, id, &(struct tr_pieces){layer, 0, pair->blocks, pair->n_blocks}) != 0)
            kv_die("a layer cannot be pushed");
    for (unsigned i = 0; i < 2; i++)
        while (sem_wait(&pair->ends[i].is_done) != 0)
            ; /* a signal */
    move.took_ns = pair->arrived_ns - begin_ns;
    for (unsigned i = 0; i < 2; i++)
        move.used_ns[i] = kv_nodes_used_ns(&pair->ends[i]) - move.used_ns[i];
    tr_stop_push(from, id);
    tr_close_ticket(to, id);
    check_and_clear(from, bench);
    return move;
}

void kv_pair_close(struct kv_pair *pair)
{
    for (unsigned i = 0; i < 2; i++) {
        tr_node_free(pair->ends[i].node);
        sem_destroy(&pair->ends[i].is_done);
    }
    tls_context_free(pair->tls);
    free(pair->blocks);
    free(pair);
}
