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
 * Within a row it takes from the tenant whose next block has the lowest rank (eviction.c), among equals from
 * the tenant with most blocks.  Both blocks and quotas add up to the pool.  So as long as callers respect
 * kv_available_to(), no tenant falls below its quota for others.
 *
 * A tenant's eviction queue is allocated at the tenant's first block.  When the tenant has no block left, another
 * tenant reuses it.  Without a free place or memory the tenant counts as KV_TENANT_NONE ([0]).
 *
 * Hot path: no log; one look at all tenants for each evicted block.
 * How to change it: docs/changes-worker.md, "Which block an eviction takes first". */
#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/pool_priv.h"

static bool quota_has_queue(struct quotas *quotas, unsigned at)
{
    struct quota *quota = &quotas->all[at];

    if (!quota->has_queue) {
        if (eviction_init(&quota->queue, quotas->places, quotas->opts->n_blocks) < 0) {
            eviction_fini(&quota->queue);
            return false;
        }
        quota->has_queue = true;
    }
    return true;
}

int quotas_init(struct quotas *quotas, const struct kv_pool_opts *opts)
{
    *quotas =
        (struct quotas){.opts = opts, .n_seen = 1, .places = calloc(opts->n_blocks, sizeof(*quotas->places))};
    return quotas->places != NULL && quota_has_queue(quotas, 0) ? 0 : E_NOMEM;
}

void quotas_fini(struct quotas *quotas)
{
    for (unsigned at = 0; at < quotas->n_seen; at++)
        if (quotas->all[at].has_queue)
            eviction_fini(&quotas->all[at].queue);
    free(quotas->places);
}

unsigned quotas_find(const struct quotas *quotas, kv_tenant tenant)
{
    if (tenant == KV_TENANT_NONE)
        return 0;
    for (unsigned at = 1; at < quotas->n_seen; at++)
        if (quotas->all[at].tenant == tenant && quotas->all[at].n_blocks > 0)
            return at;
    return KV_MAX_TENANTS;
}

unsigned quotas_place(struct quotas *quotas, kv_tenant tenant)
{
    unsigned at = quotas_find(quotas, tenant);

    if (at < KV_MAX_TENANTS)
        return at;
    for (at = 1; at < quotas->n_seen && quotas->all[at].n_blocks > 0; at++)
        ;
    if (at == KV_MAX_TENANTS || !quota_has_queue(quotas, at))
        return 0;
    quotas->all[at].tenant = tenant;
    if (at == quotas->n_seen)
        quotas->n_seen++;
    return at;
}

uint32_t quotas_each(const struct quotas *quotas, unsigned at)
{
    uint32_t n_tenants = at == KV_MAX_TENANTS;

    for (unsigned i = 0; i < quotas->n_seen; i++)
        n_tenants += quotas->all[i].n_blocks > 0 || i == at;
    return quotas->opts->n_blocks / n_tenants;
}

kv_block_id quotas_victim(struct quotas *quotas, unsigned at, uint32_t n_more, uint64_t now_ns)
{
    uint32_t each = quotas_each(quotas, at), best_blocks = 0;
    unsigned best_order = UINT32_MAX;
    kv_block_id best = KV_BLOCK_NONE;

    for (unsigned i = 0; i < quotas->n_seen; i++) {
        struct quota *quota = &quotas->all[i];
        uint32_t n_blocks = quota->n_blocks + (i == at ? n_more : 0);

        if (quota->n_cached == 0)
            continue;
        kv_block_id id = eviction_next(&quota->queue, now_ns);
        unsigned row = n_blocks > each ? 0 : i == at ? 1 : 2;
        unsigned order = EVICTION_N_RANKS * row + eviction_rank(&quota->queue, id);

        if (order < best_order || (order == best_order && n_blocks > best_blocks)) {
            best = id;
            best_order = order;
            best_blocks = n_blocks;
        }
    }
    ASSERT(best != KV_BLOCK_NONE);
    return best;
}
