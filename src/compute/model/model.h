/* SPDX-License-Identifier: Apache-2.0 */
/* A model: hyper-parameters from metadata, weights bound by name and shape and packed for the kernels, and
 * the forward pass over paged KV.
 *
 * A model is immutable after model_new; any thread may read it. A state is the scratch of one engine thread.
 * The promise: the logits of a sequence are always the same, bit for bit. They do not depend on the other
 * items of the pass, the cuts of its tokens into passes, the places of its blocks, or the number of ranks.
 *
 * More than 15 functions: programs load models, check and write files, and run passes. */
#ifndef COMPUTE_MODEL_MODEL_H
#define COMPUTE_MODEL_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/fault.h"
#include "base/team.h"
#include "gguf/gguf.h"
#include "cache/kv/state.h"
#include "compute/tensor/tensor.h"

struct model_config { /* shapes, in the field's usual terms */
    char arch[32];    /* "llama", "qwen2" */
    uint32_t n_layers;
    uint32_t n_nextn_layers; /* layers of the file after the last: MTP heads, which draft tokens */
    uint32_t hidden;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t ffn;
    uint32_t n_streams, laurel_rank; /* of models with several residual streams; 0: others */
    uint32_t input;                  /* width of a layer's own embedding of each token; 0: layers have none */
    uint32_t latent;   /* multi-head latent attention: width of the cached latent; 0: the cache holds heads */
    uint32_t q_latent; /* width of the queries' latent; 0: queries have none */
    uint32_t value_dim;              /* of a head, with a latent; without one 0: as head_dim */
    uint32_t index_heads, index_dim; /* sparse attention: heads of the indexer and their length; 0: none */
    uint32_t index_top;              /* keys that a query attends to at most */
    bool index_is_adjacent;          /* the indexer turns pairs of neighbours, not halves */
    uint32_t n_experts;              /* 0: every layer's feed-forward is dense */
    uint32_t n_experts_used;         /* per token */
    uint32_t expert_ffn;
    uint32_t expert_parts; /* matrices of an expert before its activation: 2, gate and up; 1, up alone */
    uint32_t expert_io;    /* width of the rows that chosen experts read and write; usually hidden */
    uint32_t shared_ffn;   /* of all shared (always active) experts together */
    uint32_t vocab;
    uint32_t context_length;
    uint32_t n_positions; /* context length of the file: rows of learned embeddings of positions */
    uint32_t rope_dims;
    uint32_t conv_taps;                    /* short convolutions: inputs that each output sees */
    uint32_t delta_heads, delta_key_heads; /* gated delta net: heads of values; of queries and keys */
    uint32_t delta_key, delta_value;       /* and their lengths */
    bool delta_is_grouped; /* heads of values that share a key are neighbours, not every n-th */
    uint32_t n_kv_layers;  /* that store keys and values */
    uint32_t n_recurrent_layers;
    uint32_t window; /* sliding window of local layers; 0: no layer has one shorter than the context */
    uint32_t n_window_layers;
    bool is_chunked;       /* a query attends to the keys of its own chunk of window keys */
    char rope_scaling[16]; /* a word of ROPE_SCALING_TABLE, or "llama3" */
    float rope_freq_base;
    float norm_eps, latent_eps; /* of norms; of those of latents */
    float attn_scale;           /* factor of q . k; 1/sqrt(head_dim) unless the architecture has its own */
    float embedding_scale;      /* factor of token embeddings; usually 1 */
    float residual_scale;       /* factor of the halves' outputs; usually 1 */
    float logit_scale;          /* factor of the logits; usually 1 */
    float attn_cap;             /* soft cap of scores; 0: none */
    float value_scale;          /* factor of values; 0: none */
    float qkv_clamp;            /* Q, K and V stay within this of 0; 0: no bound */
    float logit_cap;            /* soft cap of logits; 0: none */
    bool is_mtp;                /* an MTP head, loaded with mtp_of */
    bool is_tied;               /* the output head is the token embedding */
    char weight_type[16];       /* type of most bytes: "Q8_0" */
    uint64_t n_parameters;
    uint64_t weight_bytes; /* in memory: all bytes that a decode step of one token reads */
};

struct model_opts {
    /* Borrowed, must outlive this model: load the MTP head of this model, of the same file, as a model of one
     * layer (mtp.c). It uses the embedding and the output head of mtp_of. NULL: load the model itself. */
    const struct model *mtp_of;
    const char *kernels; /* "auto", "scalar", "avx2", "avx512" */
    enum kv_type kv_type;
    uint32_t block_tokens; /* tokens of a KV block; 0: 32 */
    bool
        splits_windows; /* layers with a window get blocks of their own, if others have none: cache/kv/window.h */
    uint32_t context_length; /* tokens; 0: the model's own; a larger one is refused */
    enum bf16_math bf16;     /* how BF16 matrices are multiplied; BF16_AUTO: the fastest way here */
    bool converts_f16;       /* F16 matrices are converted to BF16 */
    uint64_t beside_bytes;   /* memory that the process takes for KV beside the weights; both must fit */
    struct mem_sealed
        *arena; /* borrowed: where packed weights go, or where another process packed them; NULL: memory of
                               * the model's own. It must outlive the model */
    /* Called from time to time while weights are packed; may be NULL. False: model_new ends with
     * E_CANCELLED. */
    bool (*on_progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_arg;
};

/* Floats that attention sums for a head: a latent, or a value. */
static inline uint32_t model_value_dim(const struct model_config *config)
{
    return config->latent ? config->latent : config->value_dim ? config->value_dim : config->head_dim;
}

struct model;

/* Reads, checks and packs a model. All checks run before any large allocation; fault names the keys or the
 * tensor. Weights are copied into panels, and copied pages of the file are released. The gguf may be
 * closed when this returns. E_FORMAT (missing or inconsistent keys or tensors), E_UNSUPPORTED, E_RANGE
 * (context_length beyond the model's), E_NOMEM, E_CANCELLED. */
int model_new(struct gguf *gguf, struct team *team, const struct model_opts *opts, struct fault *fault,
              struct model **out);
void model_free(struct model *model);
/* Makes the checks of model_new without packing, except for the context (opts->context_length is ignored).
 * Returns the KV layout and the model's own context length. */
int model_check(const struct gguf *gguf, const struct model_opts *opts, struct fault *fault,
                struct kv_layout *layout_out, uint32_t *context_out);
bool model_has_mtp(const struct model *model,
                   const struct gguf *gguf); /* the file has an MTP head known here */
/* Makes the same checks of the file's MTP head, and returns the layout of its KV. E_NOT_FOUND: it has none that is
 * known here. */
int model_check_mtp(const struct gguf *gguf, const struct model_opts *opts, struct fault *fault,
                    struct kv_layout *layout_out);
bool model_has_kernels(const char *kernels); /* the name is known and this CPU runs them */
const struct model_config *model_config(const struct model *model);
const struct kv_layout *model_kv_layout(const struct model *model);
/* Identifies the kernels, the forward pass and this machine's sines: equal ids compute equal bits. */
uint64_t model_numerics_id(const struct model *model);
/* BF16_TILES or BF16_DOTS if the logits depend on them, else BF16_EXACT. */
enum bf16_math model_bf16_math(const struct model *model);
const char *model_kernels_name(const struct model *model);

/* ---- for programs that write models ---- */

/* Name of a known architecture; NULL past the last. */
const char *model_arch_at(uint32_t index);

enum model_role { /* a tensor's purpose, which decides what values suit it */
                  MODEL_NORM,
                  MODEL_BIAS,
                  MODEL_MATRIX,
                  MODEL_WRITER, /* a matrix whose product is added to the residual stream */
                  MODEL_EMBEDDING,
                  MODEL_HEAD,
                  MODEL_DECAY, /* negative: the rates at which a state fades */
                  MODEL_ROPE_FACTORS
};

struct model_tensor {
    char name[64];
    uint32_t n_dims;
    uint64_t dims[3]; /* [0] is the row width */
    enum model_role role;
    bool is_optional;
};

/* Visits every tensor that a file with these keys must or may have, in the loader's order. vocab_size must
 * be among the keys. A negative code from the visitor stops the visit and is returned. */
int model_tensors(const struct gguf *keys, struct fault *fault,
                  int (*visit)(void *arg, const struct model_tensor *tensor), void *arg);

/* ---- the forward pass ---- */

struct model_state; /* scratch of forward passes, allocated once; one thread */

struct model_state_opts {
    uint32_t max_tokens;  /* most rows of a pass, over all items */
    uint32_t max_items;   /* most items of a pass */
    uint32_t max_logits;  /* most rows of logits of a pass; 0: one per item */
    uint32_t max_context; /* most tokens of a sequence; 0: the model's context_length */
    /* Work on fewer bytes than this stays on the calling thread. 0: default; 1: all work is shared, for
     * tests. */
    uint64_t team_from_bytes;
};

int model_state_new(const struct model *model, struct team *team, const struct model_state_opts *opts,
                    struct model_state **out);
void model_state_free(struct model_state *state);

struct model_item {            /* one sequence's part of a pass; all pointers are borrowed */
    const uint32_t *tokens;    /* ids < vocab */
    const float *hidden;       /* for MTP heads: [n_tokens][hidden], model_drafting_row() before each token */
    uint32_t n_tokens;         /* >= 1 */
    uint32_t position;         /* position of tokens[0]; KV of all tokens before is present */
    const kv_block_id *blocks; /* block table, covers position + n_tokens */
    /* With layout.n_window_layers: the block tables of the groups, window_stride entries each, from the block
     * with the first key that tokens[0] sees; entries before it are not read. */
    const kv_block_id *windows;
    uint32_t window_stride;
    /* Models with recurrent layers: the blocks of the state before tokens[0], NULL at position 0; and where
     * the state is written during the pass, in order.  Blocks of the state may be those of a cut. */
    const kv_block_id *recurrent;
    const struct kv_state_cut *cuts;
    uint32_t n_cuts;
    uint32_t n_logits;        /* the last n_logits tokens get logits; 0: none */
    uint32_t n_prompt_logits; /* this many tokens before those get logits through on_logits only */
    /* Not NULL: receives what model_drafting_row() gives for the tokens without n_logits, in order: [][hidden]. */
    float *rows;
};

struct model_pass {
    struct team *team; /* at most as many ranks as the state was made for */
    void *kv_arena;    /* n_blocks blocks in the model's layout */
    uint32_t n_blocks;
    const struct model_item *items;
    uint32_t n_items;
    /* Called after the KV of a layer is written for all items, before its attention; may be NULL. */
    void (*on_layer)(void *arg, uint32_t layer);
    void *on_layer_arg;
    /* When it becomes true, the pass stops between two layers; NULL: never. */
    const atomic_bool *is_given_up;
    /* Receives the logits of item `index` after n tokens from tokens[at] on: [n][vocab], valid during the
     * call, may be changed. Called for the n_prompt_logits tokens, as often as needed. */
    void (*on_logits)(void *arg, uint32_t index, uint32_t at, uint32_t n, float *logits);
    void *on_logits_arg;
};

/* Feeds the tokens of all items. The caller has checked ids, positions, block tables and sizes (engine_cpu
 * does); wrong values are a bug of the program. 0, or E_CANCELLED when is_given_up became true: there are
 * no logits, and KV from the items' positions on is undefined. */
int model_forward(const struct model *model, struct model_state *state, const struct model_pass *pass);
/* Logits of item `index` of the latest pass after its token n_tokens - 1 - back: [vocab]. Valid until the
 * next pass; NULL if the item did not ask for them. */
float *model_logits(const struct model_state *state, uint32_t index, uint32_t back);
/* The row that the output head multiplied for those logits: the normed residual stream, [hidden]. For an embedding
 * model it is the embedding, not normalised. */
const float *model_hidden(const struct model_state *state, uint32_t index, uint32_t back);
/* The row that an MTP head reads for the token of those logits: model_hidden()'s, or in some families the same before the last
 * norm. */
const float *model_drafting_row(const struct model_state *state, uint32_t index, uint32_t back);

#endif
