/* SPDX-License-Identifier: Apache-2.0 */
/* The roofline of a step.
 *
 *   projections   max(FLOPs / (peak eta_c), weights / (rate eta_b)), with m_h rows more for partial tiles
 *   experts       the same for the experts that the step's tokens hit
 *   attention     prefill: FLOPs; decode: the larger of KV bytes and FLOPs
 *   collectives   two all-reduces a layer among tp devices; dispatch and combine among ep devices
 *   fixed         tau_step + layers tau_layer
 *
 * Grouped queries read each key once for all heads of a group.  Latent attention (MLA) caches one row for all
 * heads, so every device of a tensor-parallel group holds and reads all of it.  A window bounds the context of
 * its layers.  A linear layer has a state instead of a cache and costs only its projections. */
#include "fleet/plan/step.h"

#include "base/err.h"
#include "base/kv_types.h"

#include <math.h>

#define MOE_WIRE_BYTES  3    /* an element: one out (FP8), two back (BF16) */
#define FITTED_BF16     0.79 /* matmul fractions of H100, H200, B200 and B300, mean */
#define FITTED_FP8      0.737
#define NIC_PART        0.86 /* of a network card that expert kernels reach (DeepEP's table) */
#define SCALEUP_EP_PART 0.75 /* of the scale-up rate that they reach */

static const char *const TERM_NAMES[] = {
    "projections",         "experts",        "attention of prompts",
    "attention of decode", "LM head",        "tensor-parallel collectives",
    "expert traffic",      "fixed (layers)", "fixed (step)",
    "pipeline hops"};

const char *plan_term_name(enum plan_term term)
{
    return TERM_NAMES[term];
}

/* The bytes of an element of a weight type, and the rates that can compute it, best first. */
static const struct type {
    const char *name;
    double bytes;
    signed char peaks[6];
} TYPES[] = {
    {"bf16", 2, {DEV_BF16, DEV_FP16, DEV_FP32, -1}},
    {"fp16", 2, {DEV_FP16, DEV_BF16, DEV_FP32, -1}},
    {"f16", 2, {DEV_FP16, DEV_BF16, DEV_FP32, -1}},
    {"fp32", 4, {DEV_FP32, -1}},
    {"f32", 4, {DEV_FP32, -1}},
    {"fp8", 1, {DEV_FP8, DEV_BF16, DEV_FP16, DEV_FP32, -1}},
    {"int8", 1, {DEV_INT8, DEV_BF16, DEV_FP16, DEV_FP32, -1}},
    {"fp4", 0.5625, {DEV_FP4, DEV_BF16, DEV_FP16, DEV_FP8, DEV_FP32, -1}},
    {"nvfp4", 0.5625, {DEV_FP4, DEV_BF16, DEV_FP16, DEV_FP8, DEV_FP32, -1}},
    {"mxfp4", 0.53125, {DEV_FP4, DEV_BF16, DEV_FP16, DEV_FP8, DEV_FP32, -1}},
    {"int4", 0.53125, {DEV_INT4, DEV_BF16, DEV_FP16, DEV_INT8, DEV_FP32, -1}},
    {"q8_0", 1.0625, {DEV_INT8, DEV_BF16, DEV_FP16, DEV_FP32, -1}},
    {"q6_k", 0.8203125, {DEV_INT8, DEV_BF16, DEV_FP16, DEV_FP32, -1}},
    {"q5_k", 0.6875, {DEV_INT8, DEV_BF16, DEV_FP16, DEV_FP32, -1}},
    {"q4_k", 0.5625, {DEV_INT8, DEV_BF16, DEV_FP16, DEV_FP32, -1}},
    {"q4_0", 0.5625, {DEV_INT8, DEV_BF16, DEV_FP16, DEV_FP32, -1}},
};

static const struct type *type_find(const char *name)
{
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(TYPES[0]); i++)
        if (plan_name_equal(TYPES[i].name, name))
            return &TYPES[i];
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(TYPES[0]); i++) { /* fp8_block, fp8-static */
        size_t len = strlen(TYPES[i].name);
        if (plan_name_begins(name, TYPES[i].name) && (name[len] == '_' || name[len] == '-'))
            return &TYPES[i];
    }
    return NULL;
}

double plan_type_bytes(const char *type)
{
    static const struct {
        const char *word;
        double bytes;
    } kv_types[] = {
#define X(type, number, word, run, run_bytes) {word, (double)(run_bytes) / (run)},
        KV_TYPE_TABLE(X)
#undef X
    };
    const struct type *found = type_find(type);

    for (size_t i = 0; i < sizeof(kv_types) / sizeof(kv_types[0]); i++)
        if (plan_name_equal(kv_types[i].word, type))
            return kv_types[i].bytes;
    return found == NULL ? NAN : found->bytes;
}

/* The efficiency of large matmuls relative to the devices of the fit; 1 without a measurement. */
static double cost_matmul(const struct plan_device *device, const struct type *type)
{
    double bf16 = device->at[DEV_MATMUL_BF16] / FITTED_BF16, fp8 = device->at[DEV_MATMUL_FP8] / FITTED_FP8;
    bool is_narrow = type->peaks[0] == DEV_FP8 || type->peaks[0] == DEV_FP4;
    double first = is_narrow ? fp8 : bf16, second = is_narrow ? bf16 : fp8;

    return !isnan(first) ? first : !isnan(second) ? second : 1;
}

static double cost_peak(const struct plan_device *device, const struct type *type)
{
    for (const signed char *field = type->peaks; *field >= 0; field++)
        if (!isnan(device->at[*field]))
            return device->at[*field];
    return NAN;
}

static int cost_lacks(const struct plan_device *device, enum plan_device_field field, struct fault *fault)
{
    return fault_set(fault, E_NOT_FOUND, "%s: %s (%s) is not known; give it with %s,%s=...", device->id,
                     plan_device_field_name(field), plan_device_field_text(field), device->id,
                     plan_device_field_name(field));
}

/* The fault for weights that no rate computes; it lists the rates of the device. */
static int cost_lacks_rate(const struct plan_device *device, const struct type *weights, struct fault *fault)
{
    char known[128] = "";
    const char *name = plan_device_field_name((enum plan_device_field)weights->peaks[0]);

    for (int field = DEV_FP32; field <= DEV_FP4; field++)
        if (!isnan(device->at[field])) {
            strcat(known, known[0] == '\0' ? "; known: " : ", ");
            strcat(known, plan_device_field_name((enum plan_device_field)field));
        }
    return fault_set(fault, E_NOT_FOUND, "%s: %s (%s) is not known%s; give it with %s,%s=...", device->id,
                     name, plan_device_field_text((enum plan_device_field)weights->peaks[0]), known,
                     device->id, name);
}

static int cost_init_memory(struct plan_cost *cost, struct fault *fault)
{
    const struct plan_device *device = cost->setup.device;
    bool is_sram = strcmp(device->kind, "sram-decode") == 0 || strcmp(device->kind, "wafer") == 0;
    enum plan_device_field size = is_sram ? DEV_SRAM : DEV_MEMORY;
    enum plan_device_field rate = is_sram ? DEV_SRAM_RATE : DEV_MEMORY_RATE;

    cost->memory_bytes = device->at[size];
    cost->memory_rate = device->at[rate];
    if (isnan(cost->memory_bytes))
        return cost_lacks(device, size, fault);
    return isnan(cost->memory_rate) ? cost_lacks(device, rate, fault) : 0;
}

static int cost_init_peaks(struct plan_cost *cost, struct fault *fault)
{
    const struct plan_setup *s = &cost->setup;
    const struct type *weights = type_find(s->weights), *attention = weights;
    double bytes_kv = plan_type_bytes(s->kv);

    if (weights == NULL || isnan(bytes_kv))
        return fault_set(fault, E_UNSUPPORTED,
                         "unknown type \"%.20s\" (bf16, fp8, int8, fp4, mxfp4, int4, q8_0, q4_k ...)",
                         weights == NULL ? s->weights : s->kv);
    if (weights->bytes < 0.6 && s->model->attention_bits > 0)
        attention = type_find(s->model->attention_bits > 8 ? "bf16" : "fp8");
    cost->bytes_main = weights->bytes;
    cost->bytes_attention = attention->bytes;
    cost->bytes_head = weights->bytes < 2 && plan_name_begins(weights->name, "fp") ? 2 : weights->bytes;
    cost->bytes_kv = bytes_kv;
    cost->peak_main = cost_peak(s->device, weights);
    cost->peak_attention_weights = cost_peak(s->device, attention);
    cost->peak_attention = cost_peak(s->device, type_find("bf16"));
    cost->matmul_main = cost_matmul(s->device, weights);
    cost->matmul_attention = cost_matmul(s->device, attention);
    if (isnan(cost->peak_main))
        return cost_lacks_rate(s->device, weights, fault);
    if (isnan(cost->peak_attention_weights))
        return cost_lacks_rate(s->device, attention, fault);
    if (isnan(cost->peak_attention)) /* a device of one type runs attention in it, too */
        cost->peak_attention = cost->peak_main;
    cost->is_fp4 = weights->peaks[0] == DEV_FP4 && !isnan(s->device->at[DEV_FP4]);
    return 0;
}

static int cost_init_links(struct plan_cost *cost, struct fault *fault)
{
    const struct plan_setup *s = &cost->setup;
    const struct plan_device *device = s->device;
    double group = s->attention_dp != 0 ? s->ep / s->nodes : s->tp;

    cost->scaleup_rate = device->at[DEV_SCALEUP_RATE];
    cost->nic_rate = device->at[DEV_NIC_RATE];
    if (group > 1) {
        if (device->at[DEV_SCALEUP_DEVICES] < group)
            return fault_set(fault, E_INVAL, "%s: %g devices together, but its scale-up network joins %g",
                             device->id, group, device->at[DEV_SCALEUP_DEVICES]);
        if (isnan(cost->scaleup_rate))
            return cost_lacks(device, DEV_SCALEUP_RATE, fault);
    }
    double peers = device->at[DEV_SCALEUP_PEER] * (group - 1);
    if (peers > 0 && peers < cost->scaleup_rate)
        cost->scaleup_rate = peers;
    if (s->nodes > 1 && isnan(cost->nic_rate))
        return cost_lacks(device, DEV_NIC_RATE, fault);
    if (s->pp > 1 && isnan(cost->scaleup_rate) && isnan(cost->nic_rate))
        return cost_lacks(device, DEV_SCALEUP_RATE, fault);
    return 0;
}

static int cost_check(const struct plan_setup *s, struct fault *fault)
{
    const double ways[] = {s->tp, s->moe_tp, s->ep, s->pp, s->nodes};

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (!(ways[i] >= 1 && ways[i] <= 1e6))
            return fault_set(fault, E_INVAL, "tp, moe_tp, ep, pp and nodes begin at 1");
    if (s->attention_dp == 0 && s->model->experts > 0 && s->moe_tp * s->ep != s->tp)
        return fault_set(fault, E_INVAL, "moe_tp x ep is %g, but tp is %g", s->moe_tp * s->ep, s->tp);
    if (s->attention_dp == 0 && s->tp > s->model->q_heads)
        return fault_set(fault, E_INVAL, "tp %g is above the model's %g query heads", s->tp,
                         s->model->q_heads);
    if (s->ep > fmax(1, s->model->experts) && s->attention_dp == 0)
        return fault_set(fault, E_INVAL, "ep %g is above the model's %g experts", s->ep, s->model->experts);
    return 0;
}

/* Parameters and cache of one device. */
static void cost_init_sizes(struct plan_cost *cost)
{
    const struct plan_setup *s = &cost->setup;
    const struct plan_model *m = s->model;
    double moe = plan_model_moe_layers(m), expert = plan_model_expert_params(m);
    double attention_layers = plan_model_attention_layers(m), ffn_layers = plan_model_ffn_layers(m);
    double kv_copies = plan_model_is_mla(m) ? 1 : fmax(1 / s->tp, 1 / fmax(1, m->kv_heads));
    double head = m->vocab * m->hidden;

    cost->attention_weights =
        (attention_layers * plan_model_attention_params(m) + m->linear_layers * m->linear_params) / s->tp;
    cost->main_weights =
        ((ffn_layers - moe) * plan_model_dense_ffn_params(m) + moe * m->shared_experts * expert) / s->tp +
        moe * m->hidden * m->experts;
    cost->expert_weights = moe * fmax(m->experts / s->ep, moe > 0) * expert / s->moe_tp;
    cost->weight_bytes = (cost->attention_weights * cost->bytes_attention +
                          (cost->main_weights + cost->expert_weights) * cost->bytes_main +
                          head * (m->tied_embeddings != 0 ? 1 : 2) / s->tp * cost->bytes_head) /
                         s->pp;
    cost->kv_bytes_token = plan_model_kv_elements(m) * cost->bytes_kv * kv_copies / s->pp;
    cost->state_bytes = m->state_bytes / s->tp / s->pp;
}

int plan_cost_init(const struct plan_setup *setup, struct fault *fault, struct plan_cost *out)
{
    struct plan_cost cost = {.setup = *setup};
    int rc = cost_check(setup, fault);

    if (cost.setup.factor == 0)
        cost.setup.factor = 1;
    if (rc == 0)
        rc = cost_init_memory(&cost, fault);
    if (rc == 0)
        rc = cost_init_peaks(&cost, fault);
    if (rc == 0)
        rc = cost_init_links(&cost, fault);
    if (rc != 0)
        return rc;
    cost_init_sizes(&cost);
    *out = cost;
    return 0;
}

/* The larger of the times of computing and reading. */
static double cost_roof(double flops, double peak, double bytes, double rate)
{
    return fmax(flops / peak, bytes / rate);
}

static double cost_projections(const struct plan_cost *cost, double tokens, bool *is_compute_bound)
{
    const double *k = cost->setup.constants->at;
    double rows = tokens + k[PC_M_H], fp4 = cost->is_fp4 != 0 ? k[PC_FP4] : 1;
    double rate = cost->memory_rate * k[PC_ETA_B], attention_fp4 = cost->bytes_attention < 0.6 ? fp4 : 1;
    double main_flops =
        2 * rows * cost->main_weights / (cost->peak_main * k[PC_ETA_C] * cost->matmul_main * fp4);
    double main_read = cost->main_weights * cost->bytes_main / rate;

    *is_compute_bound = main_flops > main_read;
    return fmax(main_flops, main_read) +
           cost_roof(2 * rows * cost->attention_weights,
                     cost->peak_attention_weights * k[PC_ETA_C] * cost->matmul_attention * attention_fp4,
                     cost->attention_weights * cost->bytes_attention, rate);
}

static double cost_experts(const struct plan_cost *cost, double tokens)
{
    const struct plan_setup *s = &cost->setup;
    const struct plan_model *m = s->model;
    const double *k = s->constants->at;

    if (m->experts == 0 || tokens == 0)
        return 0;
    /* With data-parallel attention, the experts of each rank get tokens of all ranks. */
    double all = s->attention_dp != 0 ? tokens * s->ep : tokens;
    double hit = m->experts / s->ep * (1 - pow(1 - m->experts_per_token / m->experts, all));
    double skew = s->ep == 1 ? 1 : s->expert_skew > 0 ? s->expert_skew : k[PC_SKEW];
    double pairs = all * m->experts_per_token / s->ep, expert = plan_model_expert_params(m) / s->moe_tp;
    double fp4 = cost->is_fp4 != 0 ? k[PC_FP4] : 1;

    hit = fmin(hit, m->experts / s->ep);
    return plan_model_moe_layers(m) * skew *
           cost_roof(2 * (pairs + hit * k[PC_M_H]) * expert,
                     cost->peak_main * k[PC_ETA_CM] * cost->matmul_main * fp4,
                     hit * expert * cost->bytes_main, cost->memory_rate * k[PC_ETA_BM]);
}

/* FLOPs of a query's dot products with one position and of its weighted sum, all heads. */
static double cost_pair_flops(const struct plan_model *m, bool is_decode)
{
    if (!plan_model_is_mla(m))
        return 2 * m->q_heads * (m->head_dim + plan_model_value_dim(m));
    return 2 * m->q_heads *
           (is_decode ? 2 * m->kv_lora_rank + m->qk_rope_head_dim
                      : m->qk_nope_head_dim + m->qk_rope_head_dim + m->v_head_dim);
}

static double cost_attention_prefill(const struct plan_cost *cost, const struct plan_load *load)
{
    const struct plan_model *m = cost->setup.model;
    double full = plan_model_full_layers(m) * load->attention;
    double windows = m->sliding_layers * fmin(load->attention, load->new_tokens * m->sliding_window);

    return (full + windows) * cost_pair_flops(m, false) / cost->setup.tp /
           (cost->peak_attention * cost->setup.constants->at[PC_ETA_A]);
}

static double cost_attention_decode(const struct plan_cost *cost, const struct plan_load *load)
{
    const struct plan_model *m = cost->setup.model;
    const double *k = cost->setup.constants->at;
    double positions = load->batch * (plan_model_full_layers(m) * load->context +
                                      m->sliding_layers * fmin(load->context, m->sliding_window));
    double layers = fmax(1, plan_model_attention_layers(m));
    double bytes =
        positions * cost->kv_bytes_token * cost->setup.pp / layers + 2 * load->batch * cost->state_bytes;

    return cost_roof(positions * cost_pair_flops(m, true) / cost->setup.tp,
                     cost->peak_attention * k[PC_ETA_A], bytes, cost->memory_rate * k[PC_ETA_KV]);
}

static double cost_collectives(const struct plan_cost *cost, double tokens)
{
    const struct plan_setup *s = &cost->setup;
    const double *k = s->constants->at;

    if (s->tp <= 1)
        return 0;
    double bytes = 2 * (s->tp - 1) / s->tp * tokens * s->model->hidden * 2;
    return 2 * s->model->layers * (k[PC_ALPHA] + bytes / (cost->scaleup_rate * k[PC_ETA_N]));
}

/* Dispatch and combine of experts among devices with sequences of their own. */
static double cost_expert_traffic(const struct plan_cost *cost, const struct plan_load *load)
{
    const struct plan_setup *s = &cost->setup;
    const struct plan_model *m = s->model;
    double tokens = load->new_tokens + load->batch, d = m->hidden, top = m->experts_per_token;

    if (s->attention_dp == 0 || s->ep <= 1)
        return 0;
    double fan_out = tokens * top * MOE_WIRE_BYTES * d / (cost->scaleup_rate * SCALEUP_EP_PART);
    double wire = 0;
    if (s->nodes > 1 && load->new_tokens == 0) { /* low latency: each copy goes over the card */
        wire = tokens * top * MOE_WIRE_BYTES * d * (1 - 1 / s->ep) / (cost->nic_rate * NIC_PART);
        fan_out = 0;
    } else if (s->nodes > 1) { /* once for each node that a token needs */
        double groups = fmin(4, s->nodes);
        wire = tokens * MOE_WIRE_BYTES * d * groups * (1 - pow(1 - 1 / groups, top)) * (s->nodes - 1) /
               s->nodes / (cost->nic_rate * NIC_PART);
    }
    return plan_model_moe_layers(m) * (2 * s->constants->at[PC_ALPHA] + fmax(wire, fan_out));
}

static void cost_fixed(const struct plan_cost *cost, const struct plan_load *load, struct plan_terms *t)
{
    const struct plan_setup *s = &cost->setup;
    const double *k = s->constants->at;
    double sequences = load->batch + load->n_finished, head = s->model->vocab * s->model->hidden / s->tp;

    t->s[TERM_HEAD] = cost_roof(2 * sequences * head, cost->peak_attention * k[PC_ETA_C],
                                head * cost->bytes_head, cost->memory_rate * k[PC_ETA_B]);
    t->s[TERM_LAYERS] = s->model->layers * k[PC_TAU_LAYER] + plan_model_moe_layers(s->model) * k[PC_TAU_MOE];
    t->s[TERM_STEP] = k[PC_TAU_STEP] + sequences * k[PC_TAU_TOKEN];
    if (s->pp > 1) {
        double rate = isnan(cost->scaleup_rate) ? cost->nic_rate : cost->scaleup_rate;
        t->s[TERM_PIPE] = (s->pp - 1) * (k[PC_ALPHA] + (load->new_tokens + load->batch) * s->model->hidden *
                                                           2 / (rate * k[PC_ETA_N]));
    }
}

double plan_cost_step(const struct plan_cost *cost, const struct plan_load *load, struct plan_terms *terms)
{
    double tokens = load->new_tokens + load->batch, sum = 0;
    static const double HIDDEN[] = {0, 0.5, 1}; /* part of the shorter of computing and traffic */

    *terms = (struct plan_terms){0};
    terms->s[TERM_GEMM] = cost_projections(cost, tokens, &terms->is_compute_bound);
    terms->s[TERM_EXPERTS] = cost_experts(cost, tokens);
    if (load->new_tokens > 0)
        terms->s[TERM_ATTENTION_PREFILL] = cost_attention_prefill(cost, load);
    if (load->batch > 0)
        terms->s[TERM_ATTENTION_DECODE] = cost_attention_decode(cost, load);
    terms->s[TERM_TP] = cost_collectives(cost, tokens);
    cost_fixed(cost, load, terms);
    for (int i = 0; i < TERM_N; i++)
        sum += terms->s[i];
    double traffic = cost_expert_traffic(cost, load);
    terms->s[TERM_EP] = traffic - HIDDEN[cost->setup.overlap] * fmin(traffic, sum);
    for (int i = 0; i < TERM_N; i++)
        terms->s[i] *= cost->setup.factor;
    terms->total_s = (sum + traffic) * cost->setup.factor;
    terms->total_s -= HIDDEN[cost->setup.overlap] * fmin(traffic, sum) * cost->setup.factor;
    return terms->total_s;
}

double plan_cost_prefill(const struct plan_cost *cost, double new_tokens, double cached_tokens)
{
    struct plan_terms terms;

    return plan_cost_step(cost,
                          &(struct plan_load){.new_tokens = new_tokens,
                                              .attention = new_tokens * (cached_tokens + new_tokens / 2),
                                              .n_finished = 1},
                          &terms);
}

double plan_cost_decode(const struct plan_cost *cost, double batch, double context)
{
    struct plan_terms terms;

    return plan_cost_step(cost, &(struct plan_load){.batch = batch, .context = context}, &terms);
}

double plan_cost_room(const struct plan_cost *cost, double context_tokens, double reserve)
{
    const struct plan_model *m = cost->setup.model;
    double layers = fmax(1, plan_model_attention_layers(m));
    double positions = plan_model_full_layers(m) * context_tokens +
                       m->sliding_layers * fmin(context_tokens, m->sliding_window);
    double sequence = positions * cost->kv_bytes_token / layers + cost->state_bytes;
    double free_bytes = cost->memory_bytes * (1 - reserve) - cost->weight_bytes;

    return free_bytes <= 0 ? 0 : free_bytes / sequence;
}

double plan_cost_kv_bytes(const struct plan_cost *cost, double context_tokens)
{
    return plan_model_kv_elements_at(cost->setup.model, context_tokens) * cost->bytes_kv +
           cost->setup.model->state_bytes;
}
