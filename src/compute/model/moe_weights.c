/* SPDX-License-Identifier: Apache-2.0 */
/* Experts: their metadata keys and their weights.
 *
 *     file:   ffn_gate_exps [E][F][hidden]    ffn_up_exps [E][F][hidden]    ffn_down_exps [E][hidden][F]
 *
 *     gate_up [E][gate F, up F][hidden]       down [E][hidden][F]           one weight each per layer
 *
 * An expert is a run of rows of a stacked weight. These rows are whole panels because F and the hidden
 * size are multiples of 16. So a product with one expert is a product with some panels
 * (compute/tensor/grouped.h) and reads no other expert. Gate and up of one type lie side by side per expert,
 * so their activations are packed once for both. A file may have both in one tensor, ffn_gate_up_exps.
 *
 * Files from before 2024 have one tensor per expert, ffn_gate.3.weight; they are stacked here. */
#include "compute/model/model_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- keys ---- */

static void read_rule(struct reading *r, struct model *model)
{
    static const double SCALE[2] = {0, 1e4};
    struct route_rule *rule = &model->route;
    double scale = rule->scale;
    uint32_t gate = 0;

    read_whole(r, "expert_gating_func", 100, &gate);
    if (gate != 0) /* some writers' value for "default" */
        rule->gate = (enum route_gate)gate;
    if (gate > ROUTE_SOFTMAX_CHOSEN)
        arch_complain(r, E_UNSUPPORTED, "key %s.expert_gating_func is %u; known are 1 to 3", arch_name(r),
                      gate);
    read_flag(r, "expert_weights_norm", &rule->is_normed);
    read_number(r, "expert_weights_scale", OPTIONAL, SCALE, &scale);
    rule->scale = scale == 0 ? 1 : (float)scale;
    read_whole(r, "expert_group_count", ROUTE_MAX_EXPERTS, &rule->n_groups);
    rule->n_groups = rule->n_groups ? rule->n_groups : 1;
    read_whole(r, "expert_group_used_count", ROUTE_MAX_EXPERTS, &rule->n_groups_used);
    if (rule->n_groups_used == 0)
        rule->n_groups_used = rule->n_groups;
    if (has_complaints(r))
        return;
    if (rule->n_experts % rule->n_groups != 0 || rule->n_groups_used > rule->n_groups)
        arch_complain(r, E_FORMAT, "%u experts in %u groups of which %u are used", rule->n_experts,
                      rule->n_groups, rule->n_groups_used);
    else if (rule->n_used > rule->n_experts / rule->n_groups * rule->n_groups_used)
        arch_complain(r, E_FORMAT, "key %s.expert_used_count is %u, more than there are to choose from",
                      arch_name(r), rule->n_used);
}

static void read_widths(struct reading *r, struct model_config *config)
{
    uint32_t n_shared = 0;

    read_whole(r, "expert_shared_count", ROUTE_MAX_EXPERTS, &n_shared);
    config->expert_ffn = config->ffn;
    read_count(r, "expert_feed_forward_length", OPTIONAL, 1u << 22, &config->expert_ffn);
    config->shared_ffn = n_shared * config->expert_ffn;
    read_whole(r, "expert_shared_feed_forward_length", 1u << 22, &config->shared_ffn);
    if (config->shared_ffn > 1u << 22)
        arch_complain(r, E_FORMAT, "%u shared experts are absurd", n_shared);
    config->expert_parts = 2;
    config->expert_io = config->hidden;
    if (arch_heeds(r->arch, "moe_latent_size"))
        read_count(r, "moe_latent_size", OPTIONAL, 1u << 20, &config->expert_io);
    if (config->expert_ffn % 16 != 0 || config->expert_io % 16 != 0)
        arch_complain(r, E_UNSUPPORTED, "experts of %u in a model of %u: must be multiples of 16",
                      config->expert_ffn, config->expert_io);
}

void moe_read(struct reading *r, struct model *model, uint32_t n_dense, bool is_required)
{
    struct model_config *config = &model->config;
    struct route_rule *rule = &model->route;

    read_whole(r, "expert_count", ROUTE_MAX_EXPERTS, &rule->n_experts);
    if (rule->n_experts == 0) {
        if (is_required)
            arch_complain(r, E_FORMAT, "key %s.expert_count is missing", arch_name(r));
        return;
    }
    rule->scale = 1;
    if (rule->gate == 0) {
        rule->gate = ROUTE_SOFTMAX;
        rule->is_normed = true;
    }
    read_count(r, "expert_used_count", REQUIRED, ROUTE_MAX_USED, &rule->n_used);
    read_rule(r, model);
    read_widths(r, config);
    if (has_complaints(r))
        return;
    config->n_experts = rule->n_experts;
    config->n_experts_used = rule->n_used;
    for (uint32_t i = n_dense; i < config->n_layers; i++)
        if (model->layers[i].ffn != &ffn_moe_biased)
            model->layers[i].ffn = config->shared_ffn                         ? &ffn_moe_shared
                                   : has_tensor(r, "blk.0.ffn_gate.0.weight") ? &ffn_moe_loose
                                                                              : &ffn_moe;
}

/* ---- weights ---- */

static int moe_weights_pack(struct loading *load, const struct gguf_tensor *like,
                            const struct weight_part *parts, uint32_t n, struct weight *out)
{
    const struct route_rule *rule = &load->model->route;
    struct weight_packing packing = weights_packing(like, parts, n);
    int rc;

    packing.n_runs =
        n; /* each memory node has a part of every expert, so a token's choice is no node's alone */
    rc = weights_matrix(load, like, packing, out);
    if (rc < 0)
        return rc;
    load->model->config.weight_bytes += out->len_bytes / rule->n_experts * rule->n_used;
    return 0;
}

/* The experts' matrices of gate, up or down in the file: all in one tensor, or one tensor each. */
struct source {
    const struct gguf_tensor **tensors; /* [n_tensors] */
    uint32_t n_tensors;                 /* 1 or n_experts */
};

static struct weight_part moe_weights_part_of(const struct source *source, uint32_t expert,
                                              uint32_t n_experts)
{
    const struct gguf_tensor *first = source->tensors[0];
    const void *data = source->n_tensors > 1
                           ? source->tensors[expert]->data
                           : (const uint8_t *)first->data + expert * (first->len_bytes / n_experts);

    return (struct weight_part){.data = data, .rows = (uint32_t)first->dims[1]};
}

/* Packs experts' matrices as one weight: from one source, or alternating from two, expert by expert. */
static int pack_sources(struct loading *load, const struct source *sources, uint32_t n_sources,
                        struct weight *out)
{
    uint32_t n = load->model->route.n_experts;
    struct weight_part *parts = calloc((size_t)n_sources * n, sizeof(*parts));
    int rc;

    if (parts == NULL)
        return fault_set(load->fault, E_NOMEM, "no memory for %u experts", n);
    for (uint32_t i = 0; i < n_sources * n; i++)
        parts[i] = moe_weights_part_of(&sources[i % n_sources], i / n_sources, n);
    rc = moe_weights_pack(load, sources[0].tensors[0], parts, n_sources * n, out);
    free(parts);
    for (uint32_t i = 0; i < n_sources && rc == 0; i++)
        rc = weights_packed(load, sources[i].tensors, sources[i].n_tensors);
    return rc;
}

/* sources: those of gate, up and down. */
static int pack_experts(struct loading *load, uint32_t layer, const struct source sources[3])
{
    struct expert_weights *out = &load->model->layers[layer].experts;
    int rc;

    out->n_gate_up = sources[0].tensors[0]->type == sources[1].tensors[0]->type ? 1 : 2;
    rc = pack_sources(load, sources, out->n_gate_up == 1 ? 2 : 1, &out->gate_up[0]);
    if (rc == 0 && out->n_gate_up == 2)
        rc = pack_sources(load, sources + 1, 1, &out->gate_up[1]);
    if (rc == 0)
        rc = pack_sources(load, sources + 2, 1, &out->down);
    return rc;
}

/* One tensor for all experts, for each of gate, up and down. */
static void find_stacked(struct loading *load, uint32_t layer, struct source sources[3])
{
    static const enum slot SLOT_OF[3] = {SLOT_GATE_EXPERTS, SLOT_UP_EXPERTS, SLOT_DOWN_EXPERTS};

    for (unsigned i = 0; i < 3; i++) {
        sources[i].tensors[0] = load->bound[layer].slot[SLOT_OF[i]];
        sources[i].n_tensors = 1;
    }
}

/* ---- one tensor per expert ---- */

static const struct slot_info LOOSE[3] = {
    {"ffn_gate", DIM_EXPERT_FFN, DIM_HIDDEN, DIM_NONE, GROUP_NONE, MODEL_MATRIX, NULL},
    {"ffn_up", DIM_EXPERT_FFN, DIM_HIDDEN, DIM_NONE, GROUP_NONE, MODEL_MATRIX, NULL},
    {"ffn_down", DIM_HIDDEN, DIM_EXPERT_FFN, DIM_NONE, GROUP_NONE, MODEL_WRITER, NULL},
};

static const char *loose_name(uint32_t layer, unsigned which, uint32_t expert, char out[64])
{
    snprintf(out, 64, "blk.%u.%s.%u.weight", layer, LOOSE[which].suffix, expert);
    return out;
}

int moe_bind_loose(struct loading *load, uint32_t layer)
{
    const struct gguf_tensor *first, *tensor = NULL;
    char name[64];

    for (unsigned i = 0; i < 3 * load->model->route.n_experts; i++) {
        int rc = weights_bind(load, loose_name(layer, i % 3, i / 3, name), &LOOSE[i % 3], &tensor);

        if (rc == E_NOT_FOUND)
            return fault_set(load->fault, E_FORMAT, "tensor %s is missing", name);
        if (rc < 0)
            return rc;
        first = gguf_tensor_find(load->gguf, loose_name(layer, i % 3, 0, name));
        if (tensor->type != first->type)
            return fault_set(load->fault, E_UNSUPPORTED, "tensor %s: experts of one layer differ in type",
                             loose_name(layer, i % 3, i / 3, name));
    }
    return 0;
}

/* ffn_gate.3.weight, with a valid expert number */
bool moe_knows_loose(const struct loading *load, struct bytes suffix)
{
    for (unsigned i = 0; i < 3; i++)
        for (uint32_t e = 0; e < load->model->route.n_experts; e++) {
            char name[64];

            snprintf(name, sizeof(name), "%s.%u.weight", LOOSE[i].suffix, e);
            if (bytes_is(suffix, name))
                return true;
        }
    return false;
}

static void find_loose(struct loading *load, uint32_t layer, struct source sources[3])
{
    char name[64];

    for (unsigned i = 0; i < 3; i++) {
        sources[i].n_tensors = load->model->route.n_experts;
        for (uint32_t e = 0; e < sources[i].n_tensors; e++)
            sources[i].tensors[e] = gguf_tensor_find(load->gguf, loose_name(layer, i, e, name));
    }
}

/* ---- both ---- */

static int pack_found(struct loading *load, uint32_t layer,
                      void (*find)(struct loading *load, uint32_t layer, struct source sources[3]))
{
    uint32_t n = load->model->route.n_experts;
    const struct gguf_tensor **tensors = calloc((size_t)3 * n, sizeof(const struct gguf_tensor *));
    struct source sources[3] = {
        {.tensors = tensors}, {.tensors = tensors + n}, {.tensors = tensors + (size_t)2 * n}};
    int rc;

    if (tensors == NULL)
        return fault_set(load->fault, E_NOMEM, "no memory for %u experts", n);
    find(load, layer, sources);
    rc = pack_experts(load, layer, sources);
    free(tensors);
    return rc;
}

/* A layer has `both`, or `gate` and `up`. */
static int check_either(struct loading *load, uint32_t layer, enum slot gate, enum slot up, enum slot both)
{
    const struct gguf_tensor *const *slot = load->bound[layer].slot;
    const uint32_t number = load->model->first_layer + layer;
    const bool has_gate = slot[gate] != NULL, has_up = slot[up] != NULL;

    if (slot[both] != NULL && (has_gate || has_up))
        return fault_set(load->fault, E_FORMAT, "blk.%u has %s of experts twice", number,
                         both == SLOT_GATE_UP_EXPERTS ? "gates" : "biases");
    if (slot[both] == NULL && !(has_gate && has_up))
        return fault_set(load->fault, E_FORMAT, "tensor blk.%u.%s is missing", number,
                         SLOTS[has_gate ? up : gate].suffix);
    return 0;
}

int moe_bind_either(struct loading *load, uint32_t layer)
{
    return check_either(load, layer, SLOT_GATE_EXPERTS, SLOT_UP_EXPERTS, SLOT_GATE_UP_EXPERTS);
}

int moe_bind_biased(struct loading *load, uint32_t layer)
{
    int rc = moe_bind_either(load, layer);

    return rc < 0 ? rc
                  : check_either(load, layer, SLOT_GATE_EXPERTS_BIAS, SLOT_UP_EXPERTS_BIAS,
                                 SLOT_GATE_UP_EXPERTS_BIAS);
}

int moe_pack_either(struct loading *load, uint32_t layer)
{
    const struct gguf_tensor *const *slot = load->bound[layer].slot;
    const struct gguf_tensor *gate_up = slot[SLOT_GATE_UP_EXPERTS], *down = slot[SLOT_DOWN_EXPERTS];
    struct expert_weights *out = &load->model->layers[layer].experts;
    int rc;

    if (gate_up == NULL)
        return pack_found(load, layer, find_stacked);
    out->n_gate_up = 1;
    rc = pack_sources(load, &(struct source){.tensors = &gate_up, .n_tensors = 1}, 1, &out->gate_up[0]);
    return rc == 0 ? pack_sources(load, &(struct source){.tensors = &down, .n_tensors = 1}, 1, &out->down)
                   : rc;
}

/* Copies a matrix of biases into rows `stride` apart. */
static void copy_biases(struct loading *load, const struct gguf_tensor *tensor, float *out, size_t stride)
{
    uint64_t cols = tensor->dims[0];

    for (uint64_t e = 0; e < tensor->dims[1]; e++)
        weights_floats(tensor, e * cols, cols, out + e * stride);
    weights_report(load, tensor);
}

int moe_pack_biased(struct loading *load, uint32_t layer)
{
    const struct gguf_tensor *const *slot = load->bound[layer].slot;
    const struct model_config *c = &load->model->config;
    struct expert_weights *out = &load->model->layers[layer].experts;

    for (enum slot i = SLOT_GATE_EXPERTS_BIAS; i <= SLOT_GATE_UP_EXPERTS_BIAS; i++)
        if (slot[i] != NULL && !weights_is_plain(slot[i]->type))
            return fault_set(load->fault, E_UNSUPPORTED, "tensor %.*s is not F32, F16 or BF16",
                             (int)slot[i]->name.len_bytes, (const char *)slot[i]->name.data);
    out->gate_up_bias = calloc((size_t)c->n_experts * 2 * c->expert_ffn, sizeof(float));
    out->down_bias = calloc((size_t)c->n_experts * c->hidden, sizeof(float));
    if (out->gate_up_bias == NULL || out->down_bias == NULL)
        return fault_set(load->fault, E_NOMEM, "no memory for the biases of %u experts", c->n_experts);
    copy_biases(load,
                slot[SLOT_GATE_UP_EXPERTS_BIAS] ? slot[SLOT_GATE_UP_EXPERTS_BIAS]
                                                : slot[SLOT_GATE_EXPERTS_BIAS],
                out->gate_up_bias, (size_t)2 * c->expert_ffn);
    if (slot[SLOT_UP_EXPERTS_BIAS] != NULL)
        copy_biases(load, slot[SLOT_UP_EXPERTS_BIAS], out->gate_up_bias + c->expert_ffn,
                    (size_t)2 * c->expert_ffn);
    copy_biases(load, slot[SLOT_DOWN_EXPERTS_BIAS], out->down_bias, c->hidden);
    return moe_pack_either(load, layer);
}

int moe_pack_plain(struct loading *load, uint32_t layer)
{
    const struct gguf_tensor *const *slot = load->bound[layer].slot;
    const struct gguf_tensor *up = slot[SLOT_UP_EXPERTS], *down = slot[SLOT_DOWN_EXPERTS];
    struct expert_weights *out = &load->model->layers[layer].experts;
    int rc;

    out->n_gate_up = 1;
    rc = pack_sources(load, &(struct source){.tensors = &up, .n_tensors = 1}, 1, &out->gate_up[0]);
    return rc == 0 ? pack_sources(load, &(struct source){.tensors = &down, .n_tensors = 1}, 1, &out->down)
                   : rc;
}

int moe_pack_loose(struct loading *load, uint32_t layer)
{
    return pack_found(load, layer, find_loose);
}

void moe_layer_fini(struct layer *layer)
{
    weight_fini(&layer->experts.gate_up[0]);
    weight_fini(&layer->experts.gate_up[1]);
    weight_fini(&layer->experts.down);
    free(layer->experts.gate_up_bias);
    free(layer->experts.down_bias);
}
