/* SPDX-License-Identifier: Apache-2.0 */
/* The workers' prefix caches.  Each holds a fixed number of blocks, and evicts the least recently used one,
 * ends before beginnings.  No time is measured here. */
#include <stdlib.h>

#include "base/check.h"
#include "base/hashmap.h"
#include "base/list.h"
#include "tests/bench/route/route.h"

struct block {
    struct list used; /* in order of use, the latest last */
    struct block_hash hash;
};

struct member {
    struct hashmap *by_hash;
    struct block *blocks;
    uint32_t n;
    struct list used;
};

struct crew {
    uint32_t n, cache_blocks;
    struct member *members;
    struct block_hash *list; /* the hashes to give out */
};

static void member_init(struct crew *crew, struct member *member)
{
    list_init(&member->used);
    member->n = 0;
    ASSERT(hashmap_new(sizeof(struct block_hash), &member->by_hash) == 0);
    if (member->blocks == NULL)
        member->blocks = route_grab(crew->cache_blocks, sizeof(*member->blocks));
}

struct crew *crew_new(uint32_t n_workers, uint32_t cache_blocks)
{
    struct crew *crew = route_grab(1, sizeof(*crew));

    crew->n = n_workers;
    crew->cache_blocks = cache_blocks;
    crew->members = route_grab(n_workers, sizeof(*crew->members));
    crew->list = route_grab(cache_blocks + 4096, sizeof(*crew->list));
    for (uint32_t i = 0; i < n_workers; i++)
        member_init(crew, &crew->members[i]);
    return crew;
}

void crew_free(struct crew *crew)
{
    for (uint32_t i = 0; i < crew->n; i++) {
        hashmap_free(crew->members[i].by_hash);
        free(crew->members[i].blocks);
    }
    free(crew->members);
    free(crew->list);
    free(crew);
}

uint32_t crew_held(struct crew *crew, uint32_t slot, const struct block_hash *hashes, uint32_t n)
{
    uint32_t n_held = 0;

    while (n_held < n && hashmap_get(crew->members[slot].by_hash, &hashes[n_held]) != NULL)
        n_held++;
    return n_held;
}

uint32_t crew_store(struct crew *crew, uint32_t slot, const struct block_hash *hashes, uint32_t n,
                    const struct block_hash **evicted_out)
{
    struct member *member = &crew->members[slot];
    uint32_t n_evicted = 0;

    if (n > crew->cache_blocks)
        n = crew->cache_blocks;
    for (uint32_t i = n; i-- > 0;) {
        struct block *block = hashmap_get(member->by_hash, &hashes[i]);

        if (block == NULL && member->n < crew->cache_blocks) {
            block = &member->blocks[member->n++];
            list_init(&block->used);
        } else if (block == NULL) {
            block = container_of(member->used.next, struct block, used);
            crew->list[n_evicted++] = block->hash;
            hashmap_remove(member->by_hash, &block->hash);
        }
        block->hash = hashes[i];
        ASSERT(hashmap_put(member->by_hash, &block->hash, block, NULL) == 0);
        list_remove(&block->used);
        list_push_back(&member->used, &block->used);
    }
    *evicted_out = crew->list;
    return n_evicted;
}

uint32_t crew_list(struct crew *crew, uint32_t slot, const struct block_hash **hashes_out)
{
    for (uint32_t i = 0; i < crew->members[slot].n; i++)
        crew->list[i] = crew->members[slot].blocks[i].hash;
    *hashes_out = crew->list;
    return crew->members[slot].n;
}

void crew_restart(struct crew *crew, uint32_t slot)
{
    hashmap_free(crew->members[slot].by_hash);
    member_init(crew, &crew->members[slot]);
}
