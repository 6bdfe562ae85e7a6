/* SPDX-License-Identifier: Apache-2.0 */
/* Peers in other processes, and resources after many transfers; over each kind, like test_transport.c.
 *
 * A peer is a new process of this program with "--peer send|receive KIND TELL HEAR [ADDRESS]".  It talks with
 * the test over two pipes and is killed in the middle of a transfer.  RDMA runs on a real device only: the
 * fake one of test_transport.c lives in one process. */
#include "tests/conformance/tr_world.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/rng.h"

#include <dirent.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT_MS = 60000, N_LAYERS = 8, N_BLOCKS = 32, PIECE_BYTES = 16384, TICKET = 7, N_ROUNDS = 1000 };

static const struct worker_opts usual = {.geometry = {N_LAYERS, N_BLOCKS, PIECE_BYTES}};
static bool is_real_rdma;

/* A transfer moves the first half of the sender's blocks, last first, to the receiver's even ones. */
static uint32_t from_block(uint32_t i)
{
    return N_BLOCKS / 2 - 1 - i;
}

static uint32_t to_block(uint32_t i)
{
    return 2 * i;
}

static uint64_t seed_of(uint32_t layer, uint32_t i)
{
    return 1000 * layer + i;
}

static void fill_source(const struct worker *sender)
{
    for (uint32_t layer = 0; layer < N_LAYERS; layer++)
        for (uint32_t i = 0; i < N_BLOCKS / 2; i++)
            piece_fill(worker_piece(sender, layer, from_block(i)), PIECE_BYTES, seed_of(layer, i));
}

/* True if the first n_leading blocks are the sender's, and those that no peer may write are poison. */
static bool target_is_right(const struct worker *receiver, uint32_t n_leading)
{
    for (uint32_t layer = 0; layer < N_LAYERS; layer++)
        for (uint32_t i = 0; i < N_BLOCKS / 2; i++)
            if ((i < n_leading &&
                 !piece_is(worker_piece(receiver, layer, to_block(i)), PIECE_BYTES, seed_of(layer, i))) ||
                !piece_is_poison(worker_piece(receiver, layer, to_block(i) + 1), PIECE_BYTES))
                return false;
    return true;
}

static int open_usual(struct worker *receiver, uint64_t ticket)
{
    uint32_t blocks[N_BLOCKS / 2];

    for (uint32_t i = 0; i < N_BLOCKS / 2; i++)
        blocks[i] = to_block(i);
    return tr_open_ticket(receiver->node, ticket, blocks, N_BLOCKS / 2);
}

static void push_layers(struct worker *sender, uint64_t push, uint32_t from, uint32_t to)
{
    uint32_t blocks[N_BLOCKS / 2];

    for (uint32_t i = 0; i < N_BLOCKS / 2; i++)
        blocks[i] = from_block(i);
    for (uint32_t layer = from; layer < to; layer++)
        while (tr_push(sender->node, push, &(struct tr_pieces){layer, 0, blocks, N_BLOCKS / 2}) == E_FULL)
            clock_sleep_ns(NS_PER_MS);
}

static void push_usual(struct worker *sender, uint64_t push, const char *address, uint64_t ticket,
                       uint32_t n_layers)
{
    struct tr_target target = {.kind = kind_now->kind, .address = address, .ticket = ticket};

    tr_start_push(sender->node, push, &target, N_LAYERS * N_BLOCKS / 2);
    push_layers(sender, push, 0, n_layers);
}

static void stop(struct worker *sender, uint64_t push)
{
    assert_int_equal(tr_stop_push(sender->node, push), 0);
    assert_true(worker_wait(sender, TR_PUSH_STOPPED, push, LIMIT_MS, NULL));
}

static void close_ticket(struct worker *receiver, uint64_t ticket, struct tr_event *out)
{
    assert_int_equal(tr_close_ticket(receiver->node, ticket), 0);
    assert_true(worker_wait(receiver, TR_TICKET_CLOSED, ticket, LIMIT_MS, out));
}

/* ---- in the other process ---- */

/* Sends all layers but the last, then waits to be killed. */
static int peer_send(int tell, int hear)
{
    char address[128] = "";
    struct worker *sender = worker_new(&usual);

    if (read(hear, address, sizeof(address) - 1) <= 0)
        return 1;
    fill_source(sender);
    push_usual(sender, 1, address, TICKET, N_LAYERS - 1);
    if (read(hear, address, 1) < 0 || write(tell, "n", 1) < 0)
        return 1;
    return 0;
}

/* Reports its address, receives one whole transfer, reports whether it is right. */
static int peer_receive(int tell, int hear, const char *listen)
{
    struct worker_opts opts = usual;
    struct worker *receiver;
    char wait;

    opts.tcp_listen = listen;
    receiver = worker_new(&opts);
    worker_poison(receiver);
    open_usual(receiver, TICKET);
    if (write(tell, worker_address(receiver), strlen(worker_address(receiver)) + 1) < 0 ||
        !worker_wait(receiver, TR_TICKET_COMPLETE, TICKET, LIMIT_MS, NULL) ||
        write(tell, target_is_right(receiver, N_BLOCKS / 2) ? "y" : "n", 1) < 0)
        return 1;
    if (read(hear, &wait, 1) < 0) /* until the test has seen all it wants */
        return 1;
    worker_free(receiver);
    return 0;
}

struct peer {
    pid_t pid;
    int tell, hear; /* our ends: messages to it, messages from it */
};

static struct peer peer_start(const char *what, const char *listen)
{
    char kind[12], tell[12], hear[12];
    struct peer peer;
    int to_peer[2], to_us[2];

    assert_int_equal(pipe(to_peer), 0);
    assert_int_equal(pipe(to_us), 0);
    snprintf(kind, sizeof(kind), "%s", kind_now->kind == TR_RDMA ? "rdma" : kind_now->name);
    snprintf(tell, sizeof(tell), "%d", to_us[1]);
    snprintf(hear, sizeof(hear), "%d", to_peer[0]);
    fflush(NULL);
    peer.pid = fork();
    if (peer.pid == 0) {
        close(to_peer[1]);
        close(to_us[0]);
        execl("/proc/self/exe", "peer", "--peer", what, kind, tell, hear, listen, (char *)NULL);
        _exit(1);
    }
    assert_true(peer.pid > 0);
    close(to_peer[0]);
    close(to_us[1]);
    peer.tell = to_peer[1];
    peer.hear = to_us[0];
    return peer;
}

static void peer_end(struct peer *peer, int with_signal)
{
    int status;

    if (with_signal != 0)
        kill(peer->pid, with_signal);
    close(peer->tell);
    assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
    close(peer->hear);
    worker_clean_after(peer->pid);
    if (with_signal == 0)
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- the checks ---- */

static void a_killed_sender_writes_no_more(void **state)
{
    struct worker *receiver = worker_new(&usual), *sender;
    struct peer peer = peer_start("send", NULL);
    const char *address = worker_address(receiver);
    struct tr_event event;

    worker_poison(receiver);
    assert_int_equal(open_usual(receiver, TICKET), 0);
    assert_true(write(peer.tell, address, strlen(address) + 1) > 0);
    assert_true(worker_wait_pieces(receiver, TICKET, 1, LIMIT_MS));
    peer_end(&peer, SIGKILL);
    assert_true(worker_wait(receiver, TR_TICKET_FAILED, TICKET, LIMIT_MS, &event));
    assert_true(event.fault.code != 0);
    close_ticket(receiver, TICKET, &event);
    assert_int_equal(worker_count(receiver, TR_TICKET_COMPLETE, TICKET), 0);
    assert_true(target_is_right(receiver, event.n_leading));
    worker_poison(receiver);
    clock_sleep_ns(20 * NS_PER_MS);
    assert_true(piece_is_poison(receiver->arena.base, (size_t)N_LAYERS * N_BLOCKS * PIECE_BYTES));

    /* Other peers are served as before. */
    sender = worker_new(&usual);
    fill_source(sender);
    assert_int_equal(open_usual(receiver, TICKET + 1), 0);
    push_usual(sender, 1, address, TICKET + 1, N_LAYERS);
    assert_true(worker_wait(receiver, TR_TICKET_COMPLETE, TICKET + 1, LIMIT_MS, NULL));
    assert_true(target_is_right(receiver, N_BLOCKS / 2));
    worker_free(sender);
    worker_free(receiver);
}

static void read_address(const struct peer *peer, char address[128])
{
    ssize_t n = read(peer->hear, address, 127);

    assert_true(n > 0);
    address[n] = '\0';
}

static void a_killed_receiver_may_come_back(void **state)
{
    struct worker *sender = worker_new(&usual);
    char address[128], verdict = '?';

    fill_source(sender);
    struct peer peer = peer_start("receive", NULL);
    read_address(&peer, address);
    push_usual(sender, 1, address, TICKET, N_LAYERS / 2);
    assert_true(worker_wait(sender, TR_PUSH_SENT, 1, LIMIT_MS, NULL));
    peer_end(&peer, SIGKILL);
    push_layers(sender, 1, N_LAYERS / 2, N_LAYERS);
    assert_true(worker_wait(sender, TR_PUSH_FAILED, 1, LIMIT_MS, NULL));
    stop(sender, 1);

    peer = peer_start("receive", kind_now->kind == TR_SHM ? NULL : address); /* at the same address */
    read_address(&peer, address);
    push_usual(sender, 2, address, TICKET, N_LAYERS);
    assert_int_equal(read(peer.hear, &verdict, 1), 1);
    assert_int_equal(verdict, 'y');
    stop(sender, 2);
    peer_end(&peer, 0);
    worker_free(sender);
}

static void as_many_tickets_as_there_may_be(void **state)
{
    enum { PIECE = 64 };
    struct worker_opts opts = {.geometry = {1, TR_MAX_TICKETS, PIECE}};
    struct worker *sender = worker_new(&opts), *receiver = worker_new(&opts);
    static uint32_t order[TR_MAX_TICKETS];
    struct tr_event event;
    struct rng rng;
    uint32_t first = 0;
    int err;

    rng_init(&rng, 5);
    worker_poison(receiver);
    for (uint32_t i = 0; i < TR_MAX_TICKETS; i++) {
        order[i] = i;
        piece_fill(worker_piece(sender, 0, i), PIECE, i);
        while ((err = tr_open_ticket(receiver->node, 1 + i, &i, 1)) == E_FULL)
            clock_sleep_ns(NS_PER_MS);
        assert_int_equal(err, 0);
    }
    while ((err = tr_open_ticket(receiver->node, 99999, &first, 1)) == E_FULL)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(err, 0);
    assert_true(worker_wait(receiver, TR_TICKET_FAILED, 99999, LIMIT_MS, &event)); /* one too many */
    for (uint32_t i = TR_MAX_TICKETS; i > 1; i--) {
        uint32_t k = (uint32_t)rng_below(&rng, i), swap = order[i - 1];

        order[i - 1] = order[k];
        order[k] = swap;
    }
    for (uint32_t i = 0; i < TR_MAX_TICKETS; i++) {
        struct tr_target target = {
            .kind = kind_now->kind, .address = worker_address(receiver), .ticket = 1 + order[i]};

        while ((err = tr_start_push(sender->node, 1 + i, &target, 1)) == E_FULL)
            clock_sleep_ns(NS_PER_MS);
        assert_int_equal(err, 0);
        while ((err = tr_push(sender->node, 1 + i, &(struct tr_pieces){0, 0, &order[i], 1})) == E_FULL)
            clock_sleep_ns(NS_PER_MS);
        assert_int_equal(err, 0);
    }
    for (uint32_t i = TR_MAX_TICKETS; i > 0; i--) {
        assert_true(worker_wait(receiver, TR_TICKET_COMPLETE, i, LIMIT_MS, NULL));
        assert_true(piece_is(worker_piece(receiver, 0, i - 1), PIECE, i - 1));
    }
    worker_free(sender);
    worker_free(receiver);
}

static unsigned n_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

/* Whole transfers, and transfers ended early by either side,
 * between the same two workers: no resource grows. */
static void a_thousand_rounds_leave_nothing(void **state)
{
    struct worker_opts opts = {.geometry = {2, 8, 256}};
    struct worker *sender = worker_new(&opts), *receiver = worker_new(&opts);
    unsigned fds = 0, n_whole = 0, n_rounds = is_real_rdma ? N_ROUNDS / 4 : N_ROUNDS;
    const uint32_t blocks[4] = {1, 2, 3, 4};
    size_t heap_bytes = 0;
    struct tr_event closed;
    struct rng rng;

    rng_init(&rng, 11);
    for (uint64_t id = 1; id <= n_rounds; id++) {
        struct tr_target target = {.kind = kind_now->kind, .address = worker_address(receiver), .ticket = id};
        unsigned what = (unsigned)rng_below(&rng, 4);

        worker_forget(sender);
        worker_forget(receiver);
        if (id == n_rounds / 10) { /* all permanent memory is there by now */
            fds = n_descriptors();
            heap_bytes = mallinfo2().uordblks;
        }
        assert_int_equal(tr_open_ticket(receiver->node, id, blocks, 4), 0);
        assert_int_equal(tr_start_push(sender->node, id, &target, 8), 0);
        assert_int_equal(tr_push(sender->node, id, &(struct tr_pieces){0, 0, blocks, 4}), 0);
        if (what == 0)
            assert_int_equal(tr_push(sender->node, id, &(struct tr_pieces){1, 0, blocks, 2}), 0);
        if (what >= 2)
            assert_int_equal(tr_push(sender->node, id, &(struct tr_pieces){1, 0, blocks, 4}), 0);
        if (what >= 2)
            assert_true(worker_wait(receiver, TR_TICKET_COMPLETE, id, LIMIT_MS, NULL));
        if (id % 2 == 0)
            stop(sender, id);
        close_ticket(receiver, id, &closed);
        if (id % 2 == 1)
            stop(sender, id);
        n_whole += closed.n_leading == 4;
    }
    assert_true(n_whole >= n_rounds / 3);
    assert_true(n_descriptors() <= fds);
    printf("  the heap grew by %td bytes\n", (ptrdiff_t)(mallinfo2().uordblks - heap_bytes));
    assert_true(mallinfo2().uordblks <= heap_bytes + 8192); /* 9 bytes a round show */
    worker_free(sender);
    worker_free(receiver);
}

static const struct kind_case *kind_named(const char *name)
{
    for (unsigned i = 0; i < n_kind_cases; i++)
        if (strcmp(kind_cases[i].name, name) == 0)
            return &kind_cases[i];
    return rdma_cases;
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_sender_writes_no_more),
        cmocka_unit_test(a_killed_receiver_may_come_back),
        cmocka_unit_test(as_many_tickets_as_there_may_be),
        cmocka_unit_test(a_thousand_rounds_leave_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    log_setup("test_transport_peers", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    signal(SIGPIPE, SIG_IGN);
    world_rdma_cases(&is_real_rdma);
    if (argc >= 6 && strcmp(argv[1], "--peer") == 0) {
        kind_now = kind_named(argv[3]);
        return strcmp(argv[2], "send") == 0
                   ? peer_send(atoi(argv[4]), atoi(argv[5]))
                   : peer_receive(atoi(argv[4]), atoi(argv[5]), argc > 6 ? argv[6] : NULL);
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return is_real_rdma ? world_run(rdma_cases, 1, run_all) : world_run(kind_cases, n_kind_cases, run_all);
}
