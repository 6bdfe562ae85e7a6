/* SPDX-License-Identifier: Apache-2.0 */
/* Merges one word: byte pair encoding in O(n log n).
 *
 *     l  o  w  e  r        each neighbouring pair has a rank or none;
 *     l  o  w  er          the pair of the lowest rank merges first, of equal ranks the leftmost;
 *     lo w  er             a merge makes two new pairs, with the neighbours left and right.
 *     low er
 *
 * The symbols are a linked list inside an array, so a merge moves no data. A heap holds the pairs, each as
 * one number made of rank and position.
 *
 * A merge makes entries stale but does not remove them. An entry is valid if the symbol at its position still
 * has a pair of that rank; this is checked when the entry is taken. A symbol that its left neighbour
 * swallowed has no pair. A merge leaves at most one entry more than before, so the heap never holds more than
 * two entries per symbol.
 *
 * Each node of the heap has four children: half the levels of a binary heap, and the four lie side by side.
 * Nearly every word has few symbols and needs no heap: a linear search finds its lowest pair. A word of
 * thousands of symbols (for example base64) is merged rank after rank (merge_large.c). */
#include "text/token/merge_priv.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define SMALL_WORD 24
/* Above this size merging by rank is faster than the heap, set-up included. */
#define LARGE_WORD 4096

void merge_work_fini(struct merge_work *work)
{
    free(work->symbols);
    free(work->heap);
    *work = (struct merge_work){0};
}

void merge_work_clear(struct merge_work *work)
{
    work->n = 0;
}

static int merge_grow(struct merge_work *work)
{
    size_t cap = work->cap == 0 ? 64 : work->cap * 2;
    struct merge_symbol *symbols = realloc(work->symbols, cap * sizeof(*symbols));

    if (symbols == NULL)
        return E_NOMEM;
    work->symbols = symbols;
    uint64_t *heap = realloc(work->heap, 2 * cap * sizeof(*heap));
    if (heap == NULL)
        return E_NOMEM;
    work->heap = heap;
    work->cap = cap;
    return 0;
}

int merge_work_push(struct merge_work *work, uint32_t symbol)
{
    if (work->n == work->cap && merge_grow(work) != 0)
        return E_NOMEM;
    work->symbols[work->n++].symbol = symbol;
    return 0;
}

/* The index of the least child, where first is the first child. Does not read heap[n] or anything after
 * it. */
static size_t least_child(const uint64_t *heap, size_t n, size_t first)
{
    size_t best = first;

    if (first + 4 <= n) { /* a branch-free tournament: a CPU cannot predict which child is least */
        size_t left = first + (heap[first + 1] < heap[first]);
        size_t right = first + 2 + (heap[first + 3] < heap[first + 2]);
        return heap[right] < heap[left] ? right : left;
    }
    for (size_t child = first + 1; child < n; child++)
        best = heap[child] < heap[best] ? child : best;
    return best;
}

static void sift_down(uint64_t *heap, size_t n, size_t at)
{
    uint64_t moving = heap[at];

    while (4 * at + 1 < n) {
        size_t child = least_child(heap, n, 4 * at + 1);

        if (heap[child] >= moving)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

static void merge_heap_push(uint64_t *heap, size_t *n, uint64_t entry)
{
    size_t at = (*n)++;

    while (at > 0 && heap[(at - 1) / 4] > entry) {
        heap[at] = heap[(at - 1) / 4];
        at = (at - 1) / 4;
    }
    heap[at] = entry;
}

static uint64_t merge_heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t least = heap[0];

    heap[0] = heap[--*n];
    if (*n > 0)
        sift_down(heap, *n, 0);
    return least;
}

static void find_pair(struct merge_symbol *symbols, uint32_t at, const struct pair_table *pairs)
{
    uint32_t next = symbols[at].next;

    symbols[at].pair = next == MERGE_NOWHERE ? (struct pair){.rank = PAIR_NONE}
                                             : pairs_get(pairs, symbols[at].symbol, symbols[next].symbol);
}

static void link_up(struct merge_work *work, const struct pair_table *pairs)
{
    for (size_t i = 0; i < work->n; i++) {
        work->symbols[i].prev = i == 0 ? MERGE_NOWHERE : (uint32_t)(i - 1);
        work->symbols[i].next = i + 1 == work->n ? MERGE_NOWHERE : (uint32_t)(i + 1);
    }
    for (size_t i = 0; i < work->n; i++)
        find_pair(work->symbols, (uint32_t)i, pairs);
}

void merge_at(struct merge_symbol *symbols, uint32_t at, const struct pair_table *pairs)
{
    struct merge_symbol *left = &symbols[at];
    struct merge_symbol *right = &symbols[left->next];

    left->symbol = left->pair.merged;
    left->next = right->next;
    right->pair.rank = PAIR_NONE;
    if (left->next != MERGE_NOWHERE)
        symbols[left->next].prev = at;
    find_pair(symbols, at, pairs);
    if (left->prev != MERGE_NOWHERE)
        find_pair(symbols, left->prev, pairs);
}

void merge_foresee(const struct merge_symbol *symbols, uint32_t at, const struct pair_table *pairs)
{
    const struct merge_symbol *left = &symbols[at];
    uint32_t right = left->next, after = right == MERGE_NOWHERE ? MERGE_NOWHERE : symbols[right].next;

    if (after != MERGE_NOWHERE)
        pairs_prefetch(pairs, left->pair.merged, symbols[after].symbol);
    if (left->prev != MERGE_NOWHERE)
        pairs_prefetch(pairs, symbols[left->prev].symbol, left->pair.merged);
}

static void run_small(struct merge_work *work, const struct pair_table *pairs)
{
    struct merge_symbol *symbols = work->symbols;

    for (;;) {
        uint32_t best = 0;

        for (uint32_t at = symbols[0].next; at != MERGE_NOWHERE; at = symbols[at].next)
            best = symbols[at].pair.rank < symbols[best].pair.rank ? at : best;
        if (symbols[best].pair.rank == PAIR_NONE)
            return;
        merge_at(symbols, best, pairs);
    }
}

static void merge_enter(struct merge_work *work, size_t *n_heap, uint32_t at)
{
    if (work->symbols[at].pair.rank != PAIR_NONE)
        merge_heap_push(work->heap, n_heap, (uint64_t)work->symbols[at].pair.rank << 32 | at);
}

void merge_by_heap(struct merge_work *work, const struct pair_table *pairs)
{
    struct merge_symbol *symbols = work->symbols;
    size_t n_heap = 0;

    for (uint32_t i = 0; i != MERGE_NOWHERE; i = symbols[i].next) {
        if (symbols[i].pair.rank != PAIR_NONE)
            work->heap[n_heap++] = (uint64_t)symbols[i].pair.rank << 32 | i;
    }
    for (size_t i = n_heap / 4 + 1; i-- > 0;) {
        if (i < n_heap)
            sift_down(work->heap, n_heap, i);
    }

    while (n_heap > 0) {
        uint64_t entry = merge_heap_pop(work->heap, &n_heap);
        uint32_t at = (uint32_t)entry;

        if (symbols[at].pair.rank != entry >> 32)
            continue;
        merge_at(symbols, at, pairs);
        merge_enter(work, &n_heap, at);
        if (symbols[at].prev != MERGE_NOWHERE)
            merge_enter(work, &n_heap, symbols[at].prev);
    }
}

void merge_work_run(struct merge_work *work, const struct pair_table *pairs)
{
    if (work->n == 0)
        return;
    link_up(work, pairs);
    if (work->n <= SMALL_WORD)
        run_small(work, pairs);
    else if (work->n < LARGE_WORD || !merge_by_rank(work, pairs))
        merge_by_heap(work, pairs);
}
