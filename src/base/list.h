/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked list with a sentinel head.  An unlinked node points to itself. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>

#include "base/check.h"

struct list {
    struct list *next;
    struct list *prev;
};

#define list_for_each(node, head) for (struct list *node = (head)->next; node != (head); node = node->next)
#define list_for_each_safe(node, spare, head)                                                                \
    for (struct list *node = (head)->next, *spare = node->next; node != (head);                              \
         node = spare, spare = node->next)

static inline void list_init(struct list *node)
{
    node->next = node;
    node->prev = node;
}

static inline bool list_is_empty(const struct list *head)
{
    return head->next == head;
}

static inline void list_insert_before(struct list *at, struct list *node)
{
    node->prev = at->prev;
    node->next = at;
    at->prev->next = node;
    at->prev = node;
}

static inline void list_push_back(struct list *head, struct list *node)
{
    list_insert_before(head, node);
}

static inline void list_push_front(struct list *head, struct list *node)
{
    list_insert_before(head->next, node);
}

/* Does nothing to an initialised node that is in no list. */
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

static inline struct list *list_pop_front(struct list *head)
{
    struct list *node = head->next;

    if (node == head)
        return 0;
    list_remove(node);
    return node;
}

#endif
