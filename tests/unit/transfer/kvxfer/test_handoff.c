/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a hand-off over a transport and a link with random faults (pair_rig.h).
 *
 * Each end may be cancelled at any moment.  Over thousands of runs:
 *
 *   - no byte lands in a destination block that is not leased, and none is read from such a source block
 *   - every transfer ends at both ends, and no lease is left
 *   - an arrival is whole only if every piece was really copied, and then the bytes are the sender's
 *
 * Some transfers send blocks of windowed layers after the prompt's blocks.  The receiver may have the first of them.
 * Some offer blocks of an MTP head, which the receiver may leave out. */

#include "base/clock.h"
#include "base/err.h"
#include "tests/unit/check.h"
#include "tests/unit/transfer/kvxfer/pair_rig.h"

static uint32_t n_whole_heads; /* whole transfers that brought a head's blocks */

static void run(uint64_t seed, bool is_calm, uint32_t *n_whole)
{
    pair_begin(seed, true);
    for (int turn = 0; turn < 4000 && !pair_has_ended(); turn++) {
        pair.now_ns += NS_PER_MS / 4;
        switch (rng_below(&pair.rng, 6)) {
        case 0:
            pair_sender_turn();
            break;
        case 1:
            if (!is_calm)
                pair_receiver_turn();
            break;
        case 2:
            pair_deliver_one();
            break;
        case 3:
            pair_tick();
            break;
        default:
            pair_transport_turn();
        }
        if (!is_calm && !pair.link_down && rng_below(&pair.rng, 800) == 0)
            pair_break_link();
    }
    pair_check_end();
    *n_whole += pair.arrived && pair.arrival.is_whole;
    n_whole_heads += pair.arrived && pair.arrival.is_whole && pair.n_head_granted > 0;
    pair_end();
}

static void every_transfer_ends_and_nothing_lands_late(void **state)
{
    uint32_t n_whole = 0;

    for (uint64_t seed = 1; seed <= 5000; seed++)
        run(seed, false, &n_whole);
    assert_in_range(n_whole, 500, 4900); /* faults had effects, but not always */
    assert_in_range(n_whole_heads, n_whole / 4, 3 * n_whole / 4);
}

static void a_grant_that_comes_late_catches_up(void **state)
{
    pair_begin(3, false);
    pair.skip = 0;
    while (pair.from_ready < PAIR_PROMPT)
        pair_sender_turn();
    pair_sender_turn();
    for (int turn = 0; turn < 4000 && !pair_has_ended(); turn++) {
        pair_deliver_all();
        if (!pair.send_closed)
            kvxfer_send_tick(pair.send, pair.now_ns += NS_PER_MS / 10);
        pair.push_broken = false;
        pair_transport_turn();
    }
    assert_true(pair.arrived && pair.arrival.is_whole);
    pair_check_end();
    pair_end();
}

/* Ticks both ends for this time, without a piece or a message. */
static void pass_time(uint64_t ns)
{
    for (uint64_t end_ns = pair.now_ns + ns; pair.now_ns < end_ns;) {
        pair.now_ns += PAIR_TIMEOUT_NS / 4;
        pair_tick();
    }
}

/* Prompts that are computed before this one are no fault.  Missing pieces after the first token are one. */
static void a_receiver_is_patient_until_the_first_token(void **state)
{
    for (int is_done = 0; is_done < 2; is_done++) {
        pair_begin(4, false);
        while (pair.recv == NULL) {
            pair_deliver_all();
            kvxfer_send_tick(pair.send, pair.now_ns += NS_PER_MS);
        }
        pass_time(20 * PAIR_TIMEOUT_NS);
        assert_int_equal(pair.n_mail, 0);
        assert_false(pair.arrived || pair.recv_closed);
        if (is_done)
            kvxfer_recv_message(
                pair.recv, &(struct kvxfer_message){.kind = KVXFER_PREFILL_DONE, .transfer = 5}, pair.now_ns);
        pass_time((is_done ? 2 : 11) * PAIR_TIMEOUT_NS);
        assert_true(pair.n_mail > 0 && pair.mail[0].to_sender && pair.mail[0].message.kind == KVXFER_CANCEL);
        assert_int_equal(pair.mail[0].message.code, E_TIMEOUT);
        pair_deliver_all();
        for (int turn = 0; turn < 4000 && !pair_has_ended(); turn++) {
            pair_deliver_all();
            pair_transport_turn();
        }
        assert_true(pair.arrived && !pair.arrival.is_whole);
        pair_check_end();
        pair_end();
    }
}

static void done_before_everything_was_pushed_is_not_believed(void **state)
{
    struct kvxfer_message lie = {.kind = KVXFER_DONE, .transfer = 5};
    kv_block_id blocks[PAIR_PROMPT] = {0};
    struct kvxfer_message granted = {
        .kind = KVXFER_GRANT, .transfer = 5, .blocks = blocks, .n_blocks = PAIR_PROMPT};

    pair_begin(9, false);
    kvxfer_send_message(pair.send, &granted, pair.now_ns);
    kvxfer_send_ready(pair.send, 0, 1, pair.from_table);
    kvxfer_send_message(pair.send, &lie, pair.now_ns);
    assert_true(pair.send_over);
    assert_int_equal(pair.send_result, E_PROTO);
    assert_false(pair.send_closed); /* its leases last until the transport reads no more */
    pair.push_open = false;
    pair_raise_send_event(TR_PUSH_STOPPED);
    assert_true(pair.send_closed);
    pair_drop();
}

static void a_grant_of_the_wrong_size_is_refused(void **state)
{
    kv_block_id blocks[PAIR_PROMPT + 1] = {0};
    struct kvxfer_message granted = {
        .kind = KVXFER_GRANT, .transfer = 5, .blocks = blocks, .n_blocks = PAIR_PROMPT + 1};

    pair_begin(9, false);
    kvxfer_send_message(pair.send, &granted, pair.now_ns);
    assert_true(pair.send_over);
    assert_int_equal(pair.send_result, E_PROTO);
    assert_true(pair.send_closed);
    pair_drop();
}

/* The grant of a windowed transfer counts the blocks of each group, less those that the receiver has. */
static void a_grant_without_the_windows_is_refused(void **state)
{
    kv_block_id blocks[PAIR_PROMPT] = {0};
    struct kvxfer_message granted = {
        .kind = KVXFER_GRANT, .transfer = 5, .blocks = blocks, .n_blocks = PAIR_PROMPT};
    uint64_t seed = 1;

    for (pair_begin(seed, true); pair.n_windows == 0 || pair.first_windowed == PAIR_PROMPT;
         pair_begin(++seed, true)) {
        kvxfer_send_cancel(pair.send, E_CANCELLED);
        pair_drop();
    }
    assert_int_equal(pair.mail[0].message.n_blocks,
                     PAIR_PROMPT + pair.n_windows * (PAIR_PROMPT - pair.first_windowed));
    kvxfer_send_message(pair.send, &granted, pair.now_ns);
    assert_true(pair.send_over);
    assert_int_equal(pair.send_result, E_PROTO);
    pair_drop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_transfer_ends_and_nothing_lands_late),
        cmocka_unit_test(a_grant_that_comes_late_catches_up),
        cmocka_unit_test(a_receiver_is_patient_until_the_first_token),
        cmocka_unit_test(done_before_everything_was_pushed_is_not_believed),
        cmocka_unit_test(a_grant_of_the_wrong_size_is_refused),
        cmocka_unit_test(a_grant_without_the_windows_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
