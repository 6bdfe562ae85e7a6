/* SPDX-License-Identifier: Apache-2.0 */
/* The tenants' quotas of the pool.  The essay of pool.h has the rule; quota.c chooses the block.
 *
 * Engine thread only. */
#ifndef CACHE_KV_POOL_QUOTA_H
#define CACHE_KV_POOL_QUOTA_H

#include "cache/kv/pool.h"

/* A number for the tenant whose quota a block uses.  When more than KV_MAX_TENANTS tenants have blocks, the further
 * ones count as one tenant. */
typedef uint64_t kv_tenant;
#define KV_TENANT_NONE 0 /* anonymous; counts as a tenant, too */
enum { KV_MAX_TENANTS = 64 };

/* As kv_take(), for a tenant: the blocks count for its quota. */
int kv_take_for(struct kv_pool *pool, kv_tenant tenant, uint32_t n, kv_block_id *ids_out);
/* As kv_available(), without the blocks that other tenants have within their quotas. */
uint32_t kv_available_to(const struct kv_pool *pool, kv_tenant tenant);
/* The tenant's blocks (held and cached), and its quota, which other tenants cannot take. */
uint32_t kv_tenant_blocks(const struct kv_pool *pool, kv_tenant tenant);
uint32_t kv_tenant_quota(const struct kv_pool *pool, kv_tenant tenant);

#endif
