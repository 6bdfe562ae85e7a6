/* SPDX-License-Identifier: Apache-2.0 */
/* Two transport nodes, as two workers of one host have them, and one push from the one's arena to the
 * other's: layer by layer, which is how a prompt's KV comes. */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "clients/bench/kv.h"
#include "net/tls.h"
#include "transport/transport.h"

struct kv_pair {
    struct tr_node *nodes[2];
    struct tls_context *tls; /* NULL: plain, or shared memory */
    enum tr_kind kind;
    uint32_t *blocks; /* [n_blocks] all of them */
    uint32_t n_blocks;
    uint64_t number; /* of the transfer */
    sem_t arrived;
};

static void on_event(void *arg, const struct tr_event *event)
{
    struct kv_pair *pair = arg;

    if (event->kind == TR_TICKET_FAILED || event->kind == TR_PUSH_FAILED)
        kv_die("%s", event->fault.text);
    if (event->kind == TR_TICKET_COMPLETE)
        sem_post(&pair->arrived);
}

static struct tr_node *open_node(struct kv_pair *pair, const struct kv_bench *bench, unsigned which)
{
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
        .on_event = on_event,
        .on_event_arg = pair};
    struct fault fault;
    struct tr_node *node;

    snprintf(listen, sizeof(listen), strchr(bench->address, ':') ? "[%s]:0" : "%s:0", bench->address);
    snprintf(path, sizeof(path), "/tmp/baton-bench-kv-%d-%u", (int)getpid(), which);
    if (tr_node_new(&opts, &fault, &node) != 0)
        kv_die("%s", fault.text);
    return node;
}

struct kv_pair *kv_pair_open(const struct kv_bench *bench, enum kv_kind kind)
{
    static const uint8_t key[32] = {1}; /* both ends are this process */
    struct kv_pair *pair = calloc(1, sizeof(*pair));

    if (pair == NULL)
        kv_die("out of memory");
    pair->kind = kind == KV_SHM ? TR_SHM : kind == KV_RDMA ? TR_RDMA : TR_TCP;
    pair->n_blocks = (uint32_t)(bench->total_bytes / (KV_LAYERS * KV_PIECE_BYTES));
    pair->blocks = calloc(pair->n_blocks, sizeof(*pair->blocks));
    if (pair->blocks == NULL)
        kv_die("out of memory");
    for (uint32_t i = 0; i < pair->n_blocks; i++)
        pair->blocks[i] = i;
    if (kind == KV_TLS && tls_context_new(key, NULL, &pair->tls) != 0)
        kv_die("cannot set up TLS");
    sem_init(&pair->arrived, 0, 0);
    for (unsigned i = 0; i < 2; i++)
        pair->nodes[i] = open_node(pair, bench, i);
    if (kind == KV_RDMA && tr_node_rdma_rails(pair->nodes[0]) == 0) {
        kv_pair_close(pair);
        return NULL;
    }
    return pair;
}

uint64_t kv_pair_move(struct kv_pair *pair, const struct kv_bench *bench)
{
    struct tr_node *from = pair->nodes[0], *to = pair->nodes[1];
    uint64_t id = ++pair->number;
    struct tr_target target = {.kind = pair->kind,
                               .address =
                                   pair->kind == TR_SHM ? tr_node_unix_path(to) : tr_node_tcp_address(to),
                               .ticket = id};
    uint64_t begin_ns = clock_now_ns();
    struct tr_counts counts;
    uint64_t took_ns;

    if (tr_open_ticket(to, id, pair->blocks, pair->n_blocks) != 0 ||
        tr_start_push(from, id, &target, pair->n_blocks * KV_LAYERS) != 0)
        kv_die("a transfer cannot begin");
    for (uint32_t layer = 0; layer < KV_LAYERS; layer++)
        if (tr_push(from, id, layer, 0, pair->blocks, pair->n_blocks) != 0)
            kv_die("a layer cannot be pushed");
    while (sem_wait(&pair->arrived) != 0)
        ; /* a signal */
    took_ns = clock_now_ns() - begin_ns;
    tr_stop_push(from, id);
    tr_close_ticket(to, id);
    tr_node_counts(from, &counts);
    if (counts.rdma_failures > 0)
        kv_die("RDMA failed, and TCP took over");
    if (memcmp(bench->arenas[0].base, bench->arenas[1].base, bench->total_bytes) != 0)
        kv_die("the bytes that arrived are not those that were sent");
    memset(bench->arenas[1].base, 0, bench->total_bytes);
    return took_ns;
}

void kv_pair_close(struct kv_pair *pair)
{
    for (unsigned i = 0; i < 2; i++)
        tr_node_free(pair->nodes[i]);
    tls_context_free(pair->tls);
    sem_destroy(&pair->arrived);
    free(pair->blocks);
    free(pair);
}
