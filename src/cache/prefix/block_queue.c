/* SPDX-License-Identifier: Apache-2.0 */
/* A list leaves the queue before its last slice is applied, so apply() may drop any list that is still there. */
#include "cache/prefix/block_queue.h"

#include <stdlib.h>
#include <string.h>

struct block_list *block_list_new(uint32_t source, const uint8_t *hashes, const uint8_t *tiers, uint32_t n)
{
    struct block_list *list = malloc(sizeof(*list) + (size_t)n * (sizeof(list->hashes[0]) + 1));
    uint8_t *copied;

    if (list == NULL)
        return NULL;
    *list = (struct block_list){.source = source, .n = n};
    list_init(&list->node);
    list->tiers = copied = (uint8_t *)(list->hashes + n);
    if (n > 0) {
        memcpy(list->hashes, hashes, n * sizeof(list->hashes[0]));
        memcpy(copied, tiers, n);
    }
    return list;
}

void block_queue_init(struct block_queue *queue, const struct block_queue_calls *calls)
{
    *queue = (struct block_queue){.calls = *calls};
    list_init(&queue->lists);
}

static struct block_list *block_queue_first(const struct block_queue *queue)
{
    return container_of(queue->lists.next, struct block_list, node);
}

static void block_queue_remove(struct block_queue *queue, struct block_list *list)
{
    list_remove(&list->node);
    queue->n_lists--;
    queue->n_blocks -= list->n;
}

void block_queue_fini(struct block_queue *queue)
{
    while (queue->n_lists > 0) {
        struct block_list *list = block_queue_first(queue);

        block_queue_remove(queue, list);
        free(list);
    }
}

void block_queue_forget(struct block_queue *queue, uint32_t source)
{
    list_for_each_safe (node, spare, &queue->lists) {
        struct block_list *list = container_of(node, struct block_list, node);

        if (list->source == source) {
            block_queue_remove(queue, list);
            free(list);
        }
    }
    queue->calls.forget(queue->calls.arg, source);
}

void block_queue_add(struct block_queue *queue, struct block_list *list)
{
    if (list->is_anew)
        block_queue_forget(queue, list->source);
    if (list->n == 0) {
        free(list);
        return;
    }
    list_push_back(&queue->lists, &list->node);
    queue->n_lists++;
    queue->n_blocks += list->n;
}

/* Returns the number of blocks applied. */
static size_t block_queue_slice(struct block_queue *queue)
{
    struct block_list *list = block_queue_first(queue);
    uint32_t left = list->n - list->at;
    struct block_slice slice = {.source = list->source,
                                .hashes = list->hashes + list->at,
                                .tiers = list->tiers + list->at,
                                .n = left < BLOCK_SLICE ? left : BLOCK_SLICE,
                                .is_snapshot = list->is_snapshot};
    bool is_last = slice.n == left;

    list->at += (uint32_t)slice.n;
    if (is_last)
        block_queue_remove(queue, list);
    queue->calls.apply(queue->calls.arg, &slice);
    if (is_last)
        free(list);
    return slice.n;
}

bool block_queue_work(struct block_queue *queue, size_t most)
{
    for (size_t n = 0; n < most && queue->n_lists > 0;)
        n += block_queue_slice(queue) + 1;
    return queue->n_lists > 0;
}
