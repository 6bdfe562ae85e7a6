/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's limit for a test.  A speed alone says little, since machines differ.  So each result stands
 * beside the limit that this machine's measured peaks allow (a roofline, Williams et al. 2009):
 *
 *   arithmetic   two operations per weight and token, at the int8 peak for quantised matrices where the
 *                CPU has such instructions, at their own peaks for BF16 dots and tiles, else at the fp32
 *                peak;
 *                attention at the fp32 peak
 *   reading      all weights once per step (of experts, the expected number of chosen ones), and the
 *                KV of each sequence's context
 *
 * The longer time is the limit.  Prompts are bound by arithmetic, single sequences by reading. */
#include "clients/model/bench_priv.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void bench_test_name(const struct bench_test *test, char out[32])
{
    static const char *const PREFIX[] = {[BENCH_PREFILL] = "pp", [BENCH_DECODE] = "tg", [BENCH_BATCH] = "b"};
    int used = snprintf(out, 32, "%s%u", PREFIX[test->kind], test->n);

    if (test->depth > 0)
        snprintf(out + used, 32 - (size_t)used, "@%u", test->depth);
}

uint32_t bench_tokens(const struct bench_test *test)
{
    return test->kind == BENCH_BATCH ? test->n * BENCH_BATCH_STEPS : test->n;
}

/* True for experts: many in one tensor, or one in its own tensor ("blk.0.ffn_up.3.weight"). */
static bool is_of_experts(const struct gguf_tensor *tensor)
{
    size_t at = bytes_find(tensor->name, bytes_str(".ffn_"), 0), dot;

    if (at == SIZE_MAX)
        return false;
    if (bytes_find(tensor->name, bytes_str("_exps."), at) != SIZE_MAX)
        return true;
    dot = bytes_find(tensor->name, bytes_str("."), at + 1);
    return dot != SIZE_MAX && dot + 1 < tensor->name.len_bytes && isdigit(tensor->name.data[dot + 1]);
}

/* What multiplies weights of a type. */
static enum bench_by by_of(const struct rig *rig, enum dtype type)
{
    if (dtype_info(type)->qblk_weights > 1)
        return tensor_is_narrow(kern_table_get(model_kernels_name(rig->model)), type) ? BY_NARROW : BY_INT8;
    if (type == DTYPE_BF16)
        return rig->bf16 != BF16_EXACT ? BY_BF16 : BY_FLOAT;
    return type == DTYPE_F16 && rig->converts_f16 ? BY_BF16 : BY_FLOAT;
}

static void add_tensor(const struct rig *rig, const struct gguf_tensor *tensor, struct bench_work *out)
{
    const struct model_config *config = model_config(rig->model);
    bool is_head = bytes_is(tensor->name, config->is_tied ? "token_embd.weight" : "output.weight");
    double macs = (double)tensor->dims[0] * (double)tensor->dims[1] * (double)tensor->dims[2];

    if (tensor->n_dims < 2 || (!is_head && bytes_is(tensor->name, "token_embd.weight")))
        return;
    if (is_of_experts(tensor)) {
        macs *= out->expert_share;
        out->expert_bytes += (double)tensor->len_bytes;
    }
    (is_head ? out->head_macs : out->macs)[by_of(rig, tensor->type)] += macs;
}

void bench_work_of(const struct rig *rig, struct bench_work *out)
{
    const struct model_config *config = model_config(rig->model);
    const struct kv_layout *layout = model_kv_layout(rig->model);

    memset(out, 0, sizeof(*out));
    if (config->n_experts > 0)
        out->expert_share = (double)config->n_experts_used / config->n_experts;
    for (uint64_t i = 0; i < gguf_tensor_count(rig->gguf); i++)
        add_tensor(rig, gguf_tensor_at(rig->gguf, i), out);
    out->math = model_bf16_math(rig->model);
    /* With latent attention, all of a latent is the key and a part of it the value.  An upper bound where layers
     * differ: each with attention counts as the one with the most heads, without a window.  Layers that read
     * another's keys count; no family has these beside recurrent layers. */
    uint32_t n_layers = config->n_recurrent_layers > 0 ? config->n_kv_layers : config->n_layers;
    out->attn_macs = (double)n_layers * config->n_heads * (layout->k_dim + model_value_dim(config));
    out->weight_bytes = (double)config->weight_bytes - out->expert_bytes * out->expert_share;
    out->kv_bytes = (double)kv_layout_block_bytes(layout) / layout->block_tokens;
}

/* For so many tokens, of which so many want the head. */
static double compute_s(const struct bench_work *work, const struct tensor_limits *limits, double tokens,
                        double heads)
{
    const double peaks[N_BENCH_BY] = {
        [BY_INT8] = limits->int8_tops,
        [BY_NARROW] = limits->narrow_tops,
        [BY_BF16] = work->math == BF16_TILES ? limits->tiles_tflops : limits->bf16_tflops,
        [BY_FLOAT] = limits->fp32_tflops,
    };
    double seconds = 0;

    for (int by = 0; by < N_BENCH_BY; by++)
        seconds += 2 * (tokens * work->macs[by] + heads * work->head_macs[by]) /
                   ((peaks[by] > 0 ? peaks[by] : limits->fp32_tflops) * 1e12);
    return seconds;
}

double bench_limit_s(const struct bench_work *work, const struct tensor_limits *limits,
                     const struct bench_test *test)
{
    double tokens = bench_tokens(test), steps = tokens, heads = tokens, context;
    double compute, reading;

    if (test->kind == BENCH_PREFILL) { /* only the last token of a prompt needs the head */
        steps = (double)((test->n + test->chunk - 1) / test->chunk);
        heads = 1;
    } else if (test->kind == BENCH_BATCH) {
        steps = BENCH_BATCH_STEPS;
    }
    /* The context grows by one per token of a sequence; the middle is its average. */
    if (test->kind == BENCH_BATCH)
        context = (test->depth ? test->depth : BENCH_BATCH_DEPTH) + BENCH_BATCH_STEPS / 2.0;
    else
        context = test->depth + test->n / 2.0;
    compute = compute_s(work, limits, tokens, heads) +
              2 * tokens * context * work->attn_macs / (limits->fp32_tflops * 1e12);
    /* An expert is read by a step unless all of its tokens choose others. */
    reading =
        steps * (work->weight_bytes + work->expert_bytes * (1 - pow(1 - work->expert_share, tokens / steps)));
    reading += (test->kind == BENCH_PREFILL ? steps : tokens) * context * work->kv_bytes;
    reading /= limits->read_gbs * 1e9;
    return compute > reading ? compute : reading;
}
