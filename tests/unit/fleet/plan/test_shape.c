/* SPDX-License-Identifier: Apache-2.0 */
/* Model shapes and their counts, from tables, config.json, GGUF and command lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <math.h>

#include "base/err.h"
#include "fleet/plan/builtin.h"
#include "gguf/write.h"

static struct plan_books books;

static struct plan_model model(const char *name)
{
    struct plan_model found = {0};
    struct fault fault = {0};

    if (plan_models_find(&books.models, name, &fault, &found) != 0)
        fail_msg("%s", fault.text);
    return found;
}

static struct plan_model config(const char *text)
{
    struct plan_model found = {0};
    struct fault fault = {0};

    if (plan_model_from_config(bytes_str(text), &fault, &found) != 0)
        fail_msg("%s", fault.text);
    return found;
}

/* Published parameter counts and bytes of KV (BF16). */
static void counts_are_exact(void **state)
{
    static const struct {
        const char *name;
        double params, active, kv_bytes;
    } KNOWN[] = {
        {"Qwen3-0.6B", 595984384, 595984384, 114688},
        {"meta-llama/Llama-3.1-8B-Instruct", 8029995008, 7504658432, 131072},
        {"Llama-3-70B", 70552387584, 69501714432, 327680},
        {"Llama-3.1-405B", 405849243648, 403747897344, 516096},
        {"Qwen3-32B", 32761446400, 31983534080, 262144},
        {"OPT-13B", 12840304640, 12840304640, 819200},
        {"BLOOM-176B", 176234168320, 176234168320, 4014080},
        {"Mixtral-8x7B", 46702526464, 12748587008, 131072},
        {"Qwen3-235B-A22B-FP8", 235092836352, 21567635456, 192512},
        {"openai/gpt-oss-120b", 116788838400, 5131100160, 73728},
        {"MiniMaxAI/MiniMax-M2.5", 228688920576, 10415112192, 253952},
        {"deepseek-ai/DeepSeek-R1", 671025397760, 36624596992, 70272},
        {"moonshotai/Kimi-K2.5", 1026407202816, 31686066176, 70272},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); i++) {
        struct plan_model m = model(KNOWN[i].name);

        assert_true(plan_model_params(&m) == KNOWN[i].params);
        assert_true(plan_model_active_params(&m) == KNOWN[i].active);
        assert_true(2 * plan_model_kv_elements(&m) == KNOWN[i].kv_bytes);
    }
}

static void long_contexts_have_known_sizes(void **state)
{
    struct plan_model llama = model("Llama-3-70B"), deepseek = model("DeepSeek-V3"),
                      oss = model("gpt-oss-120b");

    (void)state;
    assert_true(fabs(2 * plan_model_kv_elements_at(&llama, 131072) - 42.9e9) < 0.1e9);
    assert_true(fabs(2 * plan_model_kv_elements_at(&deepseek, 131072) - 9.2e9) < 0.05e9);
    /* Half of the layers keep 128 tokens only. */
    assert_true(2 * plan_model_kv_elements_at(&oss, 10128) == 36864.0 * (10128 + 128));
}

static void config_json_of_families(void **state)
{
    (void)state;
    struct plan_model llama =
        config("{\"model_type\":\"llama\",\"num_hidden_layers\":80,\"hidden_size\":8192,"
               "\"num_attention_heads\":64,\"num_key_value_heads\":8,"
               "\"intermediate_size\":28672,\"vocab_size\":128256}");
    struct plan_model mixtral = config(
        "{\"model_type\":\"mixtral\",\"num_hidden_layers\":32,\"hidden_size\":4096,\"num_attention_heads\":"
        "32,"
        "\"num_key_value_heads\":8,\"intermediate_size\":14336,\"vocab_size\":32000,\"num_local_experts\":8,"
        "\"num_experts_per_tok\":2,\"sliding_window\":null}");
    struct plan_model deepseek =
        config("{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":61,\"hidden_size\":7168,\"num_"
               "attention_heads\":128,"
               "\"num_key_value_heads\":128,\"intermediate_size\":18432,\"moe_intermediate_size\":2048,"
               "\"vocab_size\":129280,"
               "\"n_routed_experts\":256,\"num_experts_per_tok\":8,\"n_shared_experts\":1,\"first_k_dense_"
               "replace\":3,"
               "\"q_lora_rank\":1536,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,"
               "\"v_head_dim\":128}");
    struct plan_model oss =
        config("{\"model_type\":\"gpt_oss\",\"num_hidden_layers\":36,\"hidden_size\":2880,\"num_attention_"
               "heads\":64,"
               "\"num_key_value_heads\":8,\"head_dim\":64,\"intermediate_size\":2880,\"vocab_size\":201088,"
               "\"num_local_experts\":128,\"num_experts_per_tok\":4,\"sliding_window\":128}");

    struct plan_model trinity = config(
        "{\"model_type\":\"afmoe\",\"num_hidden_layers\":32,\"hidden_size\":2048,\"num_attention_heads\":32,"
        "\"num_key_value_heads\":4,\"head_dim\":128,\"intermediate_size\":6144,\"vocab_size\":200192,"
        "\"num_experts\":128,\"num_experts_per_tok\":8,\"num_shared_experts\":1,\"num_dense_layers\":2,"
        "\"moe_intermediate_size\":1024,\"tie_word_embeddings\":false}");

    assert_true(trinity.shared_experts == 1 && trinity.dense_layers == 2);
    assert_true(fabs(plan_model_params(&trinity) / 26e9 - 1) < 0.02);
    assert_true(plan_model_params(&llama) == 70552387584);
    assert_true(plan_model_params(&mixtral) == 46702526464);
    assert_true(mixtral.sliding_layers == 0);
    assert_true(plan_model_params(&deepseek) == 671025397760);
    assert_true(plan_model_is_mla(&deepseek));
    assert_true(plan_model_params(&oss) == 116788838400 && oss.sliding_layers == 18 &&
                oss.attention_bits == 16);
}

static void networks_without_gates_have_two_matrices(void **state)
{
    (void)state;
    struct plan_model arcee = config(
        "{\"model_type\":\"arcee\",\"num_hidden_layers\":36,\"hidden_size\":2560,\"num_attention_heads\":20,"
        "\"num_key_value_heads\":4,\"head_dim\":128,\"intermediate_size\":18432,\"vocab_size\":128004,"
        "\"hidden_act\":\"relu2\",\"tie_word_embeddings\":false}");
    struct plan_model starcoder =
        config("{\"model_type\":\"starcoder2\",\"num_hidden_layers\":30,\"hidden_size\":3072,\"num_attention_"
               "heads\":24,"
               "\"num_key_value_heads\":2,\"intermediate_size\":12288,\"vocab_size\":49152}");

    struct plan_model apertus = config("{\"model_type\":\"apertus\",\"num_hidden_layers\":32,\"hidden_size\":"
                                       "4096,\"num_attention_heads\":32,"
                                       "\"num_key_value_heads\":8,\"intermediate_size\":21504,\"vocab_size\":"
                                       "131072,\"hidden_act\":\"xielu\"}");

    assert_true(apertus.ffn_matrices == 2 && fabs(plan_model_params(&apertus) / 8.05e9 - 1) < 0.01);
    assert_true(arcee.ffn_matrices == 2 && !(arcee.tied_embeddings > 0));
    assert_true(fabs(plan_model_params(&arcee) / 4.5e9 - 1) < 0.05);
    assert_true(starcoder.ffn_matrices == 2 && starcoder.tied_embeddings > 0);
}

static void hybrids_have_a_state(void **state)
{
    (void)state;
    struct plan_model next = config(
        "{\"text_config\":{\"model_type\":\"qwen3_next\",\"num_hidden_layers\":48,\"hidden_size\":2048,"
        "\"num_attention_heads\":16,\"num_key_value_heads\":2,\"head_dim\":256,\"vocab_size\":151936,"
        "\"num_experts\":512,\"num_experts_per_tok\":10,\"moe_intermediate_size\":512,"
        "\"shared_expert_intermediate_size\":512,\"full_attention_interval\":4,\"linear_num_key_heads\":16,"
        "\"linear_num_value_heads\":32,\"linear_key_head_dim\":128,\"linear_value_head_dim\":128,"
        "\"linear_conv_kernel_dim\":4}}");

    assert_true(next.linear_layers == 36 && next.shared_experts == 1);
    assert_true(plan_model_kv_elements(&next) == 12 * 2 * 2 * 256);
    assert_true(next.state_bytes == 36.0 * (32.0 * 128 * 128 * 4 + 3 * (2 * 2048 + 4096) * 2));
    assert_true(fabs(plan_model_params(&next) / 80e9 - 1) < 0.02);
}

/* Nemotron H 8B has a letter for each layer. */
static void letters_are_layers(void **state)
{
    (void)state;
    struct plan_model m =
        config("{\"model_type\":\"nemotron_h\",\"num_hidden_layers\":52,\"hidden_size\":4096,"
               "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"attention_head_dim\":128,"
               "\"intermediate_size\":21504,\"vocab_size\":131072,\"mlp_hidden_act\":\"relu2\","
               "\"hybrid_override_pattern\":\"M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-\","
               "\"mamba_num_heads\":128,\"mamba_head_dim\":64,\"ssm_state_size\":128,\"n_groups\":8,"
               "\"conv_kernel\":4,\"tie_word_embeddings\":false}");

    assert_true(m.linear_layers == 24 && m.attention_layers == 4 && m.ffn_layers == 24);
    assert_true(plan_model_kv_elements(&m) == 4 * 2 * 8 * 128);
    assert_true(m.state_bytes == 24 * (8192.0 * 128 * 4 + 3 * (8192 + 2 * 8 * 128) * 2));
    assert_true(fabs(plan_model_params(&m) / 8.1e9 - 1) < 0.01);
}

/* The same as names; and Falcon H1, whose layers have Mamba beside attention. */
static void named_layers_have_mamba(void **state)
{
#define HYBRID                                                                                               \
    "\"hidden_size\":2048,\"num_attention_heads\":32,\"num_key_value_heads\":8,\"head_dim\":64,"             \
    "\"intermediate_size\":8192,\"vocab_size\":65536,\"mamba_n_heads\":64,\"mamba_d_head\":64,"              \
    "\"mamba_d_state\":128,\"mamba_n_groups\":2,\"mamba_d_conv\":4,\"tie_word_embeddings\":true"
    const double inside = 2048.0 * (2 * 4096 + 2 * 2 * 128 + 64) + 4096 * 2048, network = 2048.0 * 8192,
                 attention = 2048.0 * 64 * 2 * 40, embeddings = 65536.0 * 2048;
    struct plan_model named = config("{\"model_type\":\"nemotron_h\",\"num_hidden_layers\":4," HYBRID
                                     ",\"layers_block_type\":[\"mamba\",\"mlp\",\"attention\",\"mlp\"]}");
    struct plan_model falcon = config("{\"model_type\":\"falcon_h1\",\"num_hidden_layers\":4," HYBRID "}");
    struct plan_model granite = config("{\"model_type\":\"granite_hybrid\",\"num_hidden_layers\":2," HYBRID
                                       ",\"layers_block_type\":[\"mamba\",\"attention\"]}");

    (void)state;
    assert_true(named.linear_layers == 1 && named.attention_layers == 1 && named.ffn_layers == 2);
    assert_true(plan_model_params(&named) == inside + attention + 2 * 3 * network + embeddings);
    assert_true(plan_model_params(&falcon) == 4 * (inside + attention + 3 * network) + embeddings);
    assert_true(plan_model_kv_elements(&falcon) == 4 * 2 * 8 * 64);
    assert_true(plan_model_params(&granite) == inside + attention + 2 * 3 * network + embeddings);
}

static void negative_fields_are_refused(void **state)
{
    struct plan_model m = {
        .layers = 4, .hidden = 64, .vocab = 10, .q_heads = 4, .ffn = 128, .linear_layers = -1};
    struct fault fault = {0};

    (void)state;
    assert_int_equal(plan_model_check(&m, &fault), E_RANGE);
    assert_non_null(strstr(fault.text, "linear_layers is negative"));
}

static void windows_by_layer(void **state)
{
    (void)state;
    struct plan_model listed =
        config("{\"model_type\":\"x\",\"num_hidden_layers\":3,\"hidden_size\":64,\"num_attention_heads\":4,"
               "\"intermediate_size\":128,\"vocab_size\":100,\"sliding_window\":16,"
               "\"layer_types\":[\"sliding_attention\",\"sliding_attention\",\"full_attention\"]}");
    struct plan_model off = config(
        "{\"model_type\":\"qwen2\",\"num_hidden_layers\":4,\"hidden_size\":64,\"num_attention_heads\":4,"
        "\"intermediate_size\":128,\"vocab_size\":100,\"sliding_window\":16,\"use_sliding_window\":false}");

    assert_true(listed.sliding_layers == 2 && off.sliding_layers == 0);
    assert_true(plan_model_kv_elements_at(&listed, 100) == 2 * 64 * (100 + 2 * 16));
}

static void faults_name_the_field(void **state)
{
    struct plan_model m;
    struct fault fault = {0};

    (void)state;
    assert_int_equal(plan_model_from_config(bytes_str("[1]"), &fault, &m), E_FORMAT);
    assert_int_equal(
        plan_model_from_config(bytes_str("{\"num_hidden_layers\":3,\"hidden_size\":64}"), &fault, &m),
        E_NOT_FOUND);
    assert_non_null(strstr(fault.text, "vocab"));
    assert_int_equal(plan_model_inline(&books.models, "layers=4,hidden=64,vocab=10,q_heads=4", &fault, &m),
                     E_NOT_FOUND);
    assert_non_null(strstr(fault.text, "ffn"));
    assert_int_equal(plan_model_inline(&books.models, "llama-3-8b,speed=4", &fault, &m), E_NOT_FOUND);
    assert_int_equal(plan_model_inline(&books.models, "llama-3-8b,layers=40", &fault, &m), 0);
    assert_true(m.layers == 40);
    assert_int_equal(plan_models_find(&books.models, "llama-3-7b", &fault, &m), E_NOT_FOUND);
    assert_non_null(strstr(fault.text, "did you mean"));
}

static void gguf_headers_are_shapes(void **state)
{
    const char *srcdir = getenv("srcdir");
    char path[512];
    struct plan_model m;
    struct fault fault = {0};

    (void)state;
    snprintf(path, sizeof(path), "%s/share/baton-demo.gguf", srcdir == NULL ? "." : srcdir);
    if (plan_model_from_gguf(path, &fault, &m) != 0)
        fail_msg("%s", fault.text);
    assert_true(m.layers >= 1 && m.hidden >= 1 && m.vocab >= 1 && m.ffn_matrices == 3);
    assert_int_not_equal(plan_model_from_gguf("/nonexistent.gguf", &fault, &m), 0);
}

struct key { /* one number, or a list of 8 */
    const char *name;
    uint32_t value;
    const int32_t *list;
};

/* The shape of a GGUF file with these keys and no tensors. */
static struct plan_model header(const char *arch, const struct key *keys)
{
    char path[] = "/tmp/baton-shape-XXXXXX", name[96];
    struct gguf_writer *writer;
    struct plan_model found = {0};
    struct fault fault = {0};
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(gguf_writer_new(&writer), 0);
    assert_int_equal(gguf_put_str(writer, "general.architecture", bytes_str(arch)), 0);
    for (; keys->name != NULL; keys++) {
        snprintf(name, sizeof(name), "%s.%s", arch, keys->name);
        assert_int_equal(keys->list ? gguf_put_i32_array(writer, name, keys->list, 8)
                                    : gguf_put_u32(writer, name, keys->value),
                         0);
    }
    if (gguf_writer_save(writer, path, NULL, NULL, &fault) < 0 ||
        plan_model_from_gguf(path, &fault, &found) != 0)
        fail_msg("%s", fault.text);
    gguf_writer_free(writer);
    unlink(path);
    return found;
}

/* Layers with a window have other heads of keys than the others, and values are narrower than keys. */
static void windows_have_heads_of_their_own(void **state)
{
    static const int32_t HEADS[8] = {4, 8, 8, 8, 8, 8, 4, 8}, FLAGS[8] = {0, 1, 1, 1, 1, 1, 0, 1};
    const struct key keys[] = {{.name = "block_count", .value = 8},
                               {.name = "embedding_length", .value = 4096},
                               {.name = "attention.head_count", .value = 64},
                               {.name = "attention.head_count_kv", .list = HEADS},
                               {.name = "attention.key_length", .value = 192},
                               {.name = "attention.value_length", .value = 128},
                               {.name = "attention.sliding_window", .value = 128},
                               {.name = "attention.sliding_window_pattern", .list = FLAGS},
                               {.name = "feed_forward_length", .value = 16384},
                               {.name = "vocab_size", .value = 152576},
                               {.name = NULL}};
    struct plan_model flash = config(
        "{\"model_type\":\"mimo_v2_flash\",\"num_hidden_layers\":8,\"hidden_size\":4096,"
        "\"num_attention_heads\":64,\"num_key_value_heads\":4,\"swa_num_key_value_heads\":8,"
        "\"head_dim\":192,\"v_head_dim\":128,\"intermediate_size\":16384,\"moe_intermediate_size\":2048,"
        "\"vocab_size\":152576,\"n_routed_experts\":256,\"num_experts_per_tok\":8,\"sliding_window\":128,"
        "\"hybrid_layer_pattern\":[0,1,1,1,1,1,0,1],\"moe_layer_freq\":[0,1,1,1,1,1,1,1]}");
    struct plan_model file = header("mimo2", keys);

    (void)state;
    assert_true(flash.sliding_layers == 6 && flash.dense_layers == 1 && file.sliding_layers == 6);
    assert_true(plan_model_kv_elements_at(&flash, 1000) == 320 * (4 * 2 * 1000 + 8 * 6 * 128));
    assert_true(plan_model_kv_elements_at(&file, 1000) == plan_model_kv_elements_at(&flash, 1000));
    assert_true(plan_model_attention_params(&flash) * 8 == 4096.0 * 320 * (8 * 64 + 2 * 4 + 6 * 8));
    assert_true(plan_model_attention_params(&file) == plan_model_attention_params(&flash));
}

static void states_of_kimi_linear(void **state)
{
    static const int32_t HEADS[8] = {0, 0, 0, 32, 0, 0, 0, 32};
    const struct key keys[] = {{.name = "block_count", .value = 8},
                               {.name = "embedding_length", .value = 2304},
                               {.name = "attention.head_count", .value = 32},
                               {.name = "attention.head_count_kv", .list = HEADS},
                               {.name = "attention.kv_lora_rank", .value = 512},
                               {.name = "attention.key_length_mla", .value = 192},
                               {.name = "attention.value_length_mla", .value = 128},
                               {.name = "rope.dimension_count", .value = 64},
                               {.name = "kda.head_dim", .value = 128},
                               {.name = "ssm.conv_kernel", .value = 4},
                               {.name = "feed_forward_length", .value = 9216},
                               {.name = "vocab_size", .value = 163840},
                               {.name = NULL}};
    struct plan_model published = config(
        "{\"model_type\":\"kimi_linear\",\"num_hidden_layers\":27,\"hidden_size\":2304,"
        "\"num_attention_heads\":32,\"num_key_value_heads\":32,\"head_dim\":72,\"intermediate_size\":9216,"
        "\"moe_intermediate_size\":1024,\"vocab_size\":163840,\"num_experts\":256,"
        "\"num_experts_per_token\":8,\"num_shared_experts\":1,\"first_k_dense_replace\":1,"
        "\"moe_layer_freq\":1,\"q_lora_rank\":null,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,"
        "\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"linear_attn_config\":{\"head_dim\":128,"
        "\"num_heads\":32,\"short_conv_kernel_size\":4,\"full_attn_layers\":[4,8,12,16,20,24,27],"
        "\"kda_layers\":[1,2,3,5,6,7,9,10,11,13,14,15,17,18,19,21,22,23,25,26]}}");
    struct plan_model file = header("kimi-linear", keys);
    const double of_layer = 32.0 * 128 * 128 * 4 + 3 * 3 * 32 * 128 * 4;

    (void)state;
    assert_true(published.linear_layers == 20 && file.linear_layers == 6);
    assert_true(published.state_bytes == 20 * of_layer && file.state_bytes == 6 * of_layer);
    assert_true(plan_model_kv_elements(&published) == 7 * 576 && plan_model_kv_elements(&file) == 2 * 576);
    assert_true(published.dense_layers == 1 && published.linear_params == file.linear_params);
    assert_true(fabs(plan_model_params(&published) / 48e9 - 1) < 0.03);
}

static void states_of_files(void **state)
{
    static const int32_t HEADS[8] = {0, 0, 8, 0, 0, 8, 0, 8};
    struct key keys[] = {{.name = "block_count", .value = 8},
                         {.name = "embedding_length", .value = 2048},
                         {.name = "attention.head_count", .value = 32},
                         {.name = "attention.head_count_kv", .list = HEADS},
                         {.name = "feed_forward_length", .value = 8192},
                         {.name = "vocab_size", .value = 65536},
                         {.name = "shortconv.l_cache", .value = 3},
                         {.name = NULL}};
    const struct key delta[] = {{.name = "block_count", .value = 8},
                                {.name = "embedding_length", .value = 2048},
                                {.name = "attention.head_count", .value = 16},
                                {.name = "attention.head_count_kv", .value = 2},
                                {.name = "attention.key_length", .value = 256},
                                {.name = "feed_forward_length", .value = 8192},
                                {.name = "vocab_size", .value = 65536},
                                {.name = "ssm.conv_kernel", .value = 4},
                                {.name = "ssm.inner_size", .value = 4096},
                                {.name = "ssm.state_size", .value = 128},
                                {.name = "ssm.time_step_rank", .value = 32},
                                {.name = "ssm.group_count", .value = 16},
                                {.name = NULL}};
    struct plan_model lfm = header("lfm2", keys), qwen = header("qwen35", delta);
    struct plan_model listed = config(
        "{\"model_type\":\"lfm2\",\"num_hidden_layers\":3,\"hidden_size\":2048,\"num_attention_heads\":32,"
        "\"num_key_value_heads\":8,\"intermediate_size\":8192,\"vocab_size\":65536,\"conv_L_cache\":3,"
        "\"layer_types\":[\"conv\",\"conv\",\"full_attention\"]}");

    (void)state;
    assert_true(lfm.linear_layers == 5 && lfm.state_bytes == 5 * 2 * 2048 * 4 && lfm.kv_heads == 8);
    assert_true(plan_model_kv_elements(&lfm) == 3 * 2 * 8 * 64);
    assert_true(listed.linear_layers == 2 && listed.linear_params == lfm.linear_params);
    assert_true(qwen.linear_layers == 6 &&
                qwen.state_bytes == 6 * (32.0 * 128 * 128 * 4 + 3 * (2 * 2048 + 4096) * 2));
}

/* Mamba 2 in place of attention, beside it, alone, and in layers without a network. */
static void states_of_mamba_files(void **state)
{
    static const int32_t HEADS[8] = {0, 0, 8, 0, 0, 8, 0, 0}, WIDTHS[8] = {0, 8192, 0, 0, 8192, 0, 8192, 0};
    struct key keys[] = {{.name = "block_count", .value = 8},
                         {.name = "embedding_length", .value = 2048},
                         {.name = "vocab_size", .value = 65536},
                         {.name = "ssm.conv_kernel", .value = 4},
                         {.name = "ssm.inner_size", .value = 4096},
                         {.name = "ssm.state_size", .value = 128},
                         {.name = "ssm.time_step_rank", .value = 64},
                         {.name = "ssm.group_count", .value = 2},
                         {.name = NULL},
                         {.name = "attention.head_count_kv", .list = HEADS},
                         {.name = "feed_forward_length", .list = WIDTHS},
                         {.name = NULL}};
    const double inside = 2048.0 * (2 * 4096 + 2 * 2 * 128 + 64) + 4096 * 2048,
                 of_layer = 4096 * 128 * 4 + 3 * (4096 + 2 * 2 * 128) * 2, network = 2048.0 * 8192;
    struct plan_model mamba = header("mamba2", keys), nemotron, granite, falcon;

    (void)state;
    keys[8] = (struct key){.name = "attention.head_count", .value = 32};
    nemotron = header("nemotron_h", keys);
    keys[10] = (struct key){.name = "feed_forward_length", .value = 8192};
    granite = header("granitehybrid", keys);
    keys[9] = (struct key){.name = "attention.head_count_kv", .value = 8};
    falcon = header("falcon-h1", keys);
    assert_true(mamba.state_bytes == 8 * of_layer && plan_model_kv_elements(&mamba) == 0);
    assert_true(plan_model_params(&mamba) == 8 * inside + 65536.0 * 2048);
    assert_true(nemotron.state_bytes == 3 * of_layer && plan_model_kv_elements(&nemotron) == 2 * 2 * 8 * 64);
    assert_true(plan_model_params(&nemotron) ==
                3 * inside + 2 * 2048.0 * 64 * 2 * 40 + 3 * 2 * network + 65536.0 * 2048);
    assert_true(granite.state_bytes == 6 * of_layer && plan_model_kv_elements(&granite) == 2 * 2 * 8 * 64);
    assert_true(plan_model_params(&granite) ==
                6 * inside + 2 * 2048.0 * 64 * 2 * 40 + 8 * 3 * network + 65536.0 * 2048);
    assert_true(falcon.state_bytes == 8 * of_layer && plan_model_kv_elements(&falcon) == 8 * 2 * 8 * 64);
    assert_true(plan_model_params(&falcon) ==
                8 * (inside + 2048.0 * 64 * 2 * 40 + 3 * network) + 65536.0 * 2048);
}

static int open_books(void **state)
{
    struct fault fault = {0};

    (void)state;
    return plan_books_open(&fault, &books);
}

static int close_books(void **state)
{
    (void)state;
    plan_books_fini(&books);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(long_contexts_have_known_sizes),
        cmocka_unit_test(config_json_of_families),
        cmocka_unit_test(hybrids_have_a_state),
        cmocka_unit_test(letters_are_layers),
        cmocka_unit_test(named_layers_have_mamba),
        cmocka_unit_test(negative_fields_are_refused),
        cmocka_unit_test(windows_by_layer),
        cmocka_unit_test(faults_name_the_field),
        cmocka_unit_test(windows_have_heads_of_their_own),
        cmocka_unit_test(states_of_kimi_linear),
        cmocka_unit_test(states_of_files),
        cmocka_unit_test(states_of_mamba_files),
        cmocka_unit_test(gguf_headers_are_shapes),
        cmocka_unit_test(networks_without_gates_have_two_matrices),
    };

    return cmocka_run_group_tests(tests, open_books, close_books);
}
