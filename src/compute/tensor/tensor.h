/* SPDX-License-Identifier: Apache-2.0 */
/* Packed weights, matrix products and attention over paged KV: the heavy parts of a forward pass.
 *
 * Exactness is the contract. Every output element is summed along K in one fixed order, one output per
 * vector lane. Neither the number of tokens beside it nor the split of rows over threads changes this
 * order. So the bits do not depend on batch, chunking, cache hits or thread count. The scalar table
 * defines "correct"; tables with other bits have another numerics id.
 *
 * Hot path: no malloc, no log, no system call. All matrices are row-major float unless noted.
 *
 * More than 15 functions: one function for each operation, with its scratch size beside it. */
#ifndef COMPUTE_TENSOR_TENSOR_H
#define COMPUTE_TENSOR_TENSOR_H

#include "base/err.h"
#include "base/mem_sealed.h"
#include "base/team.h"
#include "compute/kernels/attn_args.h"
#include "gguf/dtype.h"

/* ---- weights ---- */

struct weight { /* [rows][cols], packed into interleaved row panels; owned */
    const struct kern_table *table;
    enum dtype type;       /* type of the packed numbers */
    bool is_dots;          /* BF16, times activations rounded to BF16; subnormals flushed */
    bool is_tiles;         /* and products are added as AMX tiles do; columns padded to 32 */
    bool is_paired;        /* and laid out for that instruction */
    uint8_t lookup[16];    /* for types whose quants index a table */
    float unit;            /* ... which their scales count in */
    const uint8_t *points; /* entries of lattice points or digits (weight_points.c); NULL: none */
    uint32_t rows;
    uint32_t cols;
    void *panels;
    size_t len_bytes;    /* of the panels: the bytes that a product reads */
    size_t region_bytes; /* of the memory that holds them; 0: an arena holds them */
    size_t
        copy_bytes; /* from one memory node's copy to the next; 0: one copy, divided among the nodes by rows */
    /* Above 1: rows are that many equal runs (gate and up; experts), each divided among the nodes. The memory of a
     * node holds its part of each run (weight_nodes.c). */
    uint32_t n_runs;
    uint32_t node_ends[TEAM_MAX_NODES]; /* with runs: panels of a run up to the end of each node's part */
};

/* True for the types that weight_pack takes. */
bool weight_type_ok(enum dtype type);
/* Names of these types, separated by spaces, for messages. WEIGHT_TYPES_BYTES are enough. Returns out. */
enum { WEIGHT_TYPES_BYTES = 240 };
const char *weight_types(char *out, size_t capacity_bytes);
/* Packs a row-major matrix as stored in a GGUF. Several matrices of equal cols and type may be stacked
 * (fused QKV, gate/up) with n_parts > 1: the result has the sum of their rows. E_UNSUPPORTED, E_INVAL
 * (cols not a multiple of the type's qblk), E_NOMEM. */
struct weight_part {
    const void *data;
    uint32_t rows;
};

enum weight_form {
    WEIGHT_AS_STORED, /* the type of the file */
    WEIGHT_DOTS, /* BF16, or F16 rounded to BF16, for BF16 dots (exact BF16 where kern_has_dots() is false) */
    WEIGHT_TILES /* the same for BF16 tiles */
};

struct weight_packing { /* all borrowed */
    const struct kern_table *table;
    enum weight_form form;
    enum dtype type;
    const struct weight_part *parts;
    const float *scales; /* [n_parts] each multiplies all weights of its part; only for NVFP4. NULL: 1 */
    uint32_t n_parts, cols;
    uint32_t
        n_runs; /* equal runs of rows that each memory node gets a part of; 0 or 1: the rows are one run */
    struct team *team; /* the one that multiplies, or one with the same memory nodes */
    /* Arena for the panels; NULL: allocate memory. If another process has filled the arena, nothing is packed into
     * it: the first and the last panel are packed elsewhere and compared, E_MISMATCH. */
    struct mem_sealed *arena;
    uint64_t end_ns; /* deadline (clock_now_ns()), then E_TIMEOUT; 0: none. Without an arena only */
};

int weight_pack(const struct weight_packing *packing, struct weight *out); /* also E_FULL, of the arena */
void weight_fini(struct weight *weight);
/* Copies one row, de-quantised, to out [cols]. For token embeddings. */
void weight_row(const struct weight *weight, uint32_t row, float *out);

/* y[n][rows] = x[n][cols] . W^T, y rows y_stride apart. scratch: matmul_scratch_bytes(), 64-aligned. It
 * holds the packed activations and, for BF16 tiles, each rank's sums. */
size_t matmul_scratch_bytes(const struct weight *weight, uint32_t max_tokens, uint32_t n_ranks);
/* The same for any weight of at most max_cols columns. */
size_t matmul_scratch_most(uint32_t max_tokens, uint32_t max_cols, uint32_t n_ranks);
struct matmul_args {
    const struct weight *weight;
    const float *x;  /* [n][cols], rows x_stride apart */
    size_t x_stride; /* in floats */
    uint32_t n;
    float *y;
    size_t y_stride;
    void *scratch;
    /* The weight that the team multiplies next: waiting ranks prefetch the start of their share of it.
     * NULL: not known. */
    const struct weight *next;
};
void matmul(struct team *team, const struct matmul_args *args);

/* ---- attention over a block table ---- */

/* Tokens of a block: a multiple of ATTN_BLOCK_STEP, at most ATTN_BLOCK_MAX. */
enum { ATTN_BLOCK_STEP = 16, ATTN_BLOCK_MAX = 128 };

/* Layout of a layer in the arena, block after block:
 *     K [kv_head][k_dim][token in block]     one key per lane: scores need no transposition
 *     V [kv_head][token in block][v_dim]     one number of the value per lane; absent with v_in_k
 * of kv_type: F32, F16, BF16, or quantised in runs of 32 numbers of one row (the last run padded with
 * zeros):
 *     Q8_0  K quants [run][32][token], then its scales F16 [run][token]
 *           V quants [token][run][32], then its scales F16 [token][run]
 *     Q4_0  the same with [16] bytes for [32]: number i in the low, 16 + i in the high half of byte i
 * The parts of the heads follow each other without gaps. */
bool kv_type_ok(enum dtype type);
size_t kv_row_bytes(enum dtype type, uint32_t dim); /* of a key or value, averaged over a block */

struct attn_sizes {
    uint32_t max_tokens, max_context, n_heads, k_dim, v_dim, n_ranks;
};
size_t attn_scratch_bytes(const struct attn_sizes *sizes);
/* Attention in tiles with an online softmax (FlashAttention). Decode splits the context at fixed places
 * and merges the parts in order. */
void attention(struct team *team, const struct attn_args *args);

/* ---- measured limits of the machine (median of several runs, all ranks of the team) ---- */
struct tensor_limits {
    double read_gbs;
    double fp32_tflops;
    double bf16_tflops;  /* BF16 dots; 0: no such instruction */
    double tiles_tflops; /* BF16 tiles; 0: no such instruction */
    double int8_tops;    /* dots of whole bytes; 0: no vector instruction */
    double narrow_tops;  /* dots with narrow weights (tensor_is_narrow); int8_tops where there are none */
    const char *int8_by; /* unit that has this peak: "vectors" */
};
/* True if this table's dots with quantised weights of this type take fewer instructions than with whole
 * bytes. */
bool tensor_is_narrow(const struct kern_table *table, enum dtype type);
/* Returns how many bytes to read so that no cache holds them: twice the last-level cache (at most 1 GiB), at least
 * least_bytes. */
size_t tensor_limits_cold_bytes(size_t least_bytes);
/* Measures the instructions that this table's kernels use. */
void tensor_limits_measure(struct team *team, const struct kern_table *table, struct tensor_limits *out);
/* Three short runs of each: the machine's present state, for timings made right before or after. */
void tensor_limits_glance(struct team *team, const struct kern_table *table, struct tensor_limits *out);

#endif
