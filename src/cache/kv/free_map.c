/* SPDX-License-Identifier: Apache-2.0 */
/* Free blocks as a bitmap, allocated in runs.
 *
 * One layer of adjacent blocks is one run of bytes.  So a prompt with adjacent blocks needs fewer operations
 * to transfer.  A take of n first looks for one run that holds all n, lowest first.  Failing that, it accepts
 * runs of n/2, then n/4 and so on, and takes all that exist at each size.  That is at most log2(n) + 1 passes
 * over a bitmap of one bit per block, however scattered the pool is.  A take of one, the usual case in
 * decode, stops at the first free bit, which first_word finds without a search. */
#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "cache/kv/pool_priv.h"

#define WORD_BITS 64

int free_map_init(struct free_map *map, uint32_t n_ids)
{
    uint32_t n_words = (n_ids + WORD_BITS - 1) / WORD_BITS;

    *map = (struct free_map){.n_ids = n_ids};
    map->words = calloc(n_words, sizeof(*map->words));
    if (map->words == NULL)
        return E_NOMEM;
    for (kv_block_id id = 0; id < n_ids; id++)
        free_map_put(map, id);
    return 0;
}

void free_map_fini(struct free_map *map)
{
    free(map->words);
    map->words = NULL;
}

void free_map_put(struct free_map *map, kv_block_id id)
{
    uint32_t word = id / WORD_BITS;
    uint64_t bit = UINT64_C(1) << id % WORD_BITS;

    ASSERT(id < map->n_ids && !(map->words[word] & bit));
    map->words[word] |= bit;
    map->n_free++;
    if (word < map->first_word)
        map->first_word = word;
}

/* The first id at or after from that is free (or not free), n_ids if there is none. */
static uint32_t free_map_find(const struct free_map *map, uint32_t from, bool is_free)
{
    uint64_t flip = is_free ? 0 : UINT64_MAX;

    while (from < map->n_ids) {
        uint64_t rest = (map->words[from / WORD_BITS] ^ flip) >> from % WORD_BITS;

        if (rest) {
            from += (uint32_t)__builtin_ctzll(rest);
            break;
        }
        from += WORD_BITS - from % WORD_BITS;
    }
    return from < map->n_ids ? from : map->n_ids;
}

static void free_map_take_run(struct free_map *map, uint32_t from, uint32_t n, kv_block_id *ids_out)
{
    for (uint32_t i = 0; i < n; i++) {
        map->words[(from + i) / WORD_BITS] &= ~(UINT64_C(1) << (from + i) % WORD_BITS);
        ids_out[i] = from + i;
    }
    map->n_free -= n;
}

/* Takes up to n ids from runs of at least want ids, or of as many ids as are still missing. */
static uint32_t free_map_take_runs(struct free_map *map, uint32_t want, uint32_t n, kv_block_id *ids_out)
{
    uint32_t n_taken = 0;

    for (uint32_t at = map->first_word * WORD_BITS; n_taken < n;) {
        uint32_t begin = free_map_find(map, at, true), end = free_map_find(map, begin, false);
        uint32_t missing = n - n_taken, len = end - begin;

        if (begin == map->n_ids)
            break;
        if (len >= want || len >= missing) {
            uint32_t take = len < missing ? len : missing;

            free_map_take_run(map, begin, take, ids_out + n_taken);
            n_taken += take;
        }
        at = end;
    }
    return n_taken;
}

void free_map_take(struct free_map *map, uint32_t n, kv_block_id *ids_out)
{
    ASSERT(n <= map->n_free);

    uint32_t want = n, n_taken = 0;
    while (n_taken < n) {
        n_taken += free_map_take_runs(map, want, n - n_taken, ids_out + n_taken);
        want = (want + 1) / 2;
    }

    uint32_t n_words = (map->n_ids + WORD_BITS - 1) / WORD_BITS;
    while (map->first_word < n_words && map->words[map->first_word] == 0)
        map->first_word++;
}
