/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that change while two nodes transfer: no transfer of a peer that follows is lost, and a peer with a dropped
 * key loses its connection.  Run over each kind, like test_transport.c. */
#include "tests/conformance/tr_world.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { LIMIT_MS = 20000, N_LAYERS = 2, N_BLOCKS = 8, PIECE_BYTES = 4096 };

static const struct worker_opts usual = {
    .geometry = {N_LAYERS, N_BLOCKS, PIECE_BYTES}, .io_timeout_ns = 400 * NS_PER_MS, .tcp_connections = 1};
static const uint32_t blocks[N_BLOCKS] = {0, 1, 2, 3, 4, 5, 6, 7};

struct pair {
    struct worker *sender, *receiver;
};

static int set_up(void **state)
{
    static struct pair pair;

    pair.sender = worker_new(&usual);
    pair.receiver = worker_new(&usual);
    for (uint32_t i = 0; i < N_LAYERS * N_BLOCKS; i++)
        piece_fill(worker_piece(pair.sender, i / N_BLOCKS, i % N_BLOCKS), PIECE_BYTES, i);
    *state = &pair;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *pair = *state;

    worker_free(pair->sender);
    worker_free(pair->receiver);
    return 0;
}

/* first: the first byte of the current key, the others are world_key's; second: likewise, 0: none. */
static void set_keys(struct worker *worker, uint8_t first, uint8_t second)
{
    struct tr_keys keys = {.has_second = second != 0};
    bool has_tls = kind_now->is_encrypted;

    memcpy(keys.current, world_key, sizeof(keys.current));
    memcpy(keys.second, world_key, sizeof(keys.second));
    keys.current[0] = first;
    keys.second[0] = second;
    assert_int_equal(tr_node_set_access(worker->node, has_tls ? tls_server(world_tls()) : NULL,
                                        has_tls ? tls_client(world_tls()) : NULL, &keys),
                     0);
}

static void begin(const struct pair *pair, uint64_t id)
{
    struct tr_target target = {
        .kind = kind_now->kind, .address = worker_address(pair->receiver), .ticket = id};

    worker_poison(pair->receiver);
    assert_int_equal(tr_open_ticket(pair->receiver->node, id, blocks, N_BLOCKS), 0);
    assert_int_equal(tr_start_push(pair->sender->node, id, &target, N_LAYERS * N_BLOCKS), 0);
}

static void push_layer(const struct pair *pair, uint64_t id, uint32_t layer)
{
    assert_int_equal(tr_push(pair->sender->node, id, &(struct tr_pieces){layer, 0, blocks, N_BLOCKS}), 0);
}

static void end(const struct pair *pair, uint64_t id)
{
    assert_true(worker_wait(pair->receiver, TR_TICKET_COMPLETE, id, LIMIT_MS, NULL));
    for (uint32_t i = 0; i < N_LAYERS * N_BLOCKS; i++)
        assert_true(piece_is(worker_piece(pair->receiver, i / N_BLOCKS, i % N_BLOCKS), PIECE_BYTES, i));
    assert_int_equal(worker_count(pair->sender, TR_PUSH_FAILED, id), 0);
    assert_int_equal(tr_stop_push(pair->sender->node, id), 0);
    assert_int_equal(tr_close_ticket(pair->receiver->node, id), 0);
    assert_true(worker_wait(pair->sender, TR_PUSH_STOPPED, id, LIMIT_MS, NULL));
    assert_true(worker_wait(pair->receiver, TR_TICKET_CLOSED, id, LIMIT_MS, NULL));
}

static uint64_t n_made(const struct worker *worker)
{
    struct tr_counts counts;

    tr_node_counts(worker->node, &counts);
    return counts.connections_made;
}

static uint32_t n_open(const struct worker *worker)
{
    struct tr_counts counts;

    tr_node_counts(worker->node, &counts);
    return counts.connections_open;
}

/* The steps of a rotation, the receiver first, then the sender, with a transfer after each. */
static void transfers_go_on_through_a_rotation(void **state)
{
    static const uint8_t steps[][2] = {{9, 77}, {77, 9}, {77, 0}};
    const struct pair *pair = *state;
    uint64_t id = 1;

    for (unsigned i = 0; i < 3; i++)
        for (unsigned k = 0; k < 2; k++, id++) {
            set_keys(k == 0 ? pair->receiver : pair->sender, steps[i][0], steps[i][1]);
            begin(pair, id);
            push_layer(pair, id, 0);
            push_layer(pair, id, 1);
            end(pair, id);
        }
    assert_true(n_made(pair->sender) >= 1);
}

/* Both drop the key while a transfer has half of its pieces: the connection stays until the transfer is over. */
static void a_transfer_outlives_the_key_of_its_connection(void **state)
{
    const struct pair *pair = *state;
    uint64_t began_ns;

    begin(pair, 1);
    push_layer(pair, 1, 0);
    assert_true(worker_wait_pieces(pair->receiver, 1, N_BLOCKS, LIMIT_MS));
    set_keys(pair->receiver, 77, 0);
    set_keys(pair->sender, 77, 0);
    clock_sleep_ns(400 * NS_PER_MS); /* several checks of the connections */
    push_layer(pair, 1, 1);
    end(pair, 1);

    /* Over RDMA the retired connection serves the push to its end; else a fresh one has taken over. */
    began_ns = clock_now_ns();
    while (n_open(pair->sender) > (kind_now->kind == TR_RDMA ? 0 : 1) &&
           clock_now_ns() - began_ns < LIMIT_MS * NS_PER_MS)
        clock_sleep_ns(10 * NS_PER_MS);
    assert_int_equal(n_open(pair->sender), kind_now->kind == TR_RDMA ? 0 : 1);
    begin(pair, 2);
    push_layer(pair, 2, 0);
    push_layer(pair, 2, 1);
    end(pair, 2);
    assert_int_equal(n_made(pair->sender), 2);
}

static void a_dropped_key_is_refused(void **state)
{
    const struct pair *pair = *state;
    struct tr_event event;

    set_keys(pair->receiver, 77, 0);
    begin(pair, 1);
    push_layer(pair, 1, 0);
    assert_true(worker_wait(pair->sender, TR_PUSH_FAILED, 1, LIMIT_MS, &event));
    assert_true(piece_is_poison(worker_piece(pair->receiver, 0, 0), PIECE_BYTES));
    assert_int_equal(tr_stop_push(pair->sender->node, 1), 0);
    assert_int_equal(tr_close_ticket(pair->receiver->node, 1), 0);
    assert_true(worker_wait(pair->sender, TR_PUSH_STOPPED, 1, LIMIT_MS, NULL));
    assert_true(worker_wait(pair->receiver, TR_TICKET_CLOSED, 1, LIMIT_MS, NULL));
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(transfers_go_on_through_a_rotation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_transfer_outlives_the_key_of_its_connection, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_dropped_key_is_refused, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Arguments: a pattern of tests to run (all). */
int main(int argc, char **argv)
{
    bool is_alone;
    unsigned n_rdma = world_rdma_cases(&is_alone);
    int n_failed = 0;

    log_setup("test_transport_keys", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    if (!is_alone)
        n_failed = world_run(kind_cases, n_kind_cases, run_all);
    return n_failed + world_run(rdma_cases, n_rdma, run_all);
}
