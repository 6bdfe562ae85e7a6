/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-offs in the scheduler: two schedulers, one sequence, and a copy of bytes between their arenas, as in a
 * transfer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "tests/unit/compute/sched/rig.h"

static token_id prompt[200];
static struct rig p, d; /* prefill and decode worker */

static int setup(void **state)
{
    rig_prompt(prompt, 200, 1);
    rig_open(&p, &(struct rig_opts){0});
    rig_open(&d, &(struct rig_opts){0});
    return 0;
}

static int teardown(void **state)
{
    rig_close(&p);
    rig_close(&d);
    return 0;
}

static struct seq_spec departing(uint32_t n_tokens, uint32_t max_new_tokens)
{
    struct seq_spec spec = rig_spec(prompt, n_tokens, max_new_tokens, 9);

    spec.departs = true;
    return spec;
}

static struct seq_spec arriving(uint32_t n_tokens, uint32_t max_new_tokens)
{
    struct seq_spec spec = rig_spec(prompt, n_tokens, max_new_tokens, 9);

    spec.arrives = true;
    return spec;
}

static uint8_t *piece(const struct rig *rig, uint32_t layer, kv_block_id block)
{
    return rig->arena + kv_layout_offset(&rig->engine.info.layout, rig->opts.n_blocks, layer, block);
}

static void copy_block(kv_block_id from, kv_block_id to)
{
    const struct kv_layout *layout = &p.engine.info.layout;

    for (uint32_t layer = 0; layer < layout->n_layers; layer++)
        memcpy(piece(&d, layer, to), piece(&p, layer, from), kv_layout_layer_block_bytes(layout));
}

/* Copies the blocks that D needs, of the first n_blocks. */
static void transfer(const struct track *from, const struct track *to, uint32_t n_blocks)
{
    uint32_t n_from, n_to, n_reused;
    const kv_block_id *source = seq_blocks(from->seq, &n_from, NULL);
    const kv_block_id *target = seq_blocks(to->seq, &n_to, &n_reused);

    assert_int_equal(n_from, n_to);
    for (uint32_t i = n_reused; i < n_blocks; i++) {
        assert_int_equal(kv_state_of(d.pool, target[i]), KV_FILLING);
        copy_block(source[i], target[i]);
    }
}

static struct sample_result first_of(const struct track *track)
{
    return (struct sample_result){.id = track->answer[0]};
}

/* The first token of P and the later tokens of D equal the answer of a single worker. */
static void assert_answer_is_whole(const struct track *at_p, const struct track *at_d, uint32_t n_tokens,
                                   uint32_t max_new_tokens)
{
    struct seq_spec spec = rig_spec(prompt, n_tokens, max_new_tokens, 9);
    struct track alone = {0};

    rig_alone(&spec, 200, 0, &alone);
    assert_int_equal(at_p->n_answer, 1);
    assert_int_equal(at_p->answer[0], alone.answer[0]);
    assert_int_equal(at_d->n_answer + 1, alone.n_answer);
    assert_memory_equal(at_d->answer, alone.answer + 1, at_d->n_answer * sizeof(alone.answer[0]));
    assert_int_equal(at_d->finish, alone.finish);
}

static void a_sequence_changes_hands(void **state)
{
    struct track at_p = {0}, at_d = {0};

    assert_int_equal(rig_submit(&d, arriving(18, 12), &at_d), 0);
    assert_int_equal(seq_state(at_d.seq), SEQ_ARRIVING);
    assert_int_equal(sched_run_step(d.sched), 0); /* no work is possible yet */
    assert_false(sched_has_work(d.sched));

    assert_int_equal(rig_submit(&p, departing(18, 12), &at_p), 0);
    rig_run(&p);
    assert_int_equal(at_p.n_held, 1);
    assert_int_equal(at_p.n_answer, 1);
    assert_int_equal(p.n_layers_seen, 2 * p.n_steps);
    rig_now_ns += 5000;
    transfer(&at_p, &at_d, 5);
    struct sample_result first = first_of(&at_p);
    assert_int_equal(sched_arrived(d.sched, at_d.seq, 18, &first, false), 0);
    assert_int_equal(seq_state(at_d.seq), SEQ_DECODE);
    assert_int_equal(sched_release(p.sched, at_p.seq), 0);
    assert_int_equal(at_p.finish, SEQ_FINISH_DEPARTED);
    rig_run(&d);

    assert_answer_is_whole(&at_p, &at_d, 18, 12);
    assert_int_equal(at_d.stats.n_transferred, 18);
    assert_int_equal(at_d.stats.n_computed, 0);
    assert_int_equal(at_d.stats.n_drawn, 11);
    assert_int_equal(at_p.stats.transfer_ns, 5000);
    assert_true(at_d.stats.transfer_ns > 5000);
    assert_int_equal(at_p.stats.decode_ns, 0);

    struct track again = {0}; /* the next turn uses the arrived blocks */
    assert_int_equal(rig_submit(&d, rig_spec(prompt, 30, 1, 2), &again), 0);
    rig_run(&d);
    assert_int_equal(again.stats.n_reused, 16);
}

static void cached_blocks_are_not_sent(void **state)
{
    struct track before = {0}, at_p = {0}, at_d = {0};
    uint32_t n_blocks, n_reused;

    assert_int_equal(rig_submit(&d, rig_spec(prompt, 13, 1, 1), &before), 0);
    rig_run(&d);
    assert_int_equal(rig_submit(&d, arriving(18, 6), &at_d), 0);
    seq_blocks(at_d.seq, &n_blocks, &n_reused);
    assert_int_equal(n_blocks, 5);
    assert_int_equal(n_reused, 3);
    assert_int_equal(rig_submit(&p, departing(18, 6), &at_p), 0);
    rig_run(&p);
    transfer(&at_p, &at_d, 5);
    struct sample_result first = first_of(&at_p);
    assert_int_equal(sched_arrived(d.sched, at_d.seq, 18, &first, false), 0);
    assert_int_equal(sched_release(p.sched, at_p.seq), 0);
    rig_run(&d);
    assert_answer_is_whole(&at_p, &at_d, 18, 6);
    assert_int_equal(at_d.stats.n_reused, 12);
    assert_int_equal(at_d.stats.n_transferred, 6);
}

/* The answer is the same for any part that arrived before the loss of the peer. */
static void any_part_of_an_arrival_is_enough(void **state)
{
    struct seq_spec spec = rig_spec(prompt, 18, 9, 9);
    struct track alone = {0};

    rig_alone(&spec, 200, 0, &alone);
    for (uint32_t n = 0; n <= 18; n++) {
        struct track at_p = {0}, at_d = {0};

        assert_int_equal(rig_submit(&d, arriving(18, 9), &at_d), 0);
        assert_int_equal(rig_submit(&p, departing(18, 9), &at_p), 0);
        rig_run(&p);
        transfer(&at_p, &at_d, (n + 3) / 4);
        sched_cancel(p.sched, at_p.seq);
        assert_int_equal(at_p.finish, SEQ_FINISH_CANCELLED);
        assert_int_equal(sched_arrived(d.sched, at_d.seq, n, NULL, false), 0);
        assert_int_equal(seq_state(at_d.seq), SEQ_PREFILL);
        rig_run(&d);
        rig_assert_same(&at_d, &alone);
        assert_int_equal(at_d.stats.n_transferred, n < 18 ? n : 17);
        assert_int_equal(at_d.stats.n_computed, n < 18 ? 18 - n : 1);
        teardown(NULL);
        setup(NULL);
    }
}

static void last_full_block_is_not_sealed_before_it_is_fed_again(void **state)
{
    struct track at_p = {0}, at_d = {0};

    assert_int_equal(rig_submit(&d, arriving(16, 4), &at_d), 0); /* four whole blocks */
    assert_int_equal(rig_submit(&p, departing(16, 4), &at_p), 0);
    rig_run(&p);
    transfer(&at_p, &at_d, 4);
    assert_int_equal(sched_arrived(d.sched, at_d.seq, 16, NULL, false), 0);
    rig_run(&d); /* the rig checks that only FILLING blocks are written */
    assert_int_equal(at_d.n_answer, 4);
    sched_cancel(p.sched, at_p.seq);
}

static void peers_are_not_believed(void **state)
{
    struct track at_d = {0}, at_p = {0};
    struct sample_result foreign = {.id = RIG_VOCAB}, none = {.id = TOKEN_NONE}, fine = {.id = 50};
    struct seq_spec spec = rig_spec(prompt, 18, 9, 9);
    struct track alone = {0};

    rig_alone(&spec, 200, 0, &alone);
    assert_int_equal(rig_submit(&p, departing(18, 9), &at_p), 0);
    rig_run(&p);
    assert_int_equal(rig_submit(&d, arriving(18, 9), &at_d), 0);
    transfer(&at_p, &at_d, 5);
    assert_int_equal(sched_arrived(d.sched, at_d.seq, UINT32_MAX, &foreign, true), 0);
    assert_int_equal(seq_state(at_d.seq), SEQ_PREFILL);
    assert_int_equal(seq_n_computed(at_d.seq), 17);
    assert_int_equal(sched_arrived(d.sched, at_d.seq, 18, &fine, true), E_INVAL); /* only once */
    assert_int_equal(sched_release(d.sched, at_d.seq), E_INVAL);
    assert_int_equal(sched_keep(d.sched, at_d.seq), E_INVAL);
    rig_run(&d);
    rig_assert_same(&at_d, &alone);

    assert_int_equal(rig_submit(&d, arriving(18, 9), &at_d), 0); /* now 16 are cached */
    assert_int_equal(sched_arrived(d.sched, at_d.seq, 3, &none, true), 0);
    assert_int_equal(seq_n_computed(at_d.seq), 16);
    rig_run(&d);
    rig_assert_same(&at_d, &alone);
    assert_int_equal(at_d.stats.n_transferred, 0);

    struct track waiting = {0};
    assert_int_equal(rig_submit(&d, rig_spec(prompt, 8, 1, 1), &waiting), 0);
    assert_int_equal(sched_arrived(d.sched, waiting.seq, 8, &fine, true), E_INVAL);
    sched_cancel(p.sched, at_p.seq);
}

/* Both workers of a pair pin the blocks as the request asks. */
static void both_sides_keep_what_is_marked(void **state)
{
    struct track at_d = {0}, at_p = {0};
    struct seq_spec from = departing(18, 9), to = arriving(18, 9);
    struct kv_pool_counts counts;

    from.work.pin_tokens[WORK_PIN_5M] = to.work.pin_tokens[WORK_PIN_5M] = 14; /* three blocks and a half */
    from.work.pin_tokens[WORK_PIN_1H] = to.work.pin_tokens[WORK_PIN_1H] = 4;
    assert_int_equal(rig_submit(&p, from, &at_p), 0);
    rig_run(&p);
    assert_int_equal(rig_submit(&d, to, &at_d), 0);
    transfer(&at_p, &at_d, 5);
    assert_int_equal(sched_release(p.sched, at_p.seq), 0);
    assert_int_equal(sched_arrived(d.sched, at_d.seq, 18, &at_p.draws[0], false), 0);
    rig_run(&d);
    kv_pool_counts(p.pool, &counts);
    assert_int_equal(counts.n_pinned, 3);
    kv_pool_counts(d.pool, &counts);
    assert_int_equal(counts.n_pinned, 3);
    rig_now_ns += 6 * 60 * NS_PER_S;
    kv_expire(p.pool);
    kv_expire(d.pool);
    kv_pool_counts(p.pool, &counts);
    assert_int_equal(counts.n_cached, 1);
    kv_pool_counts(d.pool, &counts);
    assert_int_equal(counts.n_cached, 1);
}

static void first_token_may_end_the_answer(void **state)
{
    struct sample_result stop = {.id = RIG_STOP_ID}, text = {.id = 77};
    struct track at_d = {0};

    assert_int_equal(rig_submit(&d, arriving(5, 9), &at_d), 0);
    copy_block(0, 0); /* the KV is not read, because nothing is computed on it */
    assert_int_equal(sched_arrived(d.sched, at_d.seq, 5, &stop, true), 0);
    assert_int_equal(at_d.finish, SEQ_FINISH_STOP);
    assert_int_equal(at_d.n_answer, 0);

    struct track at_p = {0}; /* from here on the KV must be real, because on_token verifies it */
    assert_int_equal(rig_submit(&p, departing(5, 1), &at_p), 0);
    assert_int_equal(rig_submit(&d, arriving(5, 1), &at_d), 0);
    rig_run(&p);
    assert_int_equal(at_p.finish, SEQ_FINISH_LENGTH); /* no KV is left to hand over */
    assert_int_equal(at_p.n_held, 0);
    rig_prompt(prompt, 200, 2);
    assert_int_equal(rig_submit(&p, departing(5, 2), &at_p), 0);
    struct track other = {0};
    assert_int_equal(rig_submit(&d, arriving(5, 1), &other), 0);
    rig_run(&p);
    transfer(&at_p, &other, 2);
    assert_int_equal(sched_arrived(d.sched, other.seq, 5, &text, true), 0);
    assert_int_equal(other.finish, SEQ_FINISH_LENGTH);
    assert_int_equal(other.n_answer, 1);
    assert_int_equal(other.answer[0], 77);
    sched_cancel(d.sched, at_d.seq);
    sched_release(p.sched, at_p.seq);
}

static void hook_cancel(struct track *track, const char *event)
{
    if (strcmp(event, "token") == 0)
        sched_cancel(track->rig->sched, track->seq);
}

static void an_arrival_may_be_cancelled_by_its_own_event(void **state)
{
    struct track at_p = {0}, at_d = {.hook = hook_cancel};

    assert_int_equal(rig_submit(&p, departing(18, 9), &at_p), 0);
    assert_int_equal(rig_submit(&d, arriving(18, 9), &at_d), 0);
    rig_run(&p);
    transfer(&at_p, &at_d, 5);
    struct sample_result first = first_of(&at_p);
    assert_int_equal(sched_arrived(d.sched, at_d.seq, 18, &first, true), 0);
    assert_int_equal(at_d.finish, SEQ_FINISH_CANCELLED);
    assert_int_equal(at_d.n_answer, 1);
    sched_cancel(p.sched, at_p.seq);
}

static void leases_outlive_a_cancelled_arrival(void **state)
{
    struct track at_d = {0};
    kv_block_id ids[5];
    struct kv_pool_counts counts;

    assert_int_equal(rig_submit(&d, arriving(18, 9), &at_d), 0);
    memcpy(ids, seq_blocks(at_d.seq, NULL, NULL), sizeof(ids));
    for (int i = 0; i < 5; i++)
        kv_lease(d.pool, ids[i]);
    sched_cancel(d.sched, at_d.seq);
    assert_int_equal(at_d.finish, SEQ_FINISH_CANCELLED);
    kv_pool_counts(d.pool, &counts);
    assert_int_equal(counts.n_zombie, 5);
    for (int i = 0; i < 5; i++)
        kv_unlease(d.pool, ids[i]);
    assert_int_equal(kv_available(d.pool), d.opts.n_blocks);
}

static void held_sequences_can_stay_after_all(void **state)
{
    struct track at_p = {0}, alone = {0};
    struct seq_spec spec = rig_spec(prompt, 18, 9, 9);

    rig_alone(&spec, 200, 0, &alone);
    assert_int_equal(rig_submit(&p, departing(18, 9), &at_p), 0);
    rig_run(&p);
    assert_int_equal(seq_state(at_p.seq), SEQ_HELD);
    rig_now_ns += 777;
    assert_int_equal(sched_keep(p.sched, at_p.seq), 0);
    assert_int_equal(sched_keep(p.sched, at_p.seq), E_INVAL);
    rig_run(&p);
    rig_assert_same(&at_p, &alone);
    assert_int_equal(at_p.stats.transfer_ns, 777);
    assert_int_equal(at_p.stats.decode_ns, 8 * 1200000);
}

static void kv_alone_can_change_hands(void **state)
{
    struct track at_p = {0}, at_d = {0};

    assert_int_equal(rig_submit(&p, departing(18, 0), &at_p), 0);
    assert_int_equal(rig_submit(&d, arriving(18, 0), &at_d), 0);
    rig_run(&p);
    assert_int_equal(at_p.n_held, 1);
    assert_int_equal(at_p.n_answer, 0);
    transfer(&at_p, &at_d, 5);
    assert_int_equal(sched_arrived(d.sched, at_d.seq, 18, NULL, false), 0);
    assert_int_equal(at_d.finish, SEQ_FINISH_LENGTH);
    assert_int_equal(sched_keep(p.sched, at_p.seq), 0);
    assert_int_equal(at_p.finish, SEQ_FINISH_LENGTH);
    assert_int_equal(rig_submit(&d, rig_spec(prompt, 18, 2, 9), &at_d), 0);
    rig_run(&d);
    assert_int_equal(at_d.stats.n_reused, 16);
}

static void arrivals_are_refused_without_room(void **state)
{
    struct track tracks[6] = {{0}}, late = {0};
    struct rig small;

    for (int i = 0; i < 4; i++)
        assert_int_equal(rig_submit(&d, arriving(18, 9), &tracks[i]), 0);
    assert_int_equal(rig_submit(&d, arriving(18, 9), &late), E_OVERLOADED); /* max_seqs is reached */
    for (int i = 0; i < 4; i++)
        sched_cancel(d.sched, tracks[i].seq);

    rig_open(&small, &(struct rig_opts){.n_blocks = 9});
    assert_int_equal(rig_submit(&small, arriving(18, 9), &tracks[0]), 0);
    assert_int_equal(rig_submit(&small, arriving(18, 9), &late), E_KV_FULL);
    assert_null(late.seq);
    assert_int_equal(rig_submit(&small, rig_spec(prompt, 18, 9, 1), &tracks[1]), 0);
    rig_run(&small); /* the sequence waits for room, so no arrival may take it */
    assert_int_equal(rig_submit(&small, arriving(4, 9), &late), E_OVERLOADED);
    sched_cancel(small.sched, tracks[0].seq);
    rig_step(&small);
    assert_int_equal(rig_submit(&small, arriving(4, 9), &late), 0);
    rig_run(&small);
    assert_int_equal(tracks[1].n_answer, 9);
    rig_close(&small);
}

/* ---- layer by layer ---- */

static struct track *pusher, *catcher;
static uint32_t n_pushed; /* number of blocks, all layers */

/* Pushes, as a sender does inside on_layer, this layer of the blocks that the step completes. */
static void push_layer(struct rig *rig, uint32_t layer)
{
    struct seq *seq;
    uint32_t from, to;

    for (uint32_t i = 0; sched_step_item(rig->sched, i, &seq, &from, &to); i++) {
        if (seq != pusher->seq)
            continue;
        uint32_t n_whole = to == seq_spec(seq)->n_tokens ? (to + 3) / 4 : to / 4;

        for (uint32_t b = n_pushed; b < n_whole; b++)
            memcpy(piece(&d, layer, seq_blocks(catcher->seq, NULL, NULL)[b]),
                   piece(rig, layer, seq_blocks(seq, NULL, NULL)[b]),
                   kv_layout_layer_block_bytes(&rig->engine.info.layout));
        if (layer == rig->engine.info.layout.n_layers - 1)
            n_pushed = n_whole;
    }
    assert_false(sched_step_item(rig->sched, 99, &seq, &from, &to));
}

static void layers_leave_while_prefill_runs(void **state)
{
    struct track at_p = {0}, at_d = {0}, neighbours = {0};
    struct seq *seq;
    uint32_t from, to;

    assert_int_equal(rig_submit(&p, rig_spec(prompt + 100, 9, 20, 1), &neighbours), 0);
    rig_step(&p);
    assert_int_equal(p.n_layers_seen, 2 * p.n_steps); /* every layer of every step is reported */
    assert_int_equal(rig_submit(&d, arriving(39, 8), &at_d), 0);
    assert_int_equal(rig_submit(&p, departing(39, 8), &at_p), 0);
    pusher = &at_p;
    catcher = &at_d;
    n_pushed = 0;
    p.on_layer = push_layer;
    while (at_p.n_held == 0)
        rig_step(&p);
    assert_false(sched_step_item(p.sched, 0, &seq, &from, &to)); /* outside of a step */
    assert_int_equal(n_pushed, 10);
    struct sample_result first = first_of(&at_p);
    assert_int_equal(sched_arrived(d.sched, at_d.seq, 39, &first, false), 0);
    assert_int_equal(sched_release(p.sched, at_p.seq), 0);
    rig_run(&d);
    assert_answer_is_whole(&at_p, &at_d, 39, 8);
    rig_run(&p);
}

#define HANDOFF_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HANDOFF_TEST(a_sequence_changes_hands),
        HANDOFF_TEST(cached_blocks_are_not_sent),
        HANDOFF_TEST(any_part_of_an_arrival_is_enough),
        HANDOFF_TEST(last_full_block_is_not_sealed_before_it_is_fed_again),
        HANDOFF_TEST(peers_are_not_believed),
        HANDOFF_TEST(both_sides_keep_what_is_marked),
        HANDOFF_TEST(first_token_may_end_the_answer),
        HANDOFF_TEST(an_arrival_may_be_cancelled_by_its_own_event),
        HANDOFF_TEST(leases_outlive_a_cancelled_arrival),
        HANDOFF_TEST(held_sequences_can_stay_after_all),
        HANDOFF_TEST(kv_alone_can_change_hands),
        HANDOFF_TEST(arrivals_are_refused_without_room),
        HANDOFF_TEST(layers_leave_while_prefill_runs),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests_name("sched hand-off", tests, NULL, NULL);
}
