/* SPDX-License-Identifier: Apache-2.0 */
/* Hash map from short byte keys to pointers: open addressing, keys copied, seeded against chosen collisions.
 * Not thread safe. */
#ifndef BASE_HASHMAP_H
#define BASE_HASHMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hashmap;

/* key_bytes: every key has this length (1..64). */
int hashmap_new(size_t key_bytes, struct hashmap **out);
/* Keys of eight bytes that nobody outside can choose, like a counter's numbers: hashed by a multiplication.
 * Whoever may only look up need not be trusted. */
int hashmap_new_counted(struct hashmap **out);
void hashmap_free(struct hashmap *map); /* values are the caller's */
size_t hashmap_count(const struct hashmap *map);
void *hashmap_get(const struct hashmap *map, const void *key); /* NULL: absent */
/* Has the memory fetched that hashmap_get will look at; worth it for a map larger than the cache, some
 * hundred cycles before. */
void hashmap_prefetch(const struct hashmap *map, const void *key);
/* Sets or replaces; *old_out (may be NULL) gets the value replaced or NULL.  value is not NULL.  E_NOMEM. */
int hashmap_put(struct hashmap *map, const void *key, void *value, void **old_out);
void *hashmap_remove(struct hashmap *map, const void *key); /* the value removed, or NULL */

/* Walks all entries; *cursor starts at 0.  False at the end.  The map must not change meanwhile, except by
 * removal of the entry just given. */
bool hashmap_next(const struct hashmap *map, size_t *cursor, const void **key_out, void **value_out);

#endif
