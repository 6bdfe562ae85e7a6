/* SPDX-License-Identifier: Apache-2.0 */
/* Model shapes from config.json and from GGUF metadata.
 *
 * Families have different names for the same property; each list below has the names of one property.  A
 * multimodal configuration keeps the language model in text_config. */
#include "fleet/plan/model.h"

#include "base/err.h"
#include "base/str.h"
#include "gguf/gguf.h"
#include "text/json/json.h"

#include <math.h>

static double config_number(const json_t *config, const char *const *keys)
{
    for (; *keys != NULL; keys++) {
        const json_t *value = json_object_get(config, *keys);
        if (json_is_number(value) && json_number_value(value) >= 0)
            return json_number_value(value);
        if (json_is_array(value) && json_is_number(json_array_get(value, 0))) /* one per layer */
            return json_number_value(json_array_get(value, 0));
    }
    return 0;
}

#define CONFIG_NUMBER(config, ...) config_number(config, (const char *const[]){__VA_ARGS__, NULL})

static void config_fields(const json_t *config, struct plan_model *m)
{
#define X(field, key)                                                                                        \
    if (key != NULL)                                                                                         \
        m->field = CONFIG_NUMBER(config, key);
    PLAN_MODEL_FIELDS(X)
#undef X
    if (m->layers == 0)
        m->layers = CONFIG_NUMBER(config, "n_layer", "num_layers", "n_layers");
    if (m->hidden == 0)
        m->hidden = CONFIG_NUMBER(config, "n_embd", "d_model", "dim");
    if (m->q_heads == 0)
        m->q_heads = CONFIG_NUMBER(config, "n_head", "num_heads", "n_heads");
    if (m->ffn == 0)
        m->ffn = CONFIG_NUMBER(config, "ffn_dim", "n_inner", "hidden_dim");
    if (m->head_dim == 0)
        m->head_dim = CONFIG_NUMBER(config, "attention_head_dim");
    if (m->max_context == 0)
        m->max_context = CONFIG_NUMBER(config, "n_positions", "seq_length");
    m->experts =
        CONFIG_NUMBER(config, "num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts");
    m->experts_per_token = CONFIG_NUMBER(config, "num_experts_per_tok", "experts_per_token",
                                         "num_experts_per_token", "moe_topk");
    if (m->shared_experts == 0)
        m->shared_experts = CONFIG_NUMBER(config, "num_shared_experts", "moe_num_shared_experts");
    if (m->dense_layers == 0)
        m->dense_layers = CONFIG_NUMBER(config, "num_dense_layers", "moe_layer_start_index");
    m->tied_embeddings = json_is_true(json_object_get(config, "tie_word_embeddings"));
}

/* Model types with two matrices in the feed-forward network (no gate), or with four times the hidden size
 * there.  Squared ReLU and xIELU never have a gate. */
static void config_ffn(const json_t *config, const char *type, struct plan_model *m)
{
    static const char *const PLAIN[] = {"opt",    "bloom", "gpt2", "gpt_neox",
                                        "falcon", "mpt",   "phi",  "starcoder2"};
    const char *activation = json_string_value(json_object_get(config, "hidden_act"));

    if (activation == NULL)
        activation = json_string_value(json_object_get(config, "mlp_hidden_act"));

    if (activation != NULL && (strcmp(activation, "relu2") == 0 || strcmp(activation, "xielu") == 0))
        m->ffn_matrices = 2;
    for (size_t i = 0; i < sizeof(PLAIN) / sizeof(PLAIN[0]); i++)
        if (strcmp(PLAIN[i], type) == 0) {
            m->ffn_matrices = 2;
            if (m->ffn == 0)
                m->ffn = 4 * m->hidden;
            if (json_object_get(config, "tie_word_embeddings") == NULL)
                m->tied_embeddings = 1; /* the default of these kinds */
        }
    double shared = CONFIG_NUMBER(config, "shared_expert_intermediate_size", "shared_intermediate_size");
    double wide = m->expert_ffn > 0 ? m->expert_ffn : m->ffn;
    if (m->experts > 0 && m->shared_experts == 0 && wide > 0)
        m->shared_experts = shared / wide;
    if (strcmp(type, "gpt_oss") == 0)
        m->attention_bits = 16;
    else if (plan_model_is_mla(m))
        m->attention_bits = 8;
}

/* Gated delta nets: the state is one matrix for each value head, and the tail of the convolution. */
struct delta_net {
    double key_heads, value_heads, key_dim, value_dim, taps;
};

static void linear_delta(struct plan_model *m, const struct delta_net *net)
{
    double keys = net->key_heads * net->key_dim, values = net->value_heads * net->value_dim;

    m->linear_params = m->hidden * (2 * keys + 2 * values + 2 * net->value_heads) + values * m->hidden;
    m->state_bytes = m->linear_layers * (net->value_heads * net->key_dim * net->value_dim * 4 +
                                         (net->taps > 1 ? net->taps - 1 : 0) * (2 * keys + values) * 2);
}

/* Kimi Delta Attention: fades and gates go through matrices of the width of one head. */
static void linear_kda(struct plan_model *m, double heads, double dim, double taps)
{
    double width = heads * dim;

    m->linear_params = m->hidden * (3 * width + 2 * dim + heads) + 2 * dim * width + width * m->hidden;
    m->state_bytes = m->linear_layers * (width * dim * 4 + (taps > 1 ? taps - 1 : 0) * 3 * width * 4);
}

/* Short convolutions (LFM2) between two matrices: one to three times the hidden size, one back. */
static void linear_conv(struct plan_model *m, double taps)
{
    m->linear_params = m->hidden * (4 * m->hidden + taps);
    m->state_bytes = m->linear_layers * (taps > 1 ? taps - 1 : 0) * m->hidden * 4;
}

/* Mamba 2: the state is one matrix for each head, and the tail of the convolution. */
struct mamba {
    double heads, inner, state, groups, taps;
};

static void linear_mamba(struct plan_model *m, const struct mamba *mamba)
{
    double mixed = mamba->inner + 2 * mamba->groups * mamba->state;

    m->linear_params = m->hidden * (mixed + mamba->inner + mamba->heads) + mamba->inner * m->hidden;
    m->state_bytes = m->linear_layers *
                     (mamba->inner * mamba->state * 4 + (mamba->taps > 1 ? mamba->taps - 1 : 0) * mixed * 2);
}

static void config_linear(const json_t *config, struct plan_model *m)
{
    const json_t *kda = json_object_get(config, "linear_attn_config");
    const struct delta_net net = {.key_heads = CONFIG_NUMBER(config, "linear_num_key_heads"),
                                  .value_heads = CONFIG_NUMBER(config, "linear_num_value_heads"),
                                  .key_dim = CONFIG_NUMBER(config, "linear_key_head_dim"),
                                  .value_dim = CONFIG_NUMBER(config, "linear_value_head_dim"),
                                  .taps = CONFIG_NUMBER(config, "linear_conv_kernel_dim")};
    double taps = CONFIG_NUMBER(config, "conv_L_cache");

    if (net.value_heads > 0) {
        linear_delta(m, &net);
        return;
    }
    if (json_is_object(kda)) {
        linear_kda(m, CONFIG_NUMBER(kda, "num_heads"), CONFIG_NUMBER(kda, "head_dim"),
                   CONFIG_NUMBER(kda, "short_conv_kernel_size"));
        return;
    }
    if (taps > 0) {
        linear_conv(m, taps);
        return;
    }
    struct mamba mamba = {.heads = CONFIG_NUMBER(config, "mamba_n_heads", "mamba_num_heads"),
                          .state = CONFIG_NUMBER(config, "mamba_d_state", "ssm_state_size"),
                          .groups = CONFIG_NUMBER(config, "mamba_n_groups", "n_groups"),
                          .taps = CONFIG_NUMBER(config, "mamba_d_conv", "conv_kernel")};

    mamba.inner = mamba.heads * CONFIG_NUMBER(config, "mamba_d_head", "mamba_head_dim");
    linear_mamba(m, &mamba);
}

/* Entries of a list of numbers that are 0, or that are not. */
static double config_flags(const json_t *list, bool is_set)
{
    const json_t *flag;
    size_t i;
    double n = 0;

    json_array_foreach(list, i, flag) n += json_is_number(flag) && (json_number_value(flag) != 0) == is_set;
    return n;
}

/* Nemotron H: each layer has Mamba, attention, a network or experts alone. */
static void config_add_alone(struct plan_model *m, char letter)
{
    m->linear_layers += letter == 'M';
    m->attention_layers += letter == '*';
    m->ffn_layers += letter == '-' || letter == 'E';
    if (m->experts > 0)
        m->dense_layers += letter == '-';
}

/* Returns the letter of a layer that has one thing alone; 0: other names. */
static char config_letter_of(const char *name)
{
    static const struct {
        const char *name;
        char letter;
    } letters[] = {{"mamba", 'M'}, {"mamba2", 'M'}, {"attention", '*'}, {"mlp", '-'}, {"moe", 'E'}};

    for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++)
        if (strcmp(name, letters[i].name) == 0)
            return letters[i].letter;
    return 0;
}

/* True if the list has layers with a network alone, so that all have one thing alone; then they are counted. */
static bool config_alone_kinds(const json_t *kinds, struct plan_model *m)
{
    bool has_networks = false;
    const json_t *kind;
    size_t i;

    json_array_foreach(kinds, i, kind)
    {
        char letter = config_letter_of(json_is_string(kind) ? json_string_value(kind) : "");

        has_networks = has_networks || letter == '-' || letter == 'E';
    }
    if (!has_networks)
        return false;
    m->dense_layers = 0;
    json_array_foreach(kinds, i, kind)
        config_add_alone(m, config_letter_of(json_is_string(kind) ? json_string_value(kind) : ""));
    return true;
}

/* Lists with an entry for each layer.  False: the configuration has none. */
static bool config_listed_kinds(const json_t *config, struct plan_model *m)
{
    const json_t *kinds = json_object_get(config, "layer_types"), *kind;
    const json_t *flags = json_object_get(config, "hybrid_layer_pattern"); /* MiMo: 1 has a window */
    const json_t *kda = json_object_get(json_object_get(config, "linear_attn_config"), "kda_layers");
    const char *letters = json_string_value(json_object_get(config, "hybrid_override_pattern"));
    size_t i;

    if (letters != NULL) {
        m->dense_layers = 0;
        for (; *letters != '\0'; letters++)
            config_add_alone(m, *letters);
        return true;
    }
    if (!json_is_array(kinds))
        kinds = json_object_get(config, "layers_block_type");
    if (config_alone_kinds(kinds, m))
        return true;
    json_array_foreach(kinds, i, kind)
    {
        const char *name = json_is_string(kind) ? json_string_value(kind) : "";
        m->sliding_layers += strcmp(name, "sliding_attention") == 0;
        m->linear_layers += strcmp(name, "linear_attention") == 0 || strcmp(name, "conv") == 0 ||
                            strncmp(name, "mamba", 5) == 0;
    }
    if (json_is_array(kinds))
        return true;
    m->sliding_layers = config_flags(flags, true);
    m->linear_layers = (double)json_array_size(kda);
    return json_is_array(flags) || json_is_array(kda);
}

static void config_layer_kinds(const json_t *config, const char *type, struct plan_model *m)
{
    double window = m->sliding_window, every = CONFIG_NUMBER(config, "full_attention_interval");
    bool is_listed = config_listed_kinds(config, m);

    if (m->experts > 0 && json_is_array(json_object_get(config, "moe_layer_freq")))
        m->dense_layers = config_flags(json_object_get(config, "moe_layer_freq"), false);
    if (!is_listed && every > 1)
        m->linear_layers = m->layers - floor(m->layers / every);
    else if (!is_listed && window > 0) {
        double pattern = CONFIG_NUMBER(config, "sliding_window_pattern");
        bool is_off = json_is_false(json_object_get(config, "use_sliding_window"));
        bool is_half = strcmp(type, "gpt_oss") == 0 || strcmp(type, "gemma2") == 0;

        if (pattern > 1)
            m->sliding_layers = m->layers - floor(m->layers / pattern);
        else if (!is_off)
            m->sliding_layers = is_half ? floor(m->layers / 2) : m->layers;
    }
    if (strcmp(type, "falcon_h1") == 0) /* Mamba stands beside attention */
        m->linear_layers = m->attention_layers = m->layers;
    if (m->linear_layers > 0)
        config_linear(config, m);
}

static int config_read(const json_t *root, struct fault *fault, struct plan_model *m)
{
    const json_t *config = json_object_get(root, "text_config");
    if (!json_is_object(config))
        config = root;
    const char *type = json_string_value(json_object_get(config, "model_type"));
    if (type == NULL)
        type = "";

    config_fields(config, m);
    config_ffn(config, type, m);
    config_layer_kinds(config, type, m);
    const char *name = json_string_value(json_object_get(root, "_name_or_path"));
    const char *called = name != NULL && *name != '\0' ? name : *type != '\0' ? type : "config.json";
    str_copy(m->name, sizeof(m->name), called);
    str_copy(m->source, sizeof(m->source), "config.json");
    return plan_model_check(m, fault);
}

int plan_model_from_config(struct bytes text, struct fault *fault, struct plan_model *out)
{
    json_t *root;
    struct plan_model model = {0};
    int rc = api_json_load(text, fault, &root);

    if (rc != 0)
        return rc;
    rc = json_is_object(root) ? config_read(root, fault, &model)
                              : fault_set(fault, E_FORMAT, "not a JSON object");
    json_decref(root);
    if (rc == 0)
        *out = model;
    return rc;
}

static double header_number(const struct gguf *gguf, const char *arch, const char *key)
{
    char name[128];
    uint64_t value;
    double first;

    snprintf(name, sizeof(name), "%.60s.%s", arch, key);
    if (gguf_get_u64(gguf, name, NULL, &value) == 0)
        return (double)value;
    return gguf_array_f64(gguf, name, 0, &first) == 0 && first > 0 ? first : 0;
}

/* Two matrices: the first layer has one of the network's width and no gate, in no tensor. */
static double header_ffn_matrices(const struct gguf *gguf, double ffn)
{
    const struct gguf_tensor *up = gguf_tensor_find(gguf, "blk.0.ffn_up.weight");

    return up != NULL && (double)up->dims[1] == ffn && gguf_tensor_find(gguf, "blk.0.ffn_gate.weight") == NULL
               ? 2
               : 3;
}

static void header_fields(const struct gguf *gguf, const char *arch, struct plan_model *m)
{
    uint64_t n_vocab = 0;
    enum gguf_kind kind;

    m->layers = header_number(gguf, arch, "block_count");
    m->hidden = header_number(gguf, arch, "embedding_length");
    m->q_heads = header_number(gguf, arch, "attention.head_count");
    m->head_dim = header_number(gguf, arch, "attention.key_length");
    m->ffn = header_number(gguf, arch, "feed_forward_length");
    m->max_context = header_number(gguf, arch, "context_length");
    m->experts = header_number(gguf, arch, "expert_count");
    m->experts_per_token = header_number(gguf, arch, "expert_used_count");
    m->expert_ffn = header_number(gguf, arch, "expert_feed_forward_length");
    m->shared_experts = header_number(gguf, arch, "expert_shared_count");
    m->dense_layers = header_number(gguf, arch, "leading_dense_block_count");
    m->q_lora_rank = header_number(gguf, arch, "attention.q_lora_rank");
    m->kv_lora_rank = header_number(gguf, arch, "attention.kv_lora_rank");
    m->sliding_window = header_number(gguf, arch, "attention.sliding_window");
    m->vocab = header_number(gguf, arch, "vocab_size");
    if (gguf_array_len(gguf, "tokenizer.ggml.tokens", &kind, &n_vocab) == 0)
        m->vocab = (double)n_vocab;
    m->tied_embeddings = gguf_tensor_find(gguf, "output.weight") == NULL;
    m->ffn_matrices = header_ffn_matrices(gguf, m->ffn);
}

/* Layers with a window, in files that have a flag for each layer. */
static void header_flags(const struct gguf *gguf, const char *arch, double *out)
{
    char name[128];
    double n_local = 0;
    int64_t flag;
    uint64_t i = 0;

    snprintf(name, sizeof(name), "%.60s.attention.sliding_window_pattern", arch);
    for (; gguf_array_i64(gguf, name, i, &flag) == 0; i++)
        n_local += flag != 0;
    if (i > 0)
        *out = n_local;
}

/* Heads of keys: a number, or one for each layer, where layers with a window may have more.  Returns the layers
 * that have none. */
static double header_kv_heads(const struct gguf *gguf, const char *arch, struct plan_model *m)
{
    char heads[128], flags[128];
    double n_without = 0;
    int64_t n, flag;

    snprintf(heads, sizeof(heads), "%.60s.attention.head_count_kv", arch);
    snprintf(flags, sizeof(flags), "%.60s.attention.sliding_window_pattern", arch);
    for (uint64_t i = 0; gguf_array_i64(gguf, heads, i, &n) == 0; i++) {
        double *at =
            gguf_array_i64(gguf, flags, i, &flag) == 0 && flag != 0 ? &m->sliding_kv_heads : &m->kv_heads;

        n_without += n == 0;
        if (n > 0 && *at == 0)
            *at = (double)n;
    }
    if (m->kv_heads == 0)
        m->kv_heads = header_number(gguf, arch, "attention.head_count_kv");
    return n_without;
}

static bool header_has_mamba(const char *arch)
{
    return strcmp(arch, "granitehybrid") == 0 || strncmp(arch, "nemotron_h", 10) == 0 ||
           strcmp(arch, "falcon-h1") == 0 || strcmp(arch, "mamba2") == 0;
}

/* Layers whose network has a width, if the file has a list of widths. */
static double header_ffn_layers(const struct gguf *gguf, const char *arch, struct plan_model *m)
{
    char name[128];
    double n_layers = 0;
    int64_t width;

    snprintf(name, sizeof(name), "%.60s.feed_forward_length", arch);
    for (uint64_t i = 0; gguf_array_i64(gguf, name, i, &width) == 0; i++) {
        n_layers += width > 0;
        m->ffn = fmax(m->ffn, (double)width);
    }
    return n_layers;
}

/* In Nemotron H a layer has Mamba, attention or a network alone; in Falcon H1 Mamba stands beside attention. */
static void header_mamba(const struct gguf *gguf, const char *arch, double n_without, struct plan_model *m)
{
    const struct mamba mamba = {.heads = header_number(gguf, arch, "ssm.time_step_rank"),
                                .inner = header_number(gguf, arch, "ssm.inner_size"),
                                .state = header_number(gguf, arch, "ssm.state_size"),
                                .groups = header_number(gguf, arch, "ssm.group_count"),
                                .taps = header_number(gguf, arch, "ssm.conv_kernel")};

    m->linear_layers = n_without;
    if (strncmp(arch, "nemotron_h", 10) == 0) {
        m->ffn_layers = header_ffn_layers(gguf, arch, m);
        m->attention_layers = m->layers - n_without;
        m->linear_layers = n_without - m->ffn_layers;
        m->ffn_matrices = 2;
    } else if (strcmp(arch, "granitehybrid") != 0) {
        m->linear_layers = m->layers;
        m->attention_layers = strcmp(arch, "falcon-h1") == 0 ? m->layers : 0;
    }
    linear_mamba(m, &mamba);
}

/* Layers with a state. */
static void header_linear(const struct gguf *gguf, const char *arch, double n_without, struct plan_model *m)
{
    double kda = header_number(gguf, arch, "kda.head_dim"),
           taps = header_number(gguf, arch, "ssm.conv_kernel");
    double conv = header_number(gguf, arch, "shortconv.l_cache");
    double every = header_number(gguf, arch, "full_attention_interval");
    double value_heads = header_number(gguf, arch, "ssm.time_step_rank");

    if (kda > 0) {
        m->linear_layers = n_without;
        linear_kda(m, m->q_heads, kda, taps);
    } else if (conv > 0) {
        m->linear_layers = n_without;
        linear_conv(m, conv);
    } else if (header_has_mamba(arch)) {
        header_mamba(gguf, arch, n_without, m);
    } else if ((strncmp(arch, "qwen35", 6) == 0 || strcmp(arch, "qwen3next") == 0) && value_heads > 0) {
        m->linear_layers = m->layers - floor(m->layers / (every > 0 ? every : 4));
        linear_delta(
            m, &(struct delta_net){.key_heads = header_number(gguf, arch, "ssm.group_count"),
                                   .value_heads = value_heads,
                                   .key_dim = header_number(gguf, arch, "ssm.state_size"),
                                   .value_dim = header_number(gguf, arch, "ssm.inner_size") / value_heads,
                                   .taps = taps});
    }
}

static void header_kinds(const struct gguf *gguf, const char *arch, struct plan_model *m)
{
    if (m->kv_lora_rank > 0) {
        double rope = header_number(gguf, arch, "rope.dimension_count");
        double key = header_number(gguf, arch, "attention.key_length_mla");
        double value = header_number(gguf, arch, "attention.value_length_mla");

        if (key == 0) { /* files before the split keys and values */
            key = header_number(gguf, arch, "attention.key_length");
            value = header_number(gguf, arch, "attention.value_length");
        }
        m->qk_rope_head_dim = rope;
        m->qk_nope_head_dim = key > rope ? key - rope : 0;
        m->v_head_dim = value;
        m->attention_bits = 8;
        return;
    }
    m->v_head_dim = header_number(gguf, arch, "attention.value_length");
    if (m->sliding_window > 0) {
        bool is_half = strcmp(arch, "gpt-oss") == 0 || strcmp(arch, "gemma2") == 0;
        double pattern = header_number(gguf, arch, "attention.sliding_window_pattern");

        if (strcmp(arch, "gemma3") == 0)
            pattern = 6;
        if (strcmp(arch, "afmoe") == 0 || strcmp(arch, "cohere2") == 0)
            pattern = 4;
        m->sliding_layers =
            is_half ? floor(m->layers / 2) : m->layers - (pattern > 1 ? floor(m->layers / pattern) : 0);
        header_flags(gguf, arch, &m->sliding_layers);
    }
    if (strcmp(arch, "gpt-oss") == 0)
        m->attention_bits = 16;
}

int plan_model_from_gguf(const char *path, struct fault *fault, struct plan_model *out)
{
    struct gguf *gguf;
    struct bytes text;
    char arch[64] = "";
    struct plan_model model = {0};
    int rc = gguf_open(path, fault, &gguf);

    if (rc != 0)
        return rc;
    if (gguf_get_str(gguf, "general.architecture", fault, &text) == 0 && text.len_bytes < sizeof(arch))
        memcpy(arch, text.data, text.len_bytes);
    header_fields(gguf, arch, &model);
    header_linear(gguf, arch, header_kv_heads(gguf, arch, &model), &model);
    header_kinds(gguf, arch, &model);
    if (gguf_get_str(gguf, "general.name", NULL, &text) == 0 && text.len_bytes > 0)
        snprintf(model.name, sizeof(model.name), "%.*s", (int)(text.len_bytes < 90 ? text.len_bytes : 90),
                 (const char *)text.data);
    else
        str_copy(model.name, sizeof(model.name), "GGUF");
    str_copy(model.source, sizeof(model.source), "GGUF metadata");
    gguf_close(gguf);
    rc = plan_model_check(&model, fault);
    if (rc == 0)
        *out = model;
    return rc;
}
