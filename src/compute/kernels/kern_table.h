/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel tables: one per instruction set, chosen at run time.
 *
 * More than 15 functions: one getter for each numerics id, and the small vector kernels. */
#ifndef COMPUTE_KERNELS_KERN_TABLE_H
#define COMPUTE_KERNELS_KERN_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kern_table; /* one per instruction set; opaque outside of compute/ */

/* Chooses a table: "auto" is the best that this CPU runs. Else "scalar", "avx2", "avx512" (with VNNI if
 * the CPU has it), or exactly "avx2-madd", "avx2-vnni", "avx512-madd", "avx512-vnni". NULL: unknown name,
 * or this CPU cannot run it. */
const struct kern_table *kern_table_get(const char *name);
const char *kern_table_name(const struct kern_table *table);
/* How BF16 weights are multiplied. Each way has its own bits, equal on all tables. */
enum bf16_math {
    BF16_AUTO,  /* the fastest here: tiles if the CPU has the instruction, else dots */
    BF16_TILES, /* activations rounded to BF16, products added as AMX tiles do */
    BF16_DOTS,  /* the same, products added as vdpbf16ps does */
    BF16_EXACT, /* activations in F32 */
};
/* The way that results from this request with this table: never BF16_AUTO; BF16_EXACT without
 * kern_has_dots(). */
enum bf16_math kern_bf16_math(const struct kern_table *table, enum bf16_math asked);
/* Numerics ids of the arithmetic; the last two if BF16 dots or tiles take part in it. */
uint64_t kern_numerics_id(const struct kern_table *table);
uint64_t kern_dots_numerics_id(const struct kern_table *table);
uint64_t kern_tiles_numerics_id(const struct kern_table *table);
/* True if this machine can compute BF16 dots, or tiles; true if it has the instruction. FMAs give the same bits. */
bool kern_has_dots(const struct kern_table *table);
bool kern_has_fast_dots(const struct kern_table *table);
bool kern_has_fast_tiles(const struct kern_table *table);
/* True if lattice points are looked up as they are in the file (POINT_TYPES). */
bool kern_has_points(const struct kern_table *table);
/* The tables that can run here, best last; NULL past the last. */
const struct kern_table *kern_table_at(uint32_t index);

/* ---- small operations, one row at a time, any thread ---- */

/* out[i] = x[i] * rsqrt(mean(x^2) + eps) * gain[i]   (RMSNorm, Zhang & Sennrich 2019) */
void rms_norm(const struct kern_table *table, const float *x, const float *gain, uint32_t n, float eps,
              float *out);
/* out[i] = (x[i] - mean) * rsqrt(variance + eps) * gain[i] + bias[i]   (LayerNorm, Ba et al. 2016) */
struct layer_gain {
    const float *gain;
    const float *bias; /* NULL: none */
};
void layer_norm(const struct kern_table *table, const float *x, const struct layer_gain *gain, uint32_t n,
                float eps, float *out);
void vec_add(const struct kern_table *table, float *x, const float *y, uint32_t n); /* x += y */
/* gate[i] = silu(gate[i]) * up[i]   (SwiGLU, Shazeer 2020) */
void swiglu(const struct kern_table *table, float *gate, const float *up, uint32_t n);
/* gate[i] = gelu(gate[i]) * up[i], gelu in its tanh form   (GEGLU, ibid.; Hendrycks & Gimpel 2016) */
void geglu(const struct kern_table *table, float *gate, const float *up, uint32_t n);
/* x[i] = gelu(x[i]): in its tanh form; and x Phi(x) itself */
void gelu(const struct kern_table *table, float *x, uint32_t n);
void gelu_exact(const struct kern_table *table, float *x, uint32_t n);
void vec_scale(const struct kern_table *table, float *x, float by, uint32_t n); /* x *= by */
/* x = cap * tanh(x / cap): a soft cap   (Gemma 2, 2024) */
void vec_cap(const struct kern_table *table, float *x, float cap, uint32_t n);

enum rope_pairs { ROPE_ADJACENT /* llama: (0,1)(2,3).. */, ROPE_HALVES /* qwen2, NeoX: (i, i + dims/2) */ };
struct rope_args { /* the heads of one token, rotated in place */
    enum rope_pairs pairs;
    float *x; /* [n_heads][head_dim] */
    uint32_t n_heads, head_dim, dims;
    const float *cos, *sin; /* [dims/2] of its position */
};
void rope_rotate(const struct kern_table *table, const struct rope_args *args);

#endif
