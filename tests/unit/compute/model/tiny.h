/* SPDX-License-Identifier: Apache-2.0 */
/* Tiny random models of any architecture,
 * made with gguf/write.h and opened at once, with one fault on request. */
#ifndef MODEL_TINY_H
#define MODEL_TINY_H

#include "gguf/write.h"
#include "compute/model/model.h"

struct tiny_shape {
    const char *arch;
    uint32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, vocab, context;
    enum dtype types[3]; /* the matrices use them in turn */
    bool is_tied;
    bool has_bias;
    bool has_rope_freqs;    /* and longrope's lists, if the architecture has them */
    const char *const *set; /* "KEY=VALUE" without the architecture's name, NULL-ended; may be NULL */
    uint32_t n_experts, n_used, expert_ffn, n_shared; /* n_experts 0: dense */
    uint32_t n_dense;                                 /* layers before the experts begin */
    uint32_t latent, q_latent, rope_dims, value_dim;  /* latent 0: attention with heads */
    const char *const *lacks; /* ends of the names of tensors that are left out, NULL-ended; may be NULL */
    uint64_t seed;
};

enum tiny_fault {
    TINY_WHOLE,
    TINY_NO_KEY,  /* the key `name` is left out */
    TINY_KEY_U32, /* the key `name` has the value */
    TINY_KEY_F32,
    TINY_KEY_STR, /* the key `name` has the text */
    TINY_KEY_BOOL,
    TINY_KEY_FLAGS,   /* the key `name` is a list of the text's digits */
    TINY_NO_TENSOR,   /* the tensor `name` is left out */
    TINY_TENSOR_ROWS, /* the tensor `name` has value rows */
    TINY_TENSOR_COLS,
    TINY_TENSOR_TYPE, /* the tensor `name` has type value */
    TINY_MORE_TENSOR, /* adds a vector called `name` */
    TINY_MORE_FLOATS  /* adds value F32 called `name` */
};

struct tiny_twist {
    enum tiny_fault fault;
    const char *name;
    uint32_t value;
    float number;
    const char *text;
};

/* A complete shape to start from. */
struct tiny_shape tiny_shape(const char *arch);
/* The same with experts: llama, qwen3moe, deepseek2 (with latent attention, and shared ones). */
struct tiny_shape tiny_experts(const char *arch);
/* Writes, opens and unlinks the file.  twist may be NULL.  Asserts success. */
struct gguf *tiny_gguf(const struct tiny_shape *shape, const struct tiny_twist *twist);
/* The same as bytes, appended to image_out. */
void tiny_image(const struct tiny_shape *shape, const struct tiny_twist *twist, struct buf *image_out);
struct model *tiny_model(const struct tiny_shape *shape, struct team *team, const struct model_opts *opts);

enum { TINY_TOKENS = 20 };
/* Feeds TINY_TOKENS tokens at once. logits_out [vocab]: those after the last token; may be NULL. */
void tiny_run(struct model *model, struct team *team, float *logits_out);

#endif
