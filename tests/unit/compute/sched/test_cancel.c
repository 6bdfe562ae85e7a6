/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that end early: cancelled at any moment, or failed with their step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/check.h"
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

/* ---- cancel ---- */

static void hook_cancel(struct track *track, const char *event)
{
    const char *when = track->arg;

    if (strcmp(event, when) == 0 && track->seq)
        sched_cancel(track->rig->sched, track->seq);
}

static void cancel_works_inside_each_event(void **state)
{
    static const char *const events[] = {"admitted", "prefilled", "token", "held", "done"};

    for (size_t i = 0; i < ARRAY_LEN(events); i++) {
        struct track track = {.hook = hook_cancel, .arg = (void *)(uintptr_t)events[i]}, other = {0};
        struct seq_spec spec;

        begin(&(struct rig_opts){0});
        spec = rig_spec(prompt, 10, 5, 1);
        spec.departs = true;
        assert_int_equal(rig_submit(&rig, spec, &track), 0);
        assert_int_equal(rig_submit(&rig, rig_spec(prompt, 12, 5, 2), &other), 0);
        rig_run(&rig);
        if (strcmp(events[i], "done") == 0) {
            assert_false(track.is_done); /* the test has not released it */
            sched_cancel(rig.sched, track.seq);
        }
        assert_int_equal(track.finish, SEQ_FINISH_CANCELLED);
        assert_int_equal(other.n_answer, 5);
        rig_close(&rig);
    }
}

static void cancel_inside_an_event_ends_with_the_step(void **state)
{
    struct track track = {.hook = hook_cancel, .arg = (void *)(uintptr_t) "token"};

    begin(&(struct rig_opts){0});
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 10, 5, 1), &track), 0);
    rig_step(&rig);
    assert_int_equal(track.finish, SEQ_FINISH_CANCELLED);
    assert_int_equal(track.n_answer, 1);
    rig_close(&rig);
}

static struct track *layer_victim;

static void cancel_in_layer(struct rig *r, uint32_t layer)
{
    if (layer == 1 && layer_victim->seq) {
        sched_cancel(r->sched, layer_victim->seq);
        assert_false(layer_victim->is_done); /* the engine is using its blocks */
    }
}

static void cancel_waits_for_the_step(void **state)
{
    struct track track = {0};
    struct seq_spec spec;

    begin(&(struct rig_opts){0});
    spec = rig_spec(prompt, 10, 5, 1);
    spec.departs = true;
    layer_victim = &track;
    rig.on_layer = cancel_in_layer;
    assert_int_equal(rig_submit(&rig, spec, &track), 0);
    rig_step(&rig);
    assert_int_equal(track.finish, SEQ_FINISH_CANCELLED);
    assert_int_equal(track.n_answer, 0);
    rig_close(&rig);
}

static void hook_cancel_other(struct track *track, const char *event)
{
    struct track *other = track->arg;

    if (strcmp(event, "token") == 0 && track->n_answer == 3 && other->seq)
        sched_cancel(track->rig->sched, other->seq);
}

static void cancel_of_another_works_inside_an_event(void **state)
{
    for (int which = 0; which < 2; which++) { /* one sequence before and one after it in the batch */
        struct track tracks[3] = {{0}};

        begin(&(struct rig_opts){0});
        tracks[1].hook = hook_cancel_other;
        tracks[1].arg = &tracks[which * 2];
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(rig_submit(&rig, rig_spec(prompt, 4, 8, i), &tracks[i]), 0);
        rig_run(&rig);
        assert_int_equal(tracks[which * 2].finish, SEQ_FINISH_CANCELLED);
        assert_int_equal(tracks[1].n_answer, 8);
        assert_int_equal(tracks[2 - which * 2].n_answer, 8);
        rig_close(&rig);
    }
}

static void cancel_all_walks_the_list(void **state)
{
    struct track tracks[6] = {{0}};
    struct seq *seq;
    uint32_t n = 0;

    begin(&(struct rig_opts){.max_seqs = 2});
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(rig_submit(&rig, rig_spec(prompt, 4, 8, i), &tracks[i]), 0);
    rig_step(&rig);
    for (seq = sched_next(rig.sched, NULL); seq; n++) {
        struct seq *next = sched_next(rig.sched, seq);

        assert_int_equal(seq_spec(seq)->id, n);
        sched_cancel(rig.sched, seq);
        seq = next;
    }
    assert_int_equal(n, 6);
    assert_false(sched_has_work(rig.sched));
    rig_close(&rig);
}

/* ---- failure ---- */

static void a_failed_step_fails_its_sequences_only(void **state)
{
    struct track inside = {0}, waiting = {0}, again = {0};

    begin(&(struct rig_opts){.max_seqs = 1});
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 10, 5, 1), &inside), 0);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 12, 5, 2), &waiting), 0);
    rig_step(&rig);
    rig.fail_with = E_INTERNAL;
    assert_int_equal(sched_run_step(rig.sched), E_INTERNAL);
    assert_int_equal(inside.finish, SEQ_FINISH_FAILED);
    assert_false(waiting.is_done);
    rig_run(&rig);
    assert_int_equal(waiting.n_answer, 5);
    assert_int_equal(waiting.stats.n_reused, 0); /* blocks of the failed sequence are not reused */
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 12, 5, 2), &again), 0);
    rig_run(&rig);
    assert_int_equal(again.stats.n_reused, 8);
    rig_close(&rig);
}

static atomic_bool gives_up;

static void give_up(struct rig *of, uint32_t layer)
{
    (void)of;
    if (layer == 0)
        atomic_store(&gives_up, true);
}

/* Another thread wants to stop: the step ends at the next layer, and no later sequence finds its blocks. */
static void a_step_that_is_given_up_is_a_failed_one(void **state)
{
    struct track first = {0}, again = {0}, alone = {0};
    struct seq_spec spec = rig_spec(prompt, 12, 5, 2);

    begin(&(struct rig_opts){.is_given_up = &gives_up});
    atomic_store(&gives_up, false);
    rig.on_layer = give_up;
    assert_int_equal(rig_submit(&rig, spec, &first), 0);
    assert_int_equal(sched_run_step(rig.sched), E_CANCELLED);
    assert_int_equal(first.finish, SEQ_FINISH_FAILED);
    rig.on_layer = NULL;
    atomic_store(&gives_up, false);
    assert_int_equal(rig_submit(&rig, spec, &again), 0);
    rig_run(&rig);
    assert_int_equal(again.stats.n_reused, 0);
    rig_alone(&spec, 200, 0, &alone);
    rig_assert_same(&again, &alone);
    rig_close(&rig);
}

static void damaged_kv_is_noticed_and_forgotten(void **state)
{
    struct track track = {0}, again = {0};

    begin(&(struct rig_opts){0});
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 10, 5, 1), &track), 0);
    rig_run(&rig);
    memset(rig.arena, 0xa5, rig.opts.n_blocks * kv_layout_block_bytes(&rig.engine.info.layout));
    struct sched_events none = {0};
    struct sched *sched;
    struct sched_opts opts = {.engine = &rig.engine,
                              .pool = rig.pool,
                              .max_seqs = 2,
                              .max_queue = 2,
                              .chunk_tokens = 8,
                              .events = none};
    struct seq_spec spec = rig_spec(prompt, 10, 5, 1);
    struct seq *seq;

    assert_int_equal(sched_new(&opts, &sched), 0); /* without events, because they would check the KV */
    assert_int_equal(sched_submit(sched, &spec, &seq), 0);
    assert_int_equal(sched_run_step(sched), E_INTERNAL);
    assert_int_equal(sched_run_step(sched), 0);
    sched_free(sched);
    assert_int_equal(rig_submit(&rig, spec, &again), 0);
    rig_run(&rig);
    rig_assert_same(&track, &again);
    assert_int_equal(again.stats.n_reused, 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancel_works_inside_each_event),
        cmocka_unit_test(cancel_inside_an_event_ends_with_the_step),
        cmocka_unit_test(cancel_waits_for_the_step),
        cmocka_unit_test(cancel_of_another_works_inside_an_event),
        cmocka_unit_test(cancel_all_walks_the_list),
        cmocka_unit_test(a_failed_step_fails_its_sequences_only),
        cmocka_unit_test(a_step_that_is_given_up_is_a_failed_one),
        cmocka_unit_test(damaged_kv_is_noticed_and_forgotten),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests_name("sched cancel", tests, NULL, NULL);
}
