/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of an indexer's keys (index.h).
 *
 *     arena   [dim][block_tokens], 16 bits        -> keys [dim][64] floats, once for all heads
 *     tile    six heads x 64 keys                 -> products, in the register tile of attention's scores
 *     sums    64 keys, a lane each                += weight of the head x max(0, product)
 *
 * The floats of 64 keys of 128 numbers take 32 KiB, so they stay in the caches next to the core while all heads
 * read them.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/index.h"
#include "compute/kernels/kern_kv_priv.h"

_Static_assert((int)INDEX_CALL_KEYS == (int)ATTN_TILE_KEYS, "a call is a tile of attention's scores");

KV_INLINED void load_index_keys(enum dtype type, const struct index_args *args, float *out)
{
    const size_t step_bytes = args->block_tokens * kv_key_bytes(type);

    for (uint32_t g = 0; g < args->n_groups; g++) {
        const char *from = args->keys[g];

        for (uint32_t d = 0; d < args->dim; d++, from += step_bytes)
            v16_store(out + (size_t)d * ATTN_TILE_KEYS + g * 16, kv_numbers(type, from, false));
    }
}

/* Adds the products of n heads, times their weights, to the sums of a group. */
static v16 add_index_heads(v16 sum, const float *products, const float *weights, uint32_t n)
{
    for (uint32_t h = 0; h < n; h++)
        sum =
            v16_fma(v16_set1(weights[h]), v16_max(v16_load(products + h * ATTN_TILE_KEYS), v16_zero()), sum);
    return sum;
}

void KERN(index_scores)(const struct index_args *args, float *scores_out)
{
    float keys[INDEX_MOST_DIM * ATTN_TILE_KEYS], products[ATTN_TILE_ROWS * ATTN_TILE_KEYS];
    v16 sums[ATTN_TILE_GROUPS];

    if (args->type == DTYPE_F32)
        load_index_keys(DTYPE_F32, args, keys);
    else
        load_index_keys(DTYPE_F16, args, keys);
    for (uint32_t g = 0; g < args->n_groups; g++)
        sums[g] = v16_zero();
    for (uint32_t h = 0, n; h < args->n_heads; h += n) {
        n = args->n_heads - h < ATTN_TILE_ROWS ? args->n_heads - h : ATTN_TILE_ROWS;
        KERN(attn_scores)
        (&(struct attn_scores){.q = args->q + (size_t)h * args->dim,
                               .q_step = args->dim,
                               .k = keys,
                               .n_k = args->dim,
                               .s = products,
                               .to = args->n_groups},
         n);
        for (uint32_t g = 0; g < args->n_groups; g++)
            sums[g] = add_index_heads(sums[g], products + g * 16, args->weights + h, n);
    }
    for (uint32_t g = 0; g < args->n_groups; g++)
        v16_store(scores_out + g * 16, sums[g]);
}
