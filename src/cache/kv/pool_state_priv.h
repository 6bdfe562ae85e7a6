/* SPDX-License-Identifier: Apache-2.0 */
/* The pool's own state, for pool.c, which changes states, and save.c, which chooses blocks to save. */
#ifndef CACHE_KV_POOL_STATE_PRIV_H
#define CACHE_KV_POOL_STATE_PRIV_H

#include "cache/kv/pool.h"
#include "cache/kv/pool_priv.h"
#include "cache/kv/pool_writeback.h"

#define POOL_N_STATES (KV_ZOMBIE + 1)

struct block {
    uint32_t n_refs;
    uint32_t n_leases;
    uint8_t state;       /* enum kv_state */
    bool has_hash;       /* hashes[id] is valid for this block */
    bool is_findable;    /* the index refers to it */
    bool is_quiet;       /* callbacks do not report it */
    bool is_inside;      /* the remote tier has it in a value, and other blocks follow it there */
    bool keeps_age;      /* lent to a save since its last use */
    uint8_t saved;       /* bits by enum kv_below: the tier has it, or was offered it */
    uint8_t capped_uses; /* up to USES_WORTH_SAVING: filled, found, filled again after its eviction */
    uint8_t quota;       /* its tenant's place in quota.c */
};

struct chain_place {                 /* of a block in its chain, for save.c */
    struct block_hash parent, child; /* child: the latest that was seen */
    uint32_t at;                     /* blocks before it */
    bool is_known;                   /* false: the fields above mean nothing, except child */
    bool has_child, is_branch;       /* is_branch: several children were in the pool together */
};

struct kv_pool {
    struct kv_pool_opts opts;
    struct block *blocks;
    struct block_hash *hashes; /* [id], apart from the blocks, so that look-ups touch nothing else */
    struct free_map free_map;
    struct hash_index index;
    struct quotas quotas; /* the tenants' quotas and eviction queues */
    struct writeback writeback[KV_N_BELOW];
    struct chain_place *places; /* [id]; NULL: there is no remote tier */
    struct past_uses past;      /* empty without a remote tier */
    bool saves_all;             /* kv_save_all() */
    uint32_t n_in_state[POOL_N_STATES];
    uint32_t n_leased;
    uint64_t n_evicted, n_expired, n_hits, n_misses, n_lost;
};

/* ---- pool.c ---- */

struct block *pool_block(const struct kv_pool *pool, kv_block_id id);
void pool_set_state(struct kv_pool *pool, kv_block_id id, enum kv_state to);

#endif
