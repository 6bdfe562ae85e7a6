/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata of a made-up model: the keys of its dimensions, the architecture's further keys, and the
 * changes of the command line.
 *
 * An architecture's defaults are those of a small model of its family, scaled to the context.  They suffice
 * for the loader, with windows and scalings that have an effect. */
#include "clients/model/make_priv.h"

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct own_key {
    const char *arch;
    const char *suffix;
    const char *value; /* as for --set */
};

static const struct own_key OWN_KEYS[] = {
    {"qwen2", "rope.freq_base", "1000000.0"},
    {"qwen3", "rope.freq_base", "1000000.0"},
    {"qwen2vl", "rope.freq_base", "1000000.0"},
    {"qwen3vl", "rope.freq_base", "5000000.0"},
    {"exaone", "rope.freq_base", "500000.0"},
    {"nemotron", "attention.layer_norm_epsilon", "1e-5"},
    {"olmo", "attention.layer_norm_epsilon", "1e-5"},
    {"gptneox", "attention.layer_norm_epsilon", "1e-5"},
    {"gptneox", "use_parallel_residual", "true"},
    {"apertus", "rope.freq_base", "12000000.0"},
    {"apertus", "xielu.alpha_p", "0.2"},
    {"apertus", "xielu.alpha_n", "-1.05"},
    {"apertus", "xielu.beta", "0.5"},
    {"apertus", "xielu.eps", "-1e-6"},
    {"phimoe", "expert_count", "16"},
    {"phimoe", "expert_used_count", "2"},
    {"phimoe", "expert_feed_forward_length", "6400"},
    {"afmoe", "attention.sliding_window", "2048"},
    {"afmoe", "leading_dense_block_count", "1"},
    {"afmoe", "expert_count", "128"},
    {"afmoe", "expert_used_count", "8"},
    {"afmoe", "expert_shared_count", "1"},
    {"afmoe", "expert_feed_forward_length", "1024"},
    {"afmoe", "expert_weights_scale", "2.826"},
    {"bailingmoe", "rope.freq_base", "600000.0"},
    {"bailingmoe", "expert_count", "64"},
    {"bailingmoe", "expert_used_count", "6"},
    {"bailingmoe", "expert_shared_count", "2"},
    {"bailingmoe", "expert_feed_forward_length", "1408"},
    {"bailingmoe", "expert_weights_norm", "true"},
    {"mimo2", "rope.freq_base", "5000000.0"},
    {"mimo2", "rope.freq_base_swa", "10000.0"},
    {"mimo2", "attention.sliding_window", "128"},
    {"mimo2", "attention.value_scale", "0.707"},
    {"mimo2", "leading_dense_block_count", "1"},
    {"mimo2", "expert_count", "256"},
    {"mimo2", "expert_used_count", "8"},
    {"mimo2", "expert_feed_forward_length", "2048"},
    {"step35", "rope.freq_base", "5000000.0"},
    {"step35", "rope.freq_base_swa", "10000.0"},
    {"step35", "attention.sliding_window", "512"},
    {"step35", "leading_dense_block_count", "1"},
    {"step35", "expert_count", "288"},
    {"step35", "expert_used_count", "8"},
    {"step35", "expert_feed_forward_length", "1280"},
    {"step35", "expert_shared_feed_forward_length", "1280"},
    {"step35", "expert_weights_scale", "3.0"},
    {"cohere2moe", "rope.freq_base", "50000.0"},
    {"cohere2moe", "attention.sliding_window", "4096"},
    {"cohere2moe", "logit_scale", "0.25"},
    {"cohere2moe", "leading_dense_block_count", "1"},
    {"cohere2moe", "expert_count", "128"},
    {"cohere2moe", "expert_used_count", "8"},
    {"cohere2moe", "expert_shared_count", "1"},
    {"cohere2moe", "expert_feed_forward_length", "1024"},
    {"cohere2moe", "expert_weights_norm", "true"},
    {"stablelm", "attention.layer_norm_epsilon", "1e-5"},
    {"gemma2", "attention.sliding_window", "4096"},
    {"gemma2", "attn_logit_softcapping", "50.0"},
    {"gemma2", "final_logit_softcapping", "30.0"},
    {"gemma3", "rope.freq_base", "1000000.0"},
    {"gemma3", "attention.sliding_window", "1024"},
    {"gemma3n", "rope.freq_base", "1000000.0"},
    {"gemma3n", "attention.sliding_window", "512"},
    {"gemma3n", "final_logit_softcapping", "30.0"},
    {"gemma3n", "embedding_length_per_layer_input", "256"},
    {"gemma4", "rope.freq_base", "1000000.0"},
    {"gemma4", "attention.sliding_window", "1024"},
    {"gemma4", "final_logit_softcapping", "30.0"},
    {"granite", "embedding_scale", "12.0"},
    {"granite", "residual_scale", "0.22"},
    {"granite", "attention.scale", "0.015625"},
    {"granite", "logit_scale", "8.0"},
    {"olmo2", "rope.freq_base", "500000.0"},
    {"smollm3", "rope.freq_base", "5000000.0"},
    {"qwen3moe", "rope.freq_base", "1000000.0"},
    {"qwen3moe", "expert_count", "64"},
    {"qwen3moe", "expert_used_count", "8"},
    {"qwen3moe", "expert_feed_forward_length", "768"},
    {"qwen3vlmoe", "rope.freq_base", "5000000.0"},
    {"qwen3vlmoe", "expert_count", "64"},
    {"qwen3vlmoe", "expert_used_count", "8"},
    {"qwen3vlmoe", "expert_feed_forward_length", "768"},
    {"dots1", "rope.freq_base", "10000000.0"},
    {"dots1", "leading_dense_block_count", "1"},
    {"dots1", "expert_count", "128"},
    {"dots1", "expert_used_count", "6"},
    {"dots1", "expert_shared_count", "2"},
    {"dots1", "expert_feed_forward_length", "1408"},
    {"hy_v3", "rope.freq_base", "11158840.0"},
    {"hy_v3", "leading_dense_block_count", "1"},
    {"hy_v3", "expert_count", "192"},
    {"hy_v3", "expert_used_count", "8"},
    {"hy_v3", "expert_shared_count", "1"},
    {"hy_v3", "expert_feed_forward_length", "1536"},
    {"hy_v3", "expert_weights_scale", "2.826"},
    {"exaone-moe", "rope.freq_base", "1000000.0"},
    {"exaone-moe", "attention.sliding_window", "128"},
    {"exaone-moe", "leading_dense_block_count", "1"},
    {"exaone-moe", "expert_count", "128"},
    {"exaone-moe", "expert_used_count", "8"},
    {"exaone-moe", "expert_shared_count", "1"},
    {"exaone-moe", "expert_feed_forward_length", "2048"},
    {"qwen2moe", "expert_count", "60"},
    {"qwen2moe", "expert_used_count", "4"},
    {"qwen2moe", "expert_feed_forward_length", "1408"},
    {"qwen2moe", "expert_shared_feed_forward_length", "5632"},
    {"olmoe", "expert_count", "64"},
    {"olmoe", "expert_used_count", "8"},
    {"olmoe", "expert_feed_forward_length", "1024"},
    {"granitemoe", "expert_count", "64"},
    {"granitemoe", "expert_used_count", "8"},
    {"granitemoe", "expert_feed_forward_length", "1024"},
    {"minimax-m2", "expert_count", "64"},
    {"minimax-m2", "expert_used_count", "8"},
    {"minimax-m2", "expert_feed_forward_length", "1024"},
    {"hunyuan-moe", "expert_count", "64"},
    {"hunyuan-moe", "expert_used_count", "8"},
    {"hunyuan-moe", "expert_feed_forward_length", "1024"},
    {"hunyuan-moe", "expert_shared_feed_forward_length", "3072"},
    {"glm4moe", "leading_dense_block_count", "1"},
    {"glm4moe", "expert_count", "128"},
    {"glm4moe", "expert_used_count", "8"},
    {"glm4moe", "expert_shared_count", "1"},
    {"glm4moe", "expert_feed_forward_length", "1408"},
    {"bailingmoe2", "leading_dense_block_count", "1"},
    {"bailingmoe2", "expert_count", "256"},
    {"bailingmoe2", "expert_used_count", "8"},
    {"bailingmoe2", "expert_shared_count", "1"},
    {"bailingmoe2", "expert_feed_forward_length", "512"},
    {"bailingmoe2", "expert_gating_func", "2"},
    {"ernie4_5-moe", "rope.freq_base", "500000.0"},
    {"ernie4_5-moe", "leading_dense_block_count", "1"},
    {"ernie4_5-moe", "expert_count", "64"},
    {"ernie4_5-moe", "expert_used_count", "6"},
    {"ernie4_5-moe", "expert_shared_count", "2"},
    {"ernie4_5-moe", "expert_feed_forward_length", "1536"},
    {"mistral3", "rope.freq_base", "1000000.0"},
    {"mistral3", "rope.scaling.type", "yarn"},
    {"mistral3", "rope.scaling.factor", "16.0"},
    {"mistral3", "rope.scaling.original_context_length", "16384"},
    {"mistral3", "rope.scaling.yarn_log_multiplier", "1.0"},
    {"mistral3", "attention.temperature_scale", "0.1"},
    {"llama4", "rope.freq_base", "500000.0"},
    {"llama4", "interleave_moe_layer_step", "1"},
    {"llama4", "expert_count", "16"},
    {"llama4", "expert_used_count", "1"},
    {"llama4", "expert_feed_forward_length", "1024"},
    {"starcoder2", "attention.layer_norm_epsilon", "1e-5"},
    {"phi2", "attention.layer_norm_epsilon", "1e-5"},
    {"gpt2", "attention.layer_norm_epsilon", "1e-5"},
    {"falcon", "attention.layer_norm_epsilon", "1e-5"},
    {"command-r", "attention.layer_norm_epsilon", "1e-5"},
    {"command-r", "logit_scale", "0.0625"},
    {"cohere2", "attention.layer_norm_epsilon", "1e-5"},
    {"cohere2", "attention.sliding_window", "4096"},
    {"cohere2", "logit_scale", "0.25"},
    {"lfm2", "rope.freq_base", "1000000.0"},
    {"lfm2", "shortconv.l_cache", "3"},
    {"lfm2moe", "rope.freq_base", "1000000.0"},
    {"lfm2moe", "shortconv.l_cache", "3"},
    {"lfm2moe", "leading_dense_block_count", "2"},
    {"lfm2moe", "expert_count", "32"},
    {"lfm2moe", "expert_used_count", "4"},
    {"lfm2moe", "expert_feed_forward_length", "1792"},
    {"granitehybrid", "embedding_scale", "12.0"},
    {"granitehybrid", "residual_scale", "0.22"},
    {"granitehybrid", "attention.scale", "0.015625"},
    {"granitehybrid", "logit_scale", "8.0"},
    {"granitehybrid", "rope.scaling.finetuned", "false"},
    {"granitehybrid", "ssm.conv_kernel", "4"},
    {"granitehybrid", "ssm.inner_size", "3072"},
    {"granitehybrid", "ssm.state_size", "128"},
    {"granitehybrid", "ssm.time_step_rank", "48"},
    {"granitehybrid", "ssm.group_count", "1"},
    {"nemotron_h", "ssm.conv_kernel", "4"},
    {"nemotron_h", "ssm.inner_size", "2048"},
    {"nemotron_h", "ssm.state_size", "128"},
    {"nemotron_h", "ssm.time_step_rank", "32"},
    {"nemotron_h", "ssm.group_count", "8"},
    {"nemotron_h_moe", "ssm.conv_kernel", "4"},
    {"nemotron_h_moe", "ssm.inner_size", "4096"},
    {"nemotron_h_moe", "ssm.state_size", "128"},
    {"nemotron_h_moe", "ssm.time_step_rank", "64"},
    {"nemotron_h_moe", "ssm.group_count", "8"},
    {"nemotron_h_moe", "expert_count", "128"},
    {"nemotron_h_moe", "expert_used_count", "6"},
    {"nemotron_h_moe", "expert_feed_forward_length", "1856"},
    {"nemotron_h_moe", "expert_shared_feed_forward_length", "3712"},
    {"nemotron_h_moe", "expert_weights_scale", "2.5"},
    {"falcon-h1", "rope.freq_base", "100000000000.0"},
    {"falcon-h1", "ssm.conv_kernel", "4"},
    {"falcon-h1", "ssm.inner_size", "1536"},
    {"falcon-h1", "ssm.state_size", "128"},
    {"falcon-h1", "ssm.time_step_rank", "24"},
    {"falcon-h1", "ssm.group_count", "1"},
    {"mamba2", "ssm.conv_kernel", "4"},
    {"mamba2", "ssm.inner_size", "1536"},
    {"mamba2", "ssm.state_size", "128"},
    {"mamba2", "ssm.time_step_rank", "24"},
    {"mamba2", "ssm.group_count", "1"},
    {"qwen35", "rope.freq_base", "10000000.0"},
    {"qwen35", "ssm.conv_kernel", "4"},
    {"qwen35", "ssm.inner_size", "2048"},
    {"qwen35", "ssm.state_size", "128"},
    {"qwen35", "ssm.time_step_rank", "16"},
    {"qwen35", "ssm.group_count", "16"},
    {"qwen35", "full_attention_interval", "4"},
    {"qwen35moe", "rope.freq_base", "10000000.0"},
    {"qwen35moe", "ssm.conv_kernel", "4"},
    {"qwen35moe", "ssm.inner_size", "2048"},
    {"qwen35moe", "ssm.state_size", "128"},
    {"qwen35moe", "ssm.time_step_rank", "16"},
    {"qwen35moe", "ssm.group_count", "16"},
    {"qwen35moe", "full_attention_interval", "4"},
    {"qwen35moe", "expert_count", "64"},
    {"qwen35moe", "expert_used_count", "8"},
    {"qwen35moe", "expert_feed_forward_length", "512"},
    {"qwen35moe", "expert_shared_feed_forward_length", "512"},
    {"qwen3next", "rope.freq_base", "10000000.0"},
    {"qwen3next", "ssm.conv_kernel", "4"},
    {"qwen3next", "ssm.inner_size", "2048"},
    {"qwen3next", "ssm.state_size", "128"},
    {"qwen3next", "ssm.time_step_rank", "16"},
    {"qwen3next", "ssm.group_count", "16"},
    {"qwen3next", "full_attention_interval", "4"},
    {"qwen3next", "expert_count", "64"},
    {"qwen3next", "expert_used_count", "8"},
    {"qwen3next", "expert_feed_forward_length", "512"},
    {"qwen3next", "expert_shared_feed_forward_length", "512"},
    {"gpt-oss", "rope.freq_base", "150000.0"},
    {"gpt-oss", "attention.sliding_window", "128"},
    {"gpt-oss", "expert_count", "32"},
    {"gpt-oss", "expert_used_count", "4"},
    {"gpt-oss", "expert_feed_forward_length", "2880"},
    {"kimi-linear", "attention.kv_lora_rank", "512"},
    {"kimi-linear", "attention.key_length_mla", "192"},
    {"kimi-linear", "attention.value_length_mla", "128"},
    {"kimi-linear", "rope.dimension_count", "64"},
    {"kimi-linear", "kda.head_dim", "128"},
    {"kimi-linear", "ssm.conv_kernel", "4"},
    {"kimi-linear", "leading_dense_block_count", "1"},
    {"kimi-linear", "expert_count", "256"},
    {"kimi-linear", "expert_used_count", "8"},
    {"kimi-linear", "expert_shared_count", "1"},
    {"kimi-linear", "expert_feed_forward_length", "1024"},
    {"kimi-linear", "expert_weights_scale", "2.446"},
    {"deepseek2", "attention.kv_lora_rank", "512"},
    {"deepseek2", "attention.key_length", "192"},
    {"deepseek2", "attention.value_length", "128"},
    {"deepseek2", "rope.dimension_count", "64"},
    {"deepseek2", "leading_dense_block_count", "1"},
    {"deepseek2", "expert_count", "64"},
    {"deepseek2", "expert_used_count", "6"},
    {"deepseek2", "expert_shared_count", "2"},
    {"deepseek2", "expert_feed_forward_length", "1408"},
    {"deepseek32", "attention.q_lora_rank", "1536"},
    {"deepseek32", "attention.kv_lora_rank", "512"},
    {"deepseek32", "attention.key_length", "192"},
    {"deepseek32", "attention.value_length", "128"},
    {"deepseek32", "attention.indexer.head_count", "64"},
    {"deepseek32", "attention.indexer.key_length", "128"},
    {"deepseek32", "attention.indexer.top_k", "2048"},
    {"deepseek32", "rope.dimension_count", "64"},
    {"deepseek32", "leading_dense_block_count", "1"},
    {"deepseek32", "expert_count", "64"},
    {"deepseek32", "expert_used_count", "8"},
    {"deepseek32", "expert_shared_count", "1"},
    {"deepseek32", "expert_feed_forward_length", "2048"},
    {"deepseek32", "expert_gating_func", "2"},
    {"glm-dsa", "attention.q_lora_rank", "1536"},
    {"glm-dsa", "attention.kv_lora_rank", "512"},
    {"glm-dsa", "attention.key_length", "192"},
    {"glm-dsa", "attention.value_length", "128"},
    {"glm-dsa", "attention.indexer.head_count", "32"},
    {"glm-dsa", "attention.indexer.key_length", "128"},
    {"glm-dsa", "attention.indexer.top_k", "2048"},
    {"glm-dsa", "rope.dimension_count", "64"},
    {"glm-dsa", "leading_dense_block_count", "1"},
    {"glm-dsa", "expert_count", "64"},
    {"glm-dsa", "expert_used_count", "8"},
    {"glm-dsa", "expert_shared_count", "1"},
    {"glm-dsa", "expert_feed_forward_length", "2048"},
    {"glm-dsa", "expert_gating_func", "2"},
};

/* Numbers with commas between them, one with a point at least. */
static int put_fractions(struct gguf_writer *writer, const char *key, const char *value)
{
    float list[4096];
    uint32_t n = 0;

    for (const char *at = value; n < ARRAY_LEN(list); n++, at++) {
        char *end;

        list[n] = strtof(at, &end);
        if (end == at || (*end != ',' && *end != '\0'))
            return E_INVAL;
        at = end;
        if (*end == '\0')
            return gguf_put_f32_array(writer, key, list, n + 1);
    }
    return E_LIMIT;
}

/* Whole numbers with commas between them. */
static int put_list(struct gguf_writer *writer, const char *key, const char *value)
{
    int32_t list[4096];
    uint32_t n = 0;

    for (const char *at = value; n < ARRAY_LEN(list); n++, at++) {
        char *end;
        long number = strtol(at, &end, 10);

        if (end == at || number < 0 || number > INT32_MAX || (*end != ',' && *end != '\0'))
            return E_INVAL;
        list[n] = (int32_t)number;
        at = end;
        if (*end == '\0')
            return gguf_put_i32_array(writer, key, list, n + 1);
    }
    return E_LIMIT;
}

/* Digits alone are an unsigned number, digits with commas a list, true and false flags, other numbers floats, anything else text. */
static int make_keys_put_value(struct gguf_writer *writer, const char *key, const char *value)
{
    uint64_t whole;
    char *end;
    float number;

    if (str_to_u64(bytes_str(value), &whole) == 0 && whole <= UINT32_MAX)
        return gguf_put_u32(writer, key, (uint32_t)whole);
    if (strchr(value, ',') != NULL && strspn(value, "0123456789,") == strlen(value))
        return put_list(writer, key, value);
    if (strchr(value, ',') != NULL && strspn(value, "0123456789,.-") == strlen(value))
        return put_fractions(writer, key, value);
    if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)
        return gguf_put_bool(writer, key, value[0] == 't');
    number = strtof(value, &end);
    if (end != value && *end == '\0')
        return gguf_put_f32(writer, key, number);
    return gguf_put_str(writer, key, bytes_str(value));
}

static int put_own(struct gguf_writer *writer, const char *arch, const char *suffix, const char *value)
{
    char key[128];

    snprintf(key, sizeof(key), "%s.%s", arch, suffix);
    return make_keys_put_value(writer, key, value);
}

static int put_set(struct gguf_writer *writer, const char *arch, const char *text, struct fault *fault)
{
    const char *equals = strchr(text, '=');
    char suffix[96];
    int rc;

    if (equals == NULL || equals == text || (size_t)(equals - text) >= sizeof(suffix))
        return fault_set(fault, E_INVAL, "--set wants KEY=VALUE, not \"%s\"", text);
    memcpy(suffix, text, (size_t)(equals - text));
    suffix[equals - text] = '\0';
    rc = put_own(writer, arch, suffix, equals + 1);
    return rc < 0 ? fault_set(fault, rc, "--set %s: %s", text, err_text(rc)) : 0;
}

static int put_count(struct gguf_writer *writer, const char *arch, const char *suffix, uint32_t value)
{
    char key[128];
    int rc;

    snprintf(key, sizeof(key), "%s.%s", arch, suffix);
    rc = gguf_put_u32(writer, key, value);
    return rc == E_EXISTS ? 0 : rc;
}

/* A value for the layers whose index is `at` modulo 4, and 0 for the others. */
static int put_fourths(struct gguf_writer *writer, const struct make_shape *shape, const char *suffix,
                       uint32_t at, uint32_t value)
{
    int32_t *list = calloc(shape->n_layers, sizeof(*list));
    char key[128];
    int rc;

    if (list == NULL)
        return E_NOMEM;
    for (uint32_t i = at; i < shape->n_layers; i += 4)
        list[i] = (int32_t)value;
    snprintf(key, sizeof(key), "%s.%s", shape->arch, suffix);
    rc = gguf_put_i32_array(writer, key, list, shape->n_layers);
    free(list);
    return rc == E_EXISTS ? 0 : rc;
}

/* A flag for each layer: the first of each four has no window. */
static int put_windows(struct gguf_writer *writer, const struct make_shape *shape)
{
    int32_t *flags = calloc(shape->n_layers, sizeof(*flags));
    char key[128];
    int rc;

    if (flags == NULL)
        return E_NOMEM;
    for (uint32_t i = 0; i < shape->n_layers; i++)
        flags[i] = i % 4 != 0;
    snprintf(key, sizeof(key), "%s.attention.sliding_window_pattern", shape->arch);
    rc = gguf_put_i32_array(writer, key, flags, shape->n_layers);
    free(flags);
    return rc == E_EXISTS ? 0 : rc;
}

/* nemotron_h: two state layers, then one with attention and one with a feed-forward network. */
static int put_layer_kinds(struct gguf_writer *writer, const struct make_shape *shape)
{
    int rc;

    if (strcmp(shape->arch, "mimo2") == 0 || strcmp(shape->arch, "step35") == 0)
        return put_windows(writer, shape);
    if (strncmp(shape->arch, "nemotron_h", 10) != 0)
        return 0;
    rc = put_fourths(writer, shape, "attention.head_count_kv", 2, shape->n_kv_heads);
    return rc == 0 ? put_fourths(writer, shape, "feed_forward_length", 3, shape->ffn) : rc;
}

static int put_shape(struct gguf_writer *writer, const struct make_shape *shape)
{
    const struct {
        const char *suffix;
        uint32_t value;
    } keys[] = {
        {"block_count", shape->n_layers},          {"context_length", shape->context},
        {"embedding_length", shape->hidden},       {"feed_forward_length", shape->ffn},
        {"attention.head_count", shape->n_heads},  {"attention.head_count_kv", shape->n_kv_heads},
        {"attention.key_length", shape->head_dim}, {"attention.value_length", shape->head_dim},
        {"rope.dimension_count", shape->head_dim}, {"vocab_size", shape->vocab},
    };
    char name[96];
    int rc = gguf_put_str(writer, "general.architecture", bytes_str(shape->arch));

    snprintf(name, sizeof(name), "random-%s-%ux%u", shape->arch, shape->n_layers, shape->hidden);
    if (rc == 0)
        rc = gguf_put_str(writer, "general.name", bytes_str(name));
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(OWN_KEYS); i++)
        if (strcmp(OWN_KEYS[i].arch, shape->arch) == 0) {
            rc = put_own(writer, shape->arch, OWN_KEYS[i].suffix, OWN_KEYS[i].value);
            rc = rc == E_EXISTS ? 0 : rc;
        }
    if (rc == 0)
        rc = put_layer_kinds(writer, shape);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(keys); i++)
        rc = put_count(writer, shape->arch, keys[i].suffix, keys[i].value);
    if (rc == 0)
        rc = put_own(writer, shape->arch, "attention.layer_norm_rms_epsilon", "1e-5");
    return rc == E_EXISTS ? 0 : rc;
}

int make_keys(struct gguf_writer *writer, const struct make_shape *shape, const char *const *set,
              struct fault *fault)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && set[i]; i++)
        rc = put_set(writer, shape->arch, set[i], fault);
    if (rc < 0)
        return rc;
    rc = put_shape(writer, shape);
    return rc < 0 ? fault_set(fault, rc, "%s", err_text(rc)) : 0;
}
