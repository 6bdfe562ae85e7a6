/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's measured speed and links.  One bad sample, a thousand times too large, changes them little.  A
 * wrong rate is corrected while the worker idles, at almost no cost. */
#include "tests/unit/compute/sched/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "compute/sched/sched_priv.h"
#include "worker/runner/engine_thread_priv.h"

static struct rig rig;
static struct worker_engine *engine;

static int begin(void **state)
{
    struct rig_opts opts = {.n_blocks = 64,
                            .max_seqs = 8,
                            .chunk_tokens = 128,
                            .max_batch_tokens = 256,
                            .context_length = 250,
                            .speculate = SPECULATE_AUTO};

    rig_open(&rig, &opts);
    rig.sched->opts.events = (struct sched_events){0};
    engine = calloc(1, sizeof(*engine));
    engine->sched = rig.sched;
    engine->pool = rig.pool;
    engine->opts.engine = rig.engine;
    engine->opts.n_blocks = opts.n_blocks;
    worker_measure_start(engine);
    return 0;
}

static int end(void **state)
{
    rig_close(&rig);
    free(engine);
    return 0;
}

/* Runs the engine thread's idle work. */
static void idle(uint64_t ns)
{
    uint64_t until_ns = rig_now_ns + ns;

    while (rig_now_ns < until_ns) {
        if (sched_run_step(rig.sched) <= 0)
            worker_measure_idle(engine, rig_now_ns += 100 * NS_PER_MS);
    }
}

static struct sched_load load(void)
{
    struct sched_load out;

    sched_load(rig.sched, &out);
    return out;
}

static bool is_near(double value, double as, double factor)
{
    return value < as * factor && value > as / factor;
}

static void a_bad_transfer_moves_little(void **state)
{
    for (int is_push = 0; is_push < 2; is_push++) {
        void (*observe)(struct worker_engine *, uint64_t, uint64_t) =
            is_push ? worker_engine_observe_push : worker_engine_observe_transfer;
        const double *rate = is_push ? &engine->push_bytes_per_s : &engine->transfer_bytes_per_s;

        for (int i = 0; i < 50; i++)
            observe(engine, 1000000, NS_PER_MS); /* 1 GB/s */
        observe(engine, 1000000, NS_PER_S);
        assert_true(is_near(*rate, 1e9, 1.25));
        observe(engine, 1000000, NS_PER_US);
        assert_true(is_near(*rate, 1e9, 1.25));
        for (int i = 0; i < 10; i++)
            observe(engine, 1000000, NS_PER_MS);
        assert_true(is_near(*rate, 1e9, 1.05));
        observe(engine, 1000000, 0); /* not a valid sample */
        assert_true(is_near(*rate, 1e9, 1.05));
    }
}

static void a_link_that_seems_slow_is_tried_again(void **state)
{
    uint64_t now_ns;

    worker_measure_age(engine, clock_now_ns());
    assert_true(engine->transfer_bytes_per_s == 0);
    for (int i = 0; i < 10; i++) {
        worker_engine_observe_transfer(engine, 1000, NS_PER_MS);
        worker_engine_observe_push(engine, 1000, NS_PER_MS);
    }
    now_ns = clock_now_ns();
    worker_measure_age(engine, now_ns);
    assert_true(is_near(engine->transfer_bytes_per_s, 1e6, 1.1));
    assert_true(is_near(engine->push_bytes_per_s, 1e6, 1.1));
    worker_measure_age(engine, now_ns + 300 * NS_PER_S);
    assert_true(is_near(engine->transfer_bytes_per_s, 1e9, 1.3));
    assert_true(engine->push_bytes_per_s == 0);
}

/* Two minutes of idling correct any rates. */
static void wrong_rates_are_corrected(void **state)
{
    static const double factors[] = {1000, 100, 10, 0.1, 0.001};

    for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++) {
        struct sched_load before;

        idle(120 * NS_PER_S);
        before = load();
        rig.sched->speed.decode_step.level *= factors[i];
        rig.sched->speed.prefill_rate.level /= factors[i];
        engine->measure.n = 0; /* it has just worked */
        idle(15 * NS_PER_S);
        assert_true(is_near(load().decode_step_s, before.decode_step_s, 1.1));
        idle(105 * NS_PER_S);
        assert_true(is_near(load().prefill_tokens_per_s, before.prefill_tokens_per_s, 1.2));
    }
}

static void measuring_costs_little_and_leaves_nothing(void **state)
{
    struct sched_load before = load();
    struct kv_pool_counts counts;

    idle(3600 * NS_PER_S);
    assert_true(load().n_steps - before.n_steps > 3 * 8);
    assert_true(load().n_steps - before.n_steps < 12 * 10);
    assert_int_equal(load().n_running + load().n_waiting, 0);
    kv_pool_counts(rig.pool, &counts);
    assert_int_equal(counts.n_free, 64);
    assert_int_equal(counts.n_cached, 0);
    before = load();
    engine->n_tasks = 1; /* waits for a task */
    idle(3600 * NS_PER_S);
    assert_int_equal(load().n_steps, before.n_steps);
    engine->n_tasks = 0;
    engine->is_draining = true;
    idle(3600 * NS_PER_S);
    assert_int_equal(load().n_steps, before.n_steps);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
    static const struct CMUnitTest tests[] = {
        T(a_bad_transfer_moves_little),
        T(a_link_that_seems_slow_is_tried_again),
        T(wrong_rates_are_corrected),
        T(measuring_costs_little_and_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
