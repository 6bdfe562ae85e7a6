/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler, one scene per test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "tests/unit/compute/sched/rig.h"

static token_id prompt[200];
static struct rig rig;

static void begin(const struct rig_opts *opts)
{
    rig_prompt(prompt, 200, 1);
    rig_open(&rig, opts);
}

static void assert_stats_add_up(const struct track *track, uint32_t n_submitted)
{
    const struct seq_stats *s = &track->stats;

    assert_int_equal(s->n_computed + s->n_reused + s->n_transferred, n_submitted);
}

/* ---- how sequences end ---- */

static void draws_what_was_asked_for(void **state)
{
    struct track track = {0};

    begin(&(struct rig_opts){0});
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 10, 5, 1), &track), 0);
    assert_int_equal(seq_state(track.seq), SEQ_WAITING);
    assert_true(sched_has_work(rig.sched));
    rig_run(&rig);
    assert_false(sched_has_work(rig.sched));
    assert_int_equal(track.finish, SEQ_FINISH_LENGTH);
    assert_int_equal(track.n_answer, 5);
    assert_int_equal(track.stats.n_drawn, 5);
    assert_int_equal(track.stats.n_computed, 10);
    assert_stats_add_up(&track, 10);
    assert_int_equal(rig.n_steps, 5);
    assert_int_equal(track.stats.queue_ns, 0);
    assert_int_equal(track.stats.prefill_ns, 2000000);    /* one step, ten tokens */
    assert_int_equal(track.stats.decode_ns, 4 * 1200000); /* four steps, one sequence */
    rig_close(&rig);
}

static void stop_ids_end_the_answer(void **state)
{
    bool has_stopped = false;

    for (uint64_t seed = 0; seed < 10; seed++) {
        struct track track = {0}, endless = {0};
        struct seq_spec spec = rig_spec(prompt, 10, 50, seed);

        begin(&(struct rig_opts){.mean_answer_tokens = 10});
        assert_int_equal(rig_submit(&rig, spec, &track), 0);
        rig_run(&rig);
        rig_close(&rig);
        rig_alone(&spec, 200, 0, &endless);
        if (track.finish == SEQ_FINISH_STOP) {
            has_stopped = true;
            assert_int_equal(track.stats.n_drawn, track.n_answer + 1);
        }
        assert_int_equal(endless.finish, SEQ_FINISH_LENGTH);
    }
    assert_true(has_stopped);
}

static void context_ends_the_answer(void **state)
{
    struct track track = {0};

    begin(&(struct rig_opts){.context_length = 16});
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 10, 100, 1), &track), 0);
    rig_run(&rig);
    assert_int_equal(track.finish, SEQ_FINISH_CONTEXT);
    assert_int_equal(track.n_answer, 6);
    rig_close(&rig);

    begin(&(struct rig_opts){.n_blocks = 4}); /* the whole pool also limits the context */
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 10, 100, 1), &track), 0);
    rig_run(&rig);
    assert_int_equal(track.finish, SEQ_FINISH_CONTEXT);
    assert_int_equal(track.n_answer, 6);
    assert_int_equal(track.stats.n_preempted, 0);
    rig_close(&rig);
}

static void nothing_to_draw_is_prefill_only(void **state)
{
    struct track track = {0};

    begin(&(struct rig_opts){.context_length = 40});
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 40, 0, 1), &track), 0);
    rig_run(&rig);
    assert_int_equal(track.finish, SEQ_FINISH_LENGTH);
    assert_int_equal(track.n_answer, 0);
    assert_int_equal(track.stats.n_drawn, 0);
    assert_int_equal(track.n_prefilled_to, 40);
    rig_close(&rig);
}

static void resumed_streams_go_on_with_the_same_tokens(void **state)
{
    struct seq_spec spec = rig_spec(prompt, 9, 20, 5);
    struct track whole = {0}, rest = {0};

    rig_prompt(prompt, 200, 1);
    rig_alone(&spec, 200, 0, &whole);
    for (uint32_t n = 1; n < 20; n += 6) {
        token_id tokens[40];

        memcpy(tokens, prompt, 9 * sizeof(tokens[0]));
        memcpy(tokens + 9, whole.answer, n * sizeof(tokens[0]));
        spec = rig_spec(tokens, 9 + n, 20 - n, 5);
        spec.n_prompt = 9;
        rig_alone(&spec, 200, 0, &rest);
        assert_int_equal(rest.n_answer, 20 - n);
        assert_memory_equal(rest.answer, whole.answer + n, (20 - n) * sizeof(tokens[0]));
    }
}

/* ---- admission ---- */

static void impossible_specs_are_refused(void **state)
{
    struct track track = {0};
    struct seq_spec spec;

    begin(&(struct rig_opts){.context_length = 50, .n_blocks = 8, .max_queue = 2});
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 0, 5, 1), &track), E_INVAL);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 33, 0, 1), &track), E_LIMIT); /* 8 x 4 = 32 */
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 32, 1, 1), &track), E_LIMIT);
    spec = rig_spec(prompt, 5, 1, 1);
    spec.n_prompt = 6;
    assert_int_equal(rig_submit(&rig, spec, &track), E_INVAL);
    spec.n_prompt = 5;
    spec.arrives = spec.departs = true;
    assert_int_equal(rig_submit(&rig, spec, &track), E_INVAL);
    prompt[4] = RIG_VOCAB;
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 5, 5, 1), &track), E_INVAL);
    prompt[4] = TOKEN_NONE;
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 5, 5, 1), &track), E_INVAL);
    prompt[4] = 1;

    struct track ok[2] = {{0}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(rig_submit(&rig, rig_spec(prompt, 5, UINT32_MAX, 1), &ok[i]), 0);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 5, 5, 1), &track), E_OVERLOADED);
    rig_run(&rig);
    assert_int_equal(ok[0].finish, SEQ_FINISH_CONTEXT);
    assert_int_equal(ok[1].finish, SEQ_FINISH_CONTEXT);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 5, 5, 1), &track), 0);
    rig_close(&rig); /* also with a sequence in the queue */
}

static void mismatched_parts_are_refused(void **state)
{
    struct sched_opts opts;
    struct sched *sched = NULL;
    struct kv_pool_opts pool_opts = {.n_blocks = 4, .block_tokens = RIG_BLOCK_TOKENS + 1};
    struct kv_pool *pool;

    begin(&(struct rig_opts){0});
    assert_int_equal(kv_pool_new(&pool_opts, &pool), 0);
    opts = (struct sched_opts){.engine = &rig.engine, .pool = pool, .max_seqs = 1, .chunk_tokens = 1};
    assert_int_equal(sched_new(&opts, &sched), E_MISMATCH);
    opts.pool = rig.pool;
    opts.chunk_tokens = 0;
    assert_int_equal(sched_new(&opts, &sched), E_INVAL);
    opts.chunk_tokens = 1;
    opts.max_seqs = 0;
    assert_int_equal(sched_new(&opts, &sched), E_INVAL);
    assert_null(sched);
    sched_free(NULL);
    kv_pool_free(pool);
    rig_close(&rig);
}

static void prompts_share_a_step_with_decoding(void **state)
{
    struct track a = {0}, b = {0};

    begin(&(struct rig_opts){.chunk_tokens = 6, .max_batch_tokens = 16});
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 30, 10, 1), &a), 0);
    rig_step(&rig); /* alone: as much as the engine takes */
    assert_int_equal(rig.batches[0].n_prefill_tokens, 16);
    rig_step(&rig);
    assert_int_equal(rig.batches[1].n_prefill_tokens, 14);
    assert_int_equal(a.n_answer, 1);

    rig_prompt(prompt, 200, 2);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 11, 3, 2), &b), 0);
    rig_step(&rig); /* beside decoding: a chunk, cut back to the block boundary */
    assert_int_equal(rig.batches[2].n_decode, 1);
    assert_int_equal(rig.batches[2].n_prefill_tokens, 4);
    assert_int_equal(a.n_answer, 2);
    rig_step(&rig);
    assert_int_equal(rig.batches[3].n_prefill_tokens, 4);
    rig_step(&rig);
    assert_int_equal(rig.batches[4].n_prefill_tokens, 3);
    assert_int_equal(b.n_answer, 1);
    assert_int_equal(a.n_answer, 4);
    rig_run(&rig);
    rig_close(&rig);
}

static void prompts_are_served_in_order(void **state)
{
    struct track tracks[5] = {{0}};

    begin(&(struct rig_opts){.max_seqs = 3, .max_batch_tokens = 8});
    for (uint32_t i = 0; i < 5; i++) {
        rig_prompt(prompt, 200, i);
        assert_int_equal(rig_submit(&rig, rig_spec(prompt, 12, 30, i), &tracks[i]), 0);
    }
    uint32_t last = 0;
    while (tracks[2].n_answer == 0) {
        rig_step(&rig);
        for (uint32_t i = 0; i < 5; i++) {
            if (tracks[i].n_answer == 1) {
                assert_true(i >= last);
                last = i;
            }
        }
    }
    struct sched_load load;
    sched_load(rig.sched, &load);
    assert_int_equal(load.n_running, 3); /* max_seqs */
    assert_int_equal(load.n_waiting, 2);
    assert_int_equal(load.queued_prefill_tokens, 24);
    rig_run(&rig);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(tracks[i].n_answer, 30);
    rig_close(&rig);
}

/* A sequence that does not fit waits, and no other one overtakes it. */
static void admission_keeps_room_for_those_inside(void **state)
{
    struct track a = {0}, large = {0}, small = {0};

    begin(&(struct rig_opts){.n_blocks = 8});
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 12, 12, 1), &a), 0); /* 3 blocks, grows to 6 */
    rig_step(&rig);
    rig_prompt(prompt, 200, 2);
    /* 5 blocks and one to spare: does not fit. */
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 20, 2, 2), &large), 0);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt + 50, 4, 2, 3), &small), 0);
    rig_step(&rig);
    assert_int_equal(large.n_admitted, 0);
    assert_int_equal(small.n_admitted, 0);
    rig_run(&rig);
    assert_int_equal(a.stats.n_preempted, 0);
    assert_true(large.stats.queue_ns > 0);
    assert_int_equal(large.n_answer, 2);
    assert_int_equal(small.n_answer, 2);
    rig_close(&rig);
}

/* ---- the prefix cache ---- */

static void second_turn_reuses_prompt_and_answer(void **state)
{
    struct track first = {0}, second = {0};
    token_id tokens[60];

    begin(&(struct rig_opts){0});
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 10, 11, 1), &first), 0);
    rig_run(&rig);
    memcpy(tokens, prompt, 10 * sizeof(tokens[0]));
    memcpy(tokens + 10, first.answer, 11 * sizeof(tokens[0]));
    rig_prompt(tokens + 21, 20, 3);
    assert_int_equal(rig_submit(&rig, rig_spec(tokens, 41, 3, 1), &second), 0);
    rig_run(&rig);
    assert_int_equal(second.stats.n_reused, 20); /* 10 + 11 tokens, the last without KV: five blocks */
    assert_int_equal(second.stats.n_computed, 21);
    assert_stats_add_up(&second, 41);
    rig_close(&rig);
}

static void wholly_cached_prompts_compute_the_last_block(void **state)
{
    struct track tracks[3] = {{0}};

    begin(&(struct rig_opts){0});
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rig_submit(&rig, rig_spec(prompt, 16, 4, 1), &tracks[i]), 0);
        rig_run(&rig);
        assert_int_equal(tracks[i].stats.n_reused, i ? 12 : 0);
        rig_assert_same(&tracks[i], &tracks[0]);
    }
    rig_close(&rig);
}

static void tenants_share_nothing(void **state)
{
    struct track a = {0}, b = {0};
    struct seq_spec spec;

    begin(&(struct rig_opts){0});
    spec = rig_spec(prompt, 20, 4, 1);
    assert_int_equal(rig_submit(&rig, spec, &a), 0);
    rig_run(&rig);
    spec.prefix_key.bytes[0] = 1;
    assert_int_equal(rig_submit(&rig, spec, &b), 0);
    rig_run(&rig);
    assert_int_equal(b.stats.n_reused, 0);
    rig_assert_same(&a, &b);
    rig_close(&rig);
}

/* Requests with the same long prompt arrive together: later ones find the blocks that the first computed. */
static void bursts_share_a_prompt(void **state)
{
    struct track tracks[3] = {{0}};

    begin(&(struct rig_opts){0});
    for (int i = 0; i < 3; i++) {
        prompt[60] = 10 + (token_id)i;
        assert_int_equal(rig_submit(&rig, rig_spec(prompt, 61, 2, 1), &tracks[i]), 0);
    }
    rig_run(&rig);
    assert_int_equal(tracks[0].stats.n_reused, 0);
    assert_true(tracks[1].stats.n_reused >= 40);
    assert_true(tracks[2].stats.n_reused >= 40);
    rig_close(&rig);
}

static void the_end_of_a_conversation_is_evicted_first(void **state)
{
    token_id other[20];
    struct track track = {0};

    begin(&(struct rig_opts){.n_blocks = 8});
    rig_prompt(other, 20, 2);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 25, 1, 1), &track), 0); /* leaves six cached */
    rig_run(&rig);
    assert_int_equal(rig_submit(&rig, rig_spec(other, 19, 1, 1), &track), 0); /* needs five of eight */
    rig_run(&rig);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 25, 1, 1), &track), 0);
    rig_run(&rig);
    assert_int_equal(track.stats.n_reused, 12);
    rig_close(&rig);
}

/* ---- preemption ---- */

static void the_youngest_yields_and_loses_nothing(void **state)
{
    struct seq_spec specs[3];
    token_id prompts[3][20];
    struct track tracks[3] = {{0}}, alone = {0};
    uint32_t n_preempted = 0;

    begin(&(struct rig_opts){.n_blocks = 14});
    for (uint32_t i = 0; i < 3; i++) {
        rig_prompt(prompts[i], 20, i);
        specs[i] = rig_spec(prompts[i], 8, 30, i + 1);
        assert_int_equal(rig_submit(&rig, specs[i], &tracks[i]), 0);
    }
    rig_run(&rig);
    assert_int_equal(tracks[0].stats.n_preempted, 0);
    for (uint32_t i = 0; i < 3; i++) {
        rig_alone(&specs[i], 200, 0, &alone);
        rig_assert_same(&tracks[i], &alone);
        assert_stats_add_up(&tracks[i], 8);
        assert_int_equal(tracks[i].stats.n_drawn, 30);
        n_preempted += tracks[i].stats.n_preempted;
    }
    assert_true(n_preempted > 0);
    assert_true(tracks[1].stats.n_recomputed + tracks[2].stats.n_recomputed > 0);

    struct sched_load load;
    sched_load(rig.sched, &load);
    assert_int_equal(load.n_preemptions, n_preempted);
    rig_close(&rig);
}

static void the_preempted_come_back_first(void **state)
{
    token_id other[4];
    struct track a = {0}, b = {0}, c = {0};
    bool has_waited = false;

    begin(&(struct rig_opts){.n_blocks = 8, .max_seqs = 2});
    rig_prompt(other, 4, 2);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 8, 20, 1), &a), 0);
    assert_int_equal(rig_submit(&rig, rig_spec(other, 4, 20, 2), &b), 0);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 4, 4, 3), &c), 0);
    while (!b.is_done) {
        rig_step(&rig);
        if (b.seq && seq_stats(b.seq)->n_preempted > 0 && seq_state(b.seq) == SEQ_WAITING) {
            has_waited = true;
            assert_int_equal(c.n_admitted, 0);
        }
    }
    assert_true(has_waited);
    rig_run(&rig);
    assert_int_equal(c.n_answer, 4);
    rig_close(&rig);
}

/* ---- reports to the router ---- */

static void rates_are_learned(void **state)
{
    struct track track = {0};
    struct sched_load load;

    begin(&(struct rig_opts){0});
    sched_load(rig.sched, &load);
    assert_true(load.prefill_tokens_per_s == 0);
    assert_true(load.decode_step_s == 0);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 160, 20, 1), &track), 0);
    sched_load(rig.sched, &load);
    assert_int_equal(load.queued_prefill_tokens, 160);
    rig_step(&rig);
    sched_load(rig.sched, &load);
    assert_int_equal(load.queued_prefill_tokens, 144);
    assert_int_equal(load.n_prefill, 1);
    for (int i = 0; i < 12; i++)
        rig_step(&rig);
    sched_load(rig.sched, &load);
    assert_int_equal(load.n_decode, 1);
    assert_int_equal(load.decode_tokens_context, 164);
    assert_true(load.prefill_tokens_per_s > 6100 && load.prefill_tokens_per_s < 6200); /* 16 in 2.6 ms */
    assert_true(load.decode_step_s > 0.00119 && load.decode_step_s < 0.00121);
    rig_run(&rig);
    rig_close(&rig);
}

/* Two answers to one prompt at once.  The prompt is computed once, except for the second one's last block,
 * which gives its first logits. */
static void answers_to_one_prompt_compute_it_once(void **state)
{
    struct track tracks[3] = {{0}};

    begin(&(struct rig_opts){.max_batch_tokens = 160, .chunk_tokens = 160, .n_blocks = 64});
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 40, 5, 1), &tracks[0]), 0);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 40, 5, 2), &tracks[1]), 0);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 40, 5, 3), &tracks[2]), 0);
    rig_run(&rig);
    assert_int_equal(tracks[0].stats.n_computed, 40);
    for (uint32_t i = 1; i < 3; i++) {
        assert_int_equal(tracks[i].stats.n_reused, 36);
        assert_int_equal(tracks[i].stats.n_computed, 4);
        /* Different seeds. */
        assert_true(memcmp(tracks[0].answer, tracks[i].answer, sizeof(token_id) * 5) != 0);
    }
    rig_close(&rig);
}

/* Requests need more blocks than the pool has.  Pinned blocks stay; the unpinned ones at the end do not. */
static void marked_prompts_outlast_others(void **state)
{
    struct track track = {0};
    struct seq_spec spec;
    token_id other[200];

    begin(&(struct rig_opts){.n_blocks = 32, .context_length = 120});
    rig_prompt(other, 200, 2);
    spec = rig_spec(prompt, 40, 4, 1);
    spec.work.pin_tokens[WORK_PIN_5M] = 30; /* seven blocks and a half */
    spec.work.pin_tokens[WORK_PIN_1H] = 9;
    assert_int_equal(rig_submit(&rig, spec, &track), 0);
    rig_run(&rig);
    assert_int_equal(rig_submit(&rig, rig_spec(other, 90, 8, 1), &track), 0);
    rig_run(&rig);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 40, 1, 1), &track), 0);
    rig_run(&rig);
    assert_int_equal(track.stats.n_reused, 28);
    rig_now_ns += 6 * 60 * NS_PER_S; /* five minutes are over, the hour is not */
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 40, 1, 1), &track), 0);
    rig_run(&rig);
    assert_int_equal(track.stats.n_reused, 8);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_what_was_asked_for),
        cmocka_unit_test(stop_ids_end_the_answer),
        cmocka_unit_test(context_ends_the_answer),
        cmocka_unit_test(nothing_to_draw_is_prefill_only),
        cmocka_unit_test(resumed_streams_go_on_with_the_same_tokens),
        cmocka_unit_test(impossible_specs_are_refused),
        cmocka_unit_test(mismatched_parts_are_refused),
        cmocka_unit_test(prompts_share_a_step_with_decoding),
        cmocka_unit_test(prompts_are_served_in_order),
        cmocka_unit_test(admission_keeps_room_for_those_inside),
        cmocka_unit_test(second_turn_reuses_prompt_and_answer),
        cmocka_unit_test(wholly_cached_prompts_compute_the_last_block),
        cmocka_unit_test(tenants_share_nothing),
        cmocka_unit_test(bursts_share_a_prompt),
        cmocka_unit_test(the_end_of_a_conversation_is_evicted_first),
        cmocka_unit_test(the_youngest_yields_and_loses_nothing),
        cmocka_unit_test(the_preempted_come_back_first),
        cmocka_unit_test(rates_are_learned),
        cmocka_unit_test(answers_to_one_prompt_compute_it_once),
        cmocka_unit_test(marked_prompts_outlast_others),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests_name("sched", tests, NULL, NULL);
}
