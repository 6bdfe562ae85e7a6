/* SPDX-License-Identifier: Apache-2.0 */
/* A hash map of answers and a list in order of use.  An answer's size includes all its pieces and its
 * entry in the map. */
#include "serve/conversation/memory.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hashmap.h"

#define OVERHEAD_BYTES 128 /* the map's half-filled slot and the allocator's overhead */

struct memory_piece {
    struct memory_piece *next;
    max_align_t data[];
};

struct memory {
    pthread_mutex_t lock; /* protects all fields below */
    struct hashmap *map;
    struct list by_use; /* most recently used last */
    size_t bytes, max_bytes;
};

static size_t bytes_of_answer(const struct memory_answer *answer)
{
    return sizeof(*answer) + answer->bytes + OVERHEAD_BYTES;
}

int memory_new(size_t max_bytes, struct memory **out)
{
    struct memory *memory = calloc(1, sizeof(*memory));

    if (memory == NULL)
        return E_NOMEM;
    pthread_mutex_init(&memory->lock, NULL);
    list_init(&memory->by_use);
    memory->max_bytes = max_bytes;
    if (hashmap_new(sizeof(struct memory_key), &memory->map) < 0) {
        free(memory);
        return E_NOMEM;
    }
    *out = memory;
    return 0;
}

static void forget(struct memory *memory, struct memory_answer *answer)
{
    hashmap_remove(memory->map, &answer->key);
    list_remove(&answer->node);
    memory->bytes -= bytes_of_answer(answer);
    memory_answer_unref(answer);
}

void memory_free(struct memory *memory)
{
    if (memory == NULL)
        return;
    list_for_each_safe (node, spare, &memory->by_use)
        forget(memory, container_of(node, struct memory_answer, node));
    hashmap_free(memory->map);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

static void put_locked(struct memory *memory, const struct memory_key *key, struct memory_answer *answer)
{
    struct memory_answer *older = hashmap_get(memory->map, key);

    if (older != NULL)
        forget(memory, older);
    answer->key = *key;
    if (bytes_of_answer(answer) > memory->max_bytes || hashmap_put(memory->map, key, answer, NULL) < 0) {
        memory_answer_unref(answer);
        return;
    }
    list_push_back(&memory->by_use, &answer->node);
    memory->bytes += bytes_of_answer(answer);
    while (memory->bytes > memory->max_bytes)
        forget(memory, container_of(memory->by_use.next, struct memory_answer, node));
}

void memory_put(struct memory *memory, const struct memory_key *key, struct memory_answer *answer)
{
    pthread_mutex_lock(&memory->lock);
    put_locked(memory, key, answer);
    pthread_mutex_unlock(&memory->lock);
}

struct memory_answer *memory_get(struct memory *memory, const struct memory_key *key, bool is_use)
{
    struct memory_answer *answer;

    pthread_mutex_lock(&memory->lock);
    answer = hashmap_get(memory->map, key);
    if (answer != NULL)
        answer->n_refs++;
    if (answer != NULL && is_use) {
        list_remove(&answer->node);
        list_push_back(&memory->by_use, &answer->node);
    }
    pthread_mutex_unlock(&memory->lock);
    return answer;
}

size_t memory_count(struct memory *memory)
{
    pthread_mutex_lock(&memory->lock);
    size_t n = hashmap_count(memory->map);
    pthread_mutex_unlock(&memory->lock);
    return n;
}

size_t memory_bytes(struct memory *memory)
{
    pthread_mutex_lock(&memory->lock);
    size_t bytes = memory->bytes;
    pthread_mutex_unlock(&memory->lock);
    return bytes;
}

int memory_answer_new(struct memory_answer **out)
{
    struct memory_answer *answer = calloc(1, sizeof(*answer));

    if (answer == NULL)
        return E_NOMEM;
    list_init(&answer->node);
    answer->n_refs = 1;
    *out = answer;
    return 0;
}

void memory_answer_unref(struct memory_answer *answer)
{
    if (answer == NULL || --answer->n_refs > 0)
        return;
    while (answer->pieces != NULL) {
        struct memory_piece *piece = answer->pieces;

        answer->pieces = piece->next;
        free(piece);
    }
    free(answer);
}

void *memory_answer_take(struct memory_answer *answer, size_t len_bytes)
{
    size_t whole = sizeof(struct memory_piece) + len_bytes;
    struct memory_piece *piece = calloc(1, whole);

    if (piece == NULL)
        return NULL;
    piece->next = answer->pieces;
    answer->pieces = piece;
    answer->bytes += whole;
    return piece->data;
}
