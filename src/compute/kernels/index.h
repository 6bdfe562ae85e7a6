/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse attention: scores of an indexer's keys, and copies of the chosen keys. The indexer itself is
 * compute/model/forward_index.c.
 *
 * Every table gives the same bits. Any thread. */
#ifndef COMPUTE_KERNELS_INDEX_H
#define COMPUTE_KERNELS_INDEX_H

#include "compute/kernels/attn_args.h"

enum {
    INDEX_GROUP_KEYS = 16, /* keys that always lie in one block */
    INDEX_CALL_GROUPS = 4, /* groups of one call, at most: they share the loads of q */
    INDEX_CALL_KEYS = INDEX_GROUP_KEYS * INDEX_CALL_GROUPS,
    INDEX_MOST_DIM = 256,
};

/* One query and some groups of keys:
 *
 *     scores[key] = sum over heads h of weights[h] max(0, sum over d of q[h][d] key[d])
 *
 * Sums take their terms in order, each with one rounding (a fused multiplication and addition). */
struct index_args {
    const float *q;       /* [n_heads][dim] */
    const float *weights; /* [n_heads] */
    uint32_t n_heads, dim;
    enum dtype type;                     /* of the keys: DTYPE_F32 or DTYPE_F16 */
    const void *keys[INDEX_CALL_GROUPS]; /* of each group, number 0 of its first key ... */
    uint32_t block_tokens;               /* ... the next numbers lie block_tokens numbers apart each */
    uint32_t n_groups;                   /* 1 to INDEX_CALL_GROUPS */
};
/* scores_out: [INDEX_GROUP_KEYS n_groups] */
void index_scores(const struct kern_table *table, const struct index_args *args, float *scores_out);

/* Copies up to sixteen keys of the arena as floats: out[d][key], rows out_stride floats apart. */
struct kv_gather_args {
    const struct attn_args
        *attn; /* kv_layer, block_bytes, kv_type, v_in_k, n_kv_heads, k_dim, v_dim, block_tokens */
    const uint32_t *blocks; /* block table of the sequence */
    uint32_t positions[INDEX_GROUP_KEYS];
    uint32_t n; /* 1 to 16; out gets sixteen columns, and those behind the n-th repeat it */
    uint32_t kv_head;
    float *out;
    size_t out_stride;
};
void kv_gather(const struct kern_table *table, const struct kv_gather_args *args);

#endif
