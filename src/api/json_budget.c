/* SPDX-License-Identifier: Apache-2.0 */
/* Jansson's allocator is one for the whole process, so the budget is a number of the thread.
 *
 * Outside of a budget these functions are malloc and free and nothing else, so values may be made under one
 * and freed without, on any thread.  What is held is counted by what malloc really gave. */
#include "api/json_budget.h"

#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>

static _Thread_local struct {
    bool is_on;
    bool is_over;
    size_t limit_bytes;
    size_t held_bytes;
} budget;

static void *budget_malloc(size_t len_bytes)
{
    void *at;

    if (!budget.is_on)
        return malloc(len_bytes);
    if (len_bytes > budget.limit_bytes || budget.held_bytes > budget.limit_bytes - len_bytes) {
        budget.is_over = true;
        return NULL;
    }
    at = malloc(len_bytes);
    if (at != NULL)
        budget.held_bytes += malloc_usable_size(at);
    return at;
}

static void budget_free(void *at)
{
    if (budget.is_on && at != NULL)
        budget.held_bytes -= malloc_usable_size(at);
    free(at);
}

/* Before any thread is there that could be using the library. */
__attribute__((constructor)) static void install(void)
{
    json_set_alloc_funcs(budget_malloc, budget_free);
}

void json_budget_begin(size_t limit_bytes)
{
    budget.is_on = true;
    budget.is_over = false;
    budget.limit_bytes = limit_bytes;
    budget.held_bytes = 0;
}

bool json_budget_end(void)
{
    budget.is_on = false;
    return budget.is_over;
}
