/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA under faults, over devices that fail on demand (tests/conformance/verbs_fake.c).  For any fault of queue
 * pairs, ports and calls, every piece arrives once.  No byte is written into blocks of a closed ticket, or read
 * from blocks of a stopped push. */
#include "tests/conformance/tr_world.h"
#include "tests/conformance/verbs_fake.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "transfer/transport/tr_rdma_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LIMIT_MS 20000
#define TICKET   7
#define PIECE    8192

static const struct worker_opts usual = {.geometry = {.n_layers = 8, .n_blocks = 32, .piece_bytes = PIECE}};

struct duo { /* the sender's block i goes to the receiver's block n - 1 - i */
    struct worker *sender, *receiver;
    uint32_t from[64], to[64], n;
    uint64_t id;
};

static struct duo duo_of(const struct worker_opts *from, const struct worker_opts *to)
{
    struct duo duo = {
        .sender = worker_new(from), .receiver = worker_new(to), .n = from->geometry.n_blocks, .id = TICKET};

    for (uint32_t i = 0; i < duo.n; i++) {
        duo.from[i] = i;
        duo.to[i] = duo.n - 1 - i;
        for (uint32_t layer = 0; layer < from->geometry.n_layers; layer++)
            piece_fill(worker_piece(duo.sender, layer, i), from->geometry.piece_bytes, layer * 1000 + i);
    }
    worker_poison(duo.receiver);
    return duo;
}

static void begin(struct duo *duo)
{
    const struct tr_geometry *geometry = &duo->sender->geometry;
    struct tr_target target = {
        .kind = TR_RDMA, .address = tr_node_tcp_address(duo->receiver->node), .ticket = duo->id};

    assert_int_equal(tr_open_ticket(duo->receiver->node, duo->id, duo->to, duo->n), 0);
    assert_int_equal(tr_start_push(duo->sender->node, duo->id, &target, duo->n * geometry->n_layers), 0);
}

static void push(struct duo *duo, uint32_t from_layer, uint32_t to_layer)
{
    for (uint32_t layer = from_layer; layer < to_layer; layer++) {
        int err;

        while ((err = tr_push(duo->sender->node, duo->id,
                              &(struct tr_pieces){layer, 0, duo->from, duo->n})) == E_FULL)
            clock_sleep_ns(NS_PER_MS);
        assert_int_equal(err, 0);
    }
}

static void expect_all(struct duo *duo)
{
    const struct tr_geometry *geometry = &duo->sender->geometry;
    uint32_t n_pieces = duo->n * geometry->n_layers;
    struct tr_event event;
    struct tr_counts counts;

    assert_true(worker_wait(duo->receiver, TR_TICKET_COMPLETE, duo->id, LIMIT_MS, &event));
    assert_int_equal(event.n_pieces, n_pieces);
    assert_int_equal(worker_count(duo->sender, TR_PUSH_FAILED, duo->id), 0);
    for (uint32_t layer = 0; layer < geometry->n_layers; layer++)
        for (uint32_t i = 0; i < duo->n; i++)
            assert_true(piece_is(worker_piece(duo->receiver, layer, duo->to[i]), geometry->piece_bytes,
                                 layer * 1000 + i));
    tr_node_counts(duo->receiver->node, &counts);
    assert_int_equal(counts.pieces_received % n_pieces, 0); /* each once */
}

static void end(struct duo *duo)
{
    assert_int_equal(tr_stop_push(duo->sender->node, duo->id), 0);
    assert_int_equal(tr_close_ticket(duo->receiver->node, duo->id), 0);
    assert_true(worker_wait(duo->sender, TR_PUSH_STOPPED, duo->id, LIMIT_MS, NULL));
    assert_true(worker_wait(duo->receiver, TR_TICKET_CLOSED, duo->id, LIMIT_MS, NULL));
}

/* All objects are freed except so many completion queues, and no memory was ever readable. */
static void leave_with(struct duo *duo, unsigned n_cqs)
{
    struct fake_counts counts;

    worker_free(duo->sender);
    worker_free(duo->receiver);
    counts = fake_count();
    assert_in_range(counts.cqs, 0, n_cqs);
    assert_int_equal(counts.qps + counts.mrs + counts.mws + counts.pds + counts.channels + counts.contexts,
                     0);
    assert_int_equal(counts.n_rnr + counts.n_overflows + counts.readable, 0);
}

static void leave(struct duo *duo)
{
    leave_with(duo, 0);
}

static uint64_t failures(const struct worker *worker)
{
    struct tr_counts counts;

    tr_node_counts(worker->node, &counts);
    return counts.rdma_failures;
}

static void wait_for_posted(void)
{
    for (unsigned i = 0; fake_count().waiting < 4; i++) {
        assert_true(i < LIMIT_MS);
        clock_sleep_ns(NS_PER_MS);
    }
}

static int reset(void **state)
{
    fake_reset();
    return 0;
}

/* ---- without faults ---- */

static void queue_pairs_are_as_they_should_be(void **state)
{
    struct ibv_qp_attr rtr, rts;
    struct worker *first;
    struct duo duo;
    uint32_t psn;

    first = worker_new(&usual); /* opened its rail with another MTU than later ones */
    fake_set_port("fake0", IBV_PORT_ACTIVE, IBV_MTU_1024);
    duo = duo_of(&usual, &usual);
    worker_free(duo.sender);
    duo.sender = first;
    for (uint32_t i = 0; i < duo.n; i++)
        for (uint32_t layer = 0; layer < 8; layer++)
            piece_fill(worker_piece(first, layer, i), PIECE, layer * 1000 + i);
    begin(&duo);
    push(&duo, 0, 8);
    expect_all(&duo);
    assert_int_equal(failures(duo.sender), 0);
    fake_last_connect(&rtr, &rts);
    assert_int_equal(rtr.path_mtu, IBV_MTU_1024); /* the smaller one */
    assert_int_equal(rtr.ah_attr.is_global, 1);
    assert_int_equal(rtr.ah_attr.grh.sgid_index,
                     2); /* RoCE v2 with our address, not the first, not RoCE v1 */
    assert_int_equal(rts.retry_cnt, 6);
    assert_int_equal(rts.rnr_retry, 6);
    assert_int_equal(rts.timeout, 14);
    assert_int_equal(fake_count().remote_mrs, 0);
    assert_int_equal(fake_count().bound_windows, 2); /* one region, two queue pairs */
    psn = rts.sq_psn;
    end(&duo);
    leave(&duo);
    fake_reset();
    duo = duo_of(&usual, &usual);
    begin(&duo);
    push(&duo, 0, 8);
    expect_all(&duo);
    fake_last_connect(&rtr, &rts);
    assert_int_not_equal(rts.sq_psn, psn);
    end(&duo);
    leave(&duo);
}

static void regions_end_between_pieces(void **state)
{
    struct duo duo;

    fake_set_max_mr(10 * PIECE + 100);
    duo = duo_of(&usual, &usual);
    begin(&duo);
    push(&duo, 0, 8);
    expect_all(&duo);
    assert_int_equal(failures(duo.sender), 0);
    assert_int_equal(fake_count().mrs, 2 * 26);
    end(&duo);
    leave(&duo);
}

static void devices_without_windows_work_too(void **state)
{
    struct duo duo;

    fake_set_windows(false);
    duo = duo_of(&usual, &usual);
    assert_non_null(strstr(tr_node_rdma_text(duo.receiver->node), "keys of the whole arena"));
    assert_int_equal(fake_count().remote_mrs, 2); /* either worker may receive pushes */
    begin(&duo);
    push(&duo, 0, 8);
    expect_all(&duo);
    assert_int_equal(failures(duo.sender), 0);
    end(&duo);
    leave(&duo);
}

static void credit_is_enough(void **state)
{
    struct worker_opts opts = {.geometry = {.n_layers = 3000, .n_blocks = 2, .piece_bytes = 64}};
    struct duo duo = duo_of(&opts, &opts);

    begin(&duo);
    push(&duo, 0, 3000); /* a chunk each: more than the number of posted receives */
    expect_all(&duo);
    assert_int_equal(failures(duo.sender), 0);
    end(&duo);
    leave(&duo);
}

static void two_rails_share_the_work(void **state)
{
    struct duo duo;

    fake_set_devices(2);
    duo = duo_of(&usual, &usual);
    assert_int_equal(tr_node_rdma_rails(duo.sender->node), 2);
    begin(&duo);
    push(&duo, 0, 8);
    expect_all(&duo);
    assert_int_equal(failures(duo.sender), 0);
    assert_int_equal(fake_count().qps, 2 * 2 * 2);
    end(&duo);
    fake_set_port("fake1", IBV_PORT_DOWN, IBV_MTU_4096);
    fake_raise("fake1", IBV_EVENT_PORT_ERR);
    for (unsigned i = 0; tr_node_rdma_rails(duo.sender->node) + tr_node_rdma_rails(duo.receiver->node) > 2;
         i++) {
        assert_true(i < LIMIT_MS);
        clock_sleep_ns(NS_PER_MS);
    }
    assert_int_equal(tr_node_rdma_opened(duo.receiver->node), 2); /* reported to peers: the rail may return */
    duo.id++;
    begin(&duo);
    push(&duo, 0, 8);
    expect_all(&duo); /* over fake0, or by TCP while the old connection closes */
    end(&duo);
    leave(&duo);
}

/* ---- device memory ---- */

#define DEVICE_FD      1234
#define DEVICE_ADDRESS ((void *)(uintptr_t)0x700000000000)

static void be_a_device(struct tr_opts *opts)
{
    opts->arena_kind = TR_ARENA_DMABUF;
    opts->dmabuf_fd = DEVICE_FD;
    opts->arena.base = DEVICE_ADDRESS;
    opts->arena.fd = -1;
}

static void device_memory_moves_by_rdma_only(void **state)
{
    static uint8_t memory[8 * 32 * PIECE];
    struct worker_opts device = usual;
    struct tr_event event;
    struct duo duo;

    device.adjust = be_a_device;
    fake_set_dmabuf(DEVICE_FD, memory);
    duo = duo_of(&usual, &device);
    begin(&duo);
    push(&duo, 0, 8);
    assert_true(worker_wait(duo.receiver, TR_TICKET_COMPLETE, duo.id, LIMIT_MS, NULL));
    for (uint32_t layer = 0; layer < 8; layer++)
        for (uint32_t i = 0; i < 32; i++)
            assert_true(piece_is(memory + (layer * 32 + duo.to[i]) * PIECE, PIECE, layer * 1000 + i));
    end(&duo);
    duo.id++;
    fake_fail_completion(FAKE_SENDER, IBV_WC_RETRY_EXC_ERR, 1);
    begin(&duo);
    push(&duo, 0, 8); /* TCP cannot take over, and must not try to */
    assert_true(worker_wait(duo.sender, TR_PUSH_FAILED, duo.id, LIMIT_MS, &event));
    assert_int_equal(event.fault.code, E_UNSUPPORTED);
    end(&duo);
    leave(&duo);
}

/* ---- failing ---- */

static void every_bad_completion_on_either_end(void **state)
{
    for (enum fake_side side = FAKE_SENDER; side <= FAKE_RECEIVER; side++)
        for (unsigned status = IBV_WC_SUCCESS + 1; status <= IBV_WC_TM_RNDV_INCOMPLETE; status++) {
            struct duo duo = duo_of(&usual, &usual);

            fake_fail_completion(side, (enum ibv_wc_status)status, status % 7);
            begin(&duo);
            push(&duo, 0, 2);
            push(&duo, 2, 8);
            expect_all(&duo);
            assert_int_equal(failures(duo.sender), 1);
            end(&duo);
            leave(&duo);
            fake_reset();
        }
}

static void every_event_in_mid_transfer(void **state)
{
    static const enum ibv_event_type of_qps[] = {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR,
                                                 IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_PATH_MIG_ERR};

    for (unsigned i = 0; i < 2 * sizeof(of_qps) / sizeof(of_qps[0]) + 2; i++) {
        struct duo duo = duo_of(&usual, &usual);

        fake_hold(false);
        begin(&duo);
        push(&duo, 0, 1);
        assert_true(worker_wait_pieces(duo.receiver, TICKET, 32, LIMIT_MS));
        fake_hold(true);
        push(&duo, 1, 8);
        wait_for_posted();
        if (i == 0) {
            fake_set_port("fake0", IBV_PORT_DOWN, IBV_MTU_4096);
            fake_raise("fake0", IBV_EVENT_PORT_ERR);
        } else if (i == 1) {
            fake_raise("fake0", IBV_EVENT_DEVICE_FATAL);
        } else {
            fake_raise_qp(i % 2 ? FAKE_SENDER : FAKE_RECEIVER, of_qps[i / 2 - 1]);
        }
        expect_all(&duo);
        assert_int_equal(failures(duo.sender), 1);
        end(&duo);
        leave(&duo);
        fake_reset();
    }
}

/* Each call fails, the first time, the second, and so on: KV moves nevertheless. */
static void every_failing_call(void **state)
{
    for (enum fake_call call = 0; call < FAKE_N_CALLS; call++)
        for (unsigned after = 0; after < 4; after++) {
            struct duo duo;

            fake_fail_call(call, after, 1);
            duo = duo_of(&usual, &usual);
            assert_string_not_equal(tr_node_rdma_text(duo.sender->node), "");
            begin(&duo);
            push(&duo, 0, 8);
            expect_all(&duo);
            end(&duo);
            leave_with(&duo, call == FAKE_DESTROY_CQ ? 1 : 0);
            fake_reset();
        }
}

static void a_rail_that_failed_rests_and_comes_back(void **state)
{
    struct duo duo = duo_of(&usual, &usual);

    for (unsigned round = 0; round < 3; round++, duo.id++) {
        fake_fail_completion(FAKE_SENDER, IBV_WC_RETRY_EXC_ERR, 2);
        begin(&duo);
        push(&duo, 0, 8);
        expect_all(&duo);
        end(&duo);
        while (!rdma_may_reach(duo.sender->node, tr_node_tcp_address(duo.receiver->node)))
            clock_sleep_ns(NS_PER_MS);
    }
    assert_int_equal(failures(duo.sender), 3); /* each time RDMA was tried first */
    leave(&duo);
}

static void rest_long(struct tr_opts *opts)
{
    opts->rdma_rest_ns = 60 * NS_PER_S;
}

/* One of two rails fails, and only the receiver notices:
 * the sender gets a notice, and continues on the other rail. */
static void the_receiver_says_which_rail_failed(void **state)
{
    struct worker_opts patient = usual;
    struct duo duo;

    fake_set_devices(2);
    patient.adjust = rest_long;
    duo = duo_of(&patient, &patient);
    begin(&duo);
    push(&duo, 0, 1);
    assert_true(worker_wait_pieces(duo.receiver, TICKET, 32, LIMIT_MS));
    fake_hold(true);
    push(&duo, 1, 8);
    wait_for_posted();
    fake_raise_qp(FAKE_RECEIVER, IBV_EVENT_QP_FATAL);
    expect_all(&duo);
    end(&duo);
    fake_hold(false);
    assert_true(rdma_may_reach(duo.sender->node, tr_node_tcp_address(duo.receiver->node)));
    for (unsigned round = 0; round < 2; round++) { /* the first may meet the old connection while it closes */
        uint64_t n_before = fake_count().n_writes;

        duo.id++;
        begin(&duo);
        push(&duo, 0, 8);
        expect_all(&duo);
        end(&duo);
        if (round == 1)
            assert_true(fake_count().n_writes > n_before);
    }
    assert_int_equal(failures(duo.sender), 1);
    leave(&duo);
}

/* ---- ending ---- */

static void a_closed_ticket_is_never_written(void **state)
{
    for (unsigned is_soft = 0; is_soft < 2; is_soft++) {
        struct duo duo = duo_of(&usual, &usual);
        struct worker *receiver = duo.receiver;

        begin(&duo);
        fake_hold(false);
        push(&duo, 0, 1);
        assert_true(worker_wait_pieces(receiver, TICKET, 32, LIMIT_MS));
        fake_hold(true);
        push(&duo, 1, 8);
        wait_for_posted();
        assert_int_equal(tr_close_ticket(receiver->node, TICKET), 0);
        assert_int_equal(tr_close_ticket(receiver->node, 99),
                         0); /* answered at once, after the other one began */
        assert_true(worker_wait(receiver, TR_TICKET_CLOSED, 99, LIMIT_MS, NULL));
        if (is_soft) {
            /* The failure was reported. */
            assert_true(worker_wait(duo.sender, TR_PUSH_FAILED, TICKET, LIMIT_MS, NULL));
            fake_hold(false);
        } /* otherwise the NIC stays silent, and the queue pairs end */
        assert_true(worker_wait(receiver, TR_TICKET_CLOSED, TICKET, LIMIT_MS, NULL));
        worker_poison(receiver); /* the blocks have a new owner */
        fake_hold(false);
        assert_int_equal(tr_stop_push(duo.sender->node, TICKET), 0);
        assert_true(worker_wait(duo.sender, TR_PUSH_STOPPED, TICKET, LIMIT_MS, NULL));
        assert_true(piece_is_poison(receiver->arena.base, (size_t)8 * 32 * PIECE));
        leave(&duo);
    }
}

static void a_stopped_push_is_never_read(void **state)
{
    struct duo duo = duo_of(&usual, &usual);

    fake_hold(false);
    begin(&duo);
    push(&duo, 0, 1);
    assert_true(worker_wait_pieces(duo.receiver, TICKET, 32, LIMIT_MS));
    fake_hold(true);
    push(&duo, 1, 8);
    wait_for_posted();
    assert_int_equal(tr_stop_push(duo.sender->node, TICKET), 0);
    assert_int_equal(tr_stop_push(duo.sender->node, 99), 0);
    assert_true(worker_wait(duo.sender, TR_PUSH_STOPPED, 99, LIMIT_MS, NULL));
    assert_int_equal(worker_count(duo.sender, TR_PUSH_STOPPED, TICKET), 0); /* the NIC may still read */
    fake_hold(false);
    assert_true(worker_wait(duo.sender, TR_PUSH_STOPPED, TICKET, LIMIT_MS, NULL));
    assert_int_equal(fake_count().waiting, 0);
    assert_int_equal(tr_close_ticket(duo.receiver->node, TICKET), 0);
    assert_true(worker_wait(duo.receiver, TR_TICKET_CLOSED, TICKET, LIMIT_MS, NULL));
    leave(&duo);
}

/* A device that does not end a queue pair keeps the ticket open until it does. */
static void a_stuck_queue_pair_keeps_its_tickets(void **state)
{
    struct duo duo = duo_of(&usual, &usual);

    begin(&duo);
    push(&duo, 0, 1);
    assert_true(worker_wait_pieces(duo.receiver, TICKET, 32, LIMIT_MS));
    fake_hold(true);
    push(&duo, 1, 8);
    wait_for_posted();
    worker_stop(duo.sender);
    fake_fail_call(FAKE_DESTROY_QP, 0, 1000000);
    fake_raise_qp(FAKE_RECEIVER, IBV_EVENT_QP_FATAL);
    assert_true(worker_wait(duo.receiver, TR_TICKET_FAILED, TICKET, LIMIT_MS, NULL));
    assert_int_equal(tr_close_ticket(duo.receiver->node, TICKET), 0);
    assert_int_equal(tr_close_ticket(duo.receiver->node, 99), 0);
    assert_true(worker_wait(duo.receiver, TR_TICKET_CLOSED, 99, LIMIT_MS, NULL));
    if (fake_count().qps > 0)
        assert_int_equal(worker_count(duo.receiver, TR_TICKET_CLOSED, TICKET), 0);
    fake_fail_call(FAKE_DESTROY_QP, 0, 0);
    assert_true(worker_wait(duo.receiver, TR_TICKET_CLOSED, TICKET, LIMIT_MS, NULL));
    assert_int_equal(fake_count().qps, 0);
    leave(&duo);
}

static void a_stuck_queue_pair_keeps_its_pushes(void **state)
{
    struct duo duo = duo_of(&usual, &usual);

    begin(&duo);
    push(&duo, 0, 1);
    assert_true(worker_wait_pieces(duo.receiver, TICKET, 32, LIMIT_MS));
    fake_hold(true);
    push(&duo, 1, 8);
    wait_for_posted();
    worker_stop(duo.receiver);
    fake_fail_call(FAKE_DESTROY_QP, 0, 1000000);
    assert_true(worker_wait(duo.sender, TR_PUSH_FAILED, TICKET, LIMIT_MS, NULL));
    assert_int_equal(tr_stop_push(duo.sender->node, TICKET), 0);
    assert_int_equal(tr_stop_push(duo.sender->node, 99), 0);
    assert_true(worker_wait(duo.sender, TR_PUSH_STOPPED, 99, LIMIT_MS, NULL));
    fake_hold(false);
    fake_fail_call(FAKE_DESTROY_QP, 0, 0);
    assert_true(worker_wait(duo.sender, TR_PUSH_STOPPED, TICKET, LIMIT_MS, NULL));
    while (fake_count().qps > 0)
        clock_sleep_ns(NS_PER_MS);
    leave(&duo);
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(queue_pairs_are_as_they_should_be, reset),
        cmocka_unit_test_setup(regions_end_between_pieces, reset),
        cmocka_unit_test_setup(devices_without_windows_work_too, reset),
        cmocka_unit_test_setup(credit_is_enough, reset),
        cmocka_unit_test_setup(two_rails_share_the_work, reset),
        cmocka_unit_test_setup(device_memory_moves_by_rdma_only, reset),
        cmocka_unit_test_setup(every_bad_completion_on_either_end, reset),
        cmocka_unit_test_setup(every_event_in_mid_transfer, reset),
        cmocka_unit_test_setup(every_failing_call, reset),
        cmocka_unit_test_setup(a_rail_that_failed_rests_and_comes_back, reset),
        cmocka_unit_test_setup(the_receiver_says_which_rail_failed, reset),
        cmocka_unit_test_setup(a_closed_ticket_is_never_written, reset),
        cmocka_unit_test_setup(a_stopped_push_is_never_read, reset),
        cmocka_unit_test_setup(a_stuck_queue_pair_keeps_its_tickets, reset),
        cmocka_unit_test_setup(a_stuck_queue_pair_keeps_its_pushes, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    log_setup("test_rdma", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return world_run(&rdma_cases[1], 1, run_all);
}
