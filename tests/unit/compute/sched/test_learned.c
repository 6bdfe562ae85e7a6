/* SPDX-License-Identifier: Apache-2.0 */
/* Rates that the scheduler learns when one step takes a thousand times its length.  The pause shows in the
 * thread's CPU time, or does not, or falls into the middle of a prompt. */
#include "tests/unit/compute/sched/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <cmocka.h>

#include "base/clock.h"
#include "compute/sched/sched_priv.h"

#define PAUSE_NS (4 * NS_PER_S)

static struct rig rig;
static struct track tracks[64];
static uint32_t n_tracks;
static uint64_t paused_ns; /* part of rig_now_ns */

static uint64_t cpu(void)
{
    return rig_now_ns - paused_ns;
}

/* ---- a thread that is stopped in mid-step ---- */

static uint64_t pause_ns; /* pause in the next step */
static bool is_told;

static void on_layer(struct rig *of, uint32_t layer)
{
    if (layer != 0 || pause_ns == 0)
        return;
    rig_now_ns += pause_ns;
    paused_ns += is_told ? pause_ns : 0;
    pause_ns = 0;
}

static void begin(bool cpu_is_known)
{
    struct rig_opts opts = {.n_blocks = 2000,
                            .max_seqs = 8,
                            .chunk_tokens = 32,
                            .max_batch_tokens = 64,
                            .context_length = 250,
                            .speculate = SPECULATE_AUTO};

    rig_open(&rig, &opts);
    rig.on_layer = on_layer;
    is_told = cpu_is_known;
    n_tracks = 0;
    pause_ns = paused_ns = 0;
    if (cpu_is_known)
        rig.sched->opts.cpu_ns = cpu;
}

static void ask(uint32_t n_prompt, uint32_t n_answer)
{
    token_id tokens[200];

    rig_prompt(tokens, n_prompt, 100 + n_tracks);
    tokens[0] = 10 + n_tracks;
    assert_int_equal(rig_submit(&rig, rig_spec(tokens, n_prompt, n_answer, n_tracks), &tracks[n_tracks]), 0);
    n_tracks++;
}

struct learned {
    double decode_s, prefill, step_s, margin, budget;
};

static struct learned learned(void)
{
    struct sched_load load;

    sched_load(rig.sched, &load);
    return (struct learned){
        load.decode_step_s, load.prefill_tokens_per_s,
        cost_predict(&rig.sched->speed.cost, &(struct cost_step){.n_rows = 1, .n_pairs = 60}),
        cost_margin(&rig.sched->speed.cost), rig.sched->speculation_budget_s};
}

static void assert_near(double now, double before, double factor)
{
    if (now > before * factor || now < before / factor)
        print_message("%g, was %g\n", now, before);
    assert_true(now <= before * factor && now >= before / factor);
}

/* Runs prompt and answer with a pause in step n.  Checks the rates right after it, and 30 steps later. */
static void pause_in(uint32_t step, bool cpu_is_known)
{
    struct learned before, after;

    begin(cpu_is_known);
    for (int i = 0; i < 4; i++) {
        ask(100, 20);
        rig_run(&rig);
    }
    before = learned();
    ask(100, 60);
    for (uint32_t i = 0; i < step; i++)
        rig_step(&rig);
    pause_ns = PAUSE_NS;
    rig_step(&rig);
    assert_int_equal(pause_ns, 0);
    after = learned();
    assert_near(after.decode_s, before.decode_s, cpu_is_known ? 1.01 : 1.1);
    assert_near(after.prefill, before.prefill, cpu_is_known ? 1.1 : 1.3);
    assert_near(after.step_s, before.step_s, cpu_is_known ? 1.1 : 1.5);
    for (int i = 0; i < 30; i++)
        rig_step(&rig);
    ask(100, 1);
    rig_run(&rig);
    after = learned();
    assert_near(after.decode_s, before.decode_s, 1.1);
    assert_near(after.prefill, before.prefill, 1.2);
    assert_near(after.step_s, before.step_s, 1.1);
    assert_true(after.margin < 1.5 && after.budget > -after.step_s);
    rig_close(&rig);
}

static void a_pause_in_any_step_spoils_nothing(void **state)
{
    for (uint32_t step = 0; step < 12; step++) {
        pause_in(step, true);
        pause_in(step, false);
    }
}

/* The worker stays ten times slower. That is no pause, with any CPU time. */
static void a_slow_worker_is_learned(void **state)
{
    for (int cpu_is_known = 0; cpu_is_known < 2; cpu_is_known++) {
        struct learned before;

        begin(cpu_is_known);
        for (int i = 0; i < 4; i++) {
            ask(100, 20);
            rig_run(&rig);
        }
        before = learned();
        ask(100, 60);
        for (int i = 0; i < 40; i++) {
            pause_ns = (uint64_t)(9e9 * before.decode_s);
            rig_step(&rig);
        }
        assert_near(learned().decode_s, 10 * before.decode_s, 1.3);
        rig_run(&rig);
        rig_close(&rig);
    }
}

/* A step that took no time.  Errors are relative, so without a limit it would outweigh all others. */
static void a_step_of_no_time_is_not_believed(void **state)
{
    struct cost_model model = {0};
    struct cost_step step = {.n_rows = 2, .n_pairs = 1000};
    double predicted;

    for (int i = 0; i < 100; i++)
        cost_observe(&model, &step, 0.02);
    cost_observe(&model, &step, 0.00002);
    predicted = cost_predict(&model, &step);
    assert_true(predicted > 0.012);
    for (int i = 0; i < 20; i++)
        cost_observe(&model, &step, 0.02);
    assert_near(cost_predict(&model, &step), 0.02, 1.1);
}

static void debts_of_speculation_are_bounded(void **state)
{
    struct plan_item item = {0};
    struct seq seq = {0};
    struct plan plan = {.items = &item, .n_items = 1, .n_decode = 1, .n_drafts = 60};

    begin(false);
    ask(20, 20);
    rig_run(&rig);
    item.seq = &seq;
    item.n_tokens = 61;
    rig.sched->speculation_budget_s = -1000; /* a thousand steps would not pay the debt */
    draft_book(rig.sched, &plan, 0);
    assert_true(rig.sched->speculation_budget_s > -0.01);
    rig_close(&rig);
}

/* Prompts cost 2 ms a token and 1 us a pair.
 * One chunk of the second long prompt takes 1,000 times its time. */
static void prompts_at_depth_are_predicted(void **state)
{
    struct prompt_cost cost = {0};
    uint64_t now_ns = 0;

    for (int i = 0; i < 4; i++) /* short prompts only: the cost of attention stays unknown */
        prompt_cost_learn(
            &cost,
            &(struct prompt_cost_sample){64, cost_pairs(0, 64), 64 * 2e-3 + cost_pairs(0, 64) * 1e-6, 0.2},
            now_ns++);
    assert_true(rate_level(&cost.pair_s) == 0);
    for (int i = 0; i < 2; i++) {
        double whole = 0;

        for (uint32_t from = 0; from < 60000; from += 512) {
            double seconds = 512 * 2e-3 + cost_pairs(from, 512) * 1e-6;
            bool is_bad = i == 1 && from == 30208;

            whole += seconds;
            now_ns += NS_PER_S;
            prompt_cost_learn(&cost,
                              &(struct prompt_cost_sample){512, cost_pairs(from, 512),
                                                           is_bad ? 1000 * seconds : seconds, 1},
                              now_ns);
            assert_true(!is_bad || rate_level(&cost.pair_s) < 1.2e-6);
        }
        assert_near(rate_level(&cost.token_s), 2e-3, 1.25);
        assert_near(prompt_cost_s(&cost, 0, 60416), whole, 1.1);
        assert_near(prompt_cost_s(&cost, 50000, 512), 512 * 2e-3 + cost_pairs(50000, 512) * 1e-6, 1.1);
    }
}

/* All prompts continue long ones.  Until a short one comes, the tokens' cost includes the pairs' cost. */
static void deep_prompts_alone_are_predicted(void **state)
{
    struct prompt_cost cost = {0};

    for (int i = 0; i < 20; i++)
        prompt_cost_learn(&cost, &(struct prompt_cost_sample){512, cost_pairs(20000, 512), 10, 1},
                          (uint64_t)i * NS_PER_S);
    assert_near(prompt_cost_s(&cost, 20000, 512), 10, 1.1);
}

static void token_takes(struct prompt_cost *cost, double token_s, uint64_t now_ns)
{
    prompt_cost_learn(cost, &(struct prompt_cost_sample){512, cost_pairs(0, 512), 512 * token_s, 1}, now_ns);
}

/* Other work made a worker slow, so routers gave it no prompts: it seems less and less slow.  The next prompt says what is
 * true.  A worker that stays slow seems so for a while after each trial, and for good after some time. */
static void a_worker_that_was_slow_is_tried_again(void **state)
{
    struct prompt_cost cost = {0};
    uint64_t now_ns = 100 * 86400 * NS_PER_S; /* the machine has been on for long */

    for (int i = 0; i < 10; i++)
        token_takes(&cost, 1e-4, now_ns += NS_PER_S);
    assert_near(prompt_cost_hope(&cost, now_ns + 100 * NS_PER_S), 1e-4, 1.01);
    for (int i = 0; i < 20; i++)
        token_takes(&cost, 8e-4, now_ns += NS_PER_S);
    struct prompt_cost slow = cost;

    assert_near(prompt_cost_hope(&cost, now_ns), 8e-4, 1.1);
    assert_near(prompt_cost_hope(&cost, now_ns + 20 * NS_PER_S), 3.5e-4, 1.1);
    assert_near(prompt_cost_hope(&cost, now_ns + 200 * NS_PER_S), 1.55e-4, 1.1);

    struct prompt_cost nearly = cost; /* a few tokens prove little */
    prompt_cost_learn(&nearly, &(struct prompt_cost_sample){8, cost_pairs(0, 8), 8 * 3e-4, 0.02},
                      now_ns + 20 * NS_PER_S);
    assert_near(rate_level(&nearly.token_s), 8e-4, 1.1);

    token_takes(&cost, 1e-4, now_ns + 60 * NS_PER_S); /* fast again: one prompt shows it */
    assert_true(prompt_cost_hope(&cost, now_ns + 60 * NS_PER_S) < 1.7e-4);
    for (uint64_t i = 1; i <= 60; i++) {
        token_takes(&slow, 8e-4, now_ns + i * 60 * NS_PER_S);
        assert_near(prompt_cost_hope(&slow, now_ns + i * 60 * NS_PER_S), 8e-4, 1.1);
    }
    assert_near(prompt_cost_hope(&slow, now_ns + 61 * 60 * NS_PER_S), 8e-4, 1.1);
}

/* An accelerator: 12 ms of a step are fixed, 24 us for a prompt token, and attention that hardly counts. */
static double fast_prompt_s(uint32_t from, uint32_t n)
{
    return 12e-3 + 24e-6 * n + 4.4e-10 * cost_pairs(from, n);
}

static void fast_read(struct sched_speed *speed, uint32_t from, uint32_t n, uint64_t now_ns)
{
    const struct sched_speed_step step = {.n_prompt = n,
                                          .n_prompt_pairs = cost_pairs(from, n),
                                          .n_room = 8192,
                                          .chunk_tokens = 512,
                                          .seconds = fast_prompt_s(from, n)};

    sched_speed_learn(speed, &step, now_ns);
}

/* As a worker measures at its start (worker/runner/measure.c). */
static void fast_start(struct sched_speed *speed)
{
    *speed = (struct sched_speed){0};
    fast_read(speed, 0, 32, 0);
    for (uint32_t i = 0; i < 7; i++) {
        const struct sched_speed_step step = {
            .decode = {.n_rows = 1, .n_pairs = 32 + i}, .n_decode = 1, .seconds = 12e-3};

        sched_speed_learn(speed, &step, 0);
    }
    fast_read(speed, 0, 128, 0);
}

/* A worker that reads short prompts only does not look slow for a long one, although each of them took a whole step. */
static void short_prompts_predict_long_ones(void **state)
{
    struct sched_speed speed;

    fast_start(&speed);
    assert_near(prompt_cost_s(&speed.prompt_cost, 0, 4000), fast_prompt_s(0, 4000), 2.5);
    for (uint64_t i = 0; i < 200; i++)
        fast_read(&speed, 0, 40 + i % 50, i * NS_PER_S);
    assert_near(prompt_cost_s(&speed.prompt_cost, 0, 4000), fast_prompt_s(0, 4000), 1.3);
}

/* All prompts are long and read in one chunk, so each chunk attends to many tokens.  The cost of a token, too high at
 * the start, comes down. */
static void long_chunks_correct_the_tokens_cost(void **state)
{
    struct sched_speed speed;

    fast_start(&speed);
    rate_learn(&speed.prompt_cost.token_s, 120e-6, 1, 1, 0);
    for (uint64_t i = 0; i < 20; i++)
        fast_read(&speed, 0, 3000 + 200 * (i % 10), i * NS_PER_S);
    assert_near(prompt_cost_s(&speed.prompt_cost, 0, 4000), fast_prompt_s(0, 4000), 1.15);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_prompts_predict_long_ones),
        cmocka_unit_test(long_chunks_correct_the_tokens_cost),
        cmocka_unit_test(a_pause_in_any_step_spoils_nothing),
        cmocka_unit_test(a_slow_worker_is_learned),
        cmocka_unit_test(a_step_of_no_time_is_not_believed),
        cmocka_unit_test(prompts_at_depth_are_predicted),
        cmocka_unit_test(deep_prompts_alone_are_predicted),
        cmocka_unit_test(a_worker_that_was_slow_is_tried_again),
        cmocka_unit_test(debts_of_speculation_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
