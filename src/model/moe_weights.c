/* SPDX-License-Identifier: Apache-2.0 */
/* Experts: what the metadata says of them, and their weights.
 *
 *     file:   ffn_gate_exps [E][F][hidden]    ffn_up_exps [E][F][hidden]    ffn_down_exps [E][hidden][F]
 *
 *     gate_up [E][gate F, up F][hidden]       down [E][hidden][F]           one weight each per layer
 *
 * An expert is a run of rows of a stacked weight, which are whole panels because F and the hidden size are
 * multiples of 16; so a product with one expert is a product with some panels (tensor/many.h), and reading
 * them touches nothing of the others.  Gate and up of one type stand side by side per expert, so that its
 * activations are packed once for both.
 *
 * Files from before 2024 have a tensor per expert, ffn_gate.3.weight; they are stacked here. */
#include "model/model_priv.h"

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
    if (gate != 0) /* how some writers say "as usual" */
        rule->gate = (enum route_gate)gate;
    if (gate > ROUTE_SOFTMAX_CHOSEN)
        complain(r, E_UNSUPPORTED, "key %s.expert_gating_func is %u; known are 1 to 3", arch_name(r), gate);
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
        complain(r, E_FORMAT, "%u experts in %u groups of which %u are used", rule->n_experts, rule->n_groups,
                 rule->n_groups_used);
    else if (rule->n_used > rule->n_experts / rule->n_groups * rule->n_groups_used)
        complain(r, E_FORMAT, "key %s.expert_used_count is %u, more than there are to choose from",
                 arch_name(r), rule->n_used);
}

static void read_widths(struct reading *r, struct model_config *config)
{
    uint32_t n_shared = 0;

    read_whole(r, "expert_shared_count", ROUTE_MAX_EXPERTS, &n_shared);
    config->expert_ffn = config->ffn;
    read_count(r, "expert_feed_forward_length", OPTIONAL, 1u << 22, &config->expert_ffn);
    config->shared_ffn = n_shared * config->expert_ffn;
    if (n_shared > 0)
        read_count(r, "expert_shared_feed_forward_length", OPTIONAL, 1u << 22, &config->shared_ffn);
    if (config->shared_ffn > 1u << 22)
        complain(r, E_FORMAT, "%u shared experts are absurd", n_shared);
    if (config->expert_ffn % 16 != 0 || config->hidden % 16 != 0)
        complain(r, E_UNSUPPORTED, "experts of %u in a model of %u: must be multiples of 16",
                 config->expert_ffn, config->hidden);
}

void moe_read(struct reading *r, struct model *model, uint32_t n_dense, bool is_required)
{
    struct model_config *config = &model->config;
    struct route_rule *rule = &model->route;

    read_whole(r, "expert_count", ROUTE_MAX_EXPERTS, &rule->n_experts);
    if (rule->n_experts == 0) {
        if (is_required)
            complain(r, E_FORMAT, "key %s.expert_count is missing", arch_name(r));
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
        model->layers[i].ffn = config->shared_ffn ? &ffn_moe_shared : &ffn_moe;
}

/* ---- weights ---- */

static int pack(struct loading *load, const struct gguf_tensor *like, const struct weight_part *parts,
                uint32_t n, struct weight *out)
{
    const struct route_rule *rule = &load->model->route;
    int rc = weight_pack(load->model->table, like->type, parts, n, (uint32_t)like->dims[0], load->team, out);

    if (rc < 0)
        return fault_set(load->fault, rc, "tensor %.*s cannot be packed: %s", (int)like->name.len_bytes,
                         (const char *)like->name.data, err_text(rc));
    load->model->config.weight_bytes += out->len_bytes / rule->n_experts * rule->n_used;
    return 0;
}

/* A whole tensor of experts as one weight. */
static int pack_stack(struct loading *load, const struct gguf_tensor *tensor, struct weight *out)
{
    struct weight_part part = {.data = tensor->data, .rows = (uint32_t)(tensor->dims[1] * tensor->dims[2])};

    return pack(load, tensor, &part, 1, out);
}

/* Gate and up of each expert side by side. */
static int pack_pairs(struct loading *load, const struct gguf_tensor *gate, const struct gguf_tensor *up,
                      struct weight *out)
{
    uint32_t n = (uint32_t)gate->dims[2];
    size_t each_bytes = (size_t)(gate->len_bytes / n);
    struct weight_part *parts = calloc((size_t)2 * n, sizeof(*parts));
    int rc;

    if (parts == NULL)
        return fault_set(load->fault, E_NOMEM, "no memory for %u experts", n);
    for (uint32_t i = 0; i < 2 * n; i++)
        parts[i] =
            (struct weight_part){.data = (const uint8_t *)(i % 2 ? up : gate)->data + i / 2 * each_bytes,
                                 .rows = (uint32_t)gate->dims[1]};
    rc = pack(load, gate, parts, 2 * n, out);
    free(parts);
    return rc;
}

int moe_pack(struct loading *load, uint32_t layer)
{
    const struct gguf_tensor *const *slot = load->bound[layer].slot;
    const struct gguf_tensor *gate = slot[SLOT_GATE_EXPERTS], *up = slot[SLOT_UP_EXPERTS];
    struct expert_weights *out = &load->model->layers[layer].experts;
    int rc;

    out->n_gate_up = gate->type == up->type ? 1 : 2;
    if (out->n_gate_up == 1)
        rc = pack_pairs(load, gate, up, &out->gate_up[0]);
    else
        rc = pack_stack(load, gate, &out->gate_up[0]);
    if (rc == 0 && out->n_gate_up == 2)
        rc = pack_stack(load, up, &out->gate_up[1]);
    if (rc == 0)
        rc = pack_stack(load, slot[SLOT_DOWN_EXPERTS], &out->down);
    if (rc < 0)
        return rc;
    weights_report(load, gate);
    weights_report(load, up);
    weights_report(load, slot[SLOT_DOWN_EXPERTS]);
    return 0;
}

void moe_layer_fini(struct layer *layer)
{
    weight_fini(&layer->experts.gate_up[0]);
    weight_fini(&layer->experts.gate_up[1]);
    weight_fini(&layer->experts.down);
}
