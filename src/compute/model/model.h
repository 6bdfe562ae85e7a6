/* SPDX-License-Identifier: Apache-2.0 */
/* A model: hyper-parameters from metadata, weights bound by name and shape and repacked for the kernels, and
 * the forward pass over paged KV.
 *
 * A model is immutable after model_new and may be read from any thread.  A state is the scratch of one engine
 * thread.  The promise: the logits of a sequence are bit for bit the same whatever other items a pass holds,
 * however its tokens were cut into passes, wherever its blocks lie and however many ranks the team has. */
#ifndef COMPUTE_MODEL_MODEL_H
#define COMPUTE_MODEL_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/fault.h"
#include "base/team.h"
#include "gguf/gguf.h"
#include "cache/kv/layout.h"
#include "compute/tensor/tensor.h"

struct model_config { /* shapes, in the field's standard terms */
    char arch[32];    /* "llama", "qwen2" */
    uint32_t n_layers;
    uint32_t hidden;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t ffn;
    uint32_t latent;    /* multi-head latent attention: width of what the cache holds; 0: it holds heads */
    uint32_t q_latent;  /* 0: queries come straight */
    uint32_t value_dim; /* of a head, with a latent */
    uint32_t n_experts; /* 0: every layer's feed-forward is dense */
    uint32_t n_experts_used; /* by each token */
    uint32_t expert_ffn;
    uint32_t shared_ffn; /* of the experts that always run, together */
    uint32_t vocab;
    uint32_t context_length;
    uint32_t rope_dims;
    uint32_t window; /* of its local layers; 0: no layer has one that hides anything */
    uint32_t n_window_layers;
    char rope_scaling[16]; /* "none", "linear", "yarn", "llama3", "longrope" */
    float rope_freq_base;
    float rms_eps;
    float attn_scale;      /* of q . k; 1/sqrt(head_dim) unless the architecture says otherwise */
    float embedding_scale; /* of token embeddings; 1 for most */
    float residual_scale;  /* of what a layer's halves add; 1 for most */
    float logit_scale;     /* of the logits; 1 for most */
    bool is_tied;          /* the output head is the token embedding */
    char weight_type[16];  /* of most bytes: "Q8_0" */
    uint64_t n_parameters;
    uint64_t weight_bytes; /* as held in memory, everything a decode step of one token reads */
};

struct model_opts {
    const char *kernels; /* "auto", "scalar", "avx2", "avx512" */
    enum kv_type kv_type;
    uint32_t block_tokens;   /* 0: 32 */
    uint32_t context_length; /* 0: the model's own; larger is refused */
    enum bf16_math bf16;     /* how BF16 matrices are multiplied; BF16_AUTO: as is fastest here */
    bool converts_f16;       /* F16 matrices become BF16 */
    /* Called now and then while weights are packed; may be NULL.  False ends it with E_CANCELLED. */
    bool (*on_progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_arg;
};

struct model;

/* Reads, checks and packs.  Everything is checked before anything large is allocated; faults name the keys or
 * the tensor.  Weights are copied into panels, and what was copied leaves our memory: the gguf may be
 * closed when this returns. E_FORMAT (missing or
 * inconsistent), E_UNSUPPORTED, E_RANGE (context_length beyond the model's), E_NOMEM, E_CANCELLED. */
int model_new(struct gguf *gguf, struct team *team, const struct model_opts *opts, struct fault *fault,
              struct model **out);
void model_free(struct model *model);
/* The same checks without packing: what is refused here is what model_new refuses before it allocates, the
 * context apart (opts->context_length is not looked at).  Fills layout and the model's own context. */
int model_check(const struct gguf *gguf, const struct model_opts *opts, struct fault *fault,
                struct kv_layout *layout_out, uint32_t *context_out);
bool model_has_kernels(const char *kernels); /* known, and this CPU runs them */
const struct model_config *model_config(const struct model *model);
const struct kv_layout *model_kv_layout(const struct model *model);
/* Of the kernels, of the forward pass and of this machine's sines: equal ids compute equal bits. */
uint64_t model_numerics_id(const struct model *model);
/* BF16_TILES or BF16_DOTS where these have a part in the logits, else BF16_EXACT. */
enum bf16_math model_bf16_math(const struct model *model);
const char *model_kernels_name(const struct model *model);

/* ---- for those who write models ---- */

/* Architectures known here; NULL past the last. */
const char *model_arch_at(uint32_t index);

enum model_role { /* what a tensor is for, hence what values suit it */
                  MODEL_NORM,
                  MODEL_BIAS,
                  MODEL_MATRIX,
                  MODEL_WRITER, /* a matrix whose product is added to the residual stream */
                  MODEL_EMBEDDING,
                  MODEL_HEAD,
                  MODEL_ROPE_FACTORS
};

struct model_tensor {
    char name[64];
    uint32_t n_dims;
    uint64_t dims[3]; /* [0] is the row width */
    enum model_role role;
    bool is_optional;
};

/* Visits every tensor that a file with these keys must or may have, in the loader's order; vocab_size must be
 * among the keys.  Stops with the visitor's code when that is negative. */
int model_tensors(const struct gguf *keys, struct fault *fault,
                  int (*visit)(void *arg, const struct model_tensor *tensor), void *arg);

/* ---- the forward pass ---- */

struct model_state; /* the scratch of passes, allocated once; one thread */

struct model_state_opts {
    uint32_t max_tokens;  /* most rows of one pass, all items together */
    uint32_t max_items;   /* most items of one pass */
    uint32_t max_logits;  /* most rows of logits of one pass; 0: one for each item */
    uint32_t max_context; /* most tokens of one sequence; 0: the model's context_length */
    /* Work on fewer bytes than this stays on the calling thread.  0: a sensible size; 1: all is shared, for
     * tests. */
    uint64_t share_from_bytes;
};

int model_state_new(const struct model *model, struct team *team, const struct model_state_opts *opts,
                    struct model_state **out);
void model_state_free(struct model_state *state);

struct model_item {            /* one sequence's part of a pass; everything is borrowed */
    const uint32_t *tokens;    /* ids < vocab */
    uint32_t n_tokens;         /* >= 1 */
    uint32_t position;         /* of tokens[0]; KV of all before is present */
    const kv_block_id *blocks; /* covers position + n_tokens */
    uint32_t n_logits;         /* of the last so many tokens; 0: none */
    uint32_t n_shown;          /* of so many before those: given to on_logits, and not kept */
};

struct model_pass {
    struct team *team; /* no more ranks than the state was made for */
    void *kv_arena;    /* of n_blocks blocks in the model's layout */
    uint32_t n_blocks;
    const struct model_item *items;
    uint32_t n_items;
    /* Called after the KV of a layer is written for all items, before its attention; may be NULL. */
    void (*on_layer)(void *arg, uint32_t layer);
    void *on_layer_arg;
    /* When it becomes true the pass is left between two layers; NULL: it never is. */
    const atomic_bool *is_given_up;
    /* Logits after n tokens of item `index`, tokens[at] the first of them: [n][vocab], valid for the call;
     * where n_shown asks for them, as many calls as it takes.  They may be changed. */
    void (*on_logits)(void *arg, uint32_t index, uint32_t at, uint32_t n, float *logits);
    void *on_logits_arg;
};

/* Feeds the tokens of all items.  The caller has checked ids, positions, block tables and sizes (engine_cpu
 * does): what is wrong here is the program's fault.  0, or E_CANCELLED when it was given up: there are no
 * logits then, and KV from the items' positions on is undefined. */
int model_forward(const struct model *model, struct model_state *state, const struct model_pass *pass);
/* Logits after token number n_tokens - 1 - back of item `index` of the pass just run, [vocab], valid until
 * the next; NULL when it did not ask for them. */
float *model_logits(const struct model_state *state, uint32_t index, uint32_t back);

#endif
