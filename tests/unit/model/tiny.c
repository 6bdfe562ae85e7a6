/* SPDX-License-Identifier: Apache-2.0 */
/* Writes models of a few kilobytes.  Everything a model of these architectures needs is listed once, in
 * keys() and tensors(), and a twist changes one line of it: so each hostile file of the tests is a good file
 * but for one thing. */
#include "tests/unit/model/tiny.h"

#include "base/rng.h"

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
        bool is_vector;
    } declared[128];
    uint32_t n_declared;
    uint32_t n_matrices;
};

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
                               .has_bias = strcmp(arch, "qwen2") == 0,
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
    if (twist && twist->fault == TINY_KEY_BOOL)
        assert_int_equal(gguf_put_bool(w->writer, twist->name, twist->value != 0), 0);
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

static void keys(struct writing *w)
{
    const struct tiny_shape *s = w->shape;
    char key[96];

    if (!twisted(w, TINY_NO_KEY, "general.architecture") && !twisted(w, TINY_KEY_STR, "general.architecture"))
        assert_int_equal(gguf_put_str(w->writer, "general.architecture", bytes_str(s->arch)), 0);
    key_u32(w, "block_count", s->n_layers);
    key_u32(w, "context_length", s->context);
    key_u32(w, "embedding_length", s->hidden);
    key_u32(w, "feed_forward_length", s->ffn);
    key_u32(w, "attention.head_count", s->n_heads);
    key_u32(w, "attention.head_count_kv", s->n_kv_heads);
    if (s->hidden != s->n_heads * s->head_dim) {
        key_u32(w, "attention.key_length", s->head_dim);
        key_u32(w, "attention.value_length", s->latent ? s->value_dim : s->head_dim);
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
    twisted_key(w);
}

/* ---- tensors ---- */

static void stack(struct writing *w, const char *name, uint64_t count, uint64_t rows, uint64_t cols)
{
    struct declared *at = &w->declared[w->n_declared];
    enum dtype type = rows == 0 ? DTYPE_F32 : w->shape->types[w->n_matrices++ % 3];
    uint64_t dims[3] = {cols, rows, count};

    if (twisted(w, TINY_NO_TENSOR, name))
        return;
    if (twisted(w, TINY_TENSOR_ROWS, name))
        dims[1] = rows = w->twist->value;
    if (twisted(w, TINY_TENSOR_COLS, name))
        dims[0] = cols = w->twist->value;
    if (twisted(w, TINY_TENSOR_TYPE, name))
        type = (enum dtype)w->twist->value;
    *at = (struct declared){
        .n_weights = (rows ? rows : 1) * cols * count, .type = type, .is_vector = rows == 0};
    w->n_declared++;
    assert_int_equal(gguf_declare_tensor(w->writer, name, type, count > 1 ? 3 : rows ? 2 : 1, dims), 0);
}

static void tensor(struct writing *w, const char *name, uint64_t rows, uint64_t cols)
{
    stack(w, name, 1, rows, cols);
}

static void layer_stack(struct writing *w, uint32_t layer, const char *suffix, uint64_t count, uint64_t rows,
                        uint64_t cols)
{
    char name[64];

    snprintf(name, sizeof(name), "blk.%u.%s", layer, suffix);
    stack(w, name, count, rows, cols);
}

static void layer_tensor(struct writing *w, uint32_t layer, const char *suffix, uint64_t rows, uint64_t cols)
{
    layer_stack(w, layer, suffix, 1, rows, cols);
}

static void grouped_tensors(struct writing *w, uint32_t i)
{
    const struct tiny_shape *s = w->shape;
    uint64_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;

    layer_tensor(w, i, "attn_q.weight", q, s->hidden);
    layer_tensor(w, i, "attn_k.weight", kv, s->hidden);
    layer_tensor(w, i, "attn_v.weight", kv, s->hidden);
    if (s->has_bias) {
        layer_tensor(w, i, "attn_q.bias", 0, q);
        layer_tensor(w, i, "attn_k.bias", 0, kv);
        layer_tensor(w, i, "attn_v.bias", 0, kv);
    }
    if (strncmp(s->arch, "qwen3", 5) == 0) {
        layer_tensor(w, i, "attn_q_norm.weight", 0, s->head_dim);
        layer_tensor(w, i, "attn_k_norm.weight", 0, s->head_dim);
    }
    layer_tensor(w, i, "attn_output.weight", s->hidden, q);
}

static void latent_tensors(struct writing *w, uint32_t i)
{
    const struct tiny_shape *s = w->shape;
    uint64_t q = s->n_heads * s->head_dim, nope = s->head_dim - s->rope_dims;

    layer_tensor(w, i, "attn_kv_a_mqa.weight", s->latent + s->rope_dims, s->hidden);
    layer_tensor(w, i, "attn_kv_a_norm.weight", 0, s->latent);
    if (s->is_split) {
        layer_stack(w, i, "attn_k_b.weight", s->n_heads, s->latent, nope);
        layer_stack(w, i, "attn_v_b.weight", s->n_heads, s->value_dim, s->latent);
    } else {
        layer_tensor(w, i, "attn_kv_b.weight", s->n_heads * (nope + s->value_dim), s->latent);
    }
    if (s->q_latent) {
        layer_tensor(w, i, "attn_q_a.weight", s->q_latent, s->hidden);
        layer_tensor(w, i, "attn_q_a_norm.weight", 0, s->q_latent);
        layer_tensor(w, i, "attn_q_b.weight", q, s->q_latent);
    } else {
        layer_tensor(w, i, "attn_q.weight", q, s->hidden);
    }
    layer_tensor(w, i, "attn_output.weight", s->hidden, s->n_heads * s->value_dim);
}

static void ffn_tensors(struct writing *w, uint32_t i)
{
    const struct tiny_shape *s = w->shape;
    uint64_t shared = s->n_shared * s->expert_ffn;

    if (s->n_experts == 0 || i < s->n_dense) {
        layer_tensor(w, i, "ffn_gate.weight", s->ffn, s->hidden);
        layer_tensor(w, i, "ffn_up.weight", s->ffn, s->hidden);
        layer_tensor(w, i, "ffn_down.weight", s->hidden, s->ffn);
        return;
    }
    layer_tensor(w, i, "ffn_gate_inp.weight", s->n_experts, s->hidden);
    layer_stack(w, i, "ffn_gate_exps.weight", s->n_experts, s->expert_ffn, s->hidden);
    layer_stack(w, i, "ffn_up_exps.weight", s->n_experts, s->expert_ffn, s->hidden);
    layer_stack(w, i, "ffn_down_exps.weight", s->n_experts, s->hidden, s->expert_ffn);
    if (s->n_shared) {
        layer_tensor(w, i, "ffn_gate_shexp.weight", shared, s->hidden);
        layer_tensor(w, i, "ffn_up_shexp.weight", shared, s->hidden);
        layer_tensor(w, i, "ffn_down_shexp.weight", s->hidden, shared);
    }
}

static void tensors(struct writing *w)
{
    const struct tiny_shape *s = w->shape;

    tensor(w, "token_embd.weight", s->vocab, s->hidden);
    tensor(w, "output_norm.weight", 0, s->hidden);
    if (!s->is_tied)
        tensor(w, "output.weight", s->vocab, s->hidden);
    if (s->has_rope_freqs)
        tensor(w, "rope_freqs.weight", 0, s->head_dim / 2);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        layer_tensor(w, i, "attn_norm.weight", 0, s->hidden);
        if (s->latent)
            latent_tensors(w, i);
        else
            grouped_tensors(w, i);
        layer_tensor(w, i, "ffn_norm.weight", 0, s->hidden);
        ffn_tensors(w, i);
    }
    if (w->twist && w->twist->fault == TINY_MORE_TENSOR)
        tensor(w, w->twist->name, 0, s->hidden);
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

            put_weight(at->type, at->is_vector ? value + 1 : value * 0.5f, qblk);
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
