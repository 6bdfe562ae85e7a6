/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts whose cores workers share: exact sharing, queueing theory, gaps of steps and waits, what tokens cost outside of the
 * step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "fleet/sim/generate.h"

static void about(double a, double b, double within)
{
    if (!(fabs(a - b) <= within * fabs(b)))
        fail_msg("%g is not about %g", a, b);
}

/* Prompts of 1,000 tokens take a second, and steps of one sequence 10 ms. */
static struct sim_opts options(uint32_t host_cores)
{
    return (struct sim_opts){.costs = SIM_COSTS_LEARNED,
                             .n_prefill = 2,
                             .n_decode = 2,
                             .prefill_times = {.token_s = 1e-3},
                             .decode_times = {.step_s = 0.01, .token_s = 1e-3},
                             .block_tokens = 32,
                             .max_seqs = 1000,
                             .chunk_tokens = 256,
                             .kv_tokens = 1000000000,
                             .heartbeat_ns = NS_PER_S,
                             .policy = SIM_LOAD,
                             .ttft_slo_ns = 10 * NS_PER_S,
                             .itl_slo_ns = NS_PER_S,
                             .queue_timeout_ns = 100 * NS_PER_S,
                             .queue_max = 1000,
                             .index_entries = 1000,
                             .host_cores = host_cores};
}

struct given { /* requests of 1,000 tokens, so far apart */
    uint64_t gap_ns;
    uint32_t n, answer_tokens, at;
};

static bool given_when(void *self, uint64_t *at_ns_out)
{
    const struct given *given = self;

    *at_ns_out = NS_PER_S + given->at * given->gap_ns;
    return given->at < given->n;
}

static void given_take(void *self, struct sim_request *out)
{
    struct given *given = self;

    *out =
        (struct sim_request){.prompt_tokens = 1000, .answer_tokens = given->answer_tokens, .salt = given->at};
    given_when(self, &out->at_ns);
    given->at++;
}

static struct sim_result run_given(const struct sim_opts *opts, struct given given)
{
    struct sim_load load = {.self = &given, .when = given_when, .take = given_take, .span_ns = NS_PER_S};
    struct sim_result result;

    assert_int_equal(sim_run(opts, &load, NULL, &result), 0);
    assert_int_equal(result.classes[0].n_done, given.n);
    return result;
}

static struct sim_result run_generated(const struct sim_opts *opts, const struct generate_opts *generate_opts)
{
    struct generate *generate;
    struct sim_result result;
    struct sim_load load;

    assert_int_equal(generate_new(generate_opts, &generate), 0);
    load = generate_load(generate);
    assert_int_equal(sim_run(opts, &load, NULL, &result), 0);
    generate_free(generate);
    return result;
}

/* Two prompts on two workers, the second half a second after the first. */
static void two_prompts(uint32_t cores, uint32_t host_workers, double first_s, double second_s)
{
    struct sim_opts opts = options(cores);
    struct sim_result result;

    opts.host_workers = host_workers;
    result = run_given(&opts, (struct given){.gap_ns = NS_PER_S / 2, .n = 2, .answer_tokens = 1});
    about((double)result.classes[0].ttft.least_ns / 1e9, fmin(first_s, second_s), 1e-8);
    about((double)result.classes[0].ttft.most_ns / 1e9, fmax(first_s, second_s), 1e-8);
    about(result.prefill_busy_s, first_s + second_s, 1e-8);
    sim_result_fini(&result);
}

static void prompts_share_a_core(void **state)
{
    two_prompts(0, 0, 1, 1);
    two_prompts(2, 0, 1, 1);
    two_prompts(1, 0, 1.5, 1.5); /* alone for half a second, then beside the other for a second */
    two_prompts(1, 1, 1, 1);     /* each worker has a host of its own */
    two_prompts(1, 2, 1, 1); /* four workers on two hosts: the two that read prompts are on different ones */
}

/* Three prompts at once on two cores: each gets two thirds. */
static void three_get_two_thirds(void **state)
{
    struct sim_opts opts = options(2);
    struct sim_result result;

    opts.n_prefill = 3;
    result = run_given(&opts, (struct given){.n = 3, .answer_tokens = 1});
    about((double)result.classes[0].ttft.least_ns / 1e9, 1.5, 1e-8);
    about((double)result.classes[0].ttft.most_ns / 1e9, 1.5, 1e-8);
    sim_result_fini(&result);
}

/* As many workers as there are prompts make one core a queue M/D/1 with processor sharing: a prompt of s seconds takes
 * s / (1 - rho) on average. */
static void sharing_follows_theory(void **state)
{
    struct generate_opts load = {.kind = GENERATE_POISSON,
                                 .duration_s = 20000,
                                 .prompt_tokens = 50,
                                 .answer_tokens = 1,
                                 .has_equal_lengths = true,
                                 .n_tenants = 1,
                                 .block_tokens = 32,
                                 .seed = 7};
    struct sim_opts opts = options(1);
    double rho = 0.6, service_s = 0.05;
    struct sim_result result;

    opts.n_prefill = 64;
    load.rate_per_s = rho / service_s;
    result = run_generated(&opts, &load);
    about(sim_hist_mean_s(&result.classes[0].ttft), service_s / (1 - rho), 0.02);
    sim_result_fini(&result);
}

/* Two streams beside each other on one core: steps of 10 ms take 20 ms. */
static void gaps_are_steps_and_waits(void **state)
{
    struct sim_opts opts = options(1);
    const struct sim_hist *itl;
    struct sim_result result;

    opts.n_prefill = 2;
    result = run_given(&opts, (struct given){.n = 2, .answer_tokens = 1001});
    itl = &result.classes[0].itl;
    assert_int_equal(itl->n, 2000);
    about(sim_hist_mean_s(itl), 0.02, 0.001);
    about((double)itl->least_ns, (double)itl->most_ns, 0.01);
    sim_result_fini(&result);

    opts.slice_ns =
        30 *
        NS_PER_MS; /* so one step of three waits, 30 ms on average, and two tokens of three on their way */
    result = run_given(&opts, (struct given){.n = 2, .answer_tokens = 10001});
    itl = &result.classes[0].itl;
    assert_int_equal(itl->n, 20000);
    about(sim_hist_mean_s(itl), 0.02, 0.03);
    assert_true(itl->least_ns == 0); /* tokens that come with a late one */
    assert_true(sim_hist_quantile_s(itl, 0.5) < 0.02);
    assert_true(sim_hist_quantile_s(itl, 0.99) > 0.06 && sim_hist_quantile_s(itl, 0.99) < 0.2);
    sim_result_fini(&result);
}

/* A token that costs as much outside of the step as in it: two streams want four cores. */
static void tokens_cost_outside_of_the_step(void **state)
{
    for (uint32_t n = 1; n <= 2; n++) {
        struct sim_opts opts = options(2);
        struct sim_result result;

        opts.token_cpu_ns = 10 * NS_PER_MS;
        result = run_given(&opts, (struct given){.n = n, .answer_tokens = 1001});
        about(sim_hist_mean_s(&result.classes[0].itl), n * 0.01, 0.001);
        sim_result_fini(&result);
    }
}

static double gaps_share(const struct sim_class *all)
{
    double answers_s =
        sim_hist_mean_s(&all->e2e) * (double)all->e2e.n - sim_hist_mean_s(&all->ttft) * (double)all->ttft.n;

    return sim_hist_mean_s(&all->itl) * (double)all->itl.n / answers_s;
}

static struct generate_opts busy_load(void)
{
    return (struct generate_opts){.kind = GENERATE_MIX,
                                  .duration_s = 120,
                                  .rate_per_s = 2,
                                  .prompt_tokens = 300,
                                  .answer_tokens = 40,
                                  .other_rate_per_s = 1,
                                  .other_prompt_tokens = 50,
                                  .other_answer_tokens = 200,
                                  .n_tenants = 4,
                                  .block_tokens = 32,
                                  .seed = 7};
}

/* Answers take as long as their gaps together, whenever the host's speed changes: also in a step that computes prompts for
 * several sequences. */
static void gaps_add_up(void **state)
{
    struct generate_opts load = {.kind = GENERATE_POISSON,
                                 .duration_s = 30,
                                 .rate_per_s = 60,
                                 .prompt_tokens = 60,
                                 .answer_tokens = 30,
                                 .has_equal_lengths = true,
                                 .n_tenants = 1,
                                 .block_tokens = 32,
                                 .seed = 1};
    struct sim_opts opts = options(2);
    struct sim_result result;

    opts.policy = SIM_OURS;
    opts.n_prefill = opts.n_decode = 0;
    opts.n_both = 4;
    opts.prefill_times = opts.decode_times =
        (struct sim_times){.step_s = 0.002, .row_s = 0.0001, .token_s = 0.0005};
    opts.sched_itl_ns = NS_PER_S;
    opts.batch_tokens = 512;
    result = run_generated(&opts, &load);
    assert_true(result.classes[0].n_done > 1000);
    about(gaps_share(&result.classes[0]), 1, 0.01);
    sim_result_fini(&result);
}

/* A stream that goes on after a crash counts no gap twice. */
static void gaps_of_crashes_add_up(void **state)
{
    struct generate_opts load = busy_load();

    load.rate_per_s = load.other_rate_per_s = 4;
    for (uint32_t cores = 0; cores <= 2; cores += 2) {
        struct sim_opts opts = options(cores);
        struct sim_result result;

        opts.policy = SIM_OURS;
        opts.n_decode = 4;
        opts.crash_every_s = 2;
        opts.start_ns = NS_PER_S;
        result = run_generated(&opts, &load);
        assert_true(result.n_crashes > 20);
        print_message("%u cores: gaps are %.4f of the answers' time\n", cores,
                      gaps_share(&result.classes[0]));
        assert_true(gaps_share(&result.classes[0]) <= 1.001);
        sim_result_fini(&result);
    }
}

/* With a core for each worker, hosts change nothing. */
static void enough_cores_change_nothing(void **state)
{
    struct generate_opts load = busy_load();
    struct sim_opts none = options(0), enough = options(4);
    struct sim_result a, b;

    none.policy = enough.policy = SIM_OURS;
    none.start_ns = enough.start_ns = NS_PER_S;
    none.crash_every_s = enough.crash_every_s = 20;
    a = run_generated(&none, &load);
    b = run_generated(&enough, &load);
    assert_true(a.n_crashes > 0);
    assert_memory_equal(&a.classes[0].ttft, &b.classes[0].ttft, sizeof(a.classes[0].ttft));
    assert_memory_equal(&a.classes[0].e2e, &b.classes[0].e2e, sizeof(a.classes[0].e2e));
    about(sim_hist_mean_s(&b.classes[0].itl), sim_hist_mean_s(&a.classes[0].itl), 0.01);
    sim_result_fini(&a);
    sim_result_fini(&b);
}

/* With any options every request ends, and equal runs are equal. */
static void any_hosts_end(void **state)
{
    static const uint64_t slices_ns[] = {0, 1, 4 * NS_PER_MS, 60 * NS_PER_S};
    static const uint64_t costs_ns[] = {0, 1, NS_PER_MS, 60 * NS_PER_S};
    struct generate_opts load = busy_load();

    load.n_requests = 60;
    for (uint32_t i = 0; i < 64; i++) {
        struct sim_opts opts = options(i / 16 == 3 ? 1 << 20 : 1 + i / 16);
        struct sim_result a, b;

        opts.policy = SIM_OURS;
        opts.host_workers = i / 16;
        opts.slice_ns = slices_ns[i % 4];
        opts.token_cpu_ns = costs_ns[i / 4 % 4];
        opts.cancel_share = 0.1;
        a = run_generated(&opts, &load);
        b = run_generated(&opts, &load);
        assert_int_equal(a.n_under_way, 0);
        assert_int_equal(a.classes[0].n_arrived, 60);
        assert_memory_equal(a.classes, b.classes, sizeof(a.classes));
        assert_int_equal(a.end_ns, b.end_ns);
        sim_result_fini(&a);
        sim_result_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_share_a_core),
        cmocka_unit_test(three_get_two_thirds),
        cmocka_unit_test(sharing_follows_theory),
        cmocka_unit_test(gaps_are_steps_and_waits),
        cmocka_unit_test(tokens_cost_outside_of_the_step),
        cmocka_unit_test(gaps_add_up),
        cmocka_unit_test(gaps_of_crashes_add_up),
        cmocka_unit_test(enough_cores_change_nothing),
        cmocka_unit_test(any_hosts_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
