/* SPDX-License-Identifier: Apache-2.0 */
/* How layers differ: keys that have a number for each layer, and where a layer keeps its state.
 *
 *     layers     0        1          2        3 (shared)
 *     KV layout  kv 0     -          kv 1     kv 1, which layer 2 stores
 *     state      -        state_at   -        -            */
#include "compute/model/model_priv.h"

#include "base/check.h"
#include "base/err.h"

/* Reads a count, or the largest of a list with one count for each layer. */
void read_largest(struct reading *r, const char *suffix, enum need need, uint32_t max, uint32_t *out)
{
    enum gguf_kind kind;
    uint64_t n;
    bool may_be_none = arch_heeds(r->arch, suffix);
    uint32_t largest = 0;
    char key[128];

    reading_key(r, suffix, key);
    if (!r->arch->has_shapes || gguf_array_len(r->gguf, key, &kind, &n) != 0) {
        read_count(r, suffix, need, max, out);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        int64_t value;

        if (gguf_array_i64(r->gguf, key, i, &value) < 0 || value < (may_be_none ? 0 : 1) || value > max) {
            arch_complain(r, E_FORMAT, "key %s has a number that is not within %u..%u", key, !may_be_none,
                          max);
            return;
        }
        largest = (uint32_t)value > largest ? (uint32_t)value : largest;
    }
    if (largest == 0)
        arch_complain(r, E_FORMAT, "key %s has only zeros", key);
    else
        *out = largest;
}

/* Number i of a list that read_largest() has checked; value if the key is no list. */
uint32_t read_listed(struct reading *r, const char *suffix, uint32_t i, uint32_t value)
{
    enum gguf_kind kind;
    uint64_t n;
    char key[128];
    int64_t number;

    if (!r->arch->has_shapes || gguf_array_len(r->gguf, reading_key(r, suffix, key), &kind, &n) != 0)
        return value;
    if (gguf_array_i64(r->gguf, key, i, &number) == 0)
        return (uint32_t)number;
    if (i == n) /* one error message is enough */
        arch_complain(r, E_FORMAT, "key %s has %llu numbers, fewer than layers", key, (unsigned long long)n);
    return value;
}

/* The list of windows has one, and so have all others that there are.  A head with a part of its items is left out, as one
 * without any. */
bool lists_head(const struct reading *r, const struct model_config *config)
{
    static const char *const lists[] = {"attention.sliding_window_pattern",
                                        "attention.head_count",
                                        "attention.head_count_kv",
                                        "feed_forward_length",
                                        "swiglu_clamp_exp",
                                        "swiglu_clamp_shexp"};

    if (r->code != 0 || !r->arch->mtp_is_listed || config->n_nextn_layers == 0)
        return false;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        enum gguf_kind kind;
        uint64_t n = 0;
        char key[128];
        bool is_list = gguf_array_len(r->gguf, reading_key(r, lists[i], key), &kind, &n) == 0;

        if (is_list ? n <= config->n_layers : i == 0)
            return false;
    }
    return true;
}

bool read_fraction(const struct reading *r, const char *suffix, uint32_t i, double *out)
{
    char key[128];

    return gguf_array_f64(r->gguf, reading_key(r, suffix, key), i, out) == 0;
}

/* A number; or one for each layer, where 0 means a recurrent layer and all others are equal. */
void read_kv_heads(struct reading *r, struct model_config *config)
{
    enum gguf_kind kind;
    uint64_t n;
    int64_t value;
    uint32_t n_heads = 0;
    char key[128];

    if (r->arch->has_shapes) {
        read_largest(r, "attention.head_count_kv", OPTIONAL, 1u << 12, &config->n_kv_heads);
        return;
    }
    reading_key(r, "attention.head_count_kv", key);
    if (gguf_array_len(r->gguf, key, &kind, &n) < 0 || r->code != 0) {
        read_count(r, "attention.head_count_kv", OPTIONAL, 1u << 12, &config->n_kv_heads);
        return;
    }
    for (uint32_t i = 0; i < config->n_layers; i++) {
        if (gguf_array_i64(r->gguf, key, i, &value) < 0 || value < 0 || value > 1 << 12) {
            arch_complain(r, E_FORMAT, "key %s is no list of %u numbers of heads", key, config->n_layers);
            return;
        }
        if (value != 0 && n_heads != 0 && n_heads != value) {
            arch_complain(r, E_UNSUPPORTED, "key %s: layers with %u and %lld heads are not supported", key,
                          n_heads, (long long)value);
            return;
        }
        if (value == 0 && !arch_heeds(r->arch, "attention.head_count_kv")) {
            arch_complain(r, E_UNSUPPORTED, "key %s: layers without attention are not supported in %s", key,
                          r->arch->name);
            return;
        }
        n_heads = value != 0 ? (uint32_t)value : n_heads;
    }
    if (n_heads == 0)
        arch_complain(r, E_UNSUPPORTED, "key %s: no layer has attention", key);
    else
        config->n_kv_heads = n_heads;
}

void use_recurrent(struct reading *r, struct model *model, const struct half *half)
{
    int64_t n_heads;
    char key[128];

    reading_key(r, "attention.head_count_kv", key);
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        if (gguf_array_i64(r->gguf, key, i, &n_heads) == 0 && n_heads == 0)
            model->layers[i].attn = half;
}

void require_windows(struct reading *r, bool needs_pattern)
{
    char key[128];
    uint64_t window = 0, n;
    enum gguf_kind kind;

    if (gguf_get_u64(r->gguf, reading_key(r, "attention.sliding_window", key), NULL, &window) == E_NOT_FOUND)
        arch_complain(r, E_FORMAT, "key %s is missing", key);
    else if (window == 0)
        arch_complain(r, E_FORMAT, "key %s is 0", key);
    reading_key(r, "attention.sliding_window_pattern", key);
    if (needs_pattern && gguf_array_len(r->gguf, key, &kind, &n) == E_NOT_FOUND)
        arch_complain(r, E_FORMAT, "key %s is missing", key);
}

void read_window_base(struct reading *r, double *base)
{
    static const double BASE[2] = {1.0001, 1e12};

    read_number(r, "rope.freq_base_swa", OPTIONAL, BASE, base);
}

void use_local_rope(struct model *model, double freq_base)
{
    model->rope_params[ROPE_LOCAL] = (struct rope_params){
        .pairs = model->arch->pairs, .freq_base = freq_base, .factor = 1, .attn_factor = 1};
    model->n_ropes = 2;
    for (uint32_t i = 0; i < model->config.n_layers; i++)
        if (model->layers[i].is_local && model->layers[i].rope != ROPE_NONE)
            model->layers[i].rope = ROPE_LOCAL;
}

static bool has_rope_factors(const struct reading *r)
{
    return has_tensor(r, "rope_freqs.weight") || has_tensor(r, "rope_factors_long.weight") ||
           has_tensor(r, "rope_factors_short.weight");
}

void read_local_base(struct reading *r, struct model *model)
{
    const struct rope_params *rope = &model->rope_params[ROPE_GLOBAL];
    double base = rope->freq_base;
    bool is_used = false;

    for (uint32_t i = 0; i < model->config.n_layers && model->n_ropes == 1; i++)
        is_used = is_used || (model->layers[i].is_local && model->layers[i].rope != ROPE_NONE);
    if (is_used)
        read_window_base(r, &base);
    if (base == rope->freq_base)
        return;
    if (rope->scaling == ROPE_SCALE_NONE && rope->attn_factor == 1 && rope->temperature_scale == 0 &&
        !has_rope_factors(r))
        use_local_rope(model, base);
    else
        arch_complain(r, E_UNSUPPORTED,
                      "key %s.rope.freq_base_swa is %g beside a scaling of RoPE: not supported", arch_name(r),
                      base);
}

void layers_place(struct model *model)
{
    struct model_config *config = &model->config;
    size_t state_bytes = 0;

    config->n_kv_layers = config->n_recurrent_layers = 0;
    for (uint32_t i = 0; i < config->n_layers; i++) {
        struct layer *layer = &model->layers[i];

        layer->state_at = state_bytes;
        if (layer->attn->state_bytes) {
            state_bytes += layer->attn->state_bytes(config);
            config->n_recurrent_layers++;
        }
        if (!layer->attn->is_keyless)
            layer->kv_index =
                layer->is_shared ? model->layers[layer->kv_source].kv_index : config->n_kv_layers++;
    }
    model->layout.state_bytes = state_bytes;
}
