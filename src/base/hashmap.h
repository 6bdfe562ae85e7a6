/* SPDX-License-Identifier: Apache-2.0 */
/* Hash map from short byte keys to pointers: open addressing, keys copied, seeded against chosen collisions.
 * Not thread safe. */
#ifndef BASE_HASHMAP_H
#define BASE_HASHMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* About the memory of an entry beside its value: a half-filled slot, and the allocator's overhead. */
#define HASHMAP_ENTRY_BYTES 128

struct hashmap;

/* key_bytes: every key has this length (1..64). */
int hashmap_new(size_t key_bytes, struct hashmap **out);
/* For 8-byte keys that outsiders cannot choose, such as numbers from a counter.  The hash is one
 * multiplication.  Untrusted callers may look keys up, but must not choose keys that are stored. */
int hashmap_new_counted(struct hashmap **out);
void hashmap_free(struct hashmap *map); /* does not free the values */
size_t hashmap_count(const struct hashmap *map);
void *hashmap_get(const struct hashmap *map, const void *key); /* NULL: absent */
/* Prefetches the memory that hashmap_get() will read.  Useful for a map larger than the cache, some hundred
 * cycles before the look-up. */
void hashmap_prefetch(const struct hashmap *map, const void *key);
/* Sets or replaces the value of key. *old_out (may be NULL) gets the replaced value, or NULL. value must not
 * be NULL.  E_NOMEM. */
int hashmap_put(struct hashmap *map, const void *key, void *value, void **old_out);
void *hashmap_remove(struct hashmap *map, const void *key); /* returns the removed value, or NULL */

/* Iterates over all entries; *cursor starts at 0.  Returns false at the end.  During the iteration the
 * caller may remove the entry just returned, and must not change the map in any other way. */
bool hashmap_next(const struct hashmap *map, size_t *cursor, const void **key_out, void **value_out);

#endif
