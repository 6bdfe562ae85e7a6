/* SPDX-License-Identifier: Apache-2.0 */
/* What a forward pass needs of the machine: packed weights, matrix products, attention over paged KV, norms,
 * RoPE.
 *
 * Exactness is the contract.  Every output element is summed along K in one fixed order, one output per
 * vector lane, whatever the number of tokens beside it, however the rows are split over threads; so the bits
 * do not depend on batch, chunking, cache hits or thread count.  The scalar table defines "correct"; tables
 * that give other bits carry another numerics id.
 *
 * Hot path: no malloc, no log, no system call.  All matrices are row-major float unless said. */
#ifndef COMPUTE_TENSOR_TENSOR_H
#define COMPUTE_TENSOR_TENSOR_H

#include "base/err.h"
#include "base/team.h"
#include "compute/kernels/attn_args.h"
#include "gguf/dtype.h"

/* ---- weights ---- */

struct weight { /* [rows][cols], packed into interleaved row panels; owned */
    const struct kern_table *table;
    enum dtype type;    /* of what is kept */
    bool is_dots;       /* BF16 times activations that are rounded to BF16, subnormals flushed */
    bool is_tiles;      /* and whose products are added as AMX tiles do; columns filled up to 32 */
    bool is_paired;     /* and laid out for the instruction that does so */
    uint8_t lookup[16]; /* of types whose quants are entries of a table */
    uint32_t rows;
    uint32_t cols;
    void *panels;
    size_t len_bytes;    /* of the panels: what a product reads */
    size_t region_bytes; /* of memory they are in */
};

/* True for the types that weight_pack takes. */
bool weight_type_ok(enum dtype type);
/* Their names, with spaces between, for messages; WEIGHT_TYPES_BYTES hold them.  Returns out. */
enum { WEIGHT_TYPES_BYTES = 160 };
const char *weight_types(char *out, size_t capacity_bytes);
/* Packs a row-major matrix as stored in a GGUF.  Several matrices of equal cols and type may be stacked
 * (fused QKV, gate/up) by giving n_parts > 1: the result has the sum of their rows.  E_UNSUPPORTED, E_INVAL
 * (cols not a multiple of the type's qblk), E_NOMEM. */
struct weight_part {
    const void *data;
    uint32_t rows;
};
int weight_pack(const struct kern_table *table, enum dtype type, const struct weight_part *parts,
                uint32_t n_parts, uint32_t cols, struct team *team, struct weight *out);
/* BF16, or F16 rounded to it, for BF16 dots (exact BF16 where kern_has_dots() is false). */
int weight_pack_dots(const struct kern_table *table, enum dtype type, const struct weight_part *parts,
                     uint32_t n_parts, uint32_t cols, struct team *team, struct weight *out);
/* The same for BF16 tiles. */
int weight_pack_tiles(const struct kern_table *table, enum dtype type, const struct weight_part *parts,
                      uint32_t n_parts, uint32_t cols, struct team *team, struct weight *out);
void weight_fini(struct weight *weight);
/* One row, de-quantised: out [cols].  For token embeddings. */
void weight_row(const struct weight *weight, uint32_t row, float *out);

/* y[n][rows] = x[n][cols] . W^T, y rows y_stride apart.  scratch: matmul_scratch_bytes(), 64-aligned; holds
 * the activations as the kernel wants them, and of BF16 tiles what each rank of the team has summed up. */
size_t matmul_scratch_bytes(const struct weight *weight, uint32_t max_tokens, uint32_t n_ranks);
/* The same for any weight with so many columns. */
size_t matmul_scratch_most(uint32_t max_tokens, uint32_t max_cols, uint32_t n_ranks);
struct matmul_args {
    const struct weight *weight;
    const float *x;  /* [n][cols], rows x_stride apart */
    size_t x_stride; /* in floats */
    uint32_t n;
    float *y;
    size_t y_stride;
    void *scratch;
    /* What the team will multiply soon after this: ranks that wait fetch the beginning of their share of it.
     * NULL: not known. */
    const struct weight *next;
};
void matmul(struct team *team, const struct matmul_args *args);

/* ---- attention over a block table ---- */

/* Tokens of a block: a multiple of the first, at most the second. */
enum { ATTN_BLOCK_STEP = 16, ATTN_BLOCK_MAX = 128 };

/* In the arena of a layer, block after block:
 *     K [kv_head][k_dim][token in block]     a key per lane: scores never need a transposition
 *     V [kv_head][token in block][v_dim]     a number of the value per lane; with v_in_k there is none
 * of kv_type: F32, F16, BF16, or quantised in runs of 32 numbers of one row (the last one filled with zeros):
 *     Q8_0  K quants [run][32][token], then its scales F16 [run][token]
 *           V quants [token][run][32], then its scales F16 [token][run]
 *     Q4_0  the same with [16] bytes for [32]: number i in the low, 16 + i in the high half of byte i
 * A head's part ends where the next one's begins. */
bool kv_type_ok(enum dtype type);
size_t kv_row_bytes(enum dtype type, uint32_t dim); /* of one key or value, on an average over a block */

struct attn_sizes {
    uint32_t max_tokens, max_context, n_heads, k_dim, v_dim, n_ranks;
};
size_t attn_scratch_bytes(const struct attn_sizes *sizes);
/* Tiled with an online softmax (FlashAttention); decode splits the context at fixed places and merges in
 * order. */
void attention(struct team *team, const struct attn_args *args);

/* ---- the machine's limits, measured (median of several runs, all ranks of the team) ---- */
struct tensor_limits {
    double read_gbs;
    double fp32_tflops;
    double bf16_tflops;  /* of dots; 0: no such instruction */
    double tiles_tflops; /* of BF16 tiles; 0: no such instruction */
    double int8_tops;    /* of dots of whole bytes; 0: not by vectors */
    double narrow_tops;  /* where weights are narrow (tensor_is_narrow); the same where none are */
    const char *int8_by; /* whose peak that is: "vectors" */
};
/* Quantised weights whose dots take fewer instructions than those of whole bytes do, with this table. */
bool tensor_is_narrow(const struct kern_table *table, enum dtype type);
/* Of what this table's kernels use. */
void tensor_limits_measure(struct team *team, const struct kern_table *table, struct tensor_limits *out);
/* Three short runs of each: the machine as it is now, for what is timed right before or after. */
void tensor_limits_glance(struct team *team, const struct kern_table *table, struct tensor_limits *out);

#endif
