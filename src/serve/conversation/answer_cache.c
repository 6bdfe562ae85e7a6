/* SPDX-License-Identifier: Apache-2.0 */
/* A hash map of answers and a list in order of use.  An answer's size includes all its pieces and its
 * entry in the map. */
#include "serve/conversation/answer_cache.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hashmap.h"

struct cached_piece {
    struct cached_piece *next;
    max_align_t data[];
};

struct answer_cache {
    pthread_mutex_t lock; /* protects all fields below */
    struct hashmap *map;
    struct list by_use; /* most recently used last */
    size_t bytes, max_bytes;
};

static size_t answer_cache_bytes_of_answer(const struct cached_answer *answer)
{
    return sizeof(*answer) + answer->bytes + HASHMAP_ENTRY_BYTES;
}

int answer_cache_new(size_t max_bytes, struct answer_cache **out)
{
    struct answer_cache *cache = calloc(1, sizeof(*cache));

    if (cache == NULL)
        return E_NOMEM;
    pthread_mutex_init(&cache->lock, NULL);
    list_init(&cache->by_use);
    cache->max_bytes = max_bytes;
    if (hashmap_new(sizeof(struct answer_key), &cache->map) < 0) {
        free(cache);
        return E_NOMEM;
    }
    *out = cache;
    return 0;
}

static void answer_cache_forget(struct answer_cache *cache, struct cached_answer *answer)
{
    hashmap_remove(cache->map, &answer->key);
    list_remove(&answer->node);
    cache->bytes -= answer_cache_bytes_of_answer(answer);
    cached_answer_unref(answer);
}

void answer_cache_free(struct answer_cache *cache)
{
    if (cache == NULL)
        return;
    list_for_each_safe (node, spare, &cache->by_use)
        answer_cache_forget(cache, container_of(node, struct cached_answer, node));
    hashmap_free(cache->map);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

static void put_locked(struct answer_cache *cache, const struct answer_key *key, struct cached_answer *answer)
{
    struct cached_answer *older = hashmap_get(cache->map, key);

    if (older != NULL)
        answer_cache_forget(cache, older);
    answer->key = *key;
    if (answer_cache_bytes_of_answer(answer) > cache->max_bytes ||
        hashmap_put(cache->map, key, answer, NULL) < 0) {
        cached_answer_unref(answer);
        return;
    }
    list_push_back(&cache->by_use, &answer->node);
    cache->bytes += answer_cache_bytes_of_answer(answer);
    while (cache->bytes > cache->max_bytes)
        answer_cache_forget(cache, container_of(cache->by_use.next, struct cached_answer, node));
}

void answer_cache_put(struct answer_cache *cache, const struct answer_key *key, struct cached_answer *answer)
{
    pthread_mutex_lock(&cache->lock);
    put_locked(cache, key, answer);
    pthread_mutex_unlock(&cache->lock);
}

struct cached_answer *answer_cache_get(struct answer_cache *cache, const struct answer_key *key, bool is_use)
{
    struct cached_answer *answer;

    pthread_mutex_lock(&cache->lock);
    answer = hashmap_get(cache->map, key);
    if (answer != NULL)
        answer->n_refs++;
    if (answer != NULL && is_use) {
        list_remove(&answer->node);
        list_push_back(&cache->by_use, &answer->node);
    }
    pthread_mutex_unlock(&cache->lock);
    return answer;
}

bool answer_cache_has(struct answer_cache *cache, const struct answer_key *key)
{
    pthread_mutex_lock(&cache->lock);
    bool has = hashmap_get(cache->map, key) != NULL;
    pthread_mutex_unlock(&cache->lock);
    return has;
}

size_t answer_cache_count(struct answer_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    size_t n = hashmap_count(cache->map);
    pthread_mutex_unlock(&cache->lock);
    return n;
}

size_t answer_cache_bytes(struct answer_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    size_t bytes = cache->bytes;
    pthread_mutex_unlock(&cache->lock);
    return bytes;
}

int cached_answer_new(struct cached_answer **out)
{
    struct cached_answer *answer = calloc(1, sizeof(*answer));

    if (answer == NULL)
        return E_NOMEM;
    list_init(&answer->node);
    answer->n_refs = 1;
    *out = answer;
    return 0;
}

void cached_answer_unref(struct cached_answer *answer)
{
    if (answer == NULL || --answer->n_refs > 0)
        return;
    while (answer->pieces != NULL) {
        struct cached_piece *piece = answer->pieces;

        answer->pieces = piece->next;
        free(piece);
    }
    free(answer);
}

void *cached_answer_take(struct cached_answer *answer, size_t len_bytes)
{
    size_t whole = sizeof(struct cached_piece) + len_bytes;
    struct cached_piece *piece = calloc(1, whole);

    if (piece == NULL)
        return NULL;
    piece->next = answer->pieces;
    answer->pieces = piece;
    answer->bytes += whole;
    return piece->data;
}
