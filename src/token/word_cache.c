/* SPDX-License-Identifier: Apache-2.0 */
/* A table in which every word has one place; a later word with the same place takes it.
 *
 * Merging costs about a microsecond for a word, and most words of a long text were there before.  The table
 * lives as long as one text is encoded and belongs to it alone, so nobody can learn from its speed what
 * others have sent. */
#include "token/word_cache.h"

#include <stdlib.h>
#include <string.h>

#define N_SLOTS 4096 /* 196 KiB: stays near the core */

struct slot {
    uint64_t word[2]; /* find()'s key */
    uint8_t len_bytes;
    uint8_t n; /* 0: empty */
    token_id ids[WORD_CACHE_IDS];
};

struct word_cache {
    struct slot slots[N_SLOTS];
};

struct word_cache *word_cache_new(void)
{
    return calloc(1, sizeof(struct word_cache));
}

void word_cache_free(struct word_cache *cache)
{
    free(cache);
}

static uint64_t load(const uint8_t *at, size_t n)
{
    uint64_t loaded = 0;
    uint32_t half;

    if (n == sizeof(loaded)) {
        memcpy(&loaded, at, sizeof(loaded));
        return loaded;
    }
    memcpy(&half, at, sizeof(half));
    return half;
}

/* With the length, the key says what the word is: its beginning and its end, which overlap in it. */
static size_t find(struct bytes word, uint64_t key[2])
{
    const uint8_t *data = word.data;
    size_t n = word.len_bytes;
    uint64_t mixed;

    if (n >= 8) {
        key[0] = load(data, 8);
        key[1] = load(data + n - 8, 8);
    } else if (n >= 4) {
        key[0] = load(data, 4);
        key[1] = load(data + n - 4, 4);
    } else {
        key[0] = n == 0 ? 0 : (uint64_t)data[0] << 16 | (uint64_t)data[n / 2] << 8 | data[n - 1];
        key[1] = 0;
    }
    mixed = (key[0] ^ (key[1] + n) * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd);
    return (size_t)(mixed >> 40) % N_SLOTS;
}

unsigned word_cache_get(const struct word_cache *cache, struct bytes word, const token_id **ids_out)
{
    const struct slot *slot;
    uint64_t key[2];

    if (cache == NULL || word.len_bytes > WORD_CACHE_BYTES)
        return 0;
    slot = &cache->slots[find(word, key)];
    if (slot->n == 0 || slot->word[0] != key[0] || slot->word[1] != key[1] ||
        slot->len_bytes != word.len_bytes)
        return 0;
    *ids_out = slot->ids;
    return slot->n;
}

void word_cache_put(struct word_cache *cache, struct bytes word, const token_id *ids, size_t n)
{
    struct slot *slot;
    uint64_t key[2];

    if (cache == NULL || word.len_bytes > WORD_CACHE_BYTES || n == 0 || n > WORD_CACHE_IDS)
        return;
    slot = &cache->slots[find(word, key)];
    slot->word[0] = key[0];
    slot->word[1] = key[1];
    slot->len_bytes = (uint8_t)word.len_bytes;
    slot->n = (uint8_t)n;
    memcpy(slot->ids, ids, n * sizeof(*ids));
}
