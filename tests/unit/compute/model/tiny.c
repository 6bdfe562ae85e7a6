/* SPDX-License-Identifier: Apache-2.0 */
/* Writes models of a few kilobytes.  The loader tells which tensors an architecture has (model_tensors).
 * keys() lists the keys once, and a twist changes one line of it.  So each hostile file of the tests is a
 * good file with one fault. */
#include "tests/unit/compute/model/tiny.h"

#include "base/mem.h"
#include "base/rng.h"
#include "gguf/qblk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

struct writing {
    const struct tiny_shape *shape;
    const struct tiny_twist *twist;
    struct gguf_writer *writer;
    struct declared {
        uint64_t n_weights;
        enum dtype type;
        bool is_vector, is_decay;
    } declared[1024];
    uint32_t n_declared;
    uint32_t n_matrices;
};

static bool has_layer_norm(const char *arch)
{
    static const char *const NAMES[] = {"nemotron", "stablelm",  "starcoder2", "phi2", "gpt2",
                                        "falcon",   "command-r", "cohere2",    "olmo", "gptneox"};

    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
        if (strcmp(arch, NAMES[i]) == 0)
            return true;
    return false;
}

struct tiny_shape tiny_shape(const char *arch)
{
    return (struct tiny_shape){.arch = arch,
                               .n_layers = 2,
                               .hidden = 64,
                               .n_heads = 4,
                               .n_kv_heads = 2,
                               .head_dim = 16,
                               .ffn = 96,
                               .vocab = 50,
                               .context = 256,
                               .types = {DTYPE_F32, DTYPE_F32, DTYPE_F32},
                               .has_bias = strcmp(arch, "qwen2") == 0 || strcmp(arch, "deepseek32") == 0 ||
                                           strcmp(arch, "glm-dsa") == 0 || strcmp(arch, "gpt-oss") == 0 ||
                                           strcmp(arch, "phimoe") == 0 || has_layer_norm(arch),
                               .seed = 1};
}

struct tiny_shape tiny_experts(const char *arch)
{
    struct tiny_shape shape = tiny_shape(arch);

    shape.n_experts = 8;
    shape.n_used = 3;
    shape.expert_ffn = strcmp(arch, "llama") == 0 ? shape.ffn : 32;
    if (strcmp(arch, "deepseek2") == 0) {
        shape.n_shared = 2;
        shape.n_dense = 1;
        shape.latent = 64;
        shape.rope_dims = 16;
        shape.head_dim = 48;
        shape.value_dim = 32;
    }
    return shape;
}

/* ---- keys ---- */

static bool twisted(const struct writing *w, enum tiny_fault fault, const char *name)
{
    return w->twist && w->twist->fault == fault && strcmp(w->twist->name, name) == 0;
}

static void key_u32(struct writing *w, const char *suffix, uint32_t value)
{
    char key[96];

    snprintf(key, sizeof(key), "%s.%s", w->shape->arch, suffix);
    if (twisted(w, TINY_NO_KEY, key) || twisted(w, TINY_KEY_U32, key) || twisted(w, TINY_KEY_STR, key))
        return;
    assert_int_equal(gguf_put_u32(w->writer, key, value), 0);
}

static void twisted_key(struct writing *w)
{
    const struct tiny_twist *twist = w->twist;

    if (twist && twist->fault == TINY_KEY_U32)
        assert_int_equal(gguf_put_u32(w->writer, twist->name, twist->value), 0);
    if (twist && twist->fault == TINY_KEY_F32)
        assert_int_equal(gguf_put_f32(w->writer, twist->name, twist->number), 0);
    if (twist && twist->fault == TINY_KEY_STR)
        assert_int_equal(gguf_put_str(w->writer, twist->name, bytes_str(twist->text)), 0);
    if (twist && twist->fault == TINY_KEY_FLAGS) {
        int32_t flags[16];
        uint32_t n = 0;

        while (n < 16 && twist->text[n] != '\0') {
            flags[n] = twist->text[n] - '0';
            n++;
        }
        assert_int_equal(gguf_put_i32_array(w->writer, twist->name, flags, n), 0);
    }
    if (twist && twist->fault == TINY_KEY_BOOL)
        assert_int_equal(gguf_put_bool(w->writer, twist->name, twist->value != 0), 0);
}

/* A list of numbers, which is one of floats if any has a point. */
static void set_list(struct writing *w, const char *key, const char *text)
{
    bool is_whole = strchr(text, '.') == NULL;
    int32_t list[64];
    float floats[64];
    uint32_t n = 0;

    for (const char *at = text; *at != '\0' && n < 64; at += strspn(at, ","), n++) {
        floats[n] = strtof(at, (char **)&at);
        list[n] = (int32_t)floats[n];
    }
    assert_int_equal(is_whole ? gguf_put_i32_array(w->writer, key, list, n)
                              : gguf_put_f32_array(w->writer, key, floats, n),
                     0);
}

/* Only digits: a number; digits with a point: a float; true or false: a flag; otherwise text. */
static void set_key(struct writing *w, const char *text)
{
    const char *equals = strchr(text, '=');
    char key[128];

    assert_non_null(equals);
    snprintf(key, sizeof(key), "%s.%.*s", w->shape->arch, (int)(equals - text), text);
    if (twisted(w, TINY_KEY_U32, key) || twisted(w, TINY_NO_KEY, key))
        return;
    text = equals + 1;
    if (strchr(text, ',') != NULL)
        set_list(w, key, text);
    else if (strspn(text, "0123456789") == strlen(text))
        assert_int_equal(gguf_put_u32(w->writer, key, (uint32_t)strtoul(text, NULL, 10)), 0);
    else if (strspn(text, "0123456789.") == strlen(text))
        assert_int_equal(gguf_put_f32(w->writer, key, strtof(text, NULL)), 0);
    else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        assert_int_equal(gguf_put_bool(w->writer, key, text[0] == 't'), 0);
    else
        assert_int_equal(gguf_put_str(w->writer, key, bytes_str(text)), 0);
}

static void expert_keys(struct writing *w)
{
    const struct tiny_shape *s = w->shape;

    key_u32(w, "expert_count", s->n_experts);
    key_u32(w, "expert_used_count", s->n_used);
    if (s->expert_ffn != s->ffn)
        key_u32(w, "expert_feed_forward_length", s->expert_ffn);
    if (s->n_shared)
        key_u32(w, "expert_shared_count", s->n_shared);
    if (s->n_dense)
        key_u32(w, "leading_dense_block_count", s->n_dense);
}

static bool is_set(const struct tiny_shape *s, const char *key)
{
    for (size_t i = 0; s->set && s->set[i]; i++)
        if (strncmp(s->set[i], key, strlen(key)) == 0)
            return true;
    return false;
}

static void keys(struct writing *w)
{
    const struct tiny_shape *s = w->shape;
    char key[96];

    if (!twisted(w, TINY_NO_KEY, "general.architecture") && !twisted(w, TINY_KEY_STR, "general.architecture"))
        assert_int_equal(gguf_put_str(w->writer, "general.architecture", bytes_str(s->arch)), 0);
    key_u32(w, "block_count", s->n_layers);
    key_u32(w, "context_length", s->context);
    key_u32(w, "embedding_length", s->hidden);
    if (!is_set(s, "feed_forward_length="))
        key_u32(w, "feed_forward_length", s->ffn);
    if (!is_set(s, "attention.head_count="))
        key_u32(w, "attention.head_count", s->n_heads);
    snprintf(key, sizeof(key), "%s.attention.head_count_kv", s->arch);
    if (!is_set(s, "attention.head_count_kv=") && !twisted(w, TINY_KEY_FLAGS, key))
        key_u32(w, "attention.head_count_kv", s->n_kv_heads);
    if (s->hidden != s->n_heads * s->head_dim || s->value_dim) {
        key_u32(w, "attention.key_length", s->head_dim);
        key_u32(w, "attention.value_length", s->value_dim ? s->value_dim : s->head_dim);
    }
    if (s->n_experts)
        expert_keys(w);
    if (s->latent) {
        key_u32(w, "attention.kv_lora_rank", s->latent);
        key_u32(w, "rope.dimension_count", s->rope_dims);
    }
    if (s->q_latent)
        key_u32(w, "attention.q_lora_rank", s->q_latent);
    snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon", s->arch);
    if (!twisted(w, TINY_NO_KEY, key) && !twisted(w, TINY_KEY_F32, key))
        assert_int_equal(gguf_put_f32(w->writer, key, 1e-5f), 0);
    snprintf(key, sizeof(key), "%s.attention.layer_norm_epsilon", s->arch);
    if (has_layer_norm(s->arch))
        assert_int_equal(gguf_put_f32(w->writer, key, 1e-5f), 0);
    for (size_t i = 0; s->set && s->set[i]; i++)
        set_key(w, s->set[i]);
    twisted_key(w);
}

/* ---- tensors ---- */

static void declare(struct writing *w, const char *name, uint32_t n_dims, uint64_t dims[3], bool is_bias)
{
    struct declared *at = &w->declared[w->n_declared];
    bool is_vector = n_dims == 1 || is_bias;
    enum dtype type = is_vector ? DTYPE_F32 : w->shape->types[w->n_matrices++ % 3];

    if (twisted(w, TINY_NO_TENSOR, name))
        return;
    if (twisted(w, TINY_TENSOR_ROWS, name)) {
        n_dims = n_dims > 2 ? n_dims : 2;
        dims[1] = w->twist->value;
    }
    if (twisted(w, TINY_TENSOR_COLS, name))
        dims[0] = w->twist->value;
    if (twisted(w, TINY_TENSOR_TYPE, name))
        type = (enum dtype)w->twist->value;
    *at = (struct declared){.n_weights = 1, .type = type, .is_vector = is_vector};
    for (uint32_t i = 0; i < n_dims; i++)
        at->n_weights *= dims[i];
    at->is_decay = strstr(name, ".ssm_a") != NULL && strstr(name, "alpha") == NULL;
    assert_true(++w->n_declared < sizeof(w->declared) / sizeof(w->declared[0]));
    assert_int_equal(gguf_declare_tensor(w->writer, name, type, n_dims, dims), 0);
}

static bool is_lacking(const struct tiny_shape *s, const char *name)
{
    for (size_t i = 0; s->lacks && s->lacks[i]; i++)
        if (bytes_ends_with(bytes_str(name), s->lacks[i]))
            return true;
    return false;
}

static int visit(void *arg, const struct model_tensor *tensor)
{
    struct writing *w = arg;
    const struct tiny_shape *s = w->shape;
    struct model_tensor copy = *tensor;

    if (is_lacking(s, tensor->name) ||
        (tensor->is_optional && strstr(tensor->name, "attn_qkv") != NULL)) /* it has q, k and v */
        return 0;
    if (strstr(tensor->name, "ffn_gate_up_exps") != NULL && strcmp(s->arch, "gemma4") != 0)
        return 0;
    if (tensor->role == MODEL_BIAS   ? s->has_bias
        : tensor->role == MODEL_HEAD ? !s->is_tied
        : tensor->role == MODEL_ROPE_FACTORS
            ? s->has_rope_freqs && (strstr(tensor->name, "factors") != NULL) == (strcmp(s->arch, "phi3") == 0)
            : !tensor->is_optional || strstr(tensor->name, "ffn_gate_up_exps") != NULL)
        declare(w, copy.name, copy.n_dims, copy.dims,
                copy.role == MODEL_BIAS || copy.role == MODEL_NORM || copy.role == MODEL_DECAY);
    return 0;
}

/* Asks the loader about the keys without the twist. */
static void tensors(struct writing *w)
{
    struct writing plain = {.shape = w->shape};
    struct buf image = {0};
    struct gguf *gguf = NULL;
    struct fault fault = {0};
    uint64_t dims[3] = {w->shape->hidden, 1, 1};

    assert_int_equal(gguf_writer_new(&plain.writer), 0);
    keys(&plain);
    key_u32(&plain, "vocab_size", w->shape->vocab);
    assert_int_equal(gguf_writer_header(plain.writer, &image), 0);
    assert_int_equal(gguf_open_memory(buf_view(&image), &fault, &gguf), 0);
    if (model_tensors(gguf, &fault, visit, w) < 0)
        fail_msg("%s", fault.text);
    gguf_close(gguf);
    buf_fini(&image);
    gguf_writer_free(plain.writer);
    if (w->twist && w->twist->fault == TINY_MORE_TENSOR)
        declare(w, w->twist->name, 1, dims, false);
    if (w->twist && w->twist->fault == TINY_MORE_FLOATS)
        declare(w, w->twist->name, 1, (uint64_t[3]){w->twist->value, 1, 1}, true);
}

/* ---- weights ---- */

static void put_weight(enum dtype type, float value, uint8_t *at)
{
    uint32_t word;

    memcpy(&word, &value, sizeof(word));
    if (type == DTYPE_F32)
        put_u32(at, word);
    else
        put_u16(at, type == DTYPE_F16 ? f32_to_f16(value) : f32_to_bf16(value));
}

/* Returns where a qblk has its scale and min, both 16-bit floats; -1: none. */
static void float_places(enum dtype type, int *scale, int *min)
{
    *min = -1;
    switch ((uint32_t)type) {
    case DTYPE_Q2_K:
        *scale = offsetof(struct qblk_q2_k, scale);
        *min = offsetof(struct qblk_q2_k, min);
        break;
    case DTYPE_Q3_K:
        *scale = offsetof(struct qblk_q3_k, scale);
        break;
    case DTYPE_Q6_K:
        *scale = offsetof(struct qblk_q6_k, scale);
        break;
    case DTYPE_MXFP4:
        *scale = -1;
        break;
    default: /* they begin with them */
        *scale = 0;
        *min = qblk_form(type)->has_min ? 2 : -1;
    }
}

/* Any bits are a valid qblk.  Only its floats are chosen, so that weights are a quarter or less. */
static void fill_qblk(struct rng *rng, enum dtype type, uint8_t *qblk)
{
    const struct qblk_form *form = qblk_form(type);
    double step = (rng_unit(rng) + 0.5) / (form->n_subs > 1 ? 64 : 1);
    int scale, min;

    float_places(type, &scale, &min);
    for (uint32_t i = 0; i < dtype_info(type)->qblk_bytes; i++)
        qblk[i] = (uint8_t)rng_u64(rng);
    if (type == DTYPE_MXFP4)
        qblk[offsetof(struct qblk_mxfp4, exponent)] = (uint8_t)(119 + rng_below(rng, 5));
    if (scale >= 0)
        put_u16(qblk + scale, f32_to_f16((float)(step / 2 / (form->quant_high - form->quant_low))));
    if (min >= 0)
        put_u16(qblk + min, f32_to_f16((float)((rng_unit(rng) - 0.3) * step / 2)));
}

static int fill(void *arg, uint64_t index, struct gguf_writer *writer)
{
    struct writing *w = arg;
    const struct declared *at = &w->declared[index];
    const struct dtype_info *info = dtype_info(at->type);
    uint64_t n_qblks = at->n_weights / info->qblk_weights;
    uint8_t *bytes = calloc(n_qblks, info->qblk_bytes);
    struct rng rng;
    int rc;

    rng_init(&rng, w->shape->seed * 1000 + index);
    for (uint64_t i = 0; i < n_qblks; i++) {
        uint8_t *qblk = bytes + i * info->qblk_bytes;

        if (at->type == DTYPE_Q8_0) {
            put_u16(qblk, f32_to_f16((float)(rng_unit(&rng) + 0.5) / 512));
            for (unsigned j = 0; j < 32; j++)
                qblk[2 + j] = (uint8_t)rng_u64(&rng);
        } else if (info->qblk_weights == 1) {
            float value = (float)(rng_unit(&rng) - 0.5);

            put_weight(at->type, at->is_decay ? -value - 1 : at->is_vector ? value + 1 : value * 0.5f, qblk);
        } else if (qblk_form(at->type) != NULL) {
            fill_qblk(&rng, at->type, qblk);
        }
    }
    rc = gguf_writer_data(writer, bytes, n_qblks * info->qblk_bytes);
    free(bytes);
    return rc;
}

static void save(const struct tiny_shape *shape, const struct tiny_twist *twist, char path[])
{
    struct writing w = {.shape = shape, .twist = twist};
    struct fault fault = {0};
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(gguf_writer_new(&w.writer), 0);
    keys(&w);
    tensors(&w);
    if (gguf_writer_save(w.writer, path, fill, &w, &fault) < 0)
        fail_msg("%s", fault.text);
    gguf_writer_free(w.writer);
}

struct gguf *tiny_gguf(const struct tiny_shape *shape, const struct tiny_twist *twist)
{
    struct fault fault = {0};
    struct gguf *gguf = NULL;
    char path[] = "/tmp/baton-tiny-XXXXXX";

    save(shape, twist, path);
    if (gguf_open(path, &fault, &gguf) < 0)
        fail_msg("%s", fault.text);
    unlink(path);
    return gguf;
}

void tiny_image(const struct tiny_shape *shape, const struct tiny_twist *twist, struct buf *image_out)
{
    char path[] = "/tmp/baton-tiny-XXXXXX";
    uint8_t chunk[4096];
    size_t got;
    FILE *file;

    save(shape, twist, path);
    file = fopen(path, "rb");
    assert_non_null(file);
    while ((got = fread(chunk, 1, sizeof(chunk), file)) > 0)
        assert_int_equal(buf_append(image_out, chunk, got), 0);
    fclose(file);
    unlink(path);
}

struct model *tiny_model(const struct tiny_shape *shape, struct team *team, const struct model_opts *opts)
{
    struct gguf *gguf = tiny_gguf(shape, NULL);
    struct fault fault = {0};
    struct model *model = NULL;

    if (model_new(gguf, team, opts, &fault, &model) < 0)
        fail_msg("%s", fault.text);
    gguf_close(gguf);
    return model;
}

void tiny_run(struct model *model, struct team *team, float *logits_out)
{
    static const kv_block_id BLOCK = 0;
    const uint32_t vocab = model_config(model)->vocab;
    uint32_t tokens[TINY_TOKENS];
    struct model_item item = {.tokens = tokens, .n_tokens = TINY_TOKENS, .blocks = &BLOCK, .n_logits = 1};
    struct model_state_opts opts = {
        .max_tokens = TINY_TOKENS, .max_items = 1, .max_context = 32, .team_from_bytes = 1};
    struct model_state *state = NULL;
    void *arena = mem_aligned(64, kv_layout_block_bytes(model_kv_layout(model)));

    for (uint32_t i = 0; i < TINY_TOKENS; i++)
        tokens[i] = i * 7 % vocab;
    assert_int_equal(model_state_new(model, team, &opts, &state), 0);
    model_forward(
        model, state,
        &(struct model_pass){.team = team, .kv_arena = arena, .n_blocks = 1, .items = &item, .n_items = 1});
    if (logits_out != NULL)
        memcpy(logits_out, model_logits(state, 0, 0), vocab * sizeof(float));
    model_state_free(state);
    free(arena);
}
