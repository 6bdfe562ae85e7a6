/* SPDX-License-Identifier: Apache-2.0 */
/* Step times and plans: limits, monotony, the worked example, and refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>

#include "base/err.h"
#include "base/kv_types.h"
#include "fleet/plan/builtin.h"
#include "fleet/plan/host.h"
#include "fleet/plan/pools.h"

static struct plan_books books;
static struct plan_constants constants;

static struct plan_model model(const char *name)
{
    struct plan_model found = {0};
    struct fault fault = {0};

    if (plan_model_inline(&books.models, name, &fault, &found) != 0)
        fail_msg("%s", fault.text);
    return found;
}

static const struct plan_device *device(const char *name)
{
    const struct plan_device *found = NULL;

    assert_int_equal(plan_devices_find(&books.devices, name, NULL, &found), 0);
    return found;
}

static struct plan_cost cost(const struct plan_model *m, const char *name, const char *weights, double tp)
{
    struct plan_setup setup = {.model = m,
                               .device = device(name),
                               .constants = &constants,
                               .weights = weights,
                               .kv = "bf16",
                               .tp = tp,
                               .moe_tp = tp,
                               .ep = 1,
                               .pp = 1,
                               .nodes = 1};
    struct plan_cost out;
    struct fault fault = {0};

    if (plan_cost_init(&setup, &fault, &out) != 0)
        fail_msg("%s", fault.text);
    return out;
}

/* A slot is taken while the prompt is computed; long answers hold theirs longer; each objective has its percentile. */
static void slots_are_held_before_and_beyond_the_mean(void **state)
{
    struct plan_model m = model("Llama-3-70B");
    struct plan_pool pools[2] = {
        {.cost = cost(&m, "h100", "fp8", 4), .devices = 4, .lanes = 1, .price = 1, .watts = 1},
        {.cost = cost(&m, "h100", "fp8", 4), .devices = 4, .lanes = 1, .price = 1, .watts = 1}};
    struct plan_work work = {
        .isl = 8000, .osl = 300, .rate_per_s = 50, .ttft_s = 4, .itl_s = 0.1, .max_load = 0.75};
    struct plan_candidate even, uneven, median;
    struct plan_side alone;
    struct fault fault = {0};

    (void)state;
    work.is_layerwise = true;
    assert_int_equal(plan_work_check(&work, &fault), 0);
    assert_true(work.itl_percentile == 0.9 && plan_work_held_answer(&work) == 300);
    assert_true(plan_decode_side(&pools[1], &work, &alone));
    assert_true(plan_candidate_size(pools, 0, 1, &work, &even));
    assert_true(even.d.held_s >= even.p.time_s && even.d.slots == alone.slots && even.d.batch < alone.batch);
    assert_true(even.d.workers > alone.workers && even.d.time_s < alone.time_s);
    assert_true(even.itl_s > even.d.time_s && even.itl_s <= 0.1);

    work.osl_p90 = 600;
    assert_true(plan_work_held_answer(&work) > 350);
    assert_true(plan_candidate_size(pools, 0, 1, &work, &uneven));
    assert_true(uneven.d.workers > even.d.workers);
    work.osl_p90 = 300;
    work.itl_percentile = 0.5;
    assert_true(plan_candidate_size(pools, 0, 1, &work, &median));
    assert_true(fabs(median.itl_s - median.d.time_s) < 1e-9 && median.ttft_s == even.ttft_s);
}

static void latent_caches_are_not_divided(void **state)
{
    struct plan_model mla = model("DeepSeek-V3"), gqa = model("Llama-3-70B"),
                      mha = model("Llama-3-70B,kv_heads=64");
    struct plan_cost mla1 = cost(&mla, "h200", "fp8", 1), mla8 = cost(&mla, "h200", "fp8", 8);
    struct plan_cost gqa1 = cost(&gqa, "h200", "fp8", 1), gqa8 = cost(&gqa, "h200", "fp8", 8);
    struct plan_cost gqa16 = gqa8, mha1 = cost(&mha, "h200", "fp8", 1);

    (void)state;
    assert_true(mla1.kv_bytes_token == mla8.kv_bytes_token);
    assert_true(gqa1.kv_bytes_token == 8 * gqa8.kv_bytes_token);
    assert_true(mha1.kv_bytes_token == 8 * gqa1.kv_bytes_token);
    assert_true(plan_cost_kv_bytes(&gqa16, 1) == gqa1.kv_bytes_token); /* each byte once */
}

static void chunks_cost_what_a_whole_costs(void **state)
{
    struct plan_model m = model("Llama-3-8B");
    struct plan_cost c = cost(&m, "h100", "bf16", 1);
    struct plan_terms whole, first, second;

    (void)state;
    plan_cost_step(&c, &(struct plan_load){.new_tokens = 8000, .attention = 8000.0 * 4000}, &whole);
    plan_cost_step(&c, &(struct plan_load){.new_tokens = 3000, .attention = 3000.0 * 1500}, &first);
    plan_cost_step(&c, &(struct plan_load){.new_tokens = 5000, .attention = 5000.0 * (3000 + 2500)}, &second);
    assert_true(fabs(first.s[TERM_ATTENTION_PREFILL] + second.s[TERM_ATTENTION_PREFILL] -
                     whole.s[TERM_ATTENTION_PREFILL]) < 1e-12);
}

static void experts_that_are_hit(void **state)
{
    struct plan_model m = model("Mixtral-8x7B");
    struct plan_cost c = cost(&m, "h200", "fp8", 1);
    struct plan_terms one, many, more;

    (void)state;
    plan_cost_step(&c, &(struct plan_load){.batch = 1, .context = 1}, &one);
    plan_cost_step(&c, &(struct plan_load){.batch = 40, .context = 1}, &many);
    plan_cost_step(&c, &(struct plan_load){.batch = 60, .context = 1}, &more);
    assert_true(fabs(many.s[TERM_EXPERTS] / one.s[TERM_EXPERTS] - 4) < 0.01); /* 2 of 8, then all */
    assert_true(fabs(more.s[TERM_EXPERTS] / many.s[TERM_EXPERTS] - 1) < 0.01);
}

static void states_have_a_size_and_no_slope(void **state)
{
    struct plan_model m = model("layers=4,hidden=1024,q_heads=8,ffn=4096,vocab=1000,linear_layers=4,"
                                "linear_params=4e6,state_bytes=8e6");
    struct plan_cost c = cost(&m, "h100", "bf16", 1);

    (void)state;
    assert_true(plan_cost_decode(&c, 8, 1000) == plan_cost_decode(&c, 8, 100000));
    assert_true(plan_cost_room(&c, 1000, 0.1) == plan_cost_room(&c, 100000, 0.1));
    assert_true(plan_cost_kv_bytes(&c, 5000) == 8e6);
}

static void types_have_variants(void **state)
{
    (void)state;
    assert_true(plan_type_bytes("FP8_block") == 1 && plan_type_bytes("bf16") == 2 &&
                plan_type_bytes("NVFP4") == 0.5625);
#define X(type, number, word, run, run_bytes)                                                                \
    assert_true(plan_type_bytes(word) == (double)(run_bytes) / (run));
    KV_TYPE_TABLE(X)
#undef X
    assert_true(isnan(plan_type_bytes("fp3")) && isnan(plan_type_bytes("fp80")) &&
                isnan(plan_type_bytes("")));
}

static void time_grows_with_work(void **state)
{
    struct plan_model m = model("gpt-oss-120b");
    struct plan_cost c = cost(&m, "b200", "fp4", 2);

    (void)state;
    for (double n = 16; n < 100000; n *= 2) {
        assert_true(plan_cost_prefill(&c, 2 * n, 0) > plan_cost_prefill(&c, n, 0));
        assert_true(plan_cost_prefill(&c, n, 1000) > plan_cost_prefill(&c, n, 0));
        assert_true(plan_cost_prefill(&c, n, n) < plan_cost_prefill(&c, 2 * n, 0)); /* a hit saves time */
        assert_true(plan_cost_decode(&c, n, 1000) < plan_cost_decode(&c, 2 * n, 1000));
    }
}

static const struct plan_work WORK = {.isl = 8000,
                                      .osl = 500,
                                      .hit = 0.4,
                                      .rate_per_s = 100,
                                      .ttft_s = 2,
                                      .itl_s = 0.04,
                                      .reserve = 0.1,
                                      .is_layerwise = true};

static int search(const char *device_name, const struct plan_work *work, double tp,
                  struct plan_candidate *best_out, struct fault *fault)
{
    struct plan_model m = model("Llama-3-70B");
    struct plan_work checked = *work;
    struct plan_pools pools = {0};
    struct plan_answer answer = {0};
    const struct plan_pools_ask ask = {
        .model = &m, .constants = &constants, .weights = "fp8", .kv = "fp8", .work = &checked, .tp = tp};
    int rc = plan_work_check(&checked, fault);

    if (rc == 0)
        rc = plan_pools_add(&pools, &ask, device(device_name), ROLE_BOTH, fault);
    if (rc == 0)
        rc = plan_search(pools.list, pools.n, &checked, 100, &answer);
    *best_out = (struct plan_candidate){.decode = SIZE_MAX};
    for (size_t i = answer.n; i-- > 0;)
        if (answer.list[i].decode != SIZE_MAX)
            *best_out = answer.list[i];
    plan_answer_fini(&answer);
    plan_pools_fini(&pools);
    return rc;
}

/* 70B in FP8, 100 requests/s of 8,000 tokens, 40 % cached, 500 out: workers before rounding. */
static void worked_example(void **state)
{
    static const struct {
        const char *device;
        double tp, prefill, decode;
    } KNOWN[] = {{"h100", 2, 50.2, 36.6}, {"h200", 2, 50.2, 18.7}, {"b200", 1, 37.0, 26.7}};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct plan_candidate c;

        assert_int_equal(search(KNOWN[i].device, &WORK, KNOWN[i].tp, &c, NULL), 0);
        assert_true(fabs(c.p.workers / KNOWN[i].prefill - 1) < 0.15);
        assert_true(fabs(c.d.workers / KNOWN[i].decode - 1) < 0.15);
        assert_true(c.low[0] < c.devices && c.devices < c.high[0]);
        assert_true(c.ttft_s <= 2 && c.itl_s <= 0.04);
    }
}

static void plans_follow_the_work(void **state)
{
    struct plan_candidate base, more, less, linked;
    struct plan_work work = WORK;

    (void)state;
    assert_int_equal(search("h100", &work, 4, &base, NULL), 0);
    work.rate_per_s = 200;
    assert_int_equal(search("h100", &work, 4, &more, NULL), 0);
    assert_true(more.devices > 1.8 * base.devices && more.devices < 2.1 * base.devices);
    work = WORK;
    work.hit = 0.8;
    assert_int_equal(search("h100", &work, 4, &less, NULL), 0);
    assert_true(less.n_prefill < base.n_prefill);
    work = WORK;
    work.link = (struct plan_link){.id = "slow", .rate = 1e9, .measured_part = NAN, .startup_s = NAN};
    work.ttft_s = 10;
    assert_int_equal(search("h100", &work, 4, &linked, NULL), 0);
    assert_int_equal(linked.bound, BOUND_LINK);
    assert_true(linked.devices > base.devices);
    work.ttft_s = 0.001;
    assert_int_equal(search("h100", &work, 4, &linked, NULL), E_NOT_FOUND);
}

static void refusals_name_what_is_missing(void **state)
{
    static const struct {
        const char *device, *word;
    } MISSING[] = {{"wse3", "flops_"},        {"groq-lpu-v1", "scaleup_rate"},
                   {"corsair", "flops_fp8"},  {"axelera-metis", "memory_rate"},
                   {"epyc-9965", "memory"},   {"rubin-cpx", "flops_fp8"},
                   {"rtx-4090", "do not fit"}};
    struct fault fault = {0};
    struct plan_candidate c;

    (void)state;
    for (size_t i = 0; i < sizeof(MISSING) / sizeof(MISSING[0]); i++) {
        assert_int_not_equal(search(MISSING[i].device, &WORK, 0, &c, &fault), 0);
        assert_non_null(strstr(fault.text, device(MISSING[i].device)->id));
        assert_non_null(strstr(fault.text, MISSING[i].word));
    }
    struct plan_work work = WORK;
    work.hit = 1.5;
    assert_int_equal(search("h100", &work, 0, &c, &fault), E_INVAL);
}

/* 608 G tokens in and 168 G out in a day, 73.7 k and 14.8 k tokens/s of a node. */
static void deepseek_day(void **state)
{
    struct plan_ratio r = plan_ratio_of(608e9 / 86400, 168e9 / 86400, 73700, 14800);

    (void)state;
    assert_true(fabs(r.total - 226.9) < 1);
    assert_true(fabs(r.decode_per_prefill - 1.38) < 0.005);
}

static void layerwise_transfer_hides(void **state)
{
    struct plan_model m = model("Llama-3-70B");
    struct plan_pool pool = {.cost = cost(&m, "h100", "fp8", 4), .devices = 4, .lanes = 1};
    struct plan_work work = WORK;

    (void)state;
    work.link = (struct plan_link){.id = "x", .rate = 1e10, .measured_part = 1, .startup_s = 0};
    double whole = 8000 * 327680.0 / 1e10;
    work.is_layerwise = false;
    assert_true(fabs(plan_transfer(&pool, &work, 5) - whole) < 1e-9);
    work.is_layerwise = true;
    assert_true(fabs(plan_transfer(&pool, &work, 5) - whole / 80) < 1e-9); /* the last layer only */
    assert_true(fabs(plan_transfer(&pool, &work, 0.1) - (whole - 0.1 * 79 / 80)) < 1e-9);
}

/* The figures of baton-model bench for a host predict the runs behind them. */
static void hosts_predict_their_own_runs(void **state)
{
    static const char BENCH[] =
        "{\"model\":\"random-llama-12x768\",\"type\":\"Q8_0\",\"threads\":2,\"limits\":{\"read_gbs\":33.038,"
        "\"fp32_tflops\":0.2287,\"bf16_tflops\":0.4634,\"bf16_tiles_tflops\":0.0,\"int8_tops\":0.929,"
        "\"narrow_tops\":0.929,\"int8_by\":\"vectors\"},\"runs\":[{\"test\":\"pp256\",\"median_tok_s\":3467."
        "178,"
        "\"limit_fraction\":0.6612},{\"test\":\"tg32\",\"median_tok_s\":303.388,\"limit_fraction\":0.8023}]}";
    struct plan_devices devices = {0};
    struct plan_constants own;
    struct fault fault = {0};
    const struct plan_device *host;

    (void)state;
    assert_int_equal(plan_host_add(bytes_str(BENCH), "host", &devices, &own, &fault), 0);
    assert_int_equal(plan_devices_find(&devices, "host", &fault, &host), 0);
    assert_true(isnan(host->at[DEV_MEMORY]) && host->at[DEV_MEMORY_RATE] == 33.038e9);
    struct plan_model m = model("layers=12,hidden=768,q_heads=12,kv_heads=4,ffn=2048,vocab=4096");
    struct plan_device with_memory = *host;
    with_memory.at[DEV_MEMORY] = 24e9;
    struct plan_setup setup = {.model = &m,
                               .device = &with_memory,
                               .constants = &own,
                               .weights = "q8_0",
                               .kv = "f16",
                               .tp = 1,
                               .moe_tp = 1,
                               .ep = 1,
                               .pp = 1,
                               .nodes = 1};
    struct plan_cost c;
    assert_int_equal(plan_cost_init(&setup, &fault, &c), 0);
    assert_true(fabs(plan_cost_prefill(&c, 256, 0) * 3467.178 / 256 - 1) < 0.2);
    assert_true(fabs(plan_cost_decode(&c, 1, 16) * 303.388 - 1) < 0.2);
    assert_int_equal(plan_host_add(bytes_str(BENCH), "host", &devices, &own, &fault), E_EXISTS);
    assert_int_equal(plan_host_add(bytes_str("{}"), "other", &devices, &own, &fault), E_NOT_FOUND);
    plan_devices_fini(&devices);
}

static int open_tables(void **state)
{
    struct fault fault = {0};

    (void)state;
    assert_int_equal(plan_books_open(&fault, &books), 0);
    return plan_constants_parse(plan_builtin_constants(), &fault, &constants);
}

static int close_tables(void **state)
{
    (void)state;
    plan_constants_fini(&constants);
    plan_books_fini(&books);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_held_before_and_beyond_the_mean),
        cmocka_unit_test(latent_caches_are_not_divided),
        cmocka_unit_test(chunks_cost_what_a_whole_costs),
        cmocka_unit_test(experts_that_are_hit),
        cmocka_unit_test(states_have_a_size_and_no_slope),
        cmocka_unit_test(time_grows_with_work),
        cmocka_unit_test(types_have_variants),
        cmocka_unit_test(worked_example),
        cmocka_unit_test(plans_follow_the_work),
        cmocka_unit_test(refusals_name_what_is_missing),
        cmocka_unit_test(deepseek_day),
        cmocka_unit_test(layerwise_transfer_hides),
        cmocka_unit_test(hosts_predict_their_own_runs),
    };

    return cmocka_run_group_tests(tests, open_tables, close_tables);
}
