/* SPDX-License-Identifier: Apache-2.0 */
/* The step planner in virtual time: a worker that decodes and always has prompts waiting.
 *
 * Steps keep the objective for the time between tokens in 99 of 100 cases.  Prompts get nine tenths of the
 * time that the objective and the decoding sequences leave.  This holds after about twenty steps of learning,
 * with noise.  If decoding alone breaks the objective, prompts still get a share. */
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

#define MS            UINT64_C(1000000)
#define STEPS         240
#define LEARNING      20
#define PROMPT_TOKENS 150
#define PROMPTS       4096
#define DECODERS_MAX  16
#define CHUNK_MOST    1024
#define PREFILL_NS    100000
#define START_NS      MS
#define ROW_NS        200000

struct outcome {
    uint64_t p99_ns, most_ns;
    double share;        /* as a share of the prompt tokens with which even the longest steps would keep the
                          * objective */
    double prefill_time; /* share of the time that prompts took */
};

static struct rig rig;
static struct track decoders[DECODERS_MAX], prompts[PROMPTS];
static uint32_t n_prompts;

static void submit_decoder(uint32_t i)
{
    token_id tokens[8];

    rig_prompt(tokens, 8, 5000 + i);
    assert_int_equal(rig_submit(&rig, rig_spec(tokens, 8, 190, i), &decoders[i]), 0);
}

/* Keeps prompts waiting, each with its own text. */
static void keep_prompts_waiting(void)
{
    struct sched_load load;

    sched_load(rig.sched, &load);
    for (; load.queued_prefill_tokens < 2 * CHUNK_MOST; load.queued_prefill_tokens += PROMPT_TOKENS) {
        token_id tokens[PROMPT_TOKENS];

        rig_prompt(tokens, PROMPT_TOKENS, 7 + n_prompts);
        tokens[0] = 10 + n_prompts % 400;
        tokens[1] = 10 + n_prompts / 400;
        assert_true(n_prompts < PROMPTS);
        assert_int_equal(rig_submit(&rig, rig_spec(tokens, PROMPT_TOKENS, 0, 1), &prompts[n_prompts++]), 0);
    }
}

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

/* A worker with so many decoding sequences and no prompts yet. */
static void planner_open(uint64_t itl_ns, uint32_t n_decoders)
{
    struct rig_opts opts = {.n_blocks = 4000,
                            .max_seqs = 64,
                            .max_queue = 64,
                            .chunk_tokens = CHUNK_MOST,
                            .max_batch_tokens = CHUNK_MOST + 64,
                            .context_length = 250,
                            .itl_ns = itl_ns};

    rig_open(&rig, &opts);
    n_prompts = 0;
    for (uint32_t i = 0; i < n_decoders; i++)
        submit_decoder(i);
}

static void planner_close(void)
{
    for (struct seq *seq; (seq = sched_next(rig.sched, NULL)) != NULL;)
        sched_cancel(rig.sched, seq);
    rig_close(&rig);
}

static struct outcome run(uint64_t itl_ns, uint32_t n_decoders)
{
    struct outcome outcome = {0};
    uint64_t steps_ns[STEPS], total_ns = 0, prefill_ns = 0;
    double allowed = 0, done = 0;
    uint32_t n = 0;

    planner_open(itl_ns, n_decoders);
    for (uint32_t i = 0; i < STEPS / 2 + LEARNING; i++) {
        uint64_t began_ns = rig_now_ns;

        keep_prompts_waiting();
        rig_step(&rig);
        const struct rig_batch *batch = &rig.batches[(rig.n_steps - 1) % RIG_STEPS_MAX];
        double left_ns = (double)itl_ns / (1 + rig_jitter / 100.0) - (double)START_NS;
        left_ns -= (double)batch->n_decode * ROW_NS;
        if (i < LEARNING || batch->n_decode == 0)
            continue;
        steps_ns[n++] = rig_now_ns - began_ns;
        total_ns += rig_now_ns - began_ns;
        prefill_ns += (uint64_t)batch->n_prefill_tokens * PREFILL_NS;
        done += batch->n_prefill_tokens;
        allowed += left_ns > 0 ? left_ns / PREFILL_NS : 0;
    }
    qsort(steps_ns, n, sizeof(steps_ns[0]), by_value);
    outcome.p99_ns = steps_ns[n * 99 / 100];
    outcome.most_ns = steps_ns[n - 1];
    outcome.share = allowed > 0 ? done / allowed : 0;
    outcome.prefill_time = (double)prefill_ns / (double)total_ns;
    planner_close();
    return outcome;
}

static void print_outcome(uint64_t itl_ns, uint32_t n_decoders, const struct outcome *o)
{
    print_message("  %9.1f ms %9u %9.2f ms %8.2f ms %9.1f%% %9.1f%%\n", (double)itl_ns / 1e6, n_decoders,
                  (double)o->p99_ns / 1e6, (double)o->most_ns / 1e6, 100 * o->share, 100 * o->prefill_time);
}

static void steps_keep_the_objective(void **state)
{
    static const uint64_t objectives_ns[] = {5 * MS, 10 * MS, 20 * MS, 50 * MS};
    static const uint32_t decoders_n[] = {1, 4, 12};
    static const uint32_t jitters[] = {0, 5, 10};

    for (size_t k = 0; k < ARRAY_LEN(jitters); k++) {
        rig_jitter = jitters[k];
        print_message(
            "step time +-%u%%\n     objective  decoding       p99        most  of allowed   of time\n",
            rig_jitter);
        for (size_t i = 0; i < ARRAY_LEN(objectives_ns); i++) {
            for (size_t j = 0; j < ARRAY_LEN(decoders_n); j++) {
                struct outcome o = run(objectives_ns[i], decoders_n[j]);

                print_outcome(objectives_ns[i], decoders_n[j], &o);
                assert_true(o.p99_ns <= objectives_ns[i]);
                assert_true(o.share >= 0.9);
            }
        }
    }
    rig_jitter = 0;
}

static void prompts_are_never_starved(void **state)
{
    for (uint32_t n_decoders = 4; n_decoders <= DECODERS_MAX; n_decoders += 4) {
        struct outcome o = run(MS, n_decoders); /* less than the start of a step alone */

        print_outcome(MS, n_decoders, &o);
        assert_true(o.prefill_time > 0.15 && o.prefill_time < 0.6);
    }
}

/* The reported time of the waiting prompts is the time that they take beside the decoding sequences. */
static void a_queue_takes_as_long_as_reported(void **state)
{
    for (uint32_t n_decoders = 0; n_decoders <= 12; n_decoders += 4) {
        struct sched_load load, left;
        uint64_t began_ns;
        double taken_s;

        planner_open(10 * MS, n_decoders);
        for (uint32_t i = 0; i < 2 * LEARNING; i++) {
            keep_prompts_waiting();
            rig_step(&rig);
        }
        sched_load(rig.sched, &load);
        began_ns = rig_now_ns;
        do {
            rig_step(&rig);
            sched_load(rig.sched, &left);
        } while (left.queued_prefill_tokens > 0);
        taken_s = (double)(rig_now_ns - began_ns) / 1e9;
        print_message("%u decoding: %.1f ms reported, %.1f ms taken\n", n_decoders,
                      1e3 * load.queued_prefill_s, 1e3 * taken_s);
        assert_true(load.queued_prefill_s > 0.85 * taken_s && load.queued_prefill_s < 1.15 * taken_s);
        planner_close();
    }
}

/* Without an objective the configured chunk applies, unless steps become too long. */
static void no_step_is_longer_than_allowed(void **state)
{
    struct rig_opts opts = {.n_blocks = 4000,
                            .max_seqs = 64,
                            .max_queue = 64,
                            .chunk_tokens = 64,
                            .max_batch_tokens = CHUNK_MOST,
                            .context_length = 250,
                            .max_step_ns = 30 * MS};
    uint32_t most = 0;

    rig_open(&rig, &opts);
    n_prompts = 0;
    for (uint32_t i = 0; i < 60; i++) {
        uint64_t began_ns = rig_now_ns;

        keep_prompts_waiting();
        rig_step(&rig);
        uint32_t n = rig.batches[(rig.n_steps - 1) % RIG_STEPS_MAX].n_prefill_tokens;
        most = n > most ? n : most;
        assert_true(rig_now_ns - began_ns <= 31 * MS);
        assert_true(i > 0 || n <= 64); /* no cost is known yet, so chunks are small */
    }
    assert_true(most >= 250); /* (30 - 1) / 0.1 = 290 */
    rig_close(&rig);
}

/* Chunks change times, never tokens: any plan gives the same answers. */
static void objectives_change_no_token(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct track tracks[6] = {0}, alone = {0};
        struct seq_spec specs[6];
        token_id tokens[6][150];

        rig_open(&rig, &(struct rig_opts){.n_blocks = 400,
                                          .max_seqs = 6,
                                          .chunk_tokens = 64,
                                          .max_batch_tokens = 128,
                                          .itl_ns = (1 + seed % 7) * MS,
                                          .max_step_ns = seed % 3 * 4 * MS});
        for (uint32_t i = 0; i < 6; i++) {
            rig_prompt(tokens[i], 150, (uint32_t)seed * 6 + i);
            specs[i] = rig_spec(tokens[i], 20 + 25 * i, 40, seed + i);
            assert_int_equal(rig_submit(&rig, specs[i], &tracks[i]), 0);
            rig_step(&rig);
        }
        rig_run(&rig);
        rig_close(&rig);
        for (uint32_t i = 0; i < 6; i++) {
            rig_alone(&specs[i], 200, 0, &alone);
            rig_assert_same(&tracks[i], &alone);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_keep_the_objective),          cmocka_unit_test(prompts_are_never_starved),
        cmocka_unit_test(a_queue_takes_as_long_as_reported), cmocka_unit_test(no_step_is_longer_than_allowed),
        cmocka_unit_test(objectives_change_no_token),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests_name("step planner", tests, NULL, NULL);
}
