/* SPDX-License-Identifier: Apache-2.0 */
/* Weights: binds every tensor by name and shape, then packs it into the kernels' panels.
 *
 * slots.c and the architecture's row (archs.c) list the tensors.
 *
 * There are two passes. Binding looks only at names, shapes and types. It ends by counting: an unbound
 * tensor would be a part of the model that is left out, so it is refused by name. Packing allocates, and
 * only as much as the file really holds.
 *
 * Matrices that read the same input form a group. They are stacked into one weight when their types are
 * equal (Q, K and V; gate and up). Rows are independent, so stacking changes no bit; it saves passes over
 * the input.
 *
 * Memory is the file's size plus padding. The embedding is kept in panels like the rest and de-quantised
 * row by row, so a tied head needs no second copy. */
#include "compute/model/model_priv.h"
#include "compute/model/weight_scales_priv.h"

#include "base/check.h"
#include "base/mem_machine.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- binding ---- */

bool weights_is_plain(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

static void format_tensor_dims(const uint64_t dims[3], char *out, size_t out_bytes)
{
    if (dims[2] > 1)
        snprintf(out, out_bytes, "%llu x %llu x %llu", (unsigned long long)dims[2],
                 (unsigned long long)dims[1], (unsigned long long)dims[0]);
    else
        snprintf(out, out_bytes, "%llu x %llu", (unsigned long long)dims[1], (unsigned long long)dims[0]);
}

static int check_shape(struct loading *load, const char *name, const struct gguf_tensor *tensor,
                       const uint64_t dims[3])
{
    char is[64], expected[64];

    if (tensor->n_dims >= 1 && memcmp(tensor->dims, dims, 3 * sizeof(*dims)) == 0 && tensor->dims[3] == 1)
        return 0;
    format_tensor_dims(tensor->dims, is, sizeof(is));
    format_tensor_dims(dims, expected, sizeof(expected));
    return fault_set(load->fault, E_FORMAT, "tensor %s is %s, expected %s", name, is, expected);
}

int weights_bind(struct loading *load, const char *name, const struct slot_info *info,
                 const struct gguf_tensor **out)
{
    const struct gguf_tensor *tensor = gguf_tensor_find(load->gguf, name);
    struct model_config *config = &load->shape;
    bool is_vector = slot_is_vector(info);
    uint64_t dims[3] = {dim_of(config, info->cols), info->rows == DIM_NONE ? 1 : dim_of(config, info->rows),
                        info->count == DIM_NONE ? 1 : dim_of(config, info->count)};
    int rc;

    if (tensor == NULL)
        return E_NOT_FOUND;
    rc = check_shape(load, name, tensor, dims);
    if (rc < 0)
        return rc;
    if (is_vector ? !weights_is_plain(tensor->type) : !weight_type_ok(tensor->type)) {
        const struct dtype_info *type = dtype_info(tensor->type);
        char names[WEIGHT_TYPES_BYTES];

        return fault_set(load->fault, E_UNSUPPORTED, "tensor %s is stored as %s; supported here are %s", name,
                         type ? type->name : "an unknown type",
                         is_vector ? "F32 F16 BF16" : weight_types(names, sizeof(names)));
    }
    load->n_bound++;
    if (info->role != MODEL_ROPE_FACTORS) { /* these are read elsewhere and are no parameters */
        load->total_bytes += tensor->len_bytes;
        load->bytes_of_type[tensor->type] += tensor->len_bytes;
        load->n_vector_floats += is_vector ? dims[0] * dims[1] * dims[2] : 0;
        load->model->config.n_parameters += dims[0] * dims[1] * dims[2];
    }
    *out = tensor;
    return weight_scales_bind(load, tensor);
}

/* q, k and v are three tensors or one, and so are their biases. */
static int check_qkv(struct loading *load, uint32_t layer)
{
    const struct gguf_tensor *const *slot = load->bound[layer].slot;
    slot_set usual = layer_usual(load->model, layer);
    unsigned n_biases = 0, n_matrices = 0;
    const uint32_t number = load->model->first_layer + layer;
    char name[64];

    for (unsigned i = SLOT_Q_BIAS; i <= SLOT_V_BIAS; i++)
        n_biases += slot[i] != NULL;
    if (n_biases != 0 && n_biases != 3)
        return fault_set(load->fault, E_FORMAT, "blk.%u has %u of the three biases of q, k and v", number,
                         n_biases);
    for (unsigned i = SLOT_Q; i <= SLOT_V; i++)
        n_matrices += slot[i] != NULL;
    if ((n_matrices > 0 && slot[SLOT_QKV]) || (n_biases > 0 && slot[SLOT_QKV_BIAS]))
        return fault_set(load->fault, E_FORMAT, "blk.%u has q, k and v twice", number);
    for (unsigned i = SLOT_Q; i <= SLOT_QKV && !slot[SLOT_QKV] && n_matrices < 3; i++)
        if ((usual >> i & 1) && slot[i] == NULL)
            return fault_set(load->fault, E_FORMAT, "tensor %s is missing", slot_name(number, i, name));
    return 0;
}

static int bind_alias(struct loading *load, uint32_t number, const struct slot_info *info,
                      const struct gguf_tensor **out)
{
    char name[64];

    snprintf(name, sizeof(name), "blk.%u.%s", number, info->alias);
    return weights_bind(load, name, info, out);
}

static int bind_layer(struct loading *load, uint32_t layer)
{
    slot_set needs = layer_needs(load->model, layer), may = layer_may(load->model, layer);
    const struct gguf_tensor **slot = load->bound[layer].slot;
    char name[64];

    load->shape = layer_config(load->model, layer);
    for (unsigned i = 0; i < N_SLOTS; i++) {
        int rc;

        if (!(may >> i & 1))
            continue;
        rc = weights_bind(load, slot_name(load->model->first_layer + layer, i, name), &SLOTS[i], &slot[i]);
        if (rc == E_NOT_FOUND && SLOTS[i].alias != NULL)
            rc = bind_alias(load, load->model->first_layer + layer, &SLOTS[i], &slot[i]);
        if (rc == E_NOT_FOUND && (needs >> i & 1))
            return fault_set(load->fault, E_FORMAT, "tensor %s is missing", name);
        if (rc < 0 && rc != E_NOT_FOUND)
            return rc;
    }
    if (load->model->layers[layer].ffn->bind) {
        int rc = load->model->layers[layer].ffn->bind(load, layer);

        if (rc < 0)
            return rc;
    }
    return check_qkv(load, layer);
}

static bool half_knows(const struct loading *load, const struct half *half, struct bytes suffix)
{
    return half->knows && half->knows(load, suffix);
}

/* True for a name that this model's binding looks for. */
static bool weights_is_known(const struct loading *load, struct bytes name)
{
    size_t dot = bytes_find(name, bytes_str("."), 4);
    struct bytes suffix;
    uint64_t layer;

    for (unsigned i = 0; i < N_GLOBALS; i++)
        if (global_is_allowed(load->model, i) && bytes_is(name, GLOBALS[i].suffix))
            return true;
    if (!bytes_starts_with(name, "blk.") || dot == SIZE_MAX ||
        str_to_u64(bytes_of(name.data + 4, dot - 4), &layer) < 0)
        return false;
    suffix = bytes_of(name.data + dot + 1, name.len_bytes - dot - 1);
    if (layer >= load->model->config.n_layers)
        return layer < load->model->config.n_layers + load->model->config.n_nextn_layers;
    if (half_knows(load, load->model->layers[layer].attn, suffix) ||
        half_knows(load, load->model->layers[layer].ffn, suffix))
        return true;
    for (unsigned i = 0; i < N_SLOTS; i++)
        if ((layer_may(load->model, (uint32_t)layer) >> i & 1) &&
            (bytes_is(suffix, SLOTS[i].suffix) ||
             (SLOTS[i].alias != NULL && bytes_is(suffix, SLOTS[i].alias))))
            return true;
    return false;
}

/* Names a tensor that the forward pass would ignore. */
static int refuse_unbound(struct loading *load)
{
    uint64_t n = gguf_tensor_count(load->gguf);

    for (uint64_t i = 0; i < n && load->n_bound != n; i++) {
        struct bytes name = gguf_tensor_at(load->gguf, i)->name;

        if (!weights_is_known(load, name) && !weight_scales_knows(load, name))
            return fault_set(load->fault, E_UNSUPPORTED,
                             "tensor %.*s has no place in a %s model of %u layers as known here",
                             (int)(name.len_bytes < 96 ? name.len_bytes : 96), (const char *)name.data,
                             load->model->config.arch, load->model->config.n_layers);
    }
    return 0;
}

/* Packed weights take the file's size at least.  If memory and swap do not hold them beside the KV, the kernel would end the
 * process, or another one: in the middle of packing, or when the KV has filled. */
static int weights_check_memory(const struct loading *load)
{
    const double gib = 1 << 30;
    uint64_t beside_bytes = load->opts->beside_bytes;
    struct mem_machine machine = mem_machine_get();
    char beside[64] = "";
    const char *lower = "";

    if (load->total_bytes <= machine.bytes && beside_bytes <= machine.bytes - load->total_bytes)
        return 0;
    if (load->total_bytes <= machine.bytes) { /* they alone fit */
        snprintf(beside, sizeof(beside), " beside %.2f GiB of kv.memory", (double)beside_bytes / gib);
        lower = machine.remedy[0] != '\0' ? ", or lower kv.memory" : "; lower kv.memory";
    }
    return fault_set(load->fault, E_NOMEM, "its weights take %.2f GiB%s, %s have %.2f GiB%s%s",
                     (double)load->total_bytes / gib, beside, machine.name, (double)machine.bytes / gib,
                     machine.remedy, lower);
}

static int bind_all(struct loading *load)
{
    const struct model_config *config = &load->model->config;
    int rc = 0;

    load->bound = calloc(config->n_layers, sizeof(*load->bound));
    if (load->bound == NULL)
        return fault_set(load->fault, E_NOMEM, "no memory for %u layers", config->n_layers);
    load->shape = *config;
    for (unsigned i = 0; i < N_GLOBALS && rc == 0; i++) {
        if (!global_is_allowed(load->model, i) || config->is_mtp)
            continue;
        rc = weights_bind(load, GLOBALS[i].suffix, &GLOBALS[i], &load->globals[i]);
        if (rc == E_NOT_FOUND)
            rc = global_is_required(load->model, i)
                     ? fault_set(load->fault, E_FORMAT, "tensor %s is missing", GLOBALS[i].suffix)
                     : 0;
    }
    for (uint32_t i = 0; i < config->n_layers && rc == 0; i++)
        rc = bind_layer(load, i);
    if (rc == 0 && !config->is_mtp)
        rc = refuse_unbound(load);
    return rc == 0 ? weights_check_memory(load) : rc;
}

/* ---- packing ---- */

static void to_floats(enum dtype type, const void *data, uint64_t n, float *out)
{
    const uint8_t *bytes = data;

    for (uint64_t i = 0; i < n; i++) {
        uint32_t word;

        if (type == DTYPE_F32) {
            word = get_u32(bytes + 4 * i);
            memcpy(&out[i], &word, sizeof(word));
        } else {
            out[i] =
                type == DTYPE_F16 ? f16_to_f32(get_u16(bytes + 2 * i)) : bf16_to_f32(get_u16(bytes + 2 * i));
        }
    }
}

void weights_floats(const struct gguf_tensor *tensor, uint64_t from, uint64_t n, float *out)
{
    to_floats(tensor->type, (const uint8_t *)tensor->data + from * (tensor->type == DTYPE_F32 ? 4 : 2), n,
              out);
}

void weights_report(struct loading *load, const struct gguf_tensor *tensor)
{
    load->done_bytes += tensor->len_bytes;
    gguf_forget(load->gguf, tensor);
    if (load->opts->on_progress && !load->is_cancelled)
        load->is_cancelled =
            !load->opts->on_progress(load->opts->progress_arg, load->done_bytes, load->total_bytes);
}

int weights_packed(struct loading *load, const struct gguf_tensor *const *tensors, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (tensors[i] != NULL)
            weights_report(load, tensors[i]);
    return load->is_cancelled ? fault_set(load->fault, E_CANCELLED, "cancelled while weights were packed")
                              : 0;
}

static const float *pack_vector(struct loading *load, const struct gguf_tensor *tensor)
{
    float *at = load->next_vector;

    const uint64_t n = tensor->dims[0] * tensor->dims[1] * tensor->dims[2];

    to_floats(tensor->type, tensor->data, n, at);
    load->next_vector += n;
    weights_report(load, tensor);
    return at;
}

struct weight_packing weights_packing(const struct gguf_tensor *tensor, const struct weight_part *parts,
                                      uint32_t n)
{
    return (struct weight_packing){
        .type = tensor->type, .parts = parts, .n_parts = n, .cols = (uint32_t)tensor->dims[0]};
}

int weights_matrix(struct loading *load, const struct gguf_tensor *from, struct weight_packing packing,
                   struct weight *out)
{
    const struct kern_table *table = load->model->table;
    enum bf16_math asked = load->opts->bf16;
    bool is_converted =
        packing.type == DTYPE_F16 && load->opts->converts_f16; /* activations are rounded too */
    bool is_brain = is_converted || (packing.type == DTYPE_BF16 && asked != BF16_EXACT);
    bool is_tiles = is_brain && kern_bf16_math(table, asked == BF16_EXACT ? BF16_AUTO : asked) == BF16_TILES;

    packing.table = table;
    packing.form = is_tiles ? WEIGHT_TILES : is_brain ? WEIGHT_DOTS : WEIGHT_AS_STORED;
    packing.team = load->team;
    packing.arena = load->opts->arena;
    int rc = weight_scales_pack(load, packing, out);
    if (rc < 0)
        return fault_set(load->fault, rc, "tensor %.*s cannot be packed: %s", (int)from->name.len_bytes,
                         (const char *)from->name.data, err_text(rc));
    if (out->is_dots)
        load->model->bf16 = out->is_tiles ? BF16_TILES : BF16_DOTS;
    return 0;
}

/* n_runs: see struct weight_packing. */
static int weights_pack(struct loading *load, const struct gguf_tensor *const *tensors, uint32_t n,
                        uint32_t n_runs, struct weight *out)
{
    struct weight_part parts[8] = {0};
    struct weight_packing packing = weights_packing(tensors[0], parts, n);
    int rc;

    packing.n_runs = n_runs;
    for (uint32_t i = 0; i < n; i++)
        parts[i] = (struct weight_part){.data = tensors[i]->data, .rows = (uint32_t)tensors[i]->dims[1]};
    rc = weights_matrix(load, tensors[0], packing, out);
    return rc < 0 ? rc : weights_packed(load, tensors, n);
}

/* Neighbours of one type become one part, of each_runs runs per tensor (0: one run altogether). */
static int pack_group(struct loading *load, const struct gguf_tensor *const *tensors, uint32_t n,
                      uint32_t each_runs, struct weight_group *out)
{
    for (uint32_t from = 0; from < n;) {
        uint32_t to = from + 1;
        int rc;

        while (to < n && tensors[to]->type == tensors[from]->type)
            to++;
        rc =
            weights_pack(load, tensors + from, to - from, (to - from) * each_runs, &out->parts[out->n_parts]);
        if (rc < 0)
            return rc;
        out->rows += out->parts[out->n_parts].rows;
        load->model->config.weight_bytes += out->parts[out->n_parts].len_bytes;
        out->n_parts++;
        from = to;
    }
    return 0;
}

/* Gate and up are runs: what is gated together is computed on one memory node. */
static uint32_t weights_runs(const struct bound_layer *bound, unsigned group)
{
    return group != GROUP_GATE_UP ? 0 : bound->slot[SLOT_GATE_UP] ? 2 : 1;
}

static int pack_layer(struct loading *load, uint32_t index)
{
    const struct bound_layer *bound = &load->bound[index];
    struct layer *layer = &load->model->layers[index];
    int rc = 0;

    for (unsigned group = GROUP_NONE + 1; group < N_GROUPS && rc == 0; group++) {
        const struct gguf_tensor *tensors[N_SLOTS];
        uint32_t n = 0;

        for (unsigned i = 0; i < N_SLOTS; i++)
            if (SLOTS[i].group == group && bound->slot[i])
                tensors[n++] = bound->slot[i];
        rc = pack_group(load, tensors, n, weights_runs(bound, group), &layer->groups[group]);
    }
    if (rc == 0 && layer->attn->pack)
        rc = layer->attn->pack(load, index);
    if (rc == 0 && layer->ffn->pack)
        rc = layer->ffn->pack(load, index);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < N_SLOTS; i++)
        if (slot_is_vector(&SLOTS[i]) && bound->slot[i])
            layer->vectors[i] = pack_vector(load, bound->slot[i]);
    return 0;
}

/* The matrices outside the layers. */
static int pack_globals(struct loading *load)
{
    struct model *model = load->model;
    int rc = weights_pack(load, &load->globals[GLOBAL_EMBEDDING], 1, 1, &model->embedding);

    if (rc == 0 && load->globals[GLOBAL_HEAD])
        rc = weights_pack(load, &load->globals[GLOBAL_HEAD], 1, 1, &model->head);
    if (rc == 0 && load->globals[GLOBAL_POSITIONS])
        rc = weights_pack(load, &load->globals[GLOBAL_POSITIONS], 1, 1, &model->positions);
    if (rc == 0 && load->globals[GLOBAL_INPUTS])
        rc = weights_pack(load, &load->globals[GLOBAL_INPUTS], 1, 1, &model->inputs);
    if (rc == 0 && load->globals[GLOBAL_INPUTS_PROJ])
        rc = pack_group(load, &load->globals[GLOBAL_INPUTS_PROJ], 1, 0, &model->inputs_proj);
    model->config.is_tied = load->globals[GLOBAL_HEAD] == NULL;
    return rc == 0 ? altup_pack(load) : rc;
}

static void pack_global_vectors(struct loading *load)
{
    struct model *model = load->model;
    const struct gguf_tensor *norm =
        load->globals[global_is_required(model, GLOBAL_FINAL_NORM) ? GLOBAL_FINAL_NORM
                                                                   : GLOBAL_FINAL_NORM_LFM2];

    model->final_norm.gain = norm ? pack_vector(load, norm) : model->ones;
    if (load->globals[GLOBAL_FINAL_NORM_BIAS])
        model->final_norm.bias = pack_vector(load, load->globals[GLOBAL_FINAL_NORM_BIAS]);
    if (load->globals[GLOBAL_HEAD_BIAS])
        model->head_bias = pack_vector(load, load->globals[GLOBAL_HEAD_BIAS]);
    if (load->globals[GLOBAL_INPUTS_NORM])
        model->inputs_norm = pack_vector(load, load->globals[GLOBAL_INPUTS_NORM]);
}

/* An MTP head multiplies by its model's embedding and output head. */
static void borrow_globals(struct model *model)
{
    model->embedding = model->mtp_of->embedding;
    model->head = model->mtp_of->head;
    model->config.is_tied = model->mtp_of->config.is_tied;
}

static int pack_all(struct loading *load)
{
    struct model *model = load->model;
    struct model_config *config = &model->config;
    int rc = 0;

    model->vectors = calloc(load->n_vector_floats + 1, sizeof(float)); /* a model may have none */
    if (model->vectors == NULL)
        return fault_set(load->fault, E_NOMEM, "no memory for norms and biases");
    load->next_vector = model->vectors;
    if (model->mtp_of)
        borrow_globals(model);
    else
        rc = pack_globals(load);
    for (uint32_t i = 0; i < config->n_layers && rc == 0; i++)
        rc = pack_layer(load, i);
    if (rc < 0)
        return rc;
    if (model->mtp_of)
        model->final_norm.gain = mtp_last_norm(model);
    else
        pack_global_vectors(load);
    config->weight_bytes += config->is_tied ? model->embedding.len_bytes : model->head.len_bytes;
    config->weight_bytes += (uint64_t)(load->next_vector - model->vectors) * sizeof(float);
    return 0;
}

static void name_type(struct loading *load)
{
    const struct dtype_info *info;
    unsigned best = 0;

    for (unsigned i = 1; i < ARRAY_LEN(load->bytes_of_type); i++)
        if (load->bytes_of_type[i] > load->bytes_of_type[best])
            best = i;
    info = dtype_info(best);
    str_copy(load->model->config.weight_type, sizeof(load->model->config.weight_type),
             info ? info->name : "?");
}

/* ---- functions for the folder ---- */

int weights_load(struct model *model, const struct gguf *gguf, struct team *team,
                 const struct model_opts *opts, struct fault *fault)
{
    struct loading load = {.model = model, .gguf = gguf, .team = team, .opts = opts, .fault = fault};
    int rc = bind_all(&load);

    if (rc == 0)
        rc = pack_all(&load);
    if (rc == 0)
        name_type(&load);
    free(load.bound);
    free(load.scales);
    return rc;
}

int weights_check(struct model *model, const struct gguf *gguf, const struct model_opts *opts,
                  struct fault *fault)
{
    struct loading load = {.model = model, .gguf = gguf, .opts = opts, .fault = fault};
    int rc = bind_all(&load);

    free(load.bound);
    free(load.scales);
    return rc;
}

static void group_fini(struct weight_group *group)
{
    for (uint32_t i = 0; i < ARRAY_LEN(group->parts); i++)
        weight_fini(&group->parts[i]);
}

void weights_fini(struct model *model)
{
    for (uint32_t i = 0; model->layers && i < model->config.n_layers; i++) {
        struct layer *layer = &model->layers[i];

        for (unsigned group = 0; group < N_GROUPS; group++)
            group_fini(&layer->groups[group]);
        if (layer->attn && layer->attn->layer_fini)
            layer->attn->layer_fini(layer);
        if (layer->ffn && layer->ffn->layer_fini)
            layer->ffn->layer_fini(layer);
    }
    if (model->mtp_of == NULL) {
        weight_fini(&model->embedding);
        weight_fini(&model->head);
    }
    weight_fini(&model->positions);
    weight_fini(&model->inputs);
    group_fini(&model->inputs_proj);
    altup_fini(model);
    free(model->ones);
    free(model->watch.row);
    free(model->layers);
    free(model->vectors);
}

int weights_vector(const struct gguf *gguf, const char *name, uint32_t n, float *out, struct fault *fault)
{
    const struct gguf_tensor *tensor = gguf_tensor_find(gguf, name);

    if (tensor == NULL)
        return E_NOT_FOUND;
    if (tensor->n_dims < 1 || tensor->dims[0] != n || tensor->dims[1] != 1 || tensor->dims[2] != 1 ||
        tensor->dims[3] != 1 || !weights_is_plain(tensor->type))
        return fault_set(fault, E_FORMAT, "tensor %s is not a plain vector of %u", name, n);
    to_floats(tensor->type, tensor->data, n, out);
    return 0;
}
