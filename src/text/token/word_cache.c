/* SPDX-License-Identifier: Apache-2.0 */
/* A table with two slots for each hash: the word that was put last, and the one before. A third word replaces
 * the older one.
 *
 * Merging a word costs about a microsecond, and most words of a long text occurred before. The table lives
 * only while one text is encoded. So no client can learn from its speed what other clients sent. */
#include "text/token/word_cache_priv.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define N_SETS 2048 /* 256 KiB in total, so it stays in a near cache */

struct slot {         /* one cache line */
    uint64_t word[2]; /* the key from word_cache_find() */
    uint8_t len_bytes;
    uint8_t n; /* number of ids; 0: free slot */
    token_id ids[WORD_CACHE_IDS];
};

_Static_assert(sizeof(struct slot) == MEM_CACHE_LINE, "a word, a cache line");

struct word_cache {
    struct slot sets[N_SETS][2];
};

struct word_cache *word_cache_new(void)
{
    return mem_aligned(MEM_CACHE_LINE, sizeof(struct word_cache));
}

void word_cache_free(struct word_cache *cache)
{
    free(cache);
}

/* Loads sixteen bytes from text.data + at; bytes after the text's end are zero. */
static void word_cache_load(struct bytes text, size_t at, uint64_t out[2])
{
    size_t left = text.len_bytes - at;

    out[0] = out[1] = 0;
    if (left >= 2 * sizeof(*out)) /* two loads, independent of the word's length */
        memcpy(out, text.data + at, 2 * sizeof(*out));
    else
        memcpy(out, text.data + at, left);
    out[0] = le64toh(out[0]);
    out[1] = le64toh(out[1]);
}

/* Makes the key: the word's bytes, then zeros. Key and length identify the word. There are no branches,
 * because a CPU cannot predict the length of a word. */
static size_t word_cache_find(struct bytes text, size_t at, size_t n_bytes, uint64_t key[2])
{
    unsigned n_low = n_bytes < 8 ? (unsigned)n_bytes : 8, n_high = (unsigned)n_bytes - n_low;
    uint64_t mixed;

    word_cache_load(text, at, key);
    key[0] &= UINT64_MAX >> (64 - 8 * n_low);
    key[1] &= (UINT64_C(1) << 7 * n_high << n_high) - 1; /* two shifts, because a shift by 64 is undefined */
    mixed = (key[0] ^ (key[1] + n_bytes) * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd);
    return (size_t)(mixed >> 40) % N_SETS;
}

static inline bool word_cache_holds(const struct slot *slot, const uint64_t key[2], size_t n_bytes)
{
    return ((slot->word[0] ^ key[0]) | (slot->word[1] ^ key[1]) | (slot->len_bytes ^ n_bytes)) == 0;
}

unsigned word_cache_get(const struct word_cache *cache, const struct word_span *word,
                        const token_id **ids_out)
{
    const struct slot *set, *slot;
    uint64_t key[2];

    if (cache == NULL || word->n_bytes > WORD_CACHE_BYTES)
        return 0;
    set = cache->sets[word_cache_find(word->text, word->at, word->n_bytes, key)];
    slot = set;
    if (!word_cache_holds(slot, key, word->n_bytes) && !word_cache_holds(++slot, key, word->n_bytes))
        return 0;
    *ids_out = slot->ids;
    return slot->n;
}

void word_cache_put(struct word_cache *cache, const struct word_span *word, const token_id *ids, size_t n)
{
    struct slot *set;
    uint64_t key[2];

    if (cache == NULL || word->n_bytes > WORD_CACHE_BYTES || n == 0 || n > WORD_CACHE_IDS)
        return;
    set = cache->sets[word_cache_find(word->text, word->at, word->n_bytes, key)];
    set[1] = set[0];
    set[0].word[0] = key[0];
    set[0].word[1] = key[1];
    set[0].len_bytes = (uint8_t)word->n_bytes;
    set[0].n = (uint8_t)n;
    memcpy(set[0].ids, ids, n * sizeof(*ids));
}
