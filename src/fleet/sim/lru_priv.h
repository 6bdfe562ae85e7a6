/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks in one tier of one simulated worker, in the order of eviction of cache/kv/eviction.c: blocks
 * that another worker has too count as twice as old as they are.  Memory grows with the number of blocks.
 *
 * Calls name blocks first, first + 1, ... first + n - 1, all in one group of SIM_LRU_GROUP ids: a chain's blocks
 * mostly have ids in a row (sim_block_id()), so one call does the work of many. */
#ifndef FLEET_SIM_LRU_PRIV_H
#define FLEET_SIM_LRU_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_LRU_GROUP 32

struct sim_lru_run { /* n blocks from id first on, one behind another in the order of eviction */
    uint64_t first, used_ns;
    uint32_t older, newer;
    uint32_t sibling; /* the next run of its group; in a free run the next free one; 0: none */
    uint8_t n;
    bool is_shared; /* its list: another worker has these blocks too */
    bool is_rising; /* first goes first, not last */
};

struct sim_lru_place { /* of the table */
    uint32_t tag;
    uint32_t run; /* a run of the group with this tag; 0: free */
};

struct sim_lru {                 /* zeroed: empty */
    struct sim_lru_run *runs;    /* [cap + 2]; runs 0 and 1 are the lists' heads */
    struct sim_lru_place *table; /* [mask + 1] */
    uint32_t n;                  /* blocks */
    uint32_t n_runs, cap, mask, free, n_made;
};

/* Adds the blocks or makes them the newest, the last one first.  E_NOMEM, or the number of blocks that were
 * there before. */
int sim_lru_touch(struct sim_lru *lru, uint64_t first, uint32_t n, uint64_t now_ns);
/* Notes whether another worker has the blocks too.  Ignores blocks that are not here.  E_NOMEM. */
int sim_lru_set_replicated(struct sim_lru *lru, uint64_t first, uint32_t n, bool is_shared);
uint32_t sim_lru_leading(const struct sim_lru *lru, uint64_t first, uint32_t n); /* of them that are here */
int sim_lru_remove(struct sim_lru *lru, uint64_t first, uint32_t n); /* E_NOMEM, or how many were there */
/* Evicts n_most blocks, or all; ids_out holds them in order.  Returns their number. */
uint32_t sim_lru_evict(struct sim_lru *lru, uint64_t now_ns, uint64_t *ids_out, uint32_t n_most);
/* Prefetches for a later call on the group of this block: first its place, and then, when that is here, its run. */
void sim_lru_ask_place(const struct sim_lru *lru, uint64_t id);
void sim_lru_ask_run(const struct sim_lru *lru, uint64_t id);
void sim_lru_fini(struct sim_lru *lru); /* leaves it empty */

#endif
