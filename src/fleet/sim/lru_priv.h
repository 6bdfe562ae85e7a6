/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks in one tier of one simulated worker, in the order of eviction of cache/kv/eviction.c: blocks
 * that another worker has too count as twice as old as they are.  Memory grows with the blocks that are
 * there. */
#ifndef FLEET_SIM_LRU_PRIV_H
#define FLEET_SIM_LRU_PRIV_H

#include <stdbool.h>
#include <stdint.h>

struct sim_lru_entry {
    uint64_t id, used_ns;
    uint32_t older, newer; /* in a free entry newer is the next free one */
    uint32_t list;         /* 0: plain; 1: shared */
};

struct sim_lru {                   /* zeroed: empty */
    struct sim_lru_entry *entries; /* [cap + 2]; entries 0 and 1 are the lists' heads */
    uint32_t *table;               /* [mask + 1] entry; 0: free */
    uint32_t n, cap, mask, free, n_made;
};

/* Adds the block or makes it the newest.  E_NOMEM; 1: it was there; 0: it is new. */
int sim_lru_touch(struct sim_lru *lru, uint64_t id, uint64_t now_ns);
/* Another worker has the block too, or none has any more.  Nothing if it is not here. */
void sim_lru_set_replicated(struct sim_lru *lru, uint64_t id, bool is_shared);
bool sim_lru_has(const struct sim_lru *lru, uint64_t id);
bool sim_lru_remove(struct sim_lru *lru, uint64_t id);        /* false: was not there */
uint64_t sim_lru_evict(struct sim_lru *lru, uint64_t now_ns); /* it is not empty */
void sim_lru_clear(struct sim_lru *lru);
void sim_lru_fini(struct sim_lru *lru);

#endif
