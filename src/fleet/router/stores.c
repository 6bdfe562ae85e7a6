/* SPDX-License-Identifier: Apache-2.0 */
/* The shared stores of blocks that workers read (kv.remote), and what they have.
 *
 *    report: name of the store, its speed --> row of the worker      STORE_BLOCKS --> index, a slot for each store
 *
 * What one worker wrote to its store or found there, every worker with the same store can read.  A store that is
 * away is not in its workers' reports, so that it counts for none of them, and its blocks are kept here.
 *
 * Hints only.  A block that was evicted from the store counts until a worker asks for it, or for the index's
 * lifetime.  A placement is then worse, and the answer is the same. */
#include "base/clock.h"
#include "fleet/router/router_priv.h"

#define LIST_MOST 65536u

uint32_t router_stores_most(const struct router *router)
{
    uint64_t most = router->conf->index_entries / 2;

    return most < LIST_MOST ? (uint32_t)most : LIST_MOST;
}

size_t router_stores_count(const struct router *router)
{
    return router->stores.index != NULL ? picker_index_count(router->stores.index) : 0;
}

void router_stores_free(struct router *router)
{
    picker_index_free(router->stores.index);
}

static bool stores_is_used(const struct router *router, uint32_t number)
{
    bool is_used = false;

    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS && !is_used; slot++)
        is_used = router->workers[slot].link != NULL && router->workers[slot].store == number;
    return is_used;
}

uint32_t router_stores_number(struct router *router, uint64_t name)
{
    struct router_stores *stores = &router->stores;
    uint32_t i = 0;

    while (i < PICKER_MAX_STORES && stores->names[i] != name)
        i++;
    if (i < PICKER_MAX_STORES)
        return i + 1;
    if (stores->index == NULL && picker_index_new((uint32_t)router->conf->index_entries,
                                                  router->conf->index_lifetime_ns, &stores->index) < 0)
        return 0;
    for (i = 0; i < PICKER_MAX_STORES && stores->names[i] != 0 && stores_is_used(router, i + 1);)
        i++;
    if (i == PICKER_MAX_STORES)
        return 0;
    if (stores->names[i] != 0)
        picker_index_forget(stores->index, i);
    stores->names[i] = name;
    return i + 1;
}

void router_stores_receive(struct router *router, struct router_worker *worker,
                           const Baton__StoreBlocks *blocks)
{
    const struct block_hash *hashes = (const void *)blocks->hashes.data;
    struct picker_index *index;
    uint64_t now_ns = clock_now_ns();
    size_t n = blocks->there.len, to;
    uint32_t slot;

    if (blocks->store == 0 || (worker->store = router_stores_number(router, blocks->store)) == 0)
        return;
    index = router->stores.index;
    slot = worker->store - 1;
    for (size_t from = 0; from < n; from = to) {
        bool is_there = blocks->there.data[from] != 0;

        for (to = from + 1; to < n && (blocks->there.data[to] != 0) == is_there; to++)
            ;
        if (is_there)
            picker_index_learn(index, slot, hashes + from, to - from, now_ns);
        else
            picker_index_unlearn(index, slot, hashes, from, to);
    }
}
