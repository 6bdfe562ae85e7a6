/* SPDX-License-Identifier: Apache-2.0 */
/* Merges a very long word, rank after rank.
 *
 *     rank 0      rank 1      rank 2   ..     each rank has a ring of blocks with the positions that wait
 *       |           |           |             for it, in order of arrival; a bitmap has a bit for each rank
 *     [4 9 .. 70]  [2 7 . .]    -             with a ring
 *     [81 . . .]
 *                                             a rank is done from left to right; its merges add positions
 *                                             to the rings of higher ranks
 *
 * The heap of merge.c touches memory all over its array for each pair that it takes out. In a word of a
 * megabyte, most of the time goes there. Here an entry is written into a block once and read once, fifteen to
 * a cache line. Positions come in ascending runs, most often in one run, so there is hardly anything to sort.
 *
 * The remaining cost is waiting for memory: for the symbols, which cover many megabytes, and for the pairs.
 * All positions of a rank are known beforehand, so both are prefetched some positions ahead
 * (merge_foresee()).
 *
 * A merge makes only pairs of higher ranks, because training makes a token before it makes others from it. A
 * file may break this rule; then the heap merges the rest of the word. */
#include "text/token/merge_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum {
    FEW = 24,
    BLOCK_POSITIONS = 15,
    SYMBOLS_AHEAD = 16,
    PAIRS_AHEAD = 6,
};

struct block {
    uint32_t next; /* next block of the ring, or of the chain of spare blocks */
    uint32_t positions[BLOCK_POSITIONS];
};
_Static_assert(sizeof(struct block) == MEM_CACHE_LINE, "a block, a cache line");

struct ring {      /* n is 0: the ring has no blocks */
    uint32_t last; /* the last block; its next is the first block */
    uint32_t n;    /* positions in the last block */
};

struct ranks {
    struct merge_symbol *symbols;
    uint32_t n_ranks;
    struct ring *rings; /* [n_ranks] */
    uint64_t *waits;    /* bitmap over ranks: the ring has positions */
    struct block *blocks;
    uint32_t n_blocks, spare; /* blocks taken from the array so far; head of the chain of spare blocks */
    uint32_t *positions;      /* positions of the current rank */
};

/* At most two entries per symbol wait at any time, as in the heap. All blocks except the last one of each
 * ring are full. */
static size_t most_blocks(size_t n_symbols, size_t n_ranks)
{
    size_t n_entries = 2 * n_symbols;

    return n_entries / BLOCK_POSITIONS + (n_ranks < n_entries ? n_ranks : n_entries);
}

static int ranks_init(struct ranks *ranks, struct merge_work *work, uint32_t n_ranks)
{
    *ranks = (struct ranks){
        .symbols = work->symbols,
        .n_ranks = n_ranks,
        .rings = calloc(n_ranks, sizeof(*ranks->rings)),
        .waits = calloc(n_ranks / 64 + 1, sizeof(*ranks->waits)),
        .blocks = aligned_alloc(MEM_CACHE_LINE, most_blocks(work->n, n_ranks) * sizeof(*ranks->blocks)),
        .spare = MERGE_NOWHERE,
        .positions = malloc(2 * work->n * sizeof(*ranks->positions))};
    return ranks->rings == NULL || ranks->waits == NULL || ranks->blocks == NULL || ranks->positions == NULL
               ? -1
               : 0;
}

static void ranks_fini(struct ranks *ranks)
{
    free(ranks->rings);
    free(ranks->waits);
    free(ranks->blocks);
    free(ranks->positions);
}

/* Appends a block to a ring. */
static void merge_large_add_block(struct ranks *ranks, struct ring *ring)
{
    uint32_t added = ranks->spare, last = ring->last;

    if (added != MERGE_NOWHERE)
        ranks->spare = ranks->blocks[added].next;
    else
        added = ranks->n_blocks++;
    ranks->blocks[added].next = ring->n > 0 ? ranks->blocks[last].next : added;
    if (ring->n > 0)
        ranks->blocks[last].next = added;
    *ring = (struct ring){.last = added};
}

/* Adds the pair at this position, if there is one, to the ring of its rank. Returns false if its rank is not
 * above done. */
static bool wait_at(struct ranks *ranks, uint32_t at, int64_t done)
{
    uint32_t rank = ranks->symbols[at].pair.rank;

    if (rank == PAIR_NONE)
        return true;
    if (rank <= done)
        return false;

    struct ring *ring = &ranks->rings[rank];
    if (ring->n == 0)
        ranks->waits[rank / 64] |= (uint64_t)1 << rank % 64;
    if (ring->n == 0 || ring->n == BLOCK_POSITIONS)
        merge_large_add_block(ranks, ring);
    ranks->blocks[ring->last].positions[ring->n++] = at;
    return true;
}

static int by_position(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

static void merge_large_sort(uint32_t *positions, size_t n)
{
    bool is_sorted = true;

    for (size_t i = 1; i < n && is_sorted; i++)
        is_sorted = positions[i - 1] <= positions[i];
    if (is_sorted)
        return;
    if (n > FEW) {
        qsort(positions, n, sizeof(*positions), by_position);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        uint32_t moving = positions[i];
        size_t to = i;

        for (; to > 0 && positions[to - 1] > moving; to--)
            positions[to] = positions[to - 1];
        positions[to] = moving;
    }
}

/* Moves the positions of a rank's ring to ranks->positions, and returns their number. */
static size_t merge_large_collect(struct ranks *ranks, uint32_t rank)
{
    struct ring *ring = &ranks->rings[rank];
    struct block *last = &ranks->blocks[ring->last];
    uint32_t first = last->next;
    size_t n = 0;

    for (const struct block *block = &ranks->blocks[first]; block != last;
         block = &ranks->blocks[block->next]) {
        memcpy(ranks->positions + n, block->positions, sizeof(block->positions));
        n += BLOCK_POSITIONS;
    }
    memcpy(ranks->positions + n, last->positions, ring->n * sizeof(*last->positions));
    n += ring->n;
    last->next = ranks->spare;
    ranks->spare = first;
    *ring = (struct ring){0};
    ranks->waits[rank / 64] &= ~((uint64_t)1 << rank % 64);
    merge_large_sort(ranks->positions, n);
    return n;
}

/* The first rank from this one on for which a position waits; n_ranks: none. */
static uint32_t next_rank(const struct ranks *ranks, uint32_t from)
{
    uint32_t word = from / 64, n_words = ranks->n_ranks / 64 + 1;
    uint64_t bits = from < ranks->n_ranks ? ranks->waits[word] >> from % 64 << from % 64 : 0;

    while (bits == 0 && ++word < n_words)
        bits = ranks->waits[word];
    return bits != 0 ? word * 64 + (uint32_t)__builtin_ctzll(bits) : ranks->n_ranks;
}

/* Prefetches a symbol and its neighbours. Neighbours of long symbols lie on the cache lines around. */
static void foresee_symbols(const struct ranks *ranks, uint32_t at)
{
    uintptr_t symbol = (uintptr_t)&ranks->symbols[at]; /* the line before may lie outside the array */

    __builtin_prefetch((const void *)symbol);
    __builtin_prefetch((const void *)(symbol + MEM_CACHE_LINE));
    __builtin_prefetch((const void *)(symbol - MEM_CACHE_LINE));
}

/* A rank with few positions cannot prefetch for itself. So prefetch the symbols of the next rank, whose first
 * block was prefetched before, and the block of the rank after it. */
static void foresee_ranks(const struct ranks *ranks, uint32_t done)
{
    uint32_t soon = next_rank(ranks, done + 1), later;

    if (soon == ranks->n_ranks)
        return;
    const struct ring *ring = &ranks->rings[soon];
    const struct block *block = &ranks->blocks[ring->last];
    for (uint32_t i = 0; i < ring->n; i++)
        foresee_symbols(ranks, block->positions[i]);
    later = next_rank(ranks, soon + 1);
    if (later < ranks->n_ranks)
        __builtin_prefetch(&ranks->blocks[ranks->rings[later].last]);
}

static bool do_rank(struct ranks *ranks, uint32_t rank, const struct pair_table *pairs)
{
    struct merge_symbol *symbols = ranks->symbols;
    const uint32_t *positions = ranks->positions;
    size_t n = merge_large_collect(ranks, rank);

    foresee_ranks(ranks, rank);
    for (size_t i = 0; i < n && i < PAIRS_AHEAD; i++)
        merge_foresee(symbols, positions[i], pairs);
    for (size_t i = 0; i < n; i++) {
        uint32_t at = positions[i];

        if (i + SYMBOLS_AHEAD < n)
            foresee_symbols(ranks, positions[i + SYMBOLS_AHEAD]);
        if (i + PAIRS_AHEAD < n)
            merge_foresee(symbols, positions[i + PAIRS_AHEAD], pairs);
        if (symbols[at].pair.rank != rank) /* stale */
            continue;
        merge_at(symbols, at, pairs);
        if (!wait_at(ranks, at, rank) ||
            (symbols[at].prev != MERGE_NOWHERE && !wait_at(ranks, symbols[at].prev, rank)))
            return false;
    }
    return true;
}

bool merge_by_rank(struct merge_work *work, const struct pair_table *pairs)
{
    struct ranks ranks;
    bool is_done = ranks_init(&ranks, work, pairs->n_ranks) == 0;

    for (uint32_t i = 0; is_done && i < work->n; i++)
        wait_at(&ranks, i, -1);
    for (uint32_t rank = 0; is_done && (rank = next_rank(&ranks, rank)) < ranks.n_ranks; rank++)
        is_done = do_rank(&ranks, rank, pairs);
    ranks_fini(&ranks);
    return is_done;
}
