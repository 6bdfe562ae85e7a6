/* SPDX-License-Identifier: Apache-2.0 */
/* Speculation, one scene per test: the tokens of plain decoding in fewer steps, and never much slower.
 * test_sched_model tests exactness over random histories, test_speculate_cpu over real forward passes. */
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
#include "tests/unit/trials.h"

static token_id prompt[200];
static struct rig rig;

static void begin(const struct rig_opts *opts, uint32_t echo)
{
    rig_prompt(prompt, 200, 1);
    rig_echo = echo;
    rig_open(&rig, opts);
}

static void repeated_text_costs_fewer_steps(void **state)
{
    struct seq_spec spec = rig_spec(prompt, 10, 200, 1);
    struct track track = {0}, alone = {0};
    struct sched_load load;

    begin(&(struct rig_opts){.speculate = SPECULATE_AUTO, .context_length = 256}, 100);
    assert_int_equal(rig_submit(&rig, spec, &track), 0);
    rig_run(&rig);
    rig_alone(&spec, 256, 0, &alone);
    rig_assert_same(&track, &alone);
    assert_true(rig.n_steps < 80);
    assert_int_equal(track.stats.n_drawn, 200);
    assert_true(track.stats.n_accepted >= 200 - rig.n_steps && track.stats.n_accepted < 200);
    assert_true(track.stats.decode_ns < alone.stats.decode_ns * 2 / 3);
    sched_load(rig.sched, &load);
    assert_int_equal(load.n_drafted[SCHED_DRAFT_TEXT], track.stats.n_drafted);
    assert_true(load.n_accepted[SCHED_DRAFT_TEXT] >= track.stats.n_accepted);
    assert_int_equal(load.n_steps, rig.n_steps);
    assert_true(load.n_draft_steps > 0 && load.n_draft_steps < load.n_steps);
    assert_true(load.decode_step_s < 0.0012); /* time between two tokens, not two steps */
    rig_close(&rig);
}

static void off_drafts_nothing(void **state)
{
    struct track track = {0};

    begin(&(struct rig_opts){.context_length = 256}, 100);
    assert_int_equal(rig_submit(&rig, rig_spec(prompt, 10, 100, 1), &track), 0);
    rig_run(&rig);
    assert_int_equal(rig.n_steps, 100);
    assert_int_equal(track.stats.n_drafted, 0);
    rig_close(&rig);
}

/* Each way of ending an answer ends it at the same token, and no further token is sampled. */
static void answers_end_where_they_end(void **state)
{
    for (uint64_t seed = 1; seed <= trials(40, 8); seed++) {
        for (uint32_t max_new = 1; max_new < 120; max_new += 7) {
            struct rig_opts opts = {.speculate = SPECULATE_ALWAYS,
                                    .max_drafts = 1 + (uint32_t)seed % 12,
                                    .context_length = 40 + (uint32_t)seed,
                                    .mean_answer_tokens = seed % 2 ? 0 : 40};
            struct seq_spec spec = rig_spec(prompt, 10, max_new, seed);
            struct track track = {0}, alone = {0};

            begin(&opts, 100);
            assert_int_equal(rig_submit(&rig, spec, &track), 0);
            rig_run(&rig);
            rig_close(&rig);
            rig_alone(&spec, opts.context_length, opts.mean_answer_tokens, &alone);
            rig_assert_same(&track, &alone);
            assert_int_equal(track.stats.n_drawn, alone.stats.n_drawn);
        }
    }
}

/* The test cancels an answer inside the event of one of its tokens. Some of these tokens share a step. */
static void cancel_at(struct track *track, const char *event)
{
    if (strcmp(event, "token") == 0 && track->n_answer == *(uint32_t *)track->arg)
        sched_cancel(track->rig->sched, track->seq);
}

static void cancelled_between_two_tokens_of_a_step(void **state)
{
    for (uint32_t at = 1; at < 100; at++) {
        struct track track = {.hook = cancel_at, .arg = &at};

        begin(&(struct rig_opts){.speculate = SPECULATE_ALWAYS, .context_length = 256}, 100);
        assert_int_equal(rig_submit(&rig, rig_spec(prompt, 10, 150, 1), &track), 0);
        rig_run(&rig);
        assert_int_equal(track.finish, SEQ_FINISH_CANCELLED);
        assert_int_equal(track.n_answer, at);
        rig_close(&rig);
    }
}

/* No sequence finds rejected draft tokens in the cache:
 * the next one with the same prefix computes its own. */
static void rejected_drafts_reach_no_cache(void **state)
{
    uint32_t n_wrong = 0;

    for (uint64_t seed = 1; seed <= trials(60, 12); seed++) {
        struct track first = {0}, second = {0};
        token_id tokens[200];
        uint32_t n_tokens;

        begin(&(struct rig_opts){.speculate = SPECULATE_ALWAYS, .context_length = 256}, 80);
        assert_int_equal(rig_submit(&rig, rig_spec(prompt, 10, 120, seed), &first), 0);
        rig_run(&rig);
        n_wrong += first.stats.n_drafted - first.stats.n_accepted;
        memcpy(tokens, prompt, 10 * sizeof(tokens[0]));
        memcpy(tokens + 10, first.answer, 120 * sizeof(tokens[0]));
        n_tokens = 130;
        /* The rig compares reused blocks with these tokens, byte for byte. */
        assert_int_equal(rig_submit(&rig, rig_spec(tokens, n_tokens, 1, seed), &second), 0);
        rig_run(&rig);
        assert_int_equal(second.stats.n_reused, 128); /* the last sampled token was never fed */
        rig_close(&rig);
    }
    assert_true(n_wrong > 100);
}

/* Counts preemptions of three answers that grow in a pool. */
static uint32_t preemptions(const struct rig_opts *opts, uint64_t seed, uint32_t *n_accepted)
{
    struct track tracks[3] = {0};
    uint32_t n = 0;

    begin(opts, 95);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(rig_submit(&rig, rig_spec(prompt + 40 * i, 10, 50, seed + i), &tracks[i]), 0);
    rig_run(&rig);
    for (uint32_t i = 0; i < 3; i++) {
        n += tracks[i].stats.n_preempted;
        *n_accepted += tracks[i].stats.n_accepted;
    }
    rig_close(&rig);
    return n;
}

/* Draft tokens take blocks only if many are free, and give them back first.  They never preempt a sequence. */
static void drafts_preempt_nobody(void **state)
{
    struct rig_opts opts = {.n_blocks = 46, .max_batch_tokens = 64, .chunk_tokens = 64, .max_drafts = 24};
    uint32_t n_plain = 0, n_always = 0, n_accepted = 0;

    for (uint64_t seed = 1; seed <= trials(100, 20); seed++) {
        opts.n_blocks = 46; /* room for all answers, and a block */
        opts.speculate = SPECULATE_ALWAYS;
        assert_int_equal(preemptions(&opts, seed, &n_accepted), 0);
        opts.n_blocks = 28; /* not for all of them */
        n_always += preemptions(&opts, seed, &n_accepted);
        opts.speculate = SPECULATE_OFF;
        n_plain += preemptions(&opts, seed, &n_accepted);
    }
    print_message("%u preemptions without drafts, %u with\n", n_plain, n_always);
    assert_true(n_always <= n_plain * 3 / 5); /* 0.64 if spare blocks were kept */
    assert_true(n_accepted > 1000);
}

/* ---- time that drafting saves or loses ---- */

static uint64_t time_of(const struct rig_opts *opts, uint32_t echo, uint32_t n_seqs, uint32_t *n_accepted)
{
    static struct track tracks[8];
    uint64_t began_ns;

    begin(opts, echo);
    began_ns = rig_now_ns;
    for (uint32_t i = 0; i < n_seqs; i++) {
        memset(&tracks[i], 0, sizeof(tracks[i]));
        assert_int_equal(rig_submit(&rig, rig_spec(prompt + 20 * i, 12, 240, i), &tracks[i]), 0);
    }
    rig_run(&rig);
    for (uint32_t i = 0; i < n_seqs; i++)
        *n_accepted += tracks[i].stats.n_accepted;
    rig_close(&rig);
    return rig_now_ns - began_ns;
}

/* From rows that cost nothing to rows that cost twice a step's start, from noise to loops. */
static void it_pays_or_costs_next_to_nothing(void **state)
{
    static const uint64_t row_ns[] = {1000, 50000, 100000, 300000, 1000000, 2000000};
    static const uint32_t seqs[] = {1, 3, 8};

    print_message("plain time / speculating time\n  row cost  sequences   echo 0    40    70    90   100\n");
    for (size_t i = trials(0, ARRAY_LEN(row_ns) - 1); i < ARRAY_LEN(row_ns); i++) {
        for (size_t j = 0; j < ARRAY_LEN(seqs); j++) {
            static const uint32_t echoes[] = {0, 40, 70, 90, 100};
            double ratios[ARRAY_LEN(echoes)];

            for (size_t k = 0; k < ARRAY_LEN(echoes); k++) {
                struct rig_opts opts = {.n_blocks = 8 * 70,
                                        .context_length = 260,
                                        .max_batch_tokens = 128,
                                        .chunk_tokens = 64,
                                        .max_seqs = 8,
                                        .max_drafts = 24,
                                        .decode_seq_ns = row_ns[i]};
                uint32_t n_accepted = 0;
                uint64_t plain_ns = time_of(&opts, echoes[k], seqs[j], &n_accepted);

                opts.speculate = SPECULATE_AUTO;
                ratios[k] = (double)plain_ns / (double)time_of(&opts, echoes[k], seqs[j], &n_accepted);
                assert_true(ratios[k] > 0.97);
            }
            print_message("  %6.2f ms %6u %12.2f %6.2f %6.2f %6.2f %6.2f\n", (double)row_ns[i] / 1e6, seqs[j],
                          ratios[0], ratios[1], ratios[2], ratios[3], ratios[4]);
            if (row_ns[i] * seqs[j] <= 100000)
                assert_true(ratios[4] > 2);
        }
    }
}

/* The row after an accepted draft token has NaN logits: the answer keeps the tokens before it and ends with
 * the error, and its blocks leave the prefix cache. Rows after a rejected draft token do not count. */
static void a_spoilt_draft_row_ends_the_answer(void **state)
{
    for (uint32_t after = 1; after <= 4; after++) {
        struct seq_spec spec = rig_spec(prompt, 10, 120, 1);
        struct track track = {0}, alone = {0}, again = {0};

        begin(&(struct rig_opts){.speculate = SPECULATE_ALWAYS, .context_length = 256}, 90);
        rig.spoil_after = after;
        assert_int_equal(rig_submit(&rig, spec, &track), 0);
        rig_run(&rig);
        assert_true(track.is_done);
        assert_int_equal(track.finish, SEQ_FINISH_SPOILT);
        assert_true(track.stats.n_accepted >= after);
        rig_alone(&spec, 256, 0, &alone);
        assert_true(track.n_answer > after && track.n_answer < alone.n_answer);
        assert_memory_equal(track.answer, alone.answer, track.n_answer * sizeof(track.answer[0]));
        rig.spoil_after = 0;
        assert_int_equal(rig_submit(&rig, spec, &again), 0);
        rig_run(&rig);
        assert_int_equal(again.stats.n_reused, 0);
        rig_assert_same(&again, &alone);
        rig_close(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeated_text_costs_fewer_steps),
        cmocka_unit_test(off_drafts_nothing),
        cmocka_unit_test(answers_end_where_they_end),
        cmocka_unit_test(cancelled_between_two_tokens_of_a_step),
        cmocka_unit_test(a_spoilt_draft_row_ends_the_answer),
        cmocka_unit_test(rejected_drafts_reach_no_cache),
        cmocka_unit_test(drafts_preempt_nobody),
        cmocka_unit_test(it_pays_or_costs_next_to_nothing),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests_name("speculation", tests, NULL, NULL);
}
