/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of blocks in two circular lists, and a linear-probing table of groups.
 *
 *    ids     ... 40 41 42 43 44 45 46 47 48 49 ...      the blocks of a chain, mostly in a row
 *    runs        [  40..44  ] [ 45 46 47  ] [48 ...     one entry of a list each, of any length
 *    table       group 1 --> 40..44 --> 45..47          a group's runs, newest first
 *                group ...
 *
 * The result equals that of a list of single blocks.  A call on a part of a run cuts the run: the rest keeps its
 * place in the list.  No run reaches beyond its group, so one place of the table leads to all runs of a group.
 * A tag is a hash of the group and chooses the place.  A removal moves later places of the probe back by their
 * tags. */
#include "fleet/sim/lru_priv.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"

#define LRU_FIRST_CAP 64
#define LRU_MOST_NEW  (SIM_LRU_GROUP + 2) /* runs that one call adds */

/* ---- the table ---- */

static inline uint32_t lru_tag(uint64_t id)
{
    return (uint32_t)(id / SIM_LRU_GROUP * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

/* The place of the block's group, or the free one where it would go. */
static inline uint32_t lru_find(const struct sim_lru *lru, uint64_t id)
{
    uint32_t tag = lru_tag(id), at = tag & lru->mask;

    while (lru->table[at].run != 0 &&
           (lru->table[at].tag != tag ||
            lru->runs[lru->table[at].run].first / SIM_LRU_GROUP != id / SIM_LRU_GROUP))
        at = (at + 1) & lru->mask;
    return at;
}

static void lru_vacate(struct sim_lru *lru, uint32_t hole)
{
    struct sim_lru_place *table = lru->table;
    uint32_t mask = lru->mask;

    for (uint32_t at = (hole + 1) & mask; table[at].run != 0; at = (at + 1) & mask) {
        if (((at - table[at].tag) & mask) < ((at - hole) & mask))
            continue; /* moving it would put it before its home */
        table[hole] = table[at];
        hole = at;
    }
    table[hole].run = 0;
}

/* Bits of a group. */
static inline uint32_t lru_bits(uint64_t first, uint32_t n)
{
    return UINT32_MAX >> (SIM_LRU_GROUP - n) << first % SIM_LRU_GROUP;
}

static inline uint32_t lru_run_bits(const struct sim_lru *lru, uint32_t run)
{
    return lru_bits(lru->runs[run].first, lru->runs[run].n);
}

/* ---- memory ---- */

static int lru_grow(struct sim_lru *lru)
{
    uint32_t cap = lru->cap ? 2 * lru->cap : LRU_FIRST_CAP, mask = 2 * cap - 1;
    struct sim_lru_run *runs = realloc(lru->runs, (cap + 2ul) * sizeof(*runs));
    struct sim_lru_place *table = runs != NULL ? calloc(mask + 1ul, sizeof(*table)) : NULL;

    if (runs != NULL)
        lru->runs = runs;
    if (table == NULL)
        return E_NOMEM;
    for (uint32_t list = 0; lru->cap == 0 && list < 2; list++)
        runs[list] = (struct sim_lru_run){.older = list, .newer = list, .is_shared = list};
    lru->n_made = lru->n_made > 1 ? lru->n_made : 1;
    for (uint32_t i = 0; lru->cap > 0 && i <= lru->mask; i++) {
        uint32_t at = lru->table[i].tag & mask;

        if (lru->table[i].run == 0)
            continue;
        while (table[at].run != 0)
            at = (at + 1) & mask;
        table[at] = lru->table[i];
    }
    free(lru->table);
    lru->table = table;
    lru->mask = mask;
    lru->cap = cap;
    return 0;
}

/* Makes room for the runs that one call can add. */
static inline int lru_reserve(struct sim_lru *lru)
{
    return lru->n_runs + LRU_MOST_NEW > lru->cap ? lru_grow(lru) : 0;
}

static uint32_t lru_new_run(struct sim_lru *lru, const struct sim_lru_run *run)
{
    uint32_t i = lru->free;

    if (i != 0)
        lru->free = lru->runs[i].sibling;
    else
        i = ++lru->n_made;
    lru->n_runs++;
    lru->runs[i] = *run;
    return i;
}

/* ---- the lists ---- */

static inline void lru_unlink(struct sim_lru *lru, uint32_t i)
{
    const struct sim_lru_run *run = &lru->runs[i];

    lru->runs[run->older].newer = run->newer;
    lru->runs[run->newer].older = run->older;
}

static inline void lru_link_before(struct sim_lru *lru, uint32_t i, uint32_t newer)
{
    uint32_t older = lru->runs[newer].older;

    lru->runs[i].older = older;
    lru->runs[i].newer = newer;
    lru->runs[older].newer = i;
    lru->runs[newer].older = i;
}

/* The last run of the list takes these blocks too, if they continue it. */
static bool lru_extend(struct sim_lru *lru, const struct sim_lru_run *run)
{
    struct sim_lru_run *last = &lru->runs[lru->runs[run->is_shared].older];

    if (last->n == 0 || last->used_ns != run->used_ns ||
        last->first / SIM_LRU_GROUP != run->first / SIM_LRU_GROUP)
        return false;
    if ((run->n == 1 || run->is_rising) && (last->n == 1 || last->is_rising) &&
        last->first + last->n == run->first) {
        last->is_rising = true;
    } else if ((run->n == 1 || !run->is_rising) && (last->n == 1 || !last->is_rising) &&
               run->first + run->n == last->first) {
        last->is_rising = false;
        last->first = run->first;
    } else {
        return false;
    }
    last->n = (uint8_t)(last->n + run->n);
    return true;
}

/* As the newest of its list; its group is at this place. */
static void lru_append(struct sim_lru *lru, uint32_t place, struct sim_lru_run run)
{
    uint32_t i;

    if (lru_extend(lru, &run))
        return;
    run.sibling = lru->table[place].run;
    i = lru_new_run(lru, &run);
    lru_link_before(lru, i, run.is_shared);
    lru->table[place] = (struct sim_lru_place){lru_tag(run.first), i};
}

/* Takes bits out of the run at *link, a range of its own or all.  Returns the link to the next run of the group. */
static uint32_t *lru_cut(struct sim_lru *lru, uint32_t *link, uint32_t bits)
{
    uint32_t i = *link, left = lru_run_bits(lru, i) & ~bits;
    uint32_t low = left & ((bits & -bits) - 1), high = left & ~low;
    struct sim_lru_run *run = &lru->runs[i], rest;

    if (left == 0) {
        lru_unlink(lru, i);
        *link = run->sibling;
        run->sibling = lru->free;
        lru->free = i;
        lru->n_runs--;
        return link;
    }
    rest = *run;
    rest.first = run->first / SIM_LRU_GROUP * SIM_LRU_GROUP + (uint32_t)__builtin_ctz(high != 0 ? high : low);
    rest.n = (uint8_t)__builtin_popcount(high != 0 ? high : low);
    if (low == 0 || high == 0) {
        run->first = rest.first;
        run->n = rest.n;
        return &run->sibling;
    }
    run->n = (uint8_t)__builtin_popcount(low);
    run->sibling = lru_new_run(lru, &rest);
    lru_link_before(lru, run->sibling, run->is_rising ? run->newer : i);
    return &lru->runs[run->sibling].sibling;
}

/* ---- calls ---- */

/* Appends each row of ones as one run, the last one first. */
static void lru_append_falling(struct sim_lru *lru, uint32_t place, uint32_t bits, struct sim_lru_run run)
{
    uint64_t group = run.first / SIM_LRU_GROUP * SIM_LRU_GROUP;

    while (bits != 0) {
        uint32_t end = SIM_LRU_GROUP - (uint32_t)__builtin_clz(bits);
        uint32_t gap = ~bits & lru_bits(0, end); /* zeros below the row's end */
        uint32_t from = gap != 0 ? SIM_LRU_GROUP - (uint32_t)__builtin_clz(gap) : 0;

        run.first = group + from;
        run.n = (uint8_t)(end - from);
        lru_append(lru, place, run);
        bits &= ~lru_bits(from, end - from);
    }
}

int sim_lru_touch(struct sim_lru *lru, uint64_t first, uint32_t n, uint64_t now_ns)
{
    uint32_t bits = lru_bits(first, n), had = 0, shared = 0, place, *link;
    struct sim_lru_run run = {.first = first, .used_ns = now_ns};

    if (lru_reserve(lru) < 0)
        return E_NOMEM;
    place = lru_find(lru, first);
    for (link = &lru->table[place].run; *link != 0;) {
        uint32_t i = *link, cut = lru_run_bits(lru, i) & bits;

        had |= cut;
        shared |= lru->runs[i].is_shared ? cut : 0;
        link = cut != 0 ? lru_cut(lru, link, cut) : &lru->runs[i].sibling;
    }
    lru->n += n - (uint32_t)__builtin_popcount(had);
    lru_append_falling(lru, place, bits & ~shared, run);
    run.is_shared = true;
    lru_append_falling(lru, place, shared, run);
    return __builtin_popcount(had);
}

int sim_lru_set_replicated(struct sim_lru *lru, uint64_t first, uint32_t n, bool is_shared)
{
    uint32_t bits = lru_bits(first, n), place;

    if (lru->n == 0)
        return 0;
    if (lru_reserve(lru) < 0)
        return E_NOMEM;
    place = lru_find(lru, first);
    while (bits != 0 && lru->table[place].run != 0) { /* the part of one run, the lowest first */
        uint32_t *link = &lru->table[place].run, low = bits & -bits, cut;
        struct sim_lru_run run;

        while (*link != 0 && (lru_run_bits(lru, *link) & low) == 0)
            link = &lru->runs[*link].sibling;
        cut = *link != 0 ? lru_run_bits(lru, *link) & bits : low;
        bits &= ~cut;
        if (*link == 0 || lru->runs[*link].is_shared == is_shared)
            continue;
        run = lru->runs[*link];
        run.first = first / SIM_LRU_GROUP * SIM_LRU_GROUP + (uint32_t)__builtin_ctz(cut);
        run.n = (uint8_t)__builtin_popcount(cut);
        run.is_shared = is_shared;
        run.is_rising = true;
        lru_cut(lru, link, cut);
        lru_append(lru, place, run);
    }
    return 0;
}

uint32_t sim_lru_leading(const struct sim_lru *lru, uint64_t first, uint32_t n)
{
    uint32_t bits = 0;

    if (lru->n == 0)
        return 0;
    for (uint32_t i = lru->table[lru_find(lru, first)].run; i != 0; i = lru->runs[i].sibling)
        bits |= lru_run_bits(lru, i);
    bits = ~bits & lru_bits(first, n);
    return bits == 0 ? n : (uint32_t)__builtin_ctz(bits) - (uint32_t)(first % SIM_LRU_GROUP);
}

int sim_lru_remove(struct sim_lru *lru, uint64_t first, uint32_t n)
{
    uint32_t bits = lru_bits(first, n), had = 0, place, *link;

    if (lru->n == 0)
        return 0;
    if (lru_reserve(lru) < 0)
        return E_NOMEM;
    place = lru_find(lru, first);
    if (lru->table[place].run == 0)
        return 0;
    for (link = &lru->table[place].run; *link != 0;) {
        uint32_t cut = lru_run_bits(lru, *link) & bits;

        had |= cut;
        link = cut != 0 ? lru_cut(lru, link, cut) : &lru->runs[*link].sibling;
    }
    lru->n -= (uint32_t)__builtin_popcount(had);
    if (lru->table[place].run == 0)
        lru_vacate(lru, place);
    return __builtin_popcount(had);
}

/* The oldest run; the lists are not both empty. */
static uint32_t lru_oldest(const struct sim_lru *lru, uint64_t now_ns)
{
    uint32_t plain = lru->runs[0].newer, shared = lru->runs[1].newer;

    if (shared == 1 ||
        (plain != 0 && 2 * (now_ns - lru->runs[shared].used_ns) < now_ns - lru->runs[plain].used_ns))
        return plain;
    return shared;
}

/* The run has no block left. */
static void lru_end_run(struct sim_lru *lru, uint32_t i)
{
    uint32_t place = lru_find(lru, lru->runs[i].first), *link = &lru->table[place].run;

    while (*link != i)
        link = &lru->runs[*link].sibling;
    lru_unlink(lru, i);
    *link = lru->runs[i].sibling;
    lru->runs[i].sibling = lru->free;
    lru->free = i;
    lru->n_runs--;
    if (lru->table[place].run == 0)
        lru_vacate(lru, place);
}

uint32_t sim_lru_evict(struct sim_lru *lru, uint64_t now_ns, uint64_t *ids_out, uint32_t n_most)
{
    uint32_t n = 0;

    while (n < n_most && lru->n > 0) {
        uint32_t i = lru_oldest(lru, now_ns);
        struct sim_lru_run *run = &lru->runs[i];
        uint32_t n_taken = run->n < n_most - n ? run->n : n_most - n;

        __builtin_prefetch(&lru->runs[run->newer]);
        for (uint32_t j = 0; j < n_taken; j++)
            ids_out[n++] = run->first + (run->is_rising ? j : run->n - 1 - j);
        lru->n -= n_taken;
        if (n_taken == run->n) {
            lru_end_run(lru, i);
            continue;
        }
        run->first += run->is_rising ? n_taken : 0;
        run->n = (uint8_t)(run->n - n_taken);
    }
    return n;
}

void sim_lru_ask_place(const struct sim_lru *lru, uint64_t id)
{
    if (lru->n > 0)
        __builtin_prefetch(&lru->table[lru_tag(id) & lru->mask]);
}

void sim_lru_ask_run(const struct sim_lru *lru, uint64_t id)
{
    if (lru->n > 0)
        __builtin_prefetch(&lru->runs[lru->table[lru_tag(id) & lru->mask].run]);
}

void sim_lru_fini(struct sim_lru *lru)
{
    free(lru->runs);
    free(lru->table);
    *lru = (struct sim_lru){0};
}
