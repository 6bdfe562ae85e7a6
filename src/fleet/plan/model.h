/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of a model, which decides its bytes and FLOPS.
 *
 * Read from the table of known models, a config.json, a GGUF header, or "name=value,..." of a command line.
 * Counts leave out biases and norm weights.
 *
 * More than 15 functions: one formula for each term of a model's size. */
#ifndef FLEET_PLAN_MODEL_H
#define FLEET_PLAN_MODEL_H

#include "fleet/plan/table.h"

/* name in tables and inline text; key in config.json (NULL: computed) */
#define PLAN_MODEL_FIELDS(X)                                                                                 \
    X(layers, "num_hidden_layers")                                                                           \
    X(hidden, "hidden_size")                                                                                 \
    X(q_heads, "num_attention_heads")                                                                        \
    X(kv_heads, "num_key_value_heads")                                                                       \
    X(sliding_kv_heads, "swa_num_key_value_heads") /* of layers with a window; 0: as kv_heads */             \
    X(head_dim, "head_dim")                                                                                  \
    X(ffn, "intermediate_size")                                                                              \
    X(ffn_matrices, NULL)                                                                                    \
    X(vocab, "vocab_size")                                                                                   \
    X(tied_embeddings, NULL)                                                                                 \
    X(experts, NULL)                                                                                         \
    X(experts_per_token, NULL)                                                                               \
    X(expert_ffn, "moe_intermediate_size")                                                                   \
    X(shared_experts, "n_shared_experts")                                                                    \
    X(dense_layers, "first_k_dense_replace")                                                                 \
    X(q_lora_rank, "q_lora_rank")                                                                            \
    X(kv_lora_rank, "kv_lora_rank")                                                                          \
    X(qk_nope_head_dim, "qk_nope_head_dim")                                                                  \
    X(qk_rope_head_dim, "qk_rope_head_dim")                                                                  \
    X(v_head_dim, "v_head_dim")                                                                              \
    X(sliding_layers, NULL)                                                                                  \
    X(sliding_window, "sliding_window")                                                                      \
    X(linear_layers, NULL)    /* layers with a state of fixed size */                                        \
    X(linear_params, NULL)    /* weights of the mixer of such a layer */                                     \
    X(state_bytes, NULL)      /* state of a sequence in all those layers together */                         \
    X(attention_layers, NULL) /* 0: all without a state; Falcon H1's layers have both */                     \
    X(ffn_layers, NULL)       /* with a feed-forward network or experts; 0: all */                           \
    X(max_context, "max_position_embeddings")                                                                \
    X(attention_bits, NULL) /* bits of attention weights when the others have 4; 0: the same */

struct plan_model {
    char name[96];
    char source[160];
#define X(field, key) double field;
    PLAN_MODEL_FIELDS(X)
#undef X
};

struct plan_models { /* a zeroed struct is empty */
    struct plan_model *list;
    char (*aliases)[160];
    size_t n;
};

/* Adds the rows of a table with the columns name, aliases, the fields, and source. */
int plan_models_add(struct plan_models *models, struct bytes text, struct fault *fault);
/* Adds one checked model. */
int plan_models_push(struct plan_models *models, const struct plan_model *model, struct fault *fault);
void plan_models_fini(struct plan_models *models);
/* By name or alias, without an organisation in front ("meta-llama/") and endings such as -Instruct or -FP8. */
int plan_models_find(const struct plan_models *models, const char *name, struct fault *fault,
                     struct plan_model *out);

/* Reads a config.json of Hugging Face.  E_UNSUPPORTED names a property that the arithmetic does not cover. */
int plan_model_from_config(struct bytes text, struct fault *fault, struct plan_model *out);
/* The metadata of a GGUF file. */
int plan_model_from_gguf(const char *path, struct fault *fault, struct plan_model *out);
/* "layers=32,hidden=4096,...", or "llama-3-8b,layers=40" to change a known model. */
int plan_model_inline(const struct plan_models *models, const char *text, struct fault *fault,
                      struct plan_model *out);
/* Fills in usual values for missing fields, and refuses impossible values with the field's name. */
int plan_model_check(struct plan_model *model, struct fault *fault);

/* ---- counts; all of a checked model ---- */

bool plan_model_is_mla(const struct plan_model *model);
double plan_model_attention_params(const struct plan_model *model); /* of one layer, the mean */
double plan_model_value_dim(const struct plan_model *model);        /* of a head, without latents */
double plan_model_dense_ffn_params(const struct plan_model *model); /* of one dense layer */
double plan_model_expert_params(const struct plan_model *model);    /* of one expert of one layer */
double plan_model_attention_layers(const struct plan_model *model);
double plan_model_ffn_layers(const struct plan_model *model);
double plan_model_moe_layers(const struct plan_model *model);
double plan_model_full_layers(const struct plan_model *model); /* layers whose KV cache grows without bound */
double plan_model_params(const struct plan_model *model);
double plan_model_active_params(const struct plan_model *model); /* LM head once, no input embeddings */
double plan_model_kv_elements(const struct plan_model *model);   /* a token of a short context, all layers */
/* KV elements of a sequence of that context, with windows; without the state of linear layers. */
double plan_model_kv_elements_at(const struct plan_model *model, double context_tokens);

#endif
