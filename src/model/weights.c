/* SPDX-License-Identifier: Apache-2.0 */
/* Weights: every tensor bound by name and shape, then packed into the kernels' panels.
 *
 *   token_embd.weight    [vocab][hidden]          output.weight [vocab][hidden]  (absent: tied)
 *   output_norm.weight   [hidden]                 rope_freqs.weight [rope_dims/2] (optional, llama3)
 *   blk.L.attn_norm      [hidden]                 blk.L.ffn_norm  [hidden]
 *   blk.L.attn_q         [n_heads hd][hidden]     blk.L.ffn_gate  [ffn][hidden]
 *   blk.L.attn_k, _v     [n_kv_heads hd][hidden]  blk.L.ffn_up    [ffn][hidden]
 *   blk.L.attn_output    [hidden][n_heads hd]     blk.L.ffn_down  [hidden][ffn]
 *   blk.L.attn_{q,k,v}.bias                       (all three or none)
 *
 * Two passes.  Binding looks at names, shapes and types only and ends by counting: a tensor that nothing
 * bound is a part of the model that we would leave out, and refused by name.  Packing allocates, and what it
 * allocates is what the file really holds.
 *
 * Matrices that read the same input are stacked into one weight when their types are equal (Q, K and V; gate
 * and up).  Rows are independent, so stacking changes no bit; it saves passes over the input.
 *
 * Memory is the file's size plus padding: the embedding is kept in panels like the rest and de-quantised row
 * by row, so that a tied head needs no second copy. */
#include "model/model_priv.h"

#include "base/check.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum slot { /* the tensors of one layer */
            SLOT_ATTN_NORM,
            SLOT_Q,
            SLOT_K,
            SLOT_V,
            SLOT_Q_BIAS,
            SLOT_K_BIAS,
            SLOT_V_BIAS,
            SLOT_OUT,
            SLOT_FFN_NORM,
            SLOT_GATE,
            SLOT_UP,
            SLOT_DOWN,
            N_SLOTS
};

enum dim { DIM_NONE, DIM_HIDDEN, DIM_Q, DIM_KV, DIM_FFN };

static const struct slot_info {
    const char *suffix;
    enum dim rows; /* DIM_NONE: a vector of cols */
    enum dim cols;
} SLOTS[N_SLOTS] = {
    [SLOT_ATTN_NORM] = {"attn_norm.weight", DIM_NONE, DIM_HIDDEN},
    [SLOT_Q] = {"attn_q.weight", DIM_Q, DIM_HIDDEN},
    [SLOT_K] = {"attn_k.weight", DIM_KV, DIM_HIDDEN},
    [SLOT_V] = {"attn_v.weight", DIM_KV, DIM_HIDDEN},
    [SLOT_Q_BIAS] = {"attn_q.bias", DIM_NONE, DIM_Q},
    [SLOT_K_BIAS] = {"attn_k.bias", DIM_NONE, DIM_KV},
    [SLOT_V_BIAS] = {"attn_v.bias", DIM_NONE, DIM_KV},
    [SLOT_OUT] = {"attn_output.weight", DIM_HIDDEN, DIM_Q},
    [SLOT_FFN_NORM] = {"ffn_norm.weight", DIM_NONE, DIM_HIDDEN},
    [SLOT_GATE] = {"ffn_gate.weight", DIM_FFN, DIM_HIDDEN},
    [SLOT_UP] = {"ffn_up.weight", DIM_FFN, DIM_HIDDEN},
    [SLOT_DOWN] = {"ffn_down.weight", DIM_HIDDEN, DIM_FFN},
};

struct bound_layer {
    const struct gguf_tensor *slot[N_SLOTS]; /* NULL: an absent bias */
};

struct loading {
    struct model *model;
    const struct gguf *gguf;
    struct team *team;
    const struct model_opts *opts;
    struct fault *fault;
    /* binding */
    struct bound_layer *bound; /* [n_layers] */
    const struct gguf_tensor *embedding, *head, *final_norm;
    uint64_t n_bound;
    uint64_t total_bytes;
    uint64_t bytes_of_type[64]; /* by enum dtype */
    /* packing */
    uint64_t done_bytes;
    float *next_vector; /* where in model->vectors the next one goes */
};

static uint64_t dim_of(const struct model_config *config, enum dim dim)
{
    switch (dim) {
    case DIM_NONE:
        return 1;
    case DIM_HIDDEN:
        return config->hidden;
    case DIM_Q:
        return (uint64_t)config->n_heads * config->head_dim;
    case DIM_KV:
        return (uint64_t)config->n_kv_heads * config->head_dim;
    case DIM_FFN:
        return config->ffn;
    }
    return 0;
}

/* ---- binding ---- */

static bool is_plain(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

/* Finds a tensor and checks its shape (rows 0: a vector of cols) and type.  E_NOT_FOUND without a fault. */
static int bind(struct loading *load, const char *name, uint64_t rows, uint64_t cols,
                const struct gguf_tensor **out)
{
    const struct gguf_tensor *tensor = gguf_tensor_find(load->gguf, name);
    bool is_vector = rows == 0;

    if (tensor == NULL)
        return E_NOT_FOUND;
    if (tensor->n_dims < 1 || tensor->dims[0] != cols || tensor->dims[1] != (is_vector ? 1 : rows) ||
        tensor->dims[2] != 1 || tensor->dims[3] != 1)
        return fault_set(load->fault, E_FORMAT, "tensor %s is %llu x %llu, expected %llu x %llu", name,
                         (unsigned long long)tensor->dims[1], (unsigned long long)tensor->dims[0],
                         (unsigned long long)(is_vector ? 1 : rows), (unsigned long long)cols);
    if (is_vector ? !is_plain(tensor->type) : !weight_type_ok(tensor->type)) {
        const struct dtype_info *info = dtype_info(tensor->type);
        char names[WEIGHT_TYPES_BYTES];

        return fault_set(load->fault, E_UNSUPPORTED, "tensor %s is stored as %s; supported here are %s", name,
                         info ? info->name : "an unknown type",
                         is_vector ? "F32 F16 BF16" : weight_types(names, sizeof(names)));
    }
    load->n_bound++;
    load->total_bytes += tensor->len_bytes;
    load->bytes_of_type[tensor->type & 63] += tensor->len_bytes;
    load->model->config.n_parameters += (is_vector ? 1 : rows) * cols;
    *out = tensor;
    return 0;
}

static int bind_required(struct loading *load, const char *name, uint64_t rows, uint64_t cols,
                         const struct gguf_tensor **out)
{
    int rc = bind(load, name, rows, cols, out);

    if (rc == E_NOT_FOUND)
        return fault_set(load->fault, E_FORMAT, "tensor %s is missing", name);
    return rc;
}

static int bind_layer(struct loading *load, uint32_t layer)
{
    const struct model_config *config = &load->model->config;
    struct bound_layer *bound = &load->bound[layer];
    unsigned n_biases = 0;
    char name[64];

    for (unsigned i = 0; i < N_SLOTS; i++) {
        bool is_bias = i >= SLOT_Q_BIAS && i <= SLOT_V_BIAS;
        uint64_t rows = SLOTS[i].rows == DIM_NONE ? 0 : dim_of(config, SLOTS[i].rows);
        int rc;

        snprintf(name, sizeof(name), "blk.%u.%s", layer, SLOTS[i].suffix);
        rc = bind(load, name, rows, dim_of(config, SLOTS[i].cols), &bound->slot[i]);
        if (rc == E_NOT_FOUND && (!is_bias || load->model->arch->needs_qkv_bias))
            return fault_set(load->fault, E_FORMAT, "tensor %s is missing", name);
        if (rc < 0 && rc != E_NOT_FOUND)
            return rc;
        n_biases += is_bias && rc == 0;
    }
    if (n_biases != 0 && n_biases != 3)
        return fault_set(load->fault, E_FORMAT, "blk.%u has %u of the three biases of q, k and v", layer,
                         n_biases);
    return 0;
}

/* True for a name that the binding of this model looks for. */
static bool is_known(const struct loading *load, struct bytes name)
{
    static const char *const GLOBALS[] = {"token_embd.weight", "output.weight", "output_norm.weight",
                                          "rope_freqs.weight"};
    size_t dot = bytes_find(name, bytes_str("."), 4);
    uint64_t layer;

    for (size_t i = 0; i < ARRAY_LEN(GLOBALS); i++)
        if (bytes_is(name, GLOBALS[i]))
            return true;
    if (!bytes_starts_with(name, "blk.") || dot == SIZE_MAX ||
        str_to_u64(bytes_of(name.data + 4, dot - 4), &layer) < 0 || layer >= load->model->config.n_layers)
        return false;
    for (unsigned i = 0; i < N_SLOTS; i++)
        if (bytes_is(bytes_of(name.data + dot + 1, name.len_bytes - dot - 1), SLOTS[i].suffix))
            return true;
    return false;
}

/* Names a tensor that the forward pass would leave out. */
static int refuse_unbound(struct loading *load, uint64_t n_known)
{
    uint64_t n = gguf_tensor_count(load->gguf);

    for (uint64_t i = 0; i < n && n_known != n; i++) {
        struct bytes name = gguf_tensor_at(load->gguf, i)->name;

        if (!is_known(load, name))
            return fault_set(load->fault, E_UNSUPPORTED,
                             "tensor %.*s has no place in a %s model of %u layers as known here",
                             (int)(name.len_bytes < 96 ? name.len_bytes : 96), (const char *)name.data,
                             load->model->config.arch, load->model->config.n_layers);
    }
    return 0;
}

static int bind_all(struct loading *load)
{
    const struct model_config *config = &load->model->config;
    bool has_factors = gguf_tensor_find(load->gguf, "rope_freqs.weight") != NULL;
    int rc;

    /* Nine tensors make a layer, so a count that the file cannot hold is caught before it is allocated for.
     */
    if (config->n_layers > gguf_tensor_count(load->gguf) / 9)
        return fault_set(load->fault, E_FORMAT, "%u layers are more than the file's %llu tensors can make",
                         config->n_layers, (unsigned long long)gguf_tensor_count(load->gguf));
    load->bound = calloc(config->n_layers, sizeof(*load->bound));
    if (load->bound == NULL)
        return fault_set(load->fault, E_NOMEM, "no memory for %u layers", config->n_layers);
    rc = bind_required(load, "token_embd.weight", config->vocab, config->hidden, &load->embedding);
    if (rc == 0)
        rc = bind_required(load, "output_norm.weight", 0, config->hidden, &load->final_norm);
    if (rc == 0)
        rc = bind(load, "output.weight", config->vocab, config->hidden, &load->head);
    if (rc == E_NOT_FOUND)
        rc = 0;
    for (uint32_t i = 0; i < config->n_layers && rc == 0; i++)
        rc = bind_layer(load, i);
    return rc < 0 ? rc : refuse_unbound(load, load->n_bound + has_factors);
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

static void report(struct loading *load, const struct gguf_tensor *tensor)
{
    load->done_bytes += tensor->len_bytes;
    if (load->opts->on_progress)
        load->opts->on_progress(load->opts->progress_arg, load->done_bytes, load->total_bytes);
}

static const float *pack_vector(struct loading *load, const struct gguf_tensor *tensor)
{
    float *at = load->next_vector;

    to_floats(tensor->type, tensor->data, tensor->dims[0], at);
    load->next_vector += tensor->dims[0];
    report(load, tensor);
    return at;
}

static int pack(struct loading *load, const struct gguf_tensor *const *tensors, uint32_t n,
                struct weight *out)
{
    struct weight_part parts[3] = {0};
    int rc;

    for (uint32_t i = 0; i < n; i++)
        parts[i] = (struct weight_part){.data = tensors[i]->data, .rows = (uint32_t)tensors[i]->dims[1]};
    rc = weight_pack(load->model->table, tensors[0]->type, parts, n, (uint32_t)tensors[0]->dims[0],
                     load->team, out);
    if (rc < 0)
        return fault_set(load->fault, rc, "tensor %.*s cannot be packed: %s", (int)tensors[0]->name.len_bytes,
                         (const char *)tensors[0]->name.data, err_text(rc));
    for (uint32_t i = 0; i < n; i++)
        report(load, tensors[i]);
    return 0;
}

/* Runs of one type become one part. */
static int pack_group(struct loading *load, const struct gguf_tensor *const *tensors, uint32_t n,
                      struct weight_group *out)
{
    for (uint32_t from = 0; from < n;) {
        uint32_t to = from + 1;
        int rc;

        while (to < n && tensors[to]->type == tensors[from]->type)
            to++;
        rc = pack(load, tensors + from, to - from, &out->parts[out->n_parts]);
        if (rc < 0)
            return rc;
        out->rows += out->parts[out->n_parts].rows;
        load->model->config.weight_bytes += out->parts[out->n_parts].len_bytes;
        out->n_parts++;
        from = to;
    }
    return 0;
}

static int pack_layer(struct loading *load, const struct bound_layer *bound, struct layer *out)
{
    int rc = pack_group(load, &bound->slot[SLOT_Q], 3, &out->qkv);

    if (rc == 0)
        rc = pack_group(load, &bound->slot[SLOT_OUT], 1, &out->out);
    if (rc == 0)
        rc = pack_group(load, &bound->slot[SLOT_GATE], 2, &out->gate_up);
    if (rc == 0)
        rc = pack_group(load, &bound->slot[SLOT_DOWN], 1, &out->down);
    if (rc < 0)
        return rc;
    out->attn_norm = pack_vector(load, bound->slot[SLOT_ATTN_NORM]);
    out->ffn_norm = pack_vector(load, bound->slot[SLOT_FFN_NORM]);
    if (bound->slot[SLOT_Q_BIAS]) {
        out->qkv_bias = pack_vector(load, bound->slot[SLOT_Q_BIAS]);
        pack_vector(load, bound->slot[SLOT_K_BIAS]);
        pack_vector(load, bound->slot[SLOT_V_BIAS]);
    }
    return 0;
}

static int pack_all(struct loading *load)
{
    struct model *model = load->model;
    struct model_config *config = &model->config;
    uint64_t per_layer = 2 * (uint64_t)config->hidden + dim_of(config, DIM_Q) + 2 * dim_of(config, DIM_KV);
    int rc;

    model->vectors = calloc(per_layer * config->n_layers + config->hidden, sizeof(float));
    model->layers = calloc(config->n_layers, sizeof(*model->layers));
    if (model->vectors == NULL || model->layers == NULL)
        return fault_set(load->fault, E_NOMEM, "no memory for norms and biases");
    load->next_vector = model->vectors;
    rc = pack(load, &load->embedding, 1, &model->embedding);
    if (rc == 0 && load->head)
        rc = pack(load, &load->head, 1, &model->head);
    for (uint32_t i = 0; i < config->n_layers && rc == 0; i++)
        rc = pack_layer(load, &load->bound[i], &model->layers[i]);
    if (rc < 0)
        return rc;
    model->final_norm = pack_vector(load, load->final_norm);
    config->is_tied = load->head == NULL;
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

/* ---- what the folder offers ---- */

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
        group_fini(&model->layers[i].qkv);
        group_fini(&model->layers[i].out);
        group_fini(&model->layers[i].gate_up);
        group_fini(&model->layers[i].down);
    }
    weight_fini(&model->embedding);
    weight_fini(&model->head);
    free(model->layers);
    free(model->vectors);
}

int weights_vector(const struct gguf *gguf, const char *name, uint32_t n, float *out, struct fault *fault)
{
    const struct gguf_tensor *tensor = gguf_tensor_find(gguf, name);

    if (tensor == NULL)
        return E_NOT_FOUND;
    if (tensor->n_dims < 1 || tensor->dims[0] != n || tensor->dims[1] != 1 || tensor->dims[2] != 1 ||
        tensor->dims[3] != 1 || !is_plain(tensor->type))
        return fault_set(fault, E_FORMAT, "tensor %s is not a plain vector of %u", name, n);
    to_floats(tensor->type, tensor->data, n, out);
    return 0;
}
