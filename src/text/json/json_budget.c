/* SPDX-License-Identifier: Apache-2.0 */
/* Jansson has one allocator for the whole process, so each thread has its own budget.
 *
 *     json_budget_load ── setjmp ──> json_loadb ──> budget_malloc fails ── longjmp ──┐
 *          ^                                                                         │
 *          └────────────────── frees all that this load holds <──────────────────────┘
 *
 * Jansson does not handle a failed allocation well. Its lexer drops the byte that did not fit and goes on,
 * tries again at each following byte, and then searches for a closing quote that it lost. So no allocation
 * ever fails from Jansson's view: a longjmp ends the load instead.
 *
 * A list holds all allocations of the load. The links are at the end of each allocation, where the library
 * does not write. So the address is malloc's own, and any code can free it with free().
 *
 * Outside of a load these functions are plain malloc and free. So a value may be made within a load and freed
 * outside, on any thread. The budget counts the bytes that malloc really allocated. */
#include "text/json/json_budget_priv.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdlib.h>

struct links { /* at the end of each allocation */
    void *next, *prev;
};

static _Thread_local struct {
    bool is_on;
    enum json_budget_end why;
    size_t limit_bytes;
    size_t held_bytes;
    void *first; /* the first allocation of the list */
    jmp_buf out;
} budget;

static struct links *links_of(void *at)
{
    return (struct links *)(void *)((char *)at + malloc_usable_size(at) - sizeof(struct links));
}

/* The size without the links: the limit applies to the document. */
static size_t counted_bytes(void *at)
{
    return malloc_usable_size(at) - sizeof(struct links);
}

static void budget_hold(void *at)
{
    *links_of(at) = (struct links){.next = budget.first};
    if (budget.first != NULL)
        links_of(budget.first)->prev = at;
    budget.first = at;
    budget.held_bytes += counted_bytes(at);
}

static void budget_give_back(void *at)
{
    const struct links *links = links_of(at);

    if (links->prev != NULL)
        links_of(links->prev)->next = links->next;
    else
        budget.first = links->next;
    if (links->next != NULL)
        links_of(links->next)->prev = links->prev;
    budget.held_bytes -= counted_bytes(at);
}

_Noreturn static void budget_fail(enum json_budget_end why)
{
    budget.why = why;
    longjmp(budget.out, 1);
}

static void *budget_malloc(size_t len_bytes)
{
    const size_t align = _Alignof(struct links);
    void *at;

    if (!budget.is_on)
        return malloc(len_bytes);
    if (len_bytes > budget.limit_bytes || budget.held_bytes > budget.limit_bytes - len_bytes)
        budget_fail(JSON_BUDGET_OVER);
    at = malloc((len_bytes + align - 1) / align * align + sizeof(struct links)); /* keeps the links aligned */
    if (at == NULL)
        budget_fail(JSON_BUDGET_NOMEM);
    budget_hold(at);
    return at;
}

static void json_budget_free(void *at)
{
    if (budget.is_on && at != NULL)
        budget_give_back(at);
    free(at);
}

/* Runs before any thread that could use the library exists. */
__attribute__((constructor)) static void install(void)
{
    json_set_alloc_funcs(budget_malloc, json_budget_free);
}

static enum json_budget_end budget_abandon(void)
{
    void *next;

    budget.is_on = false;
    for (void *at = budget.first; at != NULL; at = next) {
        next = links_of(at)->next;
        free(at);
    }
    return budget.why;
}

enum json_budget_end json_budget_load(struct bytes text, size_t flags, size_t limit_bytes,
                                      json_error_t *error, json_t **out)
{
    budget.limit_bytes = limit_bytes;
    budget.held_bytes = 0;
    budget.first = NULL;
    if (setjmp(budget.out) != 0)
        return budget_abandon();
    budget.is_on = true;
    *out = json_loadb((const char *)text.data, text.len_bytes, flags, error);
    budget.is_on = false;
    return *out != NULL ? JSON_BUDGET_LOADED : JSON_BUDGET_REFUSED;
}
