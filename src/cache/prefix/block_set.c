/* SPDX-License-Identifier: Apache-2.0 */
/* The set of block hashes (block_set.h).  A hash is a keyed digest, so its own bytes choose the bucket.  A bucket is
 * [ newest ... oldest | free ]. */
#include "cache/prefix/block_set.h"

#include <stdlib.h>
#include <string.h>

struct block_set {
    uint32_t n;
    uint8_t n_in[BLOCK_SET_BUCKETS];
    struct block_hash hashes[BLOCK_SET_BUCKETS][BLOCK_SET_WAYS];
};

struct block_set *block_set_new(void)
{
    return calloc(1, sizeof(struct block_set));
}

void block_set_free(struct block_set *set)
{
    free(set);
}

static uint32_t block_set_bucket(const struct block_hash *hash)
{
    return (hash->bytes[0] | (uint32_t)hash->bytes[1] << 8) % BLOCK_SET_BUCKETS;
}

/* The place in the bucket; n_in[bucket]: it is not there. */
static unsigned block_set_find(const struct block_set *set, uint32_t bucket, const struct block_hash *hash)
{
    unsigned at = 0;

    while (at < set->n_in[bucket] && memcmp(&set->hashes[bucket][at], hash, sizeof(*hash)) != 0)
        at++;
    return at;
}

bool block_set_has(const struct block_set *set, const struct block_hash *hash)
{
    uint32_t bucket = block_set_bucket(hash);

    return block_set_find(set, bucket, hash) < set->n_in[bucket];
}

bool block_set_add(struct block_set *set, const struct block_hash *hash)
{
    uint32_t bucket = block_set_bucket(hash);
    struct block_hash *hashes = set->hashes[bucket];

    if (block_set_find(set, bucket, hash) < set->n_in[bucket])
        return false;
    if (set->n_in[bucket] < BLOCK_SET_WAYS) {
        set->n_in[bucket]++;
        set->n++;
    }
    memmove(hashes + 1, hashes, (set->n_in[bucket] - 1u) * sizeof(*hashes));
    hashes[0] = *hash;
    return true;
}

bool block_set_remove(struct block_set *set, const struct block_hash *hash)
{
    uint32_t bucket = block_set_bucket(hash);
    unsigned at = block_set_find(set, bucket, hash);
    struct block_hash *hashes = set->hashes[bucket];

    if (at == set->n_in[bucket])
        return false;
    set->n_in[bucket]--;
    set->n--;
    memmove(hashes + at, hashes + at + 1, (set->n_in[bucket] - at) * sizeof(*hashes));
    return true;
}

uint32_t block_set_count(const struct block_set *set)
{
    return set->n;
}

uint32_t block_set_list(const struct block_set *set, struct block_hash *out, uint32_t most)
{
    uint32_t n = 0;

    for (uint32_t bucket = 0; bucket < BLOCK_SET_BUCKETS; bucket++)
        for (unsigned at = 0; at < set->n_in[bucket] && n < most; at++)
            out[n++] = set->hashes[bucket][at];
    return n;
}
