/* SPDX-License-Identifier: Apache-2.0 */
/* Open addressing with linear probing; keys have one fixed length and are copied.
 *
 *     keys    [ k k . k k . . k ]     key i lies at keys + i * key_bytes
 *     values  [ v v 0 v T 0 0 v ]     NULL: never used; T (tombstone): removed, probing continues past it
 *
 * Tombstones, instead of moving entries back, let an iteration remove the entry it just got.  A tombstone
 * whose right neighbour is unused ends no chain and is cleared at once.  So a map that is filled and emptied
 * again stays clean.  The map is rehashed when live entries and tombstones together fill three quarters.
 *
 * The hash is SipHash-1-3 with a random key for each map, because keys often come from clients and no client
 * may be able to choose keys that collide.  So the order of an iteration differs from run to run; nothing
 * may depend on it.
 *
 * Keys from our own counters need no such protection.  One multiplication spreads them, and its high bits
 * affect every bit of the slot number. */
#include "base/hashmap.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"

struct hashmap {
    size_t key_bytes;
    bool is_counted; /* 8-byte keys from our own counters */
    size_t n_slots;  /* a power of two, or 0 before the first entry */
    size_t n_live;
    size_t n_used; /* live entries and tombstones */
    uint8_t *keys;
    void **values;
    uint64_t seed[2];
};

static char tombstone_mark;
#define TOMBSTONE ((void *)&tombstone_mark)

static uint64_t hashmap_rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = hashmap_rotl(v[1], 13) ^ v[0];
    v[0] = hashmap_rotl(v[0], 32);
    v[2] += v[3];
    v[3] = hashmap_rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = hashmap_rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = hashmap_rotl(v[1], 17) ^ v[2];
    v[2] = hashmap_rotl(v[2], 32);
}

static uint64_t hash_counted(const uint8_t *key)
{
    uint64_t product = get_u64(key) * UINT64_C(0x9e3779b97f4a7c15);

    return product ^ product >> 32;
}

static uint64_t hash_chosen(const struct hashmap *map, const uint8_t *key)
{
    uint64_t v[4] = {
        map->seed[0] ^ UINT64_C(0x736f6d6570736575),
        map->seed[1] ^ UINT64_C(0x646f72616e646f6d),
        map->seed[0] ^ UINT64_C(0x6c7967656e657261),
        map->seed[1] ^ UINT64_C(0x7465646279746573),
    };
    uint8_t last[8] = {0};
    size_t at = 0;

    for (; at + 8 <= map->key_bytes; at += 8) {
        uint64_t word = get_u64(key + at);

        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    memcpy(last, key + at, map->key_bytes - at);
    last[7] = (uint8_t)map->key_bytes;
    v[3] ^= get_u64(last);
    sip_round(v);
    v[0] ^= get_u64(last);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static uint64_t hashmap_hash_key(const struct hashmap *map, const uint8_t *key)
{
    return map->is_counted ? hash_counted(key) : hash_chosen(map, key);
}

int hashmap_new(size_t key_bytes, struct hashmap **out)
{
    if (key_bytes < 1 || key_bytes > 64)
        return E_INVAL;

    struct hashmap *map = calloc(1, sizeof(*map));
    if (map == NULL)
        return E_NOMEM;
    map->key_bytes = key_bytes;
    rng_system(map->seed, sizeof(map->seed));
    *out = map;
    return 0;
}

int hashmap_new_counted(struct hashmap **out)
{
    int rc = hashmap_new(sizeof(uint64_t), out);

    if (rc == 0)
        (*out)->is_counted = true;
    return rc;
}

void hashmap_free(struct hashmap *map)
{
    if (map == NULL)
        return;
    free(map->keys);
    free(map->values);
    free(map);
}

size_t hashmap_count(const struct hashmap *map)
{
    return map->n_live;
}

static uint8_t *key_at(const struct hashmap *map, size_t slot)
{
    return map->keys + slot * map->key_bytes;
}

/* Fast path: most keys are 8-byte numbers. */
static bool is_key_at(const struct hashmap *map, size_t slot, const void *key)
{
    if (map->key_bytes == sizeof(uint64_t))
        return get_u64(key_at(map, slot)) == get_u64(key);
    return memcmp(key_at(map, slot), key, map->key_bytes) == 0;
}

/* The slot that holds key.  If absent: SIZE_MAX, and *free_out is the slot for it. */
static size_t find_slot(const struct hashmap *map, const void *key, size_t *free_out)
{
    size_t mask = map->n_slots - 1;
    size_t first_free = SIZE_MAX;

    for (size_t slot = hashmap_hash_key(map, key) & mask;; slot = (slot + 1) & mask) {
        void *value = map->values[slot];

        if (value != NULL && value != TOMBSTONE) {
            if (is_key_at(map, slot, key))
                return slot;
            continue;
        }
        if (first_free == SIZE_MAX)
            first_free = slot;
        if (value == NULL)
            break; /* ends: at most three quarters of the slots are taken */
    }
    *free_out = first_free;
    return SIZE_MAX;
}

void *hashmap_get(const struct hashmap *map, const void *key)
{
    size_t ignored;

    if (map->n_live == 0)
        return NULL;
    size_t slot = find_slot(map, key, &ignored);
    return slot == SIZE_MAX ? NULL : map->values[slot];
}

void hashmap_prefetch(const struct hashmap *map, const void *key)
{
    size_t slot;

    if (map->n_live == 0)
        return;
    slot = hashmap_hash_key(map, key) & (map->n_slots - 1);
    __builtin_prefetch(&map->values[slot]);
    __builtin_prefetch(key_at(map, slot));
}

static int hashmap_rehash(struct hashmap *map)
{
    struct hashmap next = *map;

    next.n_slots = 16;
    while (next.n_slots < map->n_live * 2 + 2)
        next.n_slots *= 2;
    next.n_used = map->n_live;
    next.keys = calloc(next.n_slots, map->key_bytes);
    next.values = calloc(next.n_slots, sizeof(*next.values));
    if (next.keys == NULL || next.values == NULL) {
        free(next.keys);
        free(next.values);
        return E_NOMEM;
    }

    for (size_t from = 0; from < map->n_slots; from++) {
        size_t to = 0;

        if (map->values[from] == NULL || map->values[from] == TOMBSTONE)
            continue;
        find_slot(&next, key_at(map, from), &to);
        memcpy(key_at(&next, to), key_at(map, from), map->key_bytes);
        next.values[to] = map->values[from];
    }
    free(map->keys);
    free(map->values);
    *map = next;
    return 0;
}

int hashmap_put(struct hashmap *map, const void *key, void *value, void **old_out)
{
    size_t slot = SIZE_MAX, free_slot = 0;

    ASSERT(value != NULL);
    if (map->n_live > 0)
        slot = find_slot(map, key, &free_slot);
    if (slot == SIZE_MAX) {
        if ((map->n_used + 1) * 4 > map->n_slots * 3) {
            int rc = hashmap_rehash(map);
            if (rc != 0)
                return rc;
        }
        find_slot(map, key, &free_slot);
    }

    void *old = NULL;
    if (slot != SIZE_MAX) {
        old = map->values[slot];
    } else {
        slot = free_slot;
        map->n_used += map->values[slot] == NULL;
        map->n_live++;
        memcpy(key_at(map, slot), key, map->key_bytes);
    }
    map->values[slot] = value;
    if (old_out != NULL)
        *old_out = old;
    return 0;
}

void *hashmap_remove(struct hashmap *map, const void *key)
{
    size_t mask = map->n_slots - 1, ignored;

    if (map->n_live == 0)
        return NULL;
    size_t slot = find_slot(map, key, &ignored);
    if (slot == SIZE_MAX)
        return NULL;

    void *old = map->values[slot];
    map->values[slot] = TOMBSTONE;
    map->n_live--;
    if (map->values[(slot + 1) & mask] == NULL)
        for (; map->values[slot] == TOMBSTONE; slot = (slot - 1) & mask) {
            map->values[slot] = NULL;
            map->n_used--;
        }
    return old;
}

bool hashmap_next(const struct hashmap *map, size_t *cursor, const void **key_out, void **value_out)
{
    for (; *cursor < map->n_slots; ++*cursor) {
        void *value = map->values[*cursor];

        if (value == NULL || value == TOMBSTONE)
            continue;
        if (key_out != NULL)
            *key_out = key_at(map, *cursor);
        if (value_out != NULL)
            *value_out = value;
        ++*cursor;
        return true;
    }
    return false;
}
