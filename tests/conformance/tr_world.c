/* SPDX-License-Identifier: Apache-2.0 */
/* Every piece is filled from a seed, so that a byte in a wrong place is noticed.  Memory that must not be
 * written is poisoned. */
#include "tests/conformance/tr_world.h"

#include "base/clock.h"
#include "base/err.h"

#include <errno.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* Folder of a worker's socket; unique, because an earlier process with the same number may have left one. */
#define FOLDER "/tmp/baton-test-tr-%d-"

const struct kind_case kind_cases[] = {
    {"shm", TR_SHM, false},
    {"tcp, TLS", TR_TCP, true},
    {"tcp, plain", TR_TCP, false},
};
const unsigned n_kind_cases = sizeof(kind_cases) / sizeof(kind_cases[0]);
const struct kind_case rdma_cases[] = {
    {"rdma, TLS beside", TR_RDMA, true},
    {"rdma, plain beside", TR_RDMA, false},
};
const struct kind_case *kind_now = kind_cases;

static struct tls_context *tls; /* one for all workers */

int world_run(const struct kind_case *kinds, unsigned n_kinds, int (*run_all)(void))
{
    int n_failed = 0;

    for (unsigned i = 0; i < n_kinds; i++) {
        kind_now = &kinds[i];
        printf("---- %s\n", kind_now->name);
        fflush(stdout);
        n_failed += run_all();
    }
    tls_context_free(tls);
    tls = NULL;
    return n_failed;
}

const uint64_t world_layout = UINT64_C(0x1122334455667788);
const uint8_t world_key[32] = {9, 8, 7};

struct tls_context *world_tls(void)
{
    if (tls == NULL)
        assert_int_equal(tls_context_new(world_key, NULL, &tls), 0);
    return tls;
}

unsigned world_rdma_cases(bool *is_alone)
{
    *is_alone = getenv("BATON_TEST_RDMA") != NULL;
    return *is_alone || world_verbs != NULL ? sizeof(rdma_cases) / sizeof(rdma_cases[0]) : 0;
}

static void add_rdma(struct tr_opts *tr, const struct worker_opts *opts)
{
    static char listen[64];
    const char *address = getenv("BATON_TEST_RDMA");

    tr->rdma_devices = "auto";
    tr->rdma_rest_ns = NS_PER_MS; /* a test that ends queue pairs wants the next push over RDMA again */
    if (address == NULL) {
        tr->verbs = world_verbs;
        return;
    }
    snprintf(listen, sizeof(listen), "%s:0", address);
    if (opts->tcp_listen == NULL)
        tr->tcp_listen = listen;
}

static void on_event(void *arg, const struct tr_event *event)
{
    struct worker *worker = arg;

    pthread_mutex_lock(&worker->lock);
    if (worker->n_events > 0 && event->kind == TR_PIECES_ARRIVED &&
        worker->events[worker->n_events - 1].kind == TR_PIECES_ARRIVED &&
        worker->events[worker->n_events - 1].id == event->id)
        worker->n_events--; /* it says all the last one did */
    if (worker->n_events < WORLD_MAX_EVENTS)
        worker->events[worker->n_events++] = *event;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
}

struct worker *worker_new(const struct worker_opts *opts)
{
    static unsigned n_made;
    struct worker *worker = calloc(1, sizeof(*worker));
    pthread_condattr_t attr;
    char path[108], name[32];
    struct fault fault = {0};
    struct tr_opts tr = {.geometry = opts->geometry,
                         .layout = opts->layout != 0 ? opts->layout : world_layout,
                         .node = name,
                         .tcp_listen = opts->tcp_listen != NULL ? opts->tcp_listen : "127.0.0.1:0",
                         .unix_listen = path,
                         .tcp_connections = opts->tcp_connections,
                         .io_timeout_ns = opts->io_timeout_ns != 0 ? opts->io_timeout_ns : 2 * NS_PER_S,
                         .on_event = on_event,
                         .on_event_arg = worker};

    pthread_mutex_init(&worker->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&worker->changed, &attr);
    pthread_condattr_destroy(&attr);
    worker->geometry = opts->geometry;
    assert_int_equal(mem_region_open((size_t)opts->geometry.n_layers * opts->geometry.n_blocks *
                                         opts->geometry.piece_bytes,
                                     true, false, "test-arena", &worker->arena),
                     0);
    snprintf(name, sizeof(name), "worker-%u", n_made);
    n_made++;
    snprintf(worker->folder, sizeof(worker->folder), FOLDER "XXXXXX", (int)getpid());
    assert_ptr_equal(mkdtemp(worker->folder), worker->folder);
    assert_int_equal(chmod(worker->folder, 0755), 0); /* other users may send */
    snprintf(path, sizeof(path), "%s/socket", worker->folder);
    tr.arena = worker->arena;
    memcpy(tr.keys.current, world_key, sizeof(tr.keys.current));
    if (opts->key != 0)
        tr.keys.current[0] = opts->key;
    if (kind_now->is_encrypted) {
        tr.tls_server = tls_server(world_tls());
        tr.tls_client = tls_client(world_tls());
    }
    if (kind_now->kind == TR_RDMA)
        add_rdma(&tr, opts);
    if (opts->adjust != NULL)
        opts->adjust(&tr);
    if (tr_node_new(&tr, &fault, &worker->node) != 0)
        fail_msg("%s", fault.text);
    return worker;
}

void worker_stop(struct worker *worker)
{
    tr_node_free(worker->node);
    worker->node = NULL;
}

void worker_free(struct worker *worker)
{
    worker_stop(worker);
    rmdir(worker->folder);
    mem_region_close(&worker->arena);
    pthread_mutex_destroy(&worker->lock);
    pthread_cond_destroy(&worker->changed);
    free(worker);
}

void worker_clean_after(pid_t pid)
{
    char pattern[64];
    glob_t found;

    snprintf(pattern, sizeof(pattern), FOLDER "*/socket", (int)pid);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        unlink(found.gl_pathv[i]);
        *strrchr(found.gl_pathv[i], '/') = '\0';
        rmdir(found.gl_pathv[i]);
    }
    globfree(&found);
}

const char *worker_address(const struct worker *worker)
{
    return kind_now->kind == TR_SHM ? tr_node_unix_path(worker->node) : tr_node_tcp_address(worker->node);
}

static struct timespec deadline(unsigned limit_ms)
{
    uint64_t at_ns = clock_now_ns() + limit_ms * NS_PER_MS;

    return (struct timespec){.tv_sec = (time_t)(at_ns / NS_PER_S), .tv_nsec = (long)(at_ns % NS_PER_S)};
}

bool worker_wait(struct worker *worker, enum tr_event_kind kind, uint64_t id, unsigned limit_ms,
                 struct tr_event *out)
{
    struct timespec until = deadline(limit_ms);
    bool found = false;
    int rc = 0;

    pthread_mutex_lock(&worker->lock);
    while (!found && rc != ETIMEDOUT) {
        for (unsigned i = 0; i < worker->n_events && !found; i++)
            if (worker->events[i].kind == kind && worker->events[i].id == id) {
                found = true;
                if (out != NULL)
                    *out = worker->events[i];
            }
        if (!found)
            rc = pthread_cond_timedwait(&worker->changed, &worker->lock, &until);
    }
    pthread_mutex_unlock(&worker->lock);
    return found;
}

bool worker_wait_pieces(struct worker *worker, uint64_t ticket, uint32_t n_pieces, unsigned limit_ms)
{
    struct timespec until = deadline(limit_ms);
    bool found = false;
    int rc = 0;

    pthread_mutex_lock(&worker->lock);
    while (!found && rc != ETIMEDOUT) {
        for (unsigned i = 0; i < worker->n_events && !found; i++)
            found = worker->events[i].id == ticket && worker->events[i].n_pieces >= n_pieces &&
                    worker->events[i].kind <= TR_TICKET_COMPLETE;
        if (!found)
            rc = pthread_cond_timedwait(&worker->changed, &worker->lock, &until);
    }
    pthread_mutex_unlock(&worker->lock);
    return found;
}

void worker_forget(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    worker->n_events = 0;
    pthread_mutex_unlock(&worker->lock);
}

unsigned worker_count(struct worker *worker, enum tr_event_kind kind, uint64_t id)
{
    unsigned n = 0;

    pthread_mutex_lock(&worker->lock);
    for (unsigned i = 0; i < worker->n_events; i++)
        n += worker->events[i].kind == kind && worker->events[i].id == id;
    pthread_mutex_unlock(&worker->lock);
    return n;
}

uint8_t *worker_piece(const struct worker *worker, uint32_t layer, uint32_t block)
{
    return (uint8_t *)worker->arena.base +
           ((size_t)layer * worker->geometry.n_blocks + block) * worker->geometry.piece_bytes;
}

/* A cheap sequence that differs in every eight bytes and never repeats between seeds. */
static uint64_t word_at(uint64_t seed, size_t i)
{
    uint64_t x = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xd1342543de82ef95);

    return x ^ x >> 29;
}

void piece_fill(uint8_t *piece, size_t len_bytes, uint64_t seed)
{
    for (size_t at = 0; at < len_bytes; at += 8) {
        uint64_t word = word_at(seed, at);

        memcpy(piece + at, &word, len_bytes - at < 8 ? len_bytes - at : 8);
    }
}

bool piece_is(const uint8_t *piece, size_t len_bytes, uint64_t seed)
{
    for (size_t at = 0; at < len_bytes; at += 8) {
        uint64_t word = word_at(seed, at);

        if (memcmp(piece + at, &word, len_bytes - at < 8 ? len_bytes - at : 8) != 0)
            return false;
    }
    return true;
}

bool piece_is_poison(const uint8_t *piece, size_t len_bytes)
{
    return piece[0] == WORLD_POISON && memcmp(piece, piece + 1, len_bytes - 1) == 0;
}

void worker_poison(struct worker *worker)
{
    memset(worker->arena.base, WORLD_POISON,
           (size_t)worker->geometry.n_layers * worker->geometry.n_blocks * worker->geometry.piece_bytes);
}
