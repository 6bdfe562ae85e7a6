/* SPDX-License-Identifier: Apache-2.0 */
/* The tenants' quotas: which tenant owns which blocks, and which block is evicted next.
 *
 * The pool is divided into equal quotas among the tenants that have any block in it.  Unused blocks leave
 * after their lifetime, so these are the recently active tenants.  A quota is a floor, not a ceiling: a
 * tenant that is alone has the whole pool.
 *
 *     a tenant that needs room takes   1. from tenants above their quota
 *                                      2. from its own blocks
 *                                      3. from any tenant: only if the caller exceeded kv_available_to()
 *
 * Within a row it takes from the tenant whose next block has the lowest rank (shelf.c), among equals from the
 * tenant with most blocks.  Both blocks and quotas add up to the pool.  So as long as callers respect
 * kv_available_to(), no tenant falls below its quota for others.
 *
 * A tenant's eviction queue is allocated when the tenant is first seen, and reused for another when it has no
 * block left.  Without a free place or memory the tenant shares the place of KV_TENANT_NONE ([0]).
 *
 * Hot path: no log; one look at all tenants for each evicted block. */
#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "cache/kv/pool_priv.h"

static bool has_shelf(struct shares *shares, unsigned at)
{
    struct share *share = &shares->all[at];

    if (!share->has_shelf) {
        if (shelf_init(&share->shelf, shares->places, shares->n_ids) < 0) {
            shelf_fini(&share->shelf);
            return false;
        }
        share->has_shelf = true;
    }
    return true;
}

int shares_init(struct shares *shares, uint32_t n_ids)
{
    *shares = (struct shares){.n_ids = n_ids, .n_seen = 1, .places = calloc(n_ids, sizeof(*shares->places))};
    return shares->places != NULL && has_shelf(shares, 0) ? 0 : E_NOMEM;
}

void shares_fini(struct shares *shares)
{
    for (unsigned at = 0; at < shares->n_seen; at++)
        if (shares->all[at].has_shelf)
            shelf_fini(&shares->all[at].shelf);
    free(shares->places);
}

unsigned shares_find(const struct shares *shares, kv_tenant tenant)
{
    if (tenant == KV_TENANT_NONE)
        return 0;
    for (unsigned at = 1; at < shares->n_seen; at++)
        if (shares->all[at].tenant == tenant && shares->all[at].n_blocks > 0)
            return at;
    return KV_MAX_TENANTS;
}

unsigned shares_place(struct shares *shares, kv_tenant tenant)
{
    unsigned at = shares_find(shares, tenant);

    if (at < KV_MAX_TENANTS)
        return at;
    for (at = 1; at < shares->n_seen && shares->all[at].n_blocks > 0; at++)
        ;
    if (at == KV_MAX_TENANTS || !has_shelf(shares, at))
        return 0;
    shares->all[at].tenant = tenant;
    if (at == shares->n_seen)
        shares->n_seen++;
    return at;
}

uint32_t shares_each(const struct shares *shares, unsigned at)
{
    uint32_t n_tenants = at == KV_MAX_TENANTS;

    for (unsigned i = 0; i < shares->n_seen; i++)
        n_tenants += shares->all[i].n_blocks > 0 || i == at;
    return shares->n_ids / n_tenants;
}

kv_block_id shares_victim(struct shares *shares, unsigned at, uint32_t n_more, uint64_t now_ns)
{
    uint32_t each = shares_each(shares, at), best_blocks = 0;
    unsigned best_order = UINT32_MAX;
    kv_block_id best = KV_BLOCK_NONE;

    for (unsigned i = 0; i < shares->n_seen; i++) {
        struct share *share = &shares->all[i];
        uint32_t n_blocks = share->n_blocks + (i == at ? n_more : 0);

        if (share->n_cached == 0)
            continue;
        kv_block_id id = shelf_next(&share->shelf, now_ns);
        unsigned row = n_blocks > each ? 0 : i == at ? 1 : 2;
        unsigned order = 4 * row + shelf_rank(&share->shelf, id);

        if (order < best_order || (order == best_order && n_blocks > best_blocks)) {
            best = id;
            best_order = order;
            best_blocks = n_blocks;
        }
    }
    ASSERT(best != KV_BLOCK_NONE);
    return best;
}
