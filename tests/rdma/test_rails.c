/* SPDX-License-Identifier: Apache-2.0 */
/* Rails that fail in the middle of a transfer, on the test machine's two devices (see init): the link of one,
 * or of both, goes down while pieces travel.  The same ticket must continue over the other rail or TCP, from
 * where it stopped, and with the right bytes. */
#include "tests/conformance/tr_world.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LIMIT_MS = 90000, N_LAYERS = 8, N_BLOCKS = 128, N = 64, PIECE_BYTES = 16384, N_PIECES = N_LAYERS * N };

static void use_both_rails(struct tr_opts *opts)
{
    opts->rdma_devices = "rxe0:1@10.9.0.1, rxe1:1@10.9.1.1";
}

static void link_set(const char *device, const char *state)
{
    char command[80];

    snprintf(command, sizeof(command), "/usr/bin/ip link set %s %s", device, state);
    assert_int_equal(system(command), 0);
}

static void wait_for_rails(const struct worker *worker, unsigned n_rails)
{
    for (unsigned ms = 0; tr_node_rdma_rails(worker->node) != n_rails; ms += 10) {
        assert_true(ms < LIMIT_MS);
        clock_sleep_ns(10 * NS_PER_MS);
    }
}

static uint64_t seed_of(uint64_t id, uint32_t layer, uint32_t i)
{
    return id * 100000 + layer * 1000 + i;
}

/* Sends N blocks from the sender's first to the receiver's odd ones; at half of it the devices go down. */
static void transfer(struct worker *sender, struct worker *receiver, uint64_t id, const char *const *lost)
{
    struct tr_target target = {.kind = kind_now->kind, .address = worker_address(receiver), .ticket = id};
    uint32_t from[N], to[N];
    struct tr_counts before, after;
    struct tr_event event;

    worker_poison(receiver);
    for (uint32_t i = 0; i < N; i++) {
        from[i] = N - 1 - i;
        to[i] = 2 * i + 1;
        for (uint32_t layer = 0; layer < N_LAYERS; layer++)
            piece_fill(worker_piece(sender, layer, from[i]), PIECE_BYTES, seed_of(id, layer, i));
    }
    tr_node_counts(sender->node, &before);
    assert_int_equal(tr_open_ticket(receiver->node, id, to, N), 0);
    assert_int_equal(tr_start_push(sender->node, id, &target, N_PIECES), 0);
    for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
        if (layer == N_LAYERS / 2) {
            assert_true(worker_wait_pieces(receiver, id, N_PIECES / 4, LIMIT_MS));
            for (; lost != NULL && *lost != NULL; lost++)
                link_set(*lost, "down");
        }
        while (tr_push(sender->node, id, &(struct tr_pieces){layer, 0, from, N}) == E_FULL)
            clock_sleep_ns(NS_PER_MS);
    }
    assert_true(worker_wait(receiver, TR_TICKET_COMPLETE, id, LIMIT_MS, &event));
    assert_int_equal(event.n_pieces, N_PIECES);
    assert_int_equal(worker_count(sender, TR_PUSH_FAILED, id), 0);
    assert_int_equal(tr_close_ticket(receiver->node, id), 0);
    assert_true(worker_wait(receiver, TR_TICKET_CLOSED, id, LIMIT_MS, NULL));
    assert_int_equal(tr_stop_push(sender->node, id), 0);
    assert_true(worker_wait(sender, TR_PUSH_STOPPED, id, LIMIT_MS, NULL));
    for (uint32_t layer = 0; layer < N_LAYERS; layer++)
        for (uint32_t i = 0; i < N; i++) {
            assert_true(piece_is(worker_piece(receiver, layer, to[i]), PIECE_BYTES, seed_of(id, layer, i)));
            assert_true(piece_is_poison(worker_piece(receiver, layer, to[i] - 1), PIECE_BYTES));
        }
    tr_node_counts(sender->node, &after);
    printf("  %llu pieces sent for %d, %llu failures of RDMA, %u rails left\n",
           (unsigned long long)(after.pieces_sent - before.pieces_sent), N_PIECES,
           (unsigned long long)(after.rdma_failures - before.rdma_failures),
           tr_node_rdma_rails(sender->node));
    assert_true(after.pieces_sent - before.pieces_sent <=
                N_PIECES * 7 / 4); /* a quarter had arrived, and was not sent again */
}

static void lose(const char *const *devices, unsigned n_left)
{
    struct worker_opts opts = {.geometry = {N_LAYERS, N_BLOCKS, PIECE_BYTES},
                               .io_timeout_ns = 30 * NS_PER_S,
                               .adjust = use_both_rails};
    struct worker *sender = worker_new(&opts), *receiver = worker_new(&opts);

    wait_for_rails(sender, 2);
    wait_for_rails(receiver, 2);
    transfer(sender, receiver, 1, NULL);
    transfer(sender, receiver, 2, devices);
    wait_for_rails(sender, n_left);
    transfer(sender, receiver, 3, NULL); /* begun without them */
    for (unsigned i = 0; devices[i] != NULL; i++)
        link_set(devices[i], "up");
    wait_for_rails(sender, 2);
    wait_for_rails(receiver, 2);
    transfer(sender, receiver, 4, NULL);
    worker_free(sender);
    worker_free(receiver);
}

static void one_rail_is_lost(void **state)
{
    lose((const char *const[]){"d1", NULL}, 1);
}

static void the_first_rail_is_lost(void **state)
{
    lose((const char *const[]){"d0", NULL}, 1);
}

static void every_rail_is_lost(void **state)
{
    lose((const char *const[]){"d0", "d1", NULL}, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rail_is_lost),
        cmocka_unit_test(the_first_rail_is_lost),
        cmocka_unit_test(every_rail_is_lost),
    };
    bool is_real;
    int n_failed;

    log_setup("test_rails", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    if (world_rdma_cases(&is_real) == 0 || !is_real) {
        printf("SKIP: BATON_TEST_RDMA names no device's address\n");
        return 77;
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    kind_now = rdma_cases;
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    tls_context_free(world_tls());
    return n_failed;
}
