/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-parameters from a GGUF's metadata.
 *
 * A converted model describes itself in keys that begin with its architecture's name: "llama.block_count",
 * "qwen2.rope.freq_base". This file reads them into struct model_config and struct rope_params, by three
 * rules:
 *
 *   - Every missing, ill-typed or absurd key is named, all of them in one fault, so that a file is
 *     mended once.
 *   - Every number has bounds. They are wide enough for any model of these architectures, and products
 *     of bounded numbers fit in 64 bits. weights.c then checks the real shapes tensor by tensor, so a
 *     file cannot make Baton allocate more than the file itself holds.
 *   - A key that changes the arithmetic in an unsupported way is refused by name (ALiBi, other RoPE
 *     scalings, windows, soft caps and scales in architectures that never had them). An unknown key is harmless;
 *     an unknown tensor is refused (weights.c).
 *
 * Defaults are those of the converters: no head_count_kv means one KV head per query head, no key_length
 * means hidden / heads, no rope.dimension_count means whole heads, no rope.freq_base means 10000. */
#include "compute/model/model_priv.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/str.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void arch_complain(struct reading *r, int code, const char *format, ...)
{
    va_list args;
    int wrote;

    if (r->code == 0)
        r->code = code;
    if (r->used_bytes + 3 < sizeof(r->text) && r->used_bytes > 0)
        r->used_bytes += (size_t)snprintf(r->text + r->used_bytes, sizeof(r->text) - r->used_bytes, "; ");
    va_start(args, format);
    wrote = vsnprintf(r->text + r->used_bytes, sizeof(r->text) - r->used_bytes, format, args);
    va_end(args);
    if (wrote > 0)
        r->used_bytes += (size_t)wrote;
    if (r->used_bytes >= sizeof(r->text))
        r->used_bytes = sizeof(r->text) - 1;
}

bool has_complaints(const struct reading *r)
{
    return r->code != 0;
}

const char *arch_name(const struct reading *r)
{
    return r->arch->name;
}

bool has_tensor(const struct reading *r, const char *name)
{
    return gguf_tensor_find(r->gguf, name) != NULL;
}

const char *reading_key(const struct reading *r, const char *suffix, char out[128])
{
    snprintf(out, 128, "%s.%s", r->arch->name, suffix);
    return out;
}

/* ---- typed reads: value or complaint ---- */

void read_number(struct reading *r, const char *suffix, enum need need, const double bounds[2], double *out)
{
    struct fault why = {0};
    char key[128];
    double value;
    uint64_t whole;
    int rc = gguf_get_f64(r->gguf, reading_key(r, suffix, key), &why, &value);

    if (rc == E_FORMAT) { /* some writers store round numbers as integers */
        rc = gguf_get_u64(r->gguf, key, NULL, &whole);
        value = (double)whole;
    }
    if (rc == E_NOT_FOUND) {
        if (need == REQUIRED)
            arch_complain(r, E_FORMAT, "key %s is missing", key);
        return;
    }
    if (rc < 0)
        arch_complain(r, rc, "%s", why.text);
    else if (!(value >= bounds[0] && value <= bounds[1]))
        arch_complain(r, E_FORMAT, "key %s is %g, outside %g..%g", key, value, bounds[0], bounds[1]);
    else
        *out = value;
}

void read_count(struct reading *r, const char *suffix, enum need need, uint32_t max, uint32_t *out)
{
    struct fault why = {0};
    char key[128];
    uint64_t value;
    int rc = gguf_get_u64(r->gguf, reading_key(r, suffix, key), &why, &value);

    if (rc == E_NOT_FOUND) {
        if (need == REQUIRED)
            arch_complain(r, E_FORMAT, "key %s is missing", key);
        return;
    }
    if (rc < 0)
        arch_complain(r, rc, "%s", why.text);
    else if (value < 1 || value > max)
        arch_complain(r, E_FORMAT, "key %s is %llu, outside 1..%u", key, (unsigned long long)value, max);
    else
        *out = (uint32_t)value;
}

void read_whole(struct reading *r, const char *suffix, uint32_t max, uint32_t *out)
{
    const double bounds[2] = {0, max};
    double value = *out;

    read_number(r, suffix, OPTIONAL, bounds, &value);
    if (value != floor(value))
        arch_complain(r, E_FORMAT, "key %s.%s is %g, not a whole number", r->arch->name, suffix, value);
    else
        *out = (uint32_t)value;
}

void read_flag(struct reading *r, const char *suffix, bool *out)
{
    struct fault why = {0};
    char key[128];
    bool value;
    int rc = gguf_get_bool(r->gguf, reading_key(r, suffix, key), &why, &value);

    if (rc == 0)
        *out = value;
    else if (rc != E_NOT_FOUND)
        arch_complain(r, rc, "%s", why.text);
}

/* ---- unsupported keys ---- */

uint32_t tensor_rows(const struct reading *r, const char *name)
{
    const struct gguf_tensor *tensor = gguf_tensor_find(r->gguf, name);

    return tensor && tensor->dims[1] <= UINT32_MAX ? (uint32_t)tensor->dims[1] : 0;
}

bool arch_heeds(const struct arch *arch, const char *suffix)
{
    for (size_t i = 0; arch->keys && arch->keys[i]; i++)
        if (strcmp(arch->keys[i], suffix) == 0)
            return true;
    return false;
}

/* Refuses embedding models that need other rows than the last token's. */
static void refuse_pooling(struct reading *r)
{
    static const char *const names[] = {"none", "mean", "cls", "last", "rank"};
    uint32_t pooling = GGUF_POOLING_NONE;

    read_whole(r, "pooling_type", UINT16_MAX, &pooling);
    if (pooling != GGUF_POOLING_NONE && pooling != GGUF_POOLING_LAST)
        arch_complain(r, E_UNSUPPORTED, "key %s.pooling_type is %u (%s): only 3 (last) is supported",
                      r->arch->name, pooling, pooling < ARRAY_LEN(names) ? names[pooling] : "unknown");
}

static void refuse_unimplemented(struct reading *r)
{
    static const struct {
        const char *suffix;
        const char *what;
        double harmless; /* the value that has no effect */
    } KEYS[] = {
        {"expert_count", "mixture of experts", 0},
        {"attention.max_alibi_bias", "ALiBi", 0},
        {"attention.clamp_kqv", "clamped QKV", 0},
        {"attn_logit_softcapping", "capped attention", 0},
        {"final_logit_softcapping", "capped logits", 0},
        {"logit_scale", "scaled logits", 1},
        {"attention.scale", "scaled attention", 0},
        {"embedding_scale", "scaled embeddings", 1},
        {"residual_scale", "scaled residuals", 1},
        {"rope.scaling.yarn_log_multiplier", "this form of YaRN", 0},
        {"attention.temperature_scale", "attention scaled by position", 0},
    };
    char key[128];
    double number;
    uint64_t whole;
    bool flag;

    for (size_t i = 0; i < ARRAY_LEN(KEYS); i++) {
        if (arch_heeds(r->arch, KEYS[i].suffix))
            continue;
        reading_key(r, KEYS[i].suffix, key);
        if (gguf_get_f64(r->gguf, key, NULL, &number) < 0) {
            if (gguf_get_u64(r->gguf, key, NULL, &whole) < 0)
                continue;
            number = (double)whole;
        }
        if (number != KEYS[i].harmless)
            arch_complain(r, E_UNSUPPORTED, "key %s is %g: %s is not supported", key, number, KEYS[i].what);
    }
    if (gguf_get_bool(r->gguf, reading_key(r, "attention.causal", key), NULL, &flag) == 0 && !flag)
        arch_complain(r, E_UNSUPPORTED, "key %s is false: only causal attention is supported", key);
    if (!arch_heeds(r->arch, "use_parallel_residual") &&
        gguf_get_bool(r->gguf, reading_key(r, "use_parallel_residual", key), NULL, &flag) == 0 && flag)
        arch_complain(r, E_UNSUPPORTED, "key %s is true: parallel residuals are not supported", key);
}

/* ---- shapes ---- */

static void read_head_dim(struct reading *r, struct model_config *config)
{
    uint32_t key_length = 0, value_length = 0;

    read_count(r, "attention.key_length", OPTIONAL, 1024, &key_length);
    read_count(r, "attention.value_length", OPTIONAL, 1024, &value_length);
    if (r->code != 0)
        return;
    if (key_length == 0 && config->hidden % config->n_heads != 0) {
        arch_complain(r, E_FORMAT, "%s.embedding_length %u is not a multiple of head_count %u", r->arch->name,
                      config->hidden, config->n_heads);
        return;
    }
    config->head_dim = key_length ? key_length : config->hidden / config->n_heads;
    if (arch_heeds(r->arch, "attention.value_length") && value_length < config->head_dim)
        config->value_dim = value_length;
    else if (value_length != 0 && value_length != config->head_dim)
        arch_complain(r, E_UNSUPPORTED, "keys of %u and values of %u: only equal lengths are supported",
                      config->head_dim, value_length);
    if (config->head_dim > 1024)
        arch_complain(r, E_UNSUPPORTED, "heads of %u: at most 1024 are supported", config->head_dim);
}

/* A file counts its MTP heads among its blocks. They follow the last layer. */
static void read_layers(struct reading *r, struct model_config *config)
{
    read_count(r, "block_count", REQUIRED, 4096, &config->n_layers);
    if (r->code != 0 || !(r->arch->has_mtp || arch_heeds(r->arch, "nextn_predict_layers")))
        return;
    read_whole(r, "nextn_predict_layers", 4096, &config->n_nextn_layers);
    if (config->n_nextn_layers >= config->n_layers)
        arch_complain(r, E_FORMAT, "key %s.nextn_predict_layers is %u of %u layers", r->arch->name,
                      config->n_nextn_layers, config->n_layers);
    else
        config->n_layers -= config->n_nextn_layers;
}

/* The norm and its epsilon. */
static void read_norm(struct reading *r, struct model *model)
{
    static const double EPS[2] = {0, 0.1};
    static const char RMS[] = "attention.layer_norm_rms_epsilon", LAYER[] = "attention.layer_norm_epsilon";
    char key[128];
    double eps = 0;

    model->norm = r->arch->norm == NORM_LAYER_PLAIN ? NORM_LAYER : r->arch->norm;
    if (r->arch->norm == NORM_BY_KEY)
        model->norm =
            gguf_get_f64(r->gguf, reading_key(r, RMS, key), NULL, &eps) == 0 ? NORM_RMS : NORM_LAYER;
    read_number(r,
                r->arch->eps                ? r->arch->eps
                : model->norm == NORM_LAYER ? LAYER
                                            : RMS,
                REQUIRED, EPS, &eps);
    model->config.norm_eps = model->config.latent_eps = (float)eps;
}

static void read_shapes(struct reading *r, struct model_config *config)
{
    read_layers(r, config);
    read_count(r, "context_length", REQUIRED, 1u << 30, &config->context_length);
    read_count(r, "embedding_length", REQUIRED, 1u << 20, &config->hidden);
    if (r->arch->attn->is_keyless) { /* no attention in any layer; scratch is laid out for one head */
        config->n_heads = config->n_kv_heads = 1;
        config->head_dim = 2;
    } else {
        read_largest(r, "feed_forward_length", REQUIRED, 1u << 22, &config->ffn);
        read_largest(r, "attention.head_count", REQUIRED, 1u << 12, &config->n_heads);
        config->n_kv_heads = config->n_heads;
        read_kv_heads(r, config);
    }
    config->n_positions = config->context_length;
    if (r->code != 0)
        return;
    if (config->n_heads % config->n_kv_heads != 0)
        arch_complain(r, E_FORMAT, "%s.attention.head_count %u is not a multiple of head_count_kv %u",
                      r->arch->name, config->n_heads, config->n_kv_heads);
    if (arch_heeds(r->arch, "attention.kv_lora_rank"))
        latent_read_heads(r, config);
    else if (!r->arch->attn->is_keyless)
        read_head_dim(r, config);
}

/* The embedding decides the vocabulary size; keys that also give it must agree. */
static void read_vocab(struct reading *r, struct model_config *config)
{
    const struct gguf_tensor *embedding = gguf_tensor_find(r->gguf, "token_embd.weight");
    enum gguf_kind kind;
    uint64_t n_tokens;
    uint32_t stated = 0;

    if (gguf_tensor_count(r->gguf) == 0) { /* only keys, for a file that will be written */
        read_count(r, "vocab_size", REQUIRED, 1u << 24, &config->vocab);
        return;
    }
    if (embedding == NULL) {
        arch_complain(r, E_FORMAT, "tensor token_embd.weight is missing");
        return;
    }
    if (embedding->n_dims != 2 || embedding->dims[1] < 1 || embedding->dims[1] > (1u << 24)) {
        arch_complain(r, E_FORMAT, "tensor token_embd.weight has an absurd shape");
        return;
    }
    config->vocab = (uint32_t)embedding->dims[1];
    read_count(r, "vocab_size", OPTIONAL, 1u << 24, &stated);
    if (stated != 0 && stated != config->vocab)
        arch_complain(r, E_FORMAT, "key %s.vocab_size is %u but token_embd.weight has %u rows", r->arch->name,
                      stated, config->vocab);
    if (gguf_array_len(r->gguf, "tokenizer.ggml.tokens", &kind, &n_tokens) == 0 && n_tokens > config->vocab)
        arch_complain(r, E_FORMAT,
                      "key tokenizer.ggml.tokens has %llu entries but token_embd.weight has %u rows",
                      (unsigned long long)n_tokens, config->vocab);
}

/* ---- RoPE ---- */

static const char *const rope_scalings[] = {
#define X(scaling, word) word,
    ROPE_SCALING_TABLE(X)
#undef X
};

#define ROPE_SCALING_WORD(scaling, word) " " word

static void read_scaling_type(struct reading *r, struct rope_params *rope)
{
    int scaling = 0;
    struct fault why = {0};
    struct bytes type;
    char key[128];
    int rc = gguf_get_str(r->gguf, reading_key(r, "rope.scaling.type", key), &why, &type);

    if (rc == E_NOT_FOUND) /* files older than the key scale linearly by their factor */
        rope->scaling = rope->factor != 1 ? ROPE_SCALE_LINEAR : ROPE_SCALE_NONE;
    else if (rc < 0)
        arch_complain(r, rc, "%s", why.text);
    while (rc == 0 && scaling < N_ROPE_SCALINGS && !bytes_is(type, rope_scalings[scaling]))
        scaling++;
    if (rc == 0 && scaling < N_ROPE_SCALINGS)
        rope->scaling = (enum rope_scaling)scaling;
    else if (rc == 0)
        arch_complain(r, E_UNSUPPORTED,
                      "key %s is \"%.*s\"; supported are" ROPE_SCALING_TABLE(ROPE_SCALING_WORD), key,
                      (int)(type.len_bytes < 32 ? type.len_bytes : 32), (const char *)type.data);
}

static void read_rope(struct reading *r, struct model_config *config, struct rope_params *rope)
{
    static const double BASE[2] = {1.0001, 1e12}, FACTOR[2] = {0, 1e6}, CONTEXT[2] = {1, 1 << 30},
                        BETA[2] = {1e-6, 1e6}, TIMES[2] = {0, 1e3};
    double attn_factor = 0;

    *rope = (struct rope_params){.pairs = r->arch->pairs,
                                 .freq_base = 10000,
                                 .factor = 1,
                                 .beta_fast = 32,
                                 .beta_slow = 1,
                                 .ext_factor = 1,
                                 .attn_factor = 1};
    rope->original_context = config->context_length;
    config->rope_dims = config->latent ? config->rope_dims : config->head_dim;
    if (!r->arch->attn->is_keyless)
        read_count(r, "rope.dimension_count", OPTIONAL, 1024, &config->rope_dims);
    if (config->rope_dims % 2 != 0 || config->rope_dims > config->head_dim)
        arch_complain(r, E_FORMAT, "key %s.rope.dimension_count is %u; it must be even and at most %u",
                      r->arch->name, config->rope_dims, config->head_dim);
    read_number(r, "rope.freq_base", OPTIONAL, BASE, &rope->freq_base);
    config->rope_freq_base = (float)rope->freq_base;
    read_number(r, "rope.scale_linear", OPTIONAL, FACTOR, &rope->factor);
    read_number(r, "rope.scaling.factor", OPTIONAL, FACTOR, &rope->factor);
    if (rope->factor == 0) /* some writers' value for "none" */
        rope->factor = 1;
    read_number(r, "rope.scaling.original_context_length", OPTIONAL, CONTEXT, &rope->original_context);
    read_number(r, "rope.scaling.attn_factor", OPTIONAL, TIMES, &attn_factor);
    rope->is_attn_factor_whole = attn_factor != 0;
    if (rope->is_attn_factor_whole)
        rope->attn_factor = attn_factor;
    read_number(r, "rope.scaling.yarn_attn_factor", OPTIONAL, TIMES, &rope->attn_factor);
    read_number(r, "rope.scaling.yarn_ext_factor", OPTIONAL, TIMES, &rope->ext_factor);
    read_number(r, "rope.scaling.yarn_beta_fast", OPTIONAL, BETA, &rope->beta_fast);
    read_number(r, "rope.scaling.yarn_beta_slow", OPTIONAL, BETA, &rope->beta_slow);
    read_scaling_type(r, rope);
    str_copy(config->rope_scaling, sizeof(config->rope_scaling), rope_scalings[rope->scaling]);
}

/* ---- windows ---- */

/* Reads the window period: a number, or a flag per layer, which is stored directly in the layers. */
static void mark_local_layers(struct reading *r, struct model *model)
{
    uint32_t n_layers = model->config.n_layers;
    uint64_t period = r->arch->window_period, n_flags;
    enum gguf_kind kind;
    char key[128];
    int64_t flag;

    reading_key(r, "attention.sliding_window_pattern", key);
    if (gguf_array_len(r->gguf, key, &kind, &n_flags) == 0) {
        for (uint32_t i = 0; i < n_layers; i++)
            if (gguf_array_i64(r->gguf, key, i, &flag) == 0)
                model->layers[i].is_local = flag != 0;
            else if (i == 0 || i == n_flags) { /* one complaint is enough */
                arch_complain(r, E_FORMAT, "key %s is no list of %u flags", key, n_layers);
                return;
            }
        return;
    }
    if (gguf_get_u64(r->gguf, key, NULL, &period) == E_FORMAT)
        arch_complain(r, E_FORMAT, "key %s is neither a number nor a list of flags", key);
    for (uint32_t i = 0; i < n_layers; i++)
        model->layers[i].is_local = period == 0 || i % period < period - 1;
}

/* A window as long as the context hides nothing, but its layers may still differ in other ways. */
static void read_windows(struct reading *r, struct model *model)
{
    uint32_t context_length = model->config.context_length;
    char key[128];
    uint64_t window = r->arch->window_default;
    int rc = gguf_get_u64(r->gguf, reading_key(r, "attention.sliding_window", key), NULL, &window);

    if (rc == E_FORMAT)
        arch_complain(r, E_UNSUPPORTED, "key %s is not one number: such windows are not supported", key);
    else if (rc == 0 && window > 0 && window < context_length && !r->arch->has_windows)
        arch_complain(r, E_UNSUPPORTED,
                      "key %s is %llu, less than the context of %u: sliding windows are not supported in %s",
                      key, (unsigned long long)window, context_length, r->arch->name);
    if ((rc < 0 && rc != E_NOT_FOUND) || window == 0 || !r->arch->has_windows)
        return;
    mark_local_layers(r, model);
    if (window >= context_length)
        return;
    model->config.window = (uint32_t)window;
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        if (model->layers[i].is_local) {
            model->layers[i].window = (uint32_t)window;
            model->config.n_window_layers++;
        }
}

/* ---- all keys ---- */

static int find_arch(const struct gguf *gguf, struct fault *fault, const struct arch **out)
{
    const struct arch *arch;
    struct bytes name;
    uint32_t n = 0;
    int rc = gguf_check_model(gguf, fault);

    if (rc == 0)
        rc = gguf_get_str(gguf, "general.architecture", fault, &name);

    if (rc == E_NOT_FOUND)
        return fault_set(fault, E_FORMAT, "key general.architecture is missing");
    if (rc < 0)
        return rc;
    for (; (arch = arch_at(n)) != NULL; n++)
        if (bytes_is(name, arch->name)) {
            *out = arch;
            return 0;
        }
    return fault_set(fault, E_UNSUPPORTED,
                     "architecture \"%.*s\" is not supported; docs/models.md lists the %u that are",
                     (int)(name.len_bytes < 24 ? name.len_bytes : 24), (const char *)name.data, n);
}

/* Factors that most architectures leave at one. */
static void set_scales(struct model_config *config)
{
    config->attn_scale = (float)(1 / sqrt(config->head_dim));
    config->embedding_scale = 1;
    config->residual_scale = 1;
    config->logit_scale = 1;
}

/* Sets all layers to the architecture's defaults. A file cannot ask for more layers than it has tensors
 * for. */
static void set_layers(struct reading *r, struct model *model)
{
    uint64_t n_tensors = gguf_tensor_count(r->gguf);

    if (n_tensors > 0 && model->config.n_layers > n_tensors / 4) {
        arch_complain(r, E_FORMAT, "%u layers are more than the file's %llu tensors can make",
                      model->config.n_layers, (unsigned long long)n_tensors);
        return;
    }
    model->layers = calloc(model->config.n_layers, sizeof(*model->layers));
    if (model->layers == NULL) {
        arch_complain(r, E_NOMEM, "no memory for %u layers", model->config.n_layers);
        return;
    }
    for (uint32_t i = 0; i < model->config.n_layers; i++) {
        struct layer *layer = &model->layers[i];

        layer->attn = r->arch->attn;
        layer->ffn = r->arch->ffn;
        layer->head_dim = model->config.head_dim;
        layer->value_dim = model->config.latent ? 0 : model->config.value_dim;
        layer->n_heads = read_listed(r, "attention.head_count", i, model->config.n_heads);
        layer->n_kv_heads = read_listed(r, "attention.head_count_kv", i, model->config.n_kv_heads);
        layer->ffn_width = read_listed(r, "feed_forward_length", i, model->config.ffn);
        if (layer->n_kv_heads != 0 && layer->n_heads % layer->n_kv_heads != 0) {
            arch_complain(r, E_FORMAT, "layer %u has %u heads, no multiple of %u", i, layer->n_heads,
                          layer->n_kv_heads);
            return;
        }
    }
}

/* Reads the layers.  That of an MTP head is one of them meanwhile, if the lists have it; the architecture may leave it out. */
static void read_all_layers(struct reading *r, struct model *model)
{
    struct model_config *config = &model->config;
    bool is_counted = lists_head(r, config);

    model->has_head_layer = is_counted;
    config->n_layers += is_counted;
    if (r->code == 0)
        set_layers(r, model);
    if (r->code == 0)
        read_windows(r, model);
    if (r->code == 0 && r->arch->read)
        r->arch->read(r, model);
    if (r->code == 0)
        read_local_base(r, model);
    config->n_layers -= is_counted;
    if (r->code == 0 && is_counted && model->layers[config->n_layers].window != 0)
        config->n_window_layers--;
}

int arch_read(const struct gguf *gguf, uint32_t context_length, struct fault *fault, struct model *model)
{
    struct model_config *config = &model->config;
    struct reading r = {.gguf = gguf};
    int rc = find_arch(gguf, fault, &r.arch);

    if (rc < 0)
        return rc;
    model->arch = r.arch;
    model->is_parallel = r.arch->is_parallel;
    model->activation = r.arch->activation;
    str_copy(config->arch, sizeof(config->arch), r.arch->name);
    refuse_unimplemented(&r);
    refuse_pooling(&r);
    read_norm(&r, model);
    read_shapes(&r, config);
    read_vocab(&r, config);
    if (r.code == 0) { /* the following code uses the values read so far */
        set_scales(config);
        read_rope(&r, config, &model->rope_params[ROPE_GLOBAL]);
        model->n_ropes = 1;
        read_all_layers(&r, model);
    }
    if (r.code != 0)
        return fault_set(fault, r.code, "%s", r.text);
    layers_place(model);
    if (config->n_kv_layers == 0 && !r.arch->attn->is_keyless)
        return fault_set(fault, E_UNSUPPORTED, "no layer of this %s has attention", r.arch->name);
    if (context_length > config->context_length)
        return fault_set(fault, E_RANGE, "a context of %u is more than the model's %u", context_length,
                         config->context_length);
    if (context_length != 0)
        config->context_length = context_length;
    return 0;
}
