/* SPDX-License-Identifier: Apache-2.0 */
/* Whose the disk tier's files are, and from whom room is taken.
 *
 * The disk is divided into equal shares among the tenants that have files on it.  A share is a floor, not a
 * ceiling: who is alone has all of it.
 *
 * On disk a tenant is a keyed digest (tier_seal.c), in requests it is a number; the two meet when the tenant
 * is first heard of after a restart.  Until then its files count for the digest.  At most KV_MAX_TENANTS - 1
 * are told apart at a time, those beyond count as nobody's ([0]); a place is free again when its last file
 * has gone.
 *
 * Pure but for the table itself; engine thread only. */
#ifndef CACHE_KV_TIER_SHARE_PRIV_H
#define CACHE_KV_TIER_SHARE_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/kv/pool.h"
#include "cache/kv/tier_record_priv.h"

enum { TIER_PLACES = KV_MAX_TENANTS, TIER_NO_PLACE = TIER_PLACES };

struct tier_share { /* of one tenant */
    uint8_t digest[TIER_TENANT_BYTES];
    kv_tenant number; /* when is_known */
    bool is_known;
    uint32_t n_files;
    uint64_t bytes; /* that they count with */
};

struct tier_shares {
    struct tier_share all[TIER_PLACES]; /* [0]: nobody, and whoever finds no place */
    unsigned n_seen;                    /* places ever used */
};

void tier_shares_init(struct tier_shares *shares, const uint8_t nobody[TIER_TENANT_BYTES]);
/* The place of a tenant that has files and whose number was heard of (or of nobody), or TIER_NO_PLACE. */
unsigned tier_shares_find(const struct tier_shares *shares, kv_tenant tenant);
/* The place of a digest; a tenant that has no file yet gets one.  0 when there is none left. */
unsigned tier_shares_place(struct tier_shares *shares, const uint8_t digest[TIER_TENANT_BYTES]);
/* Whose place it is; nothing for [0]. */
void tier_shares_name(struct tier_shares *shares, unsigned at, kv_tenant tenant);
/* Files that count with so many bytes more. */
void tier_shares_add(struct tier_shares *shares, unsigned at, int32_t n_files, int64_t bytes);
uint32_t tier_shares_tenants(const struct tier_shares *shares); /* that have files */

/* Who wants room, for what. */
struct tier_wish {
    unsigned at;         /* a place, or TIER_NO_PLACE: nobody, the disk became smaller */
    unsigned rank;       /* what it is wanted for */
    uint64_t more_bytes; /* that its files are about to count with */
    uint64_t size_bytes; /* of the disk */
};

struct tier_first { /* a tenant's file that is the next of its own to go */
    unsigned rank;  /* the lower the less wanted */
    uint64_t bytes; /* 0: it has none */
};

/* An equal part of the disk for each that has files, and for who wants room. */
uint64_t tier_shares_each(const struct tier_shares *shares, const struct tier_wish *wish);
/* Whose first file goes.  TIER_NO_PLACE: nobody's may. */
unsigned tier_shares_victim(const struct tier_shares *shares, const struct tier_first firsts[TIER_PLACES],
                            const struct tier_wish *wish);

#endif
