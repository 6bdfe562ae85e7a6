/* SPDX-License-Identifier: Apache-2.0 */
/* Merging a very long word, rank after rank.
 *
 *     rank 0   rank 1   rank 2   ..          each rank has a chain of the positions that wait for it;
 *       |        |        |                  a bitmap says which chains are not empty
 *       9        7        -
 *       4        2                           a rank is done from left to right, and what its merges make
 *       |        |                           joins the chains of higher ranks
 *       0        -
 *
 * The heap of merge.c goes to and fro over all of its memory for each pair that it takes out, which in a word
 * of a megabyte is where the time goes.  Here an entry is put on a chain once and taken off once.  Positions
 * come onto a chain in runs that ascend, most often in a single one, so there is hardly anything to sort.
 *
 * That a merge makes pairs of higher ranks only is what training gives: a token is made before others are
 * made of it.  A file may say otherwise; then the rest of the word is left to the heap.
 */
#include "token/merge_priv.h"

#include <stdlib.h>
#include <string.h>

enum { FEW = 24, AHEAD = 8 };

struct entry { /* takes the place of one of the heap's */
    uint32_t at, next;
};
_Static_assert(sizeof(struct entry) == sizeof(uint64_t), "entries fit where the heap was");

struct ranks {
    struct merge_symbol *symbols;
    uint32_t n_ranks;
    uint32_t *heads; /* [n_ranks] the entry that came last */
    uint64_t *waits; /* bitmap over ranks */
    struct entry *entries;
    uint32_t n_entries, spare; /* those used so far; a chain of those used up */
    uint32_t *positions;       /* of the rank at hand */
};

static int ranks_init(struct ranks *ranks, struct merge_work *work, uint32_t n_ranks)
{
    *ranks = (struct ranks){.symbols = work->symbols,
                            .n_ranks = n_ranks,
                            .heads = malloc(n_ranks * sizeof(*ranks->heads)),
                            .waits = calloc(n_ranks / 64 + 1, sizeof(*ranks->waits)),
                            .entries = (struct entry *)work->heap,
                            .spare = MERGE_NOWHERE,
                            .positions = malloc(2 * work->n * sizeof(*ranks->positions))};
    if (ranks->heads == NULL || ranks->waits == NULL || ranks->positions == NULL)
        return -1;
    memset(ranks->heads, 0xff, n_ranks * sizeof(*ranks->heads));
    return 0;
}

static void ranks_fini(struct ranks *ranks)
{
    free(ranks->heads);
    free(ranks->waits);
    free(ranks->positions);
}

/* Has the pair at at wait, if there is one.  No more than two entries per symbol wait at any time, as in the
 * heap.  False: its rank is not above done. */
static bool wait_at(struct ranks *ranks, uint32_t at, int64_t done)
{
    uint32_t rank = ranks->symbols[at].pair.rank, entry = ranks->spare;

    if (rank == PAIR_NONE)
        return true;
    if (rank <= done)
        return false;
    if (entry != MERGE_NOWHERE)
        ranks->spare = ranks->entries[entry].next;
    else
        entry = ranks->n_entries++;
    ranks->entries[entry] = (struct entry){.at = at, .next = ranks->heads[rank]};
    ranks->heads[rank] = entry;
    ranks->waits[rank / 64] |= (uint64_t)1 << rank % 64;
    return true;
}

static int by_position(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

/* Positions that came last to first. */
static void sort(uint32_t *positions, size_t n)
{
    bool is_sorted = true;

    for (size_t i = 0; i < n / 2; i++) {
        uint32_t moving = positions[i];

        positions[i] = positions[n - 1 - i];
        positions[n - 1 - i] = moving;
    }
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

/* Takes a rank's entries off its chain, to be used again; how many positions there are. */
static size_t collect(struct ranks *ranks, uint32_t rank)
{
    size_t n = 0;

    for (uint32_t entry = ranks->heads[rank], next; entry != MERGE_NOWHERE; entry = next) {
        next = ranks->entries[entry].next;
        ranks->positions[n++] = ranks->entries[entry].at;
        ranks->entries[entry].next = ranks->spare;
        ranks->spare = entry;
    }
    ranks->heads[rank] = MERGE_NOWHERE;
    ranks->waits[rank / 64] &= ~((uint64_t)1 << rank % 64);
    sort(ranks->positions, n);
    return n;
}

static bool do_rank(struct ranks *ranks, uint32_t rank, const struct pair_table *pairs)
{
    struct merge_symbol *symbols = ranks->symbols;
    size_t n = collect(ranks, rank);

    for (size_t i = 0; i < n; i++) {
        uint32_t at = ranks->positions[i];

        if (i + AHEAD < n)
            __builtin_prefetch(&symbols[ranks->positions[i + AHEAD]]);
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
    for (uint32_t word = 0; is_done && word <= ranks.n_ranks / 64; word++)
        while (is_done && ranks.waits[word] != 0)
            is_done = do_rank(&ranks, word * 64 + (uint32_t)__builtin_ctzll(ranks.waits[word]), pairs);
    ranks_fini(&ranks);
    return is_done;
}
