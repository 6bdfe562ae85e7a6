/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing is busy for longer than the run lasts: not the NICs and disks when clients leave, workers die or the run is stopped,
 * and no worker in any part of the run. */
#include "tests/unit/check.h"

#include <math.h>

#include "base/clock.h"
#include "fleet/sim/generate.h"
#include "small_fleet.h"

static atomic_bool is_stopped;
static void (*take_generated)(void *self, struct sim_request *out);

/* The run is stopped in the middle of the load. */
static void take_and_stop(void *self, struct sim_request *out)
{
    take_generated(self, out);
    if (out->at_ns > 30 * NS_PER_S)
        atomic_store(&is_stopped, true);
}

static struct sim_result run(const struct sim_opts *opts, const struct generate_opts *generate_opts,
                             bool stops)
{
    struct generate *generate;
    struct sim_result result;
    struct sim_load load;

    assert_int_equal(generate_new(generate_opts, &generate), 0);
    load = generate_load(generate);
    atomic_store(&is_stopped, false);
    take_generated = load.take;
    load.take = stops ? take_and_stop : load.take;
    load.is_stopped = &is_stopped;
    assert_int_equal(sim_run(opts, &load, NULL, &result), 0);
    assert_true(result.is_partial == stops);
    generate_free(generate);
    return result;
}

static struct generate_opts sessions(void)
{
    return (struct generate_opts){.kind = GENERATE_SESSIONS,
                                  .rate_per_s = 12,
                                  .duration_s = 60,
                                  .prompt_tokens = 600,
                                  .answer_tokens = 60,
                                  .n_tenants = 1,
                                  .block_tokens = 32,
                                  .turns = 5,
                                  .wait_s = 1,
                                  .seed = 7};
}

/* Lanes out carry each transfer once. */
static void nothing_is_busy_for_longer_than_the_run(const struct sim_opts *opts, bool stops)
{
    struct generate_opts load = sessions();
    struct sim_result result = run(opts, &load, stops);
    double all_s = (double)result.end_ns / 1e9 * sim_n_workers(opts);
    double sent = (result.handed_bytes + result.pushed_bytes) / opts->nic_bytes_per_s;

    print_message("NICs %.3f, disks %.3f, %.0f done\n", result.nic_busy_s / all_s, result.disk_busy_s / all_s,
                  (double)result.classes[0].n_done);
    assert_true(result.nic_busy_s > 0 && result.nic_busy_s <= all_s);
    assert_true(result.disk_busy_s >= 0 && result.disk_busy_s <= all_s);
    assert_true(fabs(result.nic_busy_s - sent) < 1e-3 * sent);
    sim_result_fini(&result);
}

static void slow_transfers_of_dead_requests_end(void **state)
{
    struct sim_opts opts = small_fleet(false);

    (void)state;
    opts.n_prefill = opts.n_decode = 2;
    opts.nic_bytes_per_s = 1e5;
    opts.disk_tokens = 100000;
    opts.disk_bytes_per_s = 1e8;
    opts.kv_tokens = 20000;
    nothing_is_busy_for_longer_than_the_run(&opts, true);
    opts.cancel_share = 1;
    nothing_is_busy_for_longer_than_the_run(&opts, false);
    opts.cancel_share = 0;
    opts.crash_every_s = 2;
    opts.start_ns = NS_PER_S / 2;
    nothing_is_busy_for_longer_than_the_run(&opts, false);
}

/* Long prompts, which are computed in one step each, and roles that change in the middle of them. */
static void no_column_has_more_time_than_passed(void **state)
{
    struct generate_opts load = sessions();
    struct sim_opts opts = small_fleet(false);
    struct sim_result result;

    (void)state;
    load.kind = GENERATE_STEPS;
    load.rate_per_s = 3;
    load.other_rate_per_s = 20;
    load.prompt_tokens = 20000;
    load.other_answer_tokens = 500;
    load.answer_tokens = load.other_prompt_tokens = 20;
    load.period_s = 40;
    opts.n_prefill = opts.n_decode = 2;
    opts.kv_tokens = 10000000;
    opts.batch_tokens = 0;
    opts.n_columns = 240;
    opts.has_auto_roles = true;
    opts.roles_least = 1;
    opts.roles_period_ns = 2 * NS_PER_S;
    opts.crash_every_s = 20;
    for (unsigned stops = 0; stops < 2; stops++) {
        double busy_s = 0;

        result = run(&opts, &load, stops != 0);
        print_message("%.0f changes of roles, %.0f crashes\n", (double)result.n_flips,
                      (double)result.n_crashes);
        assert_true(result.n_flips > 0 && result.n_crashes > 0);
        assert_true(result.prefill_busy_s <= result.prefill_worker_s + 1e-6);
        assert_true(result.decode_busy_s <= result.decode_worker_s + 1e-6);
        for (uint32_t i = 0; i < result.n_columns; i++) {
            const struct sim_column *column = &result.columns[i];

            assert_true(column->prefill_busy_s <= column->prefill_worker_s + 1e-6);
            assert_true(column->decode_busy_s <= column->decode_worker_s + 1e-6);
            assert_true(column->prefill_worker_s + column->decode_worker_s <=
                        4e-9 * (double)result.column_ns + 1e-6);
            busy_s += column->prefill_busy_s + column->decode_busy_s;
        }
        assert_true(fabs(busy_s - result.prefill_busy_s - result.decode_busy_s) < 1e-6);
        sim_result_fini(&result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_transfers_of_dead_requests_end),
        cmocka_unit_test(no_column_has_more_time_than_passed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
