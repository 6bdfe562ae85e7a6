/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas of the disk (tier_quota_priv.h defines them).
 *
 *     a tenant that needs room takes it from
 *
 *       1. tenants above their quota, the one with most first; pins do not protect them.  A taker above its
 *          own quota takes only from tenants that have more than itself, and only files ranked no higher
 *          than its wish
 *       2. itself: files ranked no higher than its wish
 *       3. no tenant: the block is not saved
 *
 * Files are evicted whole, so a tenant above its quota by less than a file would fall below it.  Such a
 * tenant gives a file only to a taker that will have no more than what it keeps.  So a tenant falls below its
 * quota by at most one file, and never for a better-off tenant.  And a tenant with nothing reaches its quota,
 * or to within a file of it.  Two tenants that write without end stay there: neither takes back the bytes
 * that the other took. */
#include "cache/kv/tier_quota_priv.h"

#include <string.h>

#include "base/check.h"
#include "cache/kv/pool_quota.h"

/* ---- places ---- */

void tier_quotas_init(struct tier_quotas *quotas, const uint8_t nobody[TIER_TENANT_BYTES])
{
    *quotas = (struct tier_quotas){.n_seen = 1};
    memcpy(quotas->all[0].digest, nobody, TIER_TENANT_BYTES);
    quotas->all[0].number = KV_TENANT_NONE;
    quotas->all[0].is_known = true;
}

unsigned tier_quotas_find(const struct tier_quotas *quotas, kv_tenant tenant)
{
    if (tenant == KV_TENANT_NONE)
        return 0;
    for (unsigned at = 1; at < quotas->n_seen; at++) {
        const struct tier_quota *quota = &quotas->all[at];

        if (quota->n_files > 0 && quota->is_known && quota->number == tenant)
            return at;
    }
    return TIER_NO_PLACE;
}

unsigned tier_quotas_place(struct tier_quotas *quotas, const uint8_t digest[TIER_TENANT_BYTES])
{
    unsigned free_at = TIER_NO_PLACE;

    for (unsigned at = 0; at < quotas->n_seen; at++) {
        bool is_held = at == 0 || quotas->all[at].n_files > 0;

        if (is_held && memcmp(quotas->all[at].digest, digest, TIER_TENANT_BYTES) == 0)
            return at;
        if (!is_held && free_at == TIER_NO_PLACE)
            free_at = at;
    }
    if (free_at == TIER_NO_PLACE && quotas->n_seen < TIER_PLACES)
        free_at = quotas->n_seen++;
    if (free_at == TIER_NO_PLACE)
        return 0;
    quotas->all[free_at] = (struct tier_quota){0};
    memcpy(quotas->all[free_at].digest, digest, TIER_TENANT_BYTES);
    return free_at;
}

void tier_quotas_name(struct tier_quotas *quotas, unsigned at, kv_tenant tenant)
{
    if (at == 0)
        return;
    quotas->all[at].number = tenant;
    quotas->all[at].is_known = true;
}

void tier_quotas_add(struct tier_quotas *quotas, unsigned at, int32_t n_files, int64_t bytes)
{
    struct tier_quota *quota = &quotas->all[at];

    ASSERT(n_files >= 0 || quota->n_files >= (uint32_t)-n_files);
    ASSERT(bytes >= 0 || quota->bytes >= (uint64_t)-bytes);
    quota->n_files += (uint32_t)n_files;
    quota->bytes += (uint64_t)bytes;
}

uint32_t tier_quotas_tenants(const struct tier_quotas *quotas)
{
    uint32_t n = 0;

    for (unsigned at = 0; at < quotas->n_seen; at++)
        n += quotas->all[at].n_files > 0;
    return n;
}

/* ---- which tenant gives room ---- */

uint64_t tier_quotas_each(const struct tier_quotas *quotas, const struct tier_wish *wish)
{
    uint32_t n = tier_quotas_tenants(quotas);

    if (wish->at != TIER_NO_PLACE && quotas->all[wish->at].n_files == 0)
        n++;
    return n > 0 ? wish->size_bytes / n : wish->size_bytes;
}

/* True if another tenant's file may be evicted for a taker that will then have taker_bytes. */
static bool tier_quota_may_take(const struct tier_quota *quota, const struct tier_first *first, uint64_t each,
                                uint64_t taker_bytes)
{
    uint64_t left_bytes = quota->bytes - first->bytes;

    return quota->bytes > each && (left_bytes >= each || left_bytes >= taker_bytes);
}

unsigned tier_quotas_victim(const struct tier_quotas *quotas, const struct tier_first firsts[TIER_PLACES],
                            const struct tier_wish *wish)
{
    uint64_t each = tier_quotas_each(quotas, wish), best_bytes = 0;
    uint64_t has_bytes = wish->at == TIER_NO_PLACE ? 0 : quotas->all[wish->at].bytes + wish->more_bytes;
    bool is_above = has_bytes > each, has_own;
    unsigned best = TIER_NO_PLACE;

    has_own = wish->at != TIER_NO_PLACE && firsts[wish->at].bytes > 0 && firsts[wish->at].rank <= wish->rank;
    if (is_above) /* only tenants that have more come before its own files */
        best_bytes = has_bytes;
    for (unsigned at = 0; at < quotas->n_seen; at++) {
        const struct tier_quota *quota = &quotas->all[at];

        if (at == wish->at || firsts[at].bytes == 0 || quota->bytes <= best_bytes ||
            (is_above && firsts[at].rank > wish->rank))
            continue;
        if (tier_quota_may_take(quota, &firsts[at], each, has_bytes)) {
            best = at;
            best_bytes = quota->bytes;
        }
    }
    return best == TIER_NO_PLACE && has_own ? wish->at : best;
}
