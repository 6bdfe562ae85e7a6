/* SPDX-License-Identifier: Apache-2.0 */
/* Published measurements that no fit has used, with bands.
 *
 * A row has the measured value and the range for predicted / measured.  The arithmetic cannot predict rows marked
 * MISS.  The test checks that too: when such a row comes right, its mark must be
 * removed.  If a source ran an older engine, the row has that engine's fixed time per layer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include <math.h>

#include "fleet/plan/builtin.h"

enum kind {
    PREFILL_MS,       /* a prompt alone */
    DECODE_MS,        /* a step */
    NODE_PREFILL_TPS, /* prompt tokens per second and node of 8, experts spread */
    NODE_DECODE_TPS,  /* output tokens per second and node of 8 */
    PREFILL_SLOPE_US, /* per prompt token */
    CONTEXT_SLOPE_NS, /* of a decode step per token of context */
    TTFT_44_MS,       /* prefill, after 44 ms for handling the request */
};

enum verdict { HOLDS, MISS };

static const struct anchor {
    const char *source, *model, *device, *weights;
    enum kind kind;
    double tp, ep, nodes;  /* ep > 0: experts spread over ep devices, attention data-parallel */
    double batch, context; /* prefill: tokens in the step, prompt length */
    double tau_layer_us;   /* 0: the constant */
    enum plan_overlap overlap;
    double measured, low, high;
    enum verdict verdict;
} ANCHORS[] = {
#define LMSYS "LMSYS 2025-05, DeepSeek on 96 H100"
    {LMSYS, "DeepSeek-V3", "h100", "fp8", NODE_PREFILL_TPS, 1, 32, 4, 16384, 1024, 0, PLAN_OVERLAP_HALF,
     57674, .75, 1.25, HOLDS},
    {LMSYS, "DeepSeek-V3", "h100", "fp8", NODE_PREFILL_TPS, 1, 32, 4, 16384, 2048, 0, PLAN_OVERLAP_HALF,
     54543, .75, 1.25, HOLDS},
    {LMSYS, "DeepSeek-V3", "h100", "fp8", NODE_PREFILL_TPS, 1, 32, 4, 16384, 4096, 0, PLAN_OVERLAP_HALF,
     50302, .75, 1.25, HOLDS},
    {LMSYS, "DeepSeek-V3", "h100", "fp8", NODE_DECODE_TPS, 1, 72, 9, 256, 2000, 0, PLAN_OVERLAP_HALF, 22282,
     .75, 1.25, HOLDS},
#define PROFILE "DeepSeek profile data 2025-02"
    {PROFILE, "DeepSeek-V3", "h800", "fp8", NODE_DECODE_TPS, 1, 128, 16, 128, 4096, 0, PLAN_OVERLAP_FULL,
     18598, .75, 1.25, HOLDS},
#define DAY "DeepSeek open-infra-index day 6"
    {DAY, "DeepSeek-V3", "h800", "fp8", NODE_DECODE_TPS, 1, 144, 18, 128, 4989, 0, PLAN_OVERLAP_HALF, 14800,
     .75, 1.25, HOLDS},
    {DAY ", misses only, at the load of a day", "DeepSeek-V3", "h800", "fp8", NODE_PREFILL_TPS, 1, 32, 4,
     16384, 4096, 0, PLAN_OVERLAP_HALF, 32206, .75, 1.25, MISS},
    {"Ant Group 2025, one node of H20", "DeepSeek-V3", "h20", "fp8", NODE_PREFILL_TPS, 8, 0, 1, 4096, 4096, 0,
     PLAN_OVERLAP_NONE, 16500, .75, 1.25, MISS},
    {"MLPerf Inference 6.0, GB300 (layout assumed)", "DeepSeek-V3", "gb300", "fp4", NODE_DECODE_TPS, 1, 72, 1,
     512, 2700, 0, PLAN_OVERLAP_HALF, 64512, .5, 1.5, HOLDS},
#define SPLITWISE "Splitwise, ISCA 2024, table of Llama-2-70B"
    {SPLITWISE, "Llama-2-70B", "a100", "bf16", PREFILL_MS, 8, 0, 1, 1, 512, 430, 0, 93, .55, 1.45, HOLDS},
    {SPLITWISE, "Llama-2-70B", "a100", "bf16", PREFILL_MS, 8, 0, 1, 1, 2048, 430, 0, 274, .55, 1.45, HOLDS},
    {SPLITWISE, "Llama-2-70B", "a100", "bf16", PREFILL_MS, 8, 0, 1, 1, 8192, 430, 0, 1550, .55, 1.45, HOLDS},
    {SPLITWISE, "Llama-2-70B", "h100", "bf16", PREFILL_MS, 8, 0, 1, 1, 512, 315, 0, 53, .55, 1.45, HOLDS},
    {SPLITWISE, "Llama-2-70B", "h100", "bf16", PREFILL_MS, 8, 0, 1, 1, 2048, 315, 0, 137, .55, 1.45, HOLDS},
    {SPLITWISE, "Llama-2-70B", "h100", "bf16", PREFILL_MS, 8, 0, 1, 1, 8192, 315, 0, 845, .45, 1.45, HOLDS},
    {SPLITWISE, "Llama-2-70B", "a100", "bf16", DECODE_MS, 8, 0, 1, 1, 512, 430, 0, 45.0, .8, 1.2, HOLDS},
    {SPLITWISE, "Llama-2-70B", "a100", "bf16", DECODE_MS, 8, 0, 1, 16, 512, 430, 0, 50.4, .8, 1.2, HOLDS},
    {SPLITWISE, "Llama-2-70B", "a100", "bf16", DECODE_MS, 8, 0, 1, 64, 512, 430, 0, 71.6, .6, 1.2, HOLDS},
    {SPLITWISE, "Llama-2-70B", "h100", "bf16", DECODE_MS, 8, 0, 1, 1, 512, 315, 0, 30.6, .8, 1.2, HOLDS},
    {SPLITWISE, "Llama-2-70B", "h100", "bf16", DECODE_MS, 8, 0, 1, 16, 512, 315, 0, 34.2, .8, 1.2, HOLDS},
    {SPLITWISE, "Llama-2-70B", "h100", "bf16", DECODE_MS, 8, 0, 1, 64, 512, 315, 0, 50.2, .6, 1.2, HOLDS},
    {SPLITWISE ", one constant set for both", "Llama-2-70B", "h100", "bf16", DECODE_MS, 8, 0, 1, 1, 512, 0, 0,
     30.6, .8, 1.2, MISS},
    {"Splitwise, BLOOM-176B", "BLOOM-176B", "a100", "bf16", DECODE_MS, 8, 0, 1, 1, 512, 396, 0, 49.3, .8,
     1.25, HOLDS},
    {"Splitwise, BLOOM-176B", "BLOOM-176B", "a100", "bf16", DECODE_MS, 8, 0, 1, 64, 512, 396, 0, 96.6, .6,
     1.2, HOLDS},
    {"Splitwise, BLOOM-176B", "BLOOM-176B", "h100", "bf16", DECODE_MS, 8, 0, 1, 1, 512, 330, 0, 36.2, .8,
     1.25, HOLDS},
    {"Splitwise, BLOOM-176B", "BLOOM-176B", "h100", "bf16", DECODE_MS, 8, 0, 1, 64, 512, 330, 0, 63.8, .6,
     1.2, HOLDS},
#define DISTSERVE "DistServe profile, OPT-13B on A100"
    {DISTSERVE, "OPT-13B", "a100", "bf16", PREFILL_SLOPE_US, 1, 0, 1, 0, 0, 180, 0, 102, .7, 1.5, HOLDS},
    {DISTSERVE, "OPT-13B", "a100", "bf16", PREFILL_SLOPE_US, 2, 0, 1, 0, 0, 180, 0, 69, .7, 1.5, HOLDS},
    {DISTSERVE, "OPT-13B", "a100", "bf16", PREFILL_SLOPE_US, 4, 0, 1, 0, 0, 180, 0, 38, .7, 1.6, HOLDS},
    {DISTSERVE, "OPT-13B", "a100", "bf16", DECODE_MS, 1, 0, 1, 1, 1, 180, 0, 19.9, .8, 1.2, HOLDS},
    {DISTSERVE, "OPT-13B", "a100", "bf16", DECODE_MS, 2, 0, 1, 1, 1, 180, 0, 13.3, .8, 1.25, HOLDS},
    {DISTSERVE, "OPT-13B", "a100", "bf16", DECODE_MS, 4, 0, 1, 1, 1, 180, 0, 10.3, .8, 1.25, HOLDS},
    {DISTSERVE, "OPT-13B", "a100", "bf16", CONTEXT_SLOPE_NS, 1, 0, 1, 0, 0, 180, 0, 630, .7, 1.3, HOLDS},
    {DISTSERVE, "OPT-13B", "a100", "bf16", CONTEXT_SLOPE_NS, 2, 0, 1, 0, 0, 180, 0, 340, .7, 1.3, HOLDS},
    {DISTSERVE, "OPT-13B", "a100", "bf16", CONTEXT_SLOPE_NS, 4, 0, 1, 0, 0, 180, 0, 190, .7, 1.3, HOLDS},
#define MOONCAKE "Mooncake with vLLM 0.11, Qwen3-8B, TP8 H800"
    {MOONCAKE, "Qwen3-8B", "h800", "bf16", TTFT_44_MS, 8, 0, 1, 1, 512, 0, 0, 55, .84, 1.16, HOLDS},
    {MOONCAKE, "Qwen3-8B", "h800", "bf16", TTFT_44_MS, 8, 0, 1, 1, 2048, 0, 0, 78, .84, 1.16, HOLDS},
    {MOONCAKE, "Qwen3-8B", "h800", "bf16", TTFT_44_MS, 8, 0, 1, 1, 8192, 0, 0, 178, .84, 1.16, HOLDS},
    {MOONCAKE, "Qwen3-8B", "h800", "bf16", TTFT_44_MS, 8, 0, 1, 1, 32768, 0, 0, 707, .84, 1.16, HOLDS},
#define CONFIGURATOR "AIConfigurator example, Qwen3-32B FP8 on H200 (a tool's figure)"
    {CONFIGURATOR, "Qwen3-32B", "h200", "fp8", DECODE_MS, 4, 0, 1, 68, 4250, 0, 0, 9.97, .75, 1.3, HOLDS},
    {CONFIGURATOR, "Qwen3-32B", "h200", "fp8", PREFILL_MS, 2, 0, 1, 1, 3500, 0, 0, 164, .7, 1.3, HOLDS},
};

static struct plan_books books;
static struct plan_constants constants;

static void anchor_cost(const struct anchor *a, struct plan_model *model, struct plan_constants *own,
                        struct plan_cost *cost)
{
    const struct plan_device *device;
    struct fault fault = {0};

    assert_int_equal(plan_models_find(&books.models, a->model, &fault, model), 0);
    assert_int_equal(plan_devices_find(&books.devices, a->device, &fault, &device), 0);
    *own = constants;
    if (a->tau_layer_us > 0)
        own->at[PC_TAU_LAYER] = a->tau_layer_us * 1e-6;
    struct plan_setup setup = {
        .model = model,
        .device = device,
        .constants = own,
        .weights = a->weights,
        .kv = "bf16",
        .tp = a->tp,
        .moe_tp = a->ep > 0 ? 1 : a->tp,
        .ep = a->ep > 0 ? a->ep : 1,
        .pp = 1,
        .attention_dp = a->ep > 0,
        .nodes = a->nodes,
        .overlap = a->overlap,
    };
    if (plan_cost_init(&setup, &fault, cost) != 0)
        fail_msg("%s: %s", a->source, fault.text);
}

static double anchor_predict(const struct anchor *a)
{
    struct plan_model model;
    struct plan_constants own;
    struct plan_cost cost;
    struct plan_terms terms;
    double t, devices = 8;

    anchor_cost(a, &model, &own, &cost);
    switch (a->kind) {
    case PREFILL_MS:
        return plan_cost_prefill(&cost, a->context, 0) * 1e3;
    case TTFT_44_MS:
        return 44 + plan_cost_prefill(&cost, a->context, 0) * 1e3;
    case DECODE_MS:
        return plan_cost_decode(&cost, a->batch, a->context) * 1e3;
    case NODE_PREFILL_TPS:
        t = plan_cost_step(&cost,
                           &(struct plan_load){.new_tokens = a->batch,
                                               .attention = a->batch * a->context / 2,
                                               .n_finished = a->batch / a->context},
                           &terms);
        return (a->ep > 0 ? devices : 1) * a->batch / t;
    case NODE_DECODE_TPS:
        return devices * a->batch / plan_cost_decode(&cost, a->batch, a->context);
    case PREFILL_SLOPE_US:
        return (plan_cost_prefill(&cost, 1500, 0) - plan_cost_prefill(&cost, 500, 0)) * 1e3;
    case CONTEXT_SLOPE_NS:
        return (plan_cost_decode(&cost, 1, 11000) - plan_cost_decode(&cost, 1, 1000)) * 1e5;
    }
    return NAN;
}

static void published_points_stay_in_their_bands(void **state)
{
    size_t n_wrong = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(ANCHORS) / sizeof(ANCHORS[0]); i++) {
        const struct anchor *a = &ANCHORS[i];
        double ratio = anchor_predict(a) / a->measured;
        bool is_inside = ratio >= a->low && ratio <= a->high;
        bool is_wrong = is_inside != (a->verdict == HOLDS);

        print_message("%-4s %6.3f (%.2f to %.2f)  %s, %s %s tp %g ep %g, %g x %g\n",
                      is_wrong             ? "BAD"
                      : a->verdict == MISS ? "miss"
                                           : "ok",
                      ratio, a->low, a->high, a->source, a->model, a->device, a->tp, a->ep, a->batch,
                      a->context);
        n_wrong += is_wrong;
    }
    assert_int_equal(n_wrong, 0);
}

static int open_tables(void **state)
{
    struct fault fault = {0};

    (void)state;
    assert_int_equal(plan_books_open(&fault, &books), 0);
    assert_int_equal(plan_constants_parse(plan_builtin_constants(), &fault, &constants), 0);
    return 0;
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
        cmocka_unit_test(published_points_stay_in_their_bands),
    };

    return cmocka_run_group_tests(tests, open_tables, close_tables);
}
