/* SPDX-License-Identifier: Apache-2.0 */
/* The requirements of every transport, run over each kind.  Bytes arrive at their place and nowhere else.
 * After CLOSED nothing is written, after STOPPED nothing is read.  A dead peer is noticed; a returning one
 * works.  A new kind joins by a row in kind_cases. */
#include "tests/conformance/tr_world.h"
#include "tests/unit/trials.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LIMIT_MS 20000 /* nothing takes this long unless it hangs (sanitizers, busy machines) */

static struct tr_target target_of(const struct worker *worker, uint64_t ticket)
{
    return (struct tr_target){.kind = kind_now->kind, .address = worker_address(worker), .ticket = ticket};
}

/* A transfer of n blocks: from our blocks to theirs, in a shuffled order. */
struct transfer {
    uint64_t id; /* of push and ticket */
    uint32_t n;
    uint32_t from[64], to[64];
    uint32_t order[64 * 8]; /* of (layer, index) runs */
};

static void shuffle(struct rng *rng, uint32_t *list, uint32_t n)
{
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = (uint32_t)rng_below(rng, i), swap = list[i - 1];

        list[i - 1] = list[k];
        list[k] = swap;
    }
}

/* Distributes the blocks of both arenas among the transfers, without overlap. */
static void deal(struct rng *rng, const struct tr_geometry *geometry, struct transfer *list,
                 unsigned n_transfers)
{
    uint32_t from[512], to[512], next = 0;

    for (uint32_t i = 0; i < geometry->n_blocks; i++)
        from[i] = to[i] = i;
    shuffle(rng, from, geometry->n_blocks);
    shuffle(rng, to, geometry->n_blocks);
    for (unsigned t = 0; t < n_transfers; t++) {
        list[t].id = rng_u64(rng);
        list[t].n = 1 + (uint32_t)rng_below(rng, geometry->n_blocks / n_transfers);
        if (list[t].n > 64)
            list[t].n = 64;
        for (uint32_t i = 0; i < list[t].n; i++, next++) {
            list[t].from[i] = from[next];
            list[t].to[i] = to[next];
        }
    }
}

static uint64_t seed_of(const struct transfer *transfer, uint32_t layer, uint32_t i)
{
    return transfer->id + layer * 1000 + i;
}

static void fill_source(struct worker *worker, const struct transfer *transfer)
{
    for (uint32_t layer = 0; layer < worker->geometry.n_layers; layer++)
        for (uint32_t i = 0; i < transfer->n; i++)
            piece_fill(worker_piece(worker, layer, transfer->from[i]), worker->geometry.piece_bytes,
                       seed_of(transfer, layer, i));
}

static bool target_is_right(const struct worker *worker, const struct transfer *transfer, uint32_t n_leading)
{
    for (uint32_t layer = 0; layer < worker->geometry.n_layers; layer++)
        for (uint32_t i = 0; i < n_leading; i++)
            if (!piece_is(worker_piece(worker, layer, transfer->to[i]), worker->geometry.piece_bytes,
                          seed_of(transfer, layer, i)))
                return false;
    return true;
}

/* tr_push with patience: E_FULL means that the thread is behind. */
static void push_run(struct worker *worker, uint64_t id, const struct tr_pieces *pieces)
{
    int err;

    while ((err = tr_push(worker->node, id, pieces)) == E_FULL)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(err, 0);
}

static void push_all(struct worker *worker, const struct transfer *transfer, struct rng *rng)
{
    uint32_t runs[64 * 8], n_runs = 0;

    /* Runs of random length, each (layer, first, n) packed into one number, pushed in a random order. */
    for (uint32_t layer = 0; layer < worker->geometry.n_layers; layer++)
        for (uint32_t first = 0, n; first < transfer->n; first += n) {
            n = 1 + (uint32_t)rng_below(rng, transfer->n - first);
            runs[n_runs++] = layer << 16 | first << 8 | n;
        }
    shuffle(rng, runs, n_runs);
    for (uint32_t r = 0; r < n_runs; r++) {
        uint32_t first = runs[r] >> 8 & 255;

        push_run(worker, transfer->id,
                 &(struct tr_pieces){runs[r] >> 16, first, transfer->from + first, runs[r] & 255});
    }
}

static void start(struct worker *sender, struct worker *receiver, const struct transfer *transfer)
{
    struct tr_target target = target_of(receiver, transfer->id);

    assert_int_equal(tr_open_ticket(receiver->node, transfer->id, transfer->to, transfer->n), 0);
    assert_int_equal(
        tr_start_push(sender->node, transfer->id, &target, transfer->n * sender->geometry.n_layers), 0);
}

static void finish(struct worker *sender, struct worker *receiver, uint64_t id)
{
    assert_int_equal(tr_stop_push(sender->node, id), 0);
    assert_int_equal(tr_close_ticket(receiver->node, id), 0);
    assert_true(worker_wait(sender, TR_PUSH_STOPPED, id, LIMIT_MS, NULL));
    assert_true(worker_wait(receiver, TR_TICKET_CLOSED, id, LIMIT_MS, NULL));
}

static void check_untouched(const struct worker *worker, const struct transfer *list, unsigned n_transfers)
{
    bool is_target[512] = {false};

    for (unsigned t = 0; t < n_transfers; t++)
        for (uint32_t i = 0; i < list[t].n; i++)
            is_target[list[t].to[i]] = true;
    for (uint32_t block = 0; block < worker->geometry.n_blocks; block++)
        for (uint32_t layer = 0; !is_target[block] && layer < worker->geometry.n_layers; layer++)
            assert_true(piece_is_poison(worker_piece(worker, layer, block), worker->geometry.piece_bytes));
}

/* Over RDMA a push may silently continue by TCP; if nothing was broken, none did. */
static void check_kind(const struct worker *sender)
{
    struct tr_counts counts;

    tr_node_counts(sender->node, &counts);
    assert_int_equal(counts.rdma_failures, 0);
    if (kind_now->kind == TR_RDMA)
        assert_int_equal(counts.connections_made, 1);
}

static void one_round(struct rng *rng)
{
    struct worker_opts opts = {
        .geometry = {.n_layers = 1 + (uint32_t)rng_below(rng, 6),
                     .n_blocks = 8 + (uint32_t)rng_below(rng, 40),
                     .piece_bytes = 1 + rng_below(rng, 1u << (4 + rng_below(rng, 14)))},
        .tcp_connections = 1 + (unsigned)rng_below(rng, 4)};
    struct worker *sender = worker_new(&opts), *receiver = worker_new(&opts);
    struct transfer list[4];
    unsigned n_transfers = 1 + (unsigned)rng_below(rng, 4);
    struct tr_event event;

    worker_poison(receiver);
    deal(rng, &opts.geometry, list, n_transfers);
    for (unsigned t = 0; t < n_transfers; t++) {
        fill_source(sender, &list[t]);
        start(sender, receiver, &list[t]);
    }
    for (unsigned t = 0; t < n_transfers; t++)
        push_all(sender, &list[t], rng);
    for (unsigned t = 0; t < n_transfers; t++) {
        uint32_t n_pieces = list[t].n * opts.geometry.n_layers;

        assert_true(worker_wait(receiver, TR_TICKET_COMPLETE, list[t].id, LIMIT_MS, &event));
        assert_int_equal(event.n_pieces, n_pieces);
        assert_int_equal(event.n_total, n_pieces);
        assert_int_equal(event.n_leading, list[t].n);
        assert_int_equal(event.n_bytes, n_pieces * (uint64_t)opts.geometry.piece_bytes);
        assert_true(target_is_right(receiver, &list[t], list[t].n));
        assert_true(worker_wait(sender, TR_PUSH_SENT, list[t].id, LIMIT_MS, NULL));
        finish(sender, receiver, list[t].id);
        assert_int_equal(worker_count(receiver, TR_TICKET_COMPLETE, list[t].id), 1);
        assert_int_equal(worker_count(receiver, TR_TICKET_FAILED, list[t].id), 0);
        assert_int_equal(worker_count(sender, TR_PUSH_FAILED, list[t].id), 0);
    }
    check_untouched(receiver, list, n_transfers);
    check_kind(sender);
    worker_free(sender);
    worker_free(receiver);
}

static void bytes_arrive_where_they_belong(void **state)
{
    struct rng rng;

    rng_init(&rng, 20);
    for (unsigned i = 0; i < 8; i++)
        one_round(&rng);
}

static void both_ways_at_once(void **state)
{
    struct worker_opts opts = {.geometry = {4, 32, 10000}};
    struct worker *a = worker_new(&opts), *b = worker_new(&opts);
    struct transfer there = {.id = 1, .n = 16}, back = {.id = 2, .n = 16};
    struct rng rng;

    rng_init(&rng, 3);
    for (uint32_t i = 0; i < 16; i++) {
        there.from[i] = back.to[i] = i;
        there.to[i] = back.from[i] = 16 + i;
    }
    back.to[0] = 31; /* a's upper half receives */
    for (uint32_t i = 0; i < 16; i++)
        back.to[i] = 31 - i;
    for (uint32_t i = 0; i < 16; i++)
        back.from[i] = i;
    fill_source(a, &there);
    fill_source(b, &back);
    start(a, b, &there);
    start(b, a, &back);
    push_all(a, &there, &rng);
    push_all(b, &back, &rng);
    assert_true(worker_wait(b, TR_TICKET_COMPLETE, 1, LIMIT_MS, NULL));
    assert_true(worker_wait(a, TR_TICKET_COMPLETE, 2, LIMIT_MS, NULL));
    assert_true(target_is_right(b, &there, 16));
    assert_true(target_is_right(a, &back, 16));
    check_kind(a);
    check_kind(b);
    worker_free(a);
    worker_free(b);
}

/* On a real device the pieces are smaller, because the machine that has one is emulated (tests/rdma) and slow with memory.
 * So are sanitized programs. */
enum { SLOW_PIECE_BYTES = 8192 };
static struct worker_opts large = {.geometry = {.n_layers = 8, .n_blocks = 128, .piece_bytes = 65536}};

static struct transfer large_transfer(uint64_t id)
{
    struct transfer transfer = {.id = id, .n = 64};

    for (uint32_t i = 0; i < 64; i++) {
        transfer.from[i] = 127 - i;
        transfer.to[i] = i * 2;
    }
    return transfer;
}

static void push_layers(struct worker *sender, const struct transfer *transfer, uint32_t from, uint32_t to)
{
    for (uint32_t layer = from; layer < to; layer++)
        push_run(sender, transfer->id, &(struct tr_pieces){layer, 0, transfer->from, transfer->n});
}

/* The worst possible bug: bytes of a closed ticket land in blocks that have a new owner. */
static void nothing_is_written_after_closed(void **state)
{
    for (unsigned round = 0; round < 3; round++) {
        struct worker *sender = worker_new(&large), *receiver = worker_new(&large);
        struct transfer transfer = large_transfer(77 + round);
        struct tr_event closed;

        fill_source(sender, &transfer);
        start(sender, receiver, &transfer);
        push_layers(sender, &transfer, 0, 8);
        assert_true(worker_wait_pieces(receiver, transfer.id, 1 + round * 120, LIMIT_MS));
        assert_int_equal(tr_close_ticket(receiver->node, transfer.id), 0);
        assert_true(worker_wait(receiver, TR_TICKET_CLOSED, transfer.id, LIMIT_MS, &closed));
        assert_true(target_is_right(receiver, &transfer, closed.n_leading));
        worker_poison(receiver); /* the blocks have a new owner */
        clock_sleep_ns(20 * NS_PER_MS);
        assert_int_equal(tr_stop_push(sender->node, transfer.id), 0);
        assert_true(worker_wait(sender, TR_PUSH_STOPPED, transfer.id, LIMIT_MS, NULL));
        clock_sleep_ns(5 * NS_PER_MS);
        assert_true(piece_is_poison(receiver->arena.base, (size_t)8 * 128 * large.geometry.piece_bytes));

        /* The connection survives: the next transfer arrives. */
        transfer.id += 1000;
        fill_source(sender, &transfer);
        start(sender, receiver, &transfer);
        push_layers(sender, &transfer, 0, 8);
        assert_true(worker_wait(receiver, TR_TICKET_COMPLETE, transfer.id, LIMIT_MS, NULL));
        assert_true(target_is_right(receiver, &transfer, 64));
        worker_free(sender);
        worker_free(receiver);
    }
}

static void a_sender_hears_of_a_closed_ticket(void **state)
{
    struct worker *sender = worker_new(&large), *receiver = worker_new(&large);
    struct transfer transfer = large_transfer(5);
    struct tr_event event;

    start(sender, receiver, &transfer);
    push_layers(sender, &transfer, 0, 1);
    assert_true(worker_wait_pieces(receiver, 5, 64, LIMIT_MS));
    assert_int_equal(tr_close_ticket(receiver->node, 5), 0);
    assert_true(worker_wait(receiver, TR_TICKET_CLOSED, 5, LIMIT_MS, NULL));
    push_layers(sender, &transfer, 1, 8);
    assert_true(worker_wait(sender, TR_PUSH_FAILED, 5, LIMIT_MS, &event));
    assert_int_equal(event.fault.code, E_NOT_FOUND);
    finish(sender, receiver, 5);
    assert_int_equal(worker_count(sender, TR_PUSH_FAILED, 5), 1);
    worker_free(sender);
    worker_free(receiver);
}

/* After STOPPED the blocks change.  Pieces that the receiver counts must have the content before that. */
static void nothing_is_read_after_stopped(void **state)
{
    for (unsigned round = 0; round < 3; round++) {
        struct worker *sender = worker_new(&large), *receiver = worker_new(&large);
        struct transfer transfer = large_transfer(7);
        struct tr_event closed;
        uint32_t n_right = 0;

        fill_source(sender, &transfer);
        worker_poison(receiver);
        start(sender, receiver, &transfer);
        push_layers(sender, &transfer, 0, 7);
        if (round > 0)
            assert_true(worker_wait_pieces(receiver, 7, 1 + round * 100, LIMIT_MS));
        assert_int_equal(tr_stop_push(sender->node, 7), 0);
        assert_true(worker_wait(sender, TR_PUSH_STOPPED, 7, LIMIT_MS, NULL));
        memset(sender->arena.base, 0xee, sender->arena.len_bytes);
        clock_sleep_ns(20 * NS_PER_MS); /* pieces in flight may still arrive */
        assert_int_equal(tr_close_ticket(receiver->node, 7), 0);
        assert_true(worker_wait(receiver, TR_TICKET_CLOSED, 7, LIMIT_MS, &closed));
        for (uint32_t layer = 0; layer < 8; layer++)
            for (uint32_t i = 0; i < 64; i++)
                n_right += piece_is(worker_piece(receiver, layer, transfer.to[i]), large.geometry.piece_bytes,
                                    seed_of(&transfer, layer, i));
        assert_true(n_right >= closed.n_pieces);
        assert_true(target_is_right(receiver, &transfer, closed.n_leading));
        assert_int_equal(worker_count(receiver, TR_TICKET_COMPLETE, 7), 0);
        worker_free(sender);
        worker_free(receiver);
    }
}

static void a_stopped_push_spares_the_others(void **state)
{
    struct worker *sender = worker_new(&large), *receiver = worker_new(&large);
    struct transfer a = large_transfer(1), b = large_transfer(2);

    for (uint32_t i = 0; i < 64; i++)
        b.to[i] = i * 2 + 1;
    fill_source(sender, &a);
    start(sender, receiver, &a);
    start(sender, receiver, &b);
    push_layers(sender, &a, 0, 8);
    push_layers(sender, &b, 0, 8);
    assert_true(worker_wait_pieces(receiver, 2, 1, LIMIT_MS));
    assert_int_equal(tr_stop_push(sender->node, 2), 0);
    assert_true(worker_wait(receiver, TR_TICKET_COMPLETE, 1, LIMIT_MS, NULL));
    assert_true(target_is_right(receiver, &a, 64));
    assert_int_equal(worker_count(sender, TR_PUSH_FAILED, 1), 0);
    worker_free(sender);
    worker_free(receiver);
}

static void a_dead_sender_is_noticed(void **state)
{
    struct worker *sender = worker_new(&large), *receiver = worker_new(&large);
    struct transfer transfer = large_transfer(3);
    struct tr_event event;

    fill_source(sender, &transfer);
    start(sender, receiver, &transfer);
    push_layers(sender, &transfer, 0, 6);
    assert_true(worker_wait_pieces(receiver, 3, 10, LIMIT_MS));
    worker_stop(sender);
    assert_true(worker_wait(receiver, TR_TICKET_FAILED, 3, LIMIT_MS, &event));
    assert_true(event.fault.code != 0);
    assert_int_equal(tr_close_ticket(receiver->node, 3), 0);
    assert_true(worker_wait(receiver, TR_TICKET_CLOSED, 3, LIMIT_MS, &event));
    assert_true(target_is_right(receiver, &transfer, event.n_leading));
    assert_int_equal(worker_count(receiver, TR_TICKET_COMPLETE, 3), 0);
    worker_free(sender);
    worker_free(receiver);
}

static void a_dead_receiver_is_noticed_and_a_new_one_used(void **state)
{
    struct worker *sender = worker_new(&large), *receiver = worker_new(&large);
    struct transfer transfer = large_transfer(4);

    start(sender, receiver, &transfer);
    push_layers(sender, &transfer, 0, 1);
    assert_true(worker_wait_pieces(receiver, 4, 64, LIMIT_MS));
    char address[128];
    snprintf(address, sizeof(address), "%s", worker_address(receiver));
    worker_stop(receiver);
    push_layers(sender, &transfer, 1, 8);
    assert_true(worker_wait(sender, TR_PUSH_FAILED, 4, LIMIT_MS, NULL));
    assert_int_equal(tr_stop_push(sender->node, 4), 0);
    assert_true(worker_wait(sender, TR_PUSH_STOPPED, 4, LIMIT_MS, NULL));
    worker_free(receiver);

    /* No process listens: an error, not a hang. */
    struct tr_target nobody = {.kind = kind_now->kind, .address = address, .ticket = 4};
    assert_int_equal(tr_start_push(sender->node, 40, &nobody, 64), 0);
    assert_true(worker_wait(sender, TR_PUSH_FAILED, 40, LIMIT_MS, NULL));

    /* A new process, where TCP allows at the same address. */
    struct worker_opts opts = large;
    if (kind_now->kind != TR_SHM)
        opts.tcp_listen = address;
    receiver = worker_new(&opts);
    transfer.id = 41;
    fill_source(sender, &transfer);
    start(sender, receiver, &transfer);
    push_layers(sender, &transfer, 0, 8);
    assert_true(worker_wait(receiver, TR_TICKET_COMPLETE, 41, LIMIT_MS, NULL));
    assert_true(target_is_right(receiver, &transfer, 64));
    worker_free(sender);
    worker_free(receiver);
}

static void mismatches_are_refused(void **state)
{
    struct worker_opts opts = {.geometry = {2, 8, 512}}, other = opts;
    struct worker *sender = worker_new(&opts), *receivers[3];
    struct tr_event event;
    uint32_t block = 0;

    other.layout = 99;
    receivers[0] = worker_new(&other);
    other = opts;
    other.geometry.piece_bytes = 256;
    receivers[1] = worker_new(&other);
    other = opts;
    other.key = 77;
    receivers[2] = worker_new(&other);
    for (unsigned i = 0; i < 3; i++) {
        struct tr_target target = target_of(receivers[i], 5);

        worker_poison(receivers[i]);
        assert_int_equal(tr_open_ticket(receivers[i]->node, 5, &block, 1), 0);
        assert_int_equal(tr_start_push(sender->node, 10 + i, &target, 2), 0);
        push_run(sender, 10 + i, &(struct tr_pieces){0, 0, &block, 1});
        assert_true(worker_wait(sender, TR_PUSH_FAILED, 10 + i, LIMIT_MS, &event));
        /* The end that detects the error first reports it; the other may only see the connection close. */
        assert_true(event.fault.code == (i < 2 ? E_MISMATCH : E_AUTH) || event.fault.code == E_CLOSED ||
                    event.fault.code == E_IO);
        assert_int_equal(worker_count(receivers[i], TR_PIECES_ARRIVED, 5), 0);
        assert_true(piece_is_poison(receivers[i]->arena.base, 512));
    }
    for (unsigned i = 0; i < 3; i++)
        worker_free(receivers[i]);
    worker_free(sender);
}

static void misuse_is_answered(void **state)
{
    struct worker_opts opts = {.geometry = {2, 8, 512}};
    struct worker *worker = worker_new(&opts);
    struct tr_target target = {.kind = kind_now->kind, .address = "nonsense", .ticket = 1};
    const uint32_t blocks[2] = {0, 8};
    struct tr_event event;

    assert_int_equal(tr_open_ticket(worker->node, 1, blocks, 2), E_INVAL);
    assert_int_equal(tr_open_ticket(worker->node, 1, blocks, 0), E_INVAL);
    assert_int_equal(tr_push(worker->node, 1, &(struct tr_pieces){0, 0, blocks, 2}), E_INVAL);
    assert_int_equal(tr_push(worker->node, 1, &(struct tr_pieces){2, 0, blocks, 1}), E_INVAL);
    assert_int_equal(tr_open_ticket(worker->node, 1, blocks, 1), 0);
    assert_int_equal(tr_open_ticket(worker->node, 1, blocks, 1), 0);
    assert_true(worker_wait(worker, TR_TICKET_FAILED, 1, LIMIT_MS, &event));
    assert_int_equal(event.fault.code, E_EXISTS);
    assert_int_equal(tr_close_ticket(worker->node, 2), 0); /* never opened */
    assert_true(worker_wait(worker, TR_TICKET_CLOSED, 2, LIMIT_MS, NULL));
    assert_int_equal(tr_stop_push(worker->node, 3), 0); /* never started */
    assert_true(worker_wait(worker, TR_PUSH_STOPPED, 3, LIMIT_MS, NULL));
    assert_int_equal(tr_start_push(worker->node, 4, &target, 2), 0);
    assert_true(worker_wait(worker, TR_PUSH_FAILED, 4, LIMIT_MS, NULL));
    assert_int_equal(tr_push(worker->node, 4, &(struct tr_pieces){0, 0, blocks, 1}),
                     0); /* too late, but not wrong */
    assert_int_equal(tr_start_push(worker->node, 4, &target, 2), 0);
    assert_int_equal(tr_stop_push(worker->node, 4), 0);
    assert_true(worker_wait(worker, TR_PUSH_STOPPED, 4, LIMIT_MS, NULL));
    worker_free(worker);
}

/* Work is refused when the thread is behind, but ending work is not. */
static void a_flood_meets_back_pressure(void **state)
{
    struct worker_opts opts = {.geometry = {2, 64, 64}};
    struct worker *sender = worker_new(&opts), *receiver = worker_new(&opts);
    struct tr_target target = target_of(receiver, 1);
    uint32_t blocks[64];
    unsigned n_full = 0;

    for (uint32_t i = 0; i < 64; i++)
        blocks[i] = i;
    assert_int_equal(tr_open_ticket(receiver->node, 1, blocks, 64), 0);
    assert_int_equal(tr_start_push(sender->node, 1, &target, 128), 0);
    for (unsigned i = 0; i < 20000; i++) {
        int err = tr_push(sender->node, 1,
                          &(struct tr_pieces){i % 2, i % 64, blocks + i % 64, 1}); /* most of them doubles */

        assert_true(err == 0 || err == E_FULL);
        n_full += err == E_FULL;
    }
    finish(sender, receiver, 1);
    printf("  %u of 20000 pushes had to wait\n", n_full);
    worker_free(sender);
    worker_free(receiver);
}

static void nodes_may_go_at_any_moment(void **state)
{
    struct rng rng;

    rng_init(&rng, 8);
    for (unsigned round = 0; round < 10; round++) {
        struct worker *sender = worker_new(&large), *receiver = worker_new(&large);
        struct transfer transfer = large_transfer(9);

        start(sender, receiver, &transfer);
        push_layers(sender, &transfer, 0, 8);
        clock_sleep_ns(rng_below(&rng, 4 * NS_PER_MS));
        if (round % 2 == 0) {
            worker_free(sender);
            worker_free(receiver);
        } else {
            worker_free(receiver);
            worker_free(sender);
        }
    }
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive_where_they_belong),
        cmocka_unit_test(both_ways_at_once),
        cmocka_unit_test(nothing_is_written_after_closed),
        cmocka_unit_test(a_sender_hears_of_a_closed_ticket),
        cmocka_unit_test(nothing_is_read_after_stopped),
        cmocka_unit_test(a_stopped_push_spares_the_others),
        cmocka_unit_test(a_dead_sender_is_noticed),
        cmocka_unit_test(a_dead_receiver_is_noticed_and_a_new_one_used),
        cmocka_unit_test(mismatches_are_refused),
        cmocka_unit_test(misuse_is_answered),
        cmocka_unit_test(a_flood_meets_back_pressure),
        cmocka_unit_test(nodes_may_go_at_any_moment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Arguments: a pattern of tests to run (all). */
int main(int argc, char **argv)
{
    bool is_rdma_alone;
    unsigned n_rdma = world_rdma_cases(&is_rdma_alone);
    int n_failed;

    log_setup("test_transport", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    if (is_rdma_alone) {
        large.geometry.piece_bytes = SLOW_PIECE_BYTES;
        n_rdma = 1; /* the encryption of the connection beside it does not matter to a device */
    }
    if (trials_are_sanitized())
        large.geometry.piece_bytes = SLOW_PIECE_BYTES;
    n_failed = is_rdma_alone ? 0 : world_run(kind_cases, n_kind_cases, run_all);
    return n_failed + world_run(rdma_cases, n_rdma, run_all);
}
