/* SPDX-License-Identifier: Apache-2.0 */
/* How fast each transport moves KV, beside what this machine can do at all, measured in the same run:
 *
 *   memcpy            one thread, arena to arena
 *   loopback TCP      one plain connection, send() and recv() of 1 MiB, a thread each side
 *   shm, tls, tcp     two nodes in this process, each with its own thread; pushed layer by layer
 *
 * Arenas are far larger than the caches.  Each line is the best of ROUNDS: the machine is shared, and the
 * best is the run least disturbed.  Usage: bench_transport [MiB per round]. */
#include "base/clock.h"
#include "base/log.h"
#include "net/tls.h"
#include "transport/transport.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROUNDS      5
#define PIECE_BYTES ((size_t)64 << 10)
#define N_LAYERS    32
#define CHUNK_BYTES ((size_t)1 << 20)

static struct tr_geometry geometry = {.n_layers = N_LAYERS, .piece_bytes = PIECE_BYTES};
static size_t total_bytes;
static sem_t arrived;

static void die(const char *what)
{
    fprintf(stderr, "bench_transport: %s\n", what);
    exit(1);
}

static void print_rate(const char *name, uint64_t best_ns)
{
    printf("%-14s %6.2f GB/s\n", name, (double)total_bytes / (double)best_ns);
    fflush(stdout);
}

static void on_event(void *arg, const struct tr_event *event)
{
    if (event->kind == TR_TICKET_FAILED || event->kind == TR_PUSH_FAILED)
        die(event->fault.text);
    if (event->kind == TR_TICKET_COMPLETE)
        sem_post(&arrived);
}

static struct tr_node *open_node(const char *name, struct mem_region arena, const char *path,
                                 struct tls_context *tls)
{
    struct tr_opts opts = {.arena = arena,
                           .geometry = geometry,
                           .layout = 1,
                           .node = name,
                           .tcp_listen = "127.0.0.1:0",
                           .unix_listen = path,
                           .tls_server = tls != NULL ? tls_server(tls) : NULL,
                           .tls_client = tls != NULL ? tls_client(tls) : NULL,
                           .on_event = on_event};
    struct fault fault;
    struct tr_node *node;

    if (tr_node_new(&opts, &fault, &node) != 0)
        die(fault.text);
    return node;
}

static uint64_t transfer_once(struct tr_node *from, struct tr_node *to, enum tr_kind kind, uint64_t id)
{
    struct tr_target target = {.kind = kind,
                               .address = kind == TR_SHM ? tr_node_unix_path(to) : tr_node_tcp_address(to),
                               .ticket = id};
    uint32_t *blocks = malloc(geometry.n_blocks * sizeof(*blocks));
    uint64_t start_ns = clock_now_ns();

    for (uint32_t i = 0; i < geometry.n_blocks; i++)
        blocks[i] = i;
    if (tr_open_ticket(to, id, blocks, geometry.n_blocks) != 0 ||
        tr_start_push(from, id, &target, geometry.n_blocks * N_LAYERS) != 0)
        die("cannot start");
    for (uint32_t layer = 0; layer < N_LAYERS; layer++)
        if (tr_push(from, id, layer, 0, blocks, geometry.n_blocks) != 0)
            die("cannot push");
    sem_wait(&arrived);
    start_ns = clock_now_ns() - start_ns;
    tr_stop_push(from, id);
    tr_close_ticket(to, id);
    free(blocks);
    return start_ns;
}

static void bench_kind(const char *name, enum tr_kind kind, struct tls_context *tls,
                       const struct mem_region arenas[2])
{
    char paths[2][64];
    struct tr_node *nodes[2];
    uint64_t best_ns = UINT64_MAX;

    for (unsigned i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof(paths[i]), "/tmp/baton-bench-%d-%u", (int)getpid(), i);
        nodes[i] = open_node(i == 0 ? "from" : "to", arenas[i], paths[i], tls);
    }
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t ns = transfer_once(nodes[0], nodes[1], kind, round + 1);

        best_ns = ns < best_ns ? ns : best_ns;
    }
    print_rate(name, best_ns);
    tr_node_free(nodes[0]);
    tr_node_free(nodes[1]);
    if (memcmp(arenas[0].base, arenas[1].base, total_bytes) != 0)
        die("the bytes differ");
    memset(arenas[1].base, 0, total_bytes);
}

static void bench_memcpy(const struct mem_region arenas[2])
{
    uint64_t best_ns = UINT64_MAX;

    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t start_ns = clock_now_ns();

        memcpy(arenas[1].base, arenas[0].base, total_bytes);
        start_ns = clock_now_ns() - start_ns;
        best_ns = start_ns < best_ns ? start_ns : best_ns;
    }
    print_rate("memcpy", best_ns);
    memset(arenas[1].base, 0, total_bytes);
}

struct sending {
    int fd;
    const uint8_t *from;
};

static void *send_all(void *arg)
{
    const struct sending *sending = arg;

    for (size_t at = 0; at < total_bytes;) {
        size_t want = total_bytes - at < CHUNK_BYTES ? total_bytes - at : CHUNK_BYTES;
        ssize_t n = send(sending->fd, sending->from + at, want, MSG_NOSIGNAL);

        if (n <= 0)
            die("send");
        at += (size_t)n;
    }
    return NULL;
}

static void open_pair(int fds[2])
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len_bytes = sizeof(in);
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&in, sizeof(in)) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&in, &len_bytes) != 0 ||
        connect(fds[0], (struct sockaddr *)&in, sizeof(in)) != 0)
        die("loopback");
    fds[1] = accept(listener, NULL, NULL);
    close(listener);
}

static void bench_loopback(const struct mem_region arenas[2])
{
    uint64_t best_ns = UINT64_MAX;
    int fds[2];

    open_pair(fds);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct sending sending = {.fd = fds[0], .from = arenas[0].base};
        uint64_t start_ns = clock_now_ns();
        pthread_t thread;

        if (pthread_create(&thread, NULL, send_all, &sending) != 0)
            die("no thread");
        for (size_t at = 0; at < total_bytes;) {
            size_t want = total_bytes - at < CHUNK_BYTES ? total_bytes - at : CHUNK_BYTES;
            ssize_t n = recv(fds[1], (uint8_t *)arenas[1].base + at, want, 0);

            if (n <= 0)
                die("recv");
            at += (size_t)n;
        }
        pthread_join(thread, NULL);
        start_ns = clock_now_ns() - start_ns;
        best_ns = start_ns < best_ns ? start_ns : best_ns;
    }
    print_rate("loopback TCP", best_ns);
    close(fds[0]);
    close(fds[1]);
    memset(arenas[1].base, 0, total_bytes);
}

int main(int argc, char **argv)
{
    static const uint8_t key[32] = {1};
    size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 512;
    struct mem_region arenas[2];
    struct tls_context *tls;

    geometry.n_blocks = (uint32_t)((mib << 20) / (N_LAYERS * PIECE_BYTES));
    if (geometry.n_blocks == 0)
        die("at least 2 MiB");
    total_bytes = geometry.n_blocks * N_LAYERS * PIECE_BYTES;
    log_setup("bench_transport", LOG_LEVEL_WARN, LOG_FORMAT_TEXT);
    sem_init(&arrived, 0, 0);
    for (unsigned i = 0; i < 2; i++)
        if (mem_region_open(total_bytes, true, true, "bench", &arenas[i]) != 0)
            die("no memory");
    for (size_t at = 0; at < total_bytes; at += sizeof(uint64_t))
        *(uint64_t *)(void *)((uint8_t *)arenas[0].base + at) = at * UINT64_C(0x9e3779b97f4a7c15);
    if (tls_context_new(key, NULL, &tls) != 0)
        die("TLS");

    printf("%zu MiB per transfer, %u layers, pieces of %zu KiB, best of %d\n", total_bytes >> 20, N_LAYERS,
           PIECE_BYTES >> 10, ROUNDS);
    bench_memcpy(arenas);
    bench_loopback(arenas);
    bench_kind("shm", TR_SHM, NULL, arenas);
    bench_kind("tcp, plain", TR_TCP, NULL, arenas);
    bench_kind("tcp, TLS", TR_TCP, tls, arenas);
    tls_context_free(tls);
    mem_region_close(&arenas[0]);
    mem_region_close(&arenas[1]);
    return 0;
}
