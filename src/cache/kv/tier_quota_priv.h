/* SPDX-License-Identifier: Apache-2.0 */
/* The tenants' quotas of the disk tier, and the tenant that gives room.
 *
 * The disk is divided into equal quotas among the tenants that have files on it.  A quota is a floor, not a
 * ceiling: a tenant that is alone has all of it.
 *
 * On disk a tenant is a keyed digest (tier_seal.c), in requests it is a number.  The two are matched at the
 * tenant's first request after a restart; until then its files count for the digest.  At most KV_MAX_TENANTS
 * - 1 tenants have a place of their own.  Further tenants count as anonymous ([0]).  A place is free again
 * when its last file is gone.
 *
 * No I/O, no state but the table; engine thread only. */
#ifndef CACHE_KV_TIER_QUOTA_PRIV_H
#define CACHE_KV_TIER_QUOTA_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/kv/pool_quota.h"
#include "cache/kv/tier_record_priv.h"

enum { TIER_PLACES = KV_MAX_TENANTS, TIER_NO_PLACE = TIER_PLACES };

struct tier_quota { /* of one tenant */
    uint8_t digest[TIER_TENANT_BYTES];
    kv_tenant number; /* when is_known */
    bool is_known;
    uint32_t n_files;
    uint64_t bytes; /* charged bytes of its files */
};

struct tier_quotas {
    struct tier_quota all[TIER_PLACES]; /* [0]: anonymous, and tenants that found no place */
    unsigned n_seen;                    /* places ever used */
};

void tier_quotas_init(struct tier_quotas *quotas, const uint8_t nobody[TIER_TENANT_BYTES]);
/* The place of a tenant that has files and whose number is known (or of KV_TENANT_NONE), or TIER_NO_PLACE. */
unsigned tier_quotas_find(const struct tier_quotas *quotas, kv_tenant tenant);
/* The place of a digest; a tenant without files gets a new one.  0 when no place is left. */
unsigned tier_quotas_place(struct tier_quotas *quotas, const uint8_t digest[TIER_TENANT_BYTES]);
/* Stores the tenant's number at its place; does nothing for [0]. */
void tier_quotas_name(struct tier_quotas *quotas, unsigned at, kv_tenant tenant);
/* Adds n_files and their charged bytes to a place; both may be negative. */
void tier_quotas_add(struct tier_quotas *quotas, unsigned at, int32_t n_files, int64_t bytes);
uint32_t tier_quotas_tenants(const struct tier_quotas *quotas); /* tenants that have files */

/* A request for room: for which tenant and for what. */
struct tier_wish {
    unsigned at;         /* a place, or TIER_NO_PLACE: no tenant, the disk became smaller */
    unsigned rank;       /* retention of the content to be saved */
    uint64_t more_bytes; /* charged bytes that its files are about to gain */
    uint64_t size_bytes; /* of the disk */
};

struct tier_first { /* the tenant's next segment to evict */
    unsigned rank;  /* retention rank; lower ranks are evicted first */
    uint64_t bytes; /* 0: it has none */
};

/* The quota: an equal part of the disk for each tenant that has files, and for the one that wants room. */
uint64_t tier_quotas_each(const struct tier_quotas *quotas, const struct tier_wish *wish);
/* The place whose next file is evicted.  TIER_NO_PLACE: no file may be. */
unsigned tier_quotas_victim(const struct tier_quotas *quotas, const struct tier_first firsts[TIER_PLACES],
                            const struct tier_wish *wish);

#endif
