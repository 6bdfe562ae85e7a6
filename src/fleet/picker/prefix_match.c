/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix match of a chain: goes along its blocks from the first, and keeps the set of workers that have
 * all of it so far.
 *
 *      block       0      1      2      3      4
 *      worker a    mem    mem    mem    -               in_memory 3
 *      worker b    mem    disk   mem    mem    -        in_memory 1, a run of 4 by way of the disk
 *
 * A worker "falls" at its first block that is on disk only: its count in memory ends there, and it
 * continues as a worker that would have to read. The sets are bitmaps of columns, processed 64 at a time.
 * The code visits a single worker only when it falls or drops out. */
#include <string.h>

#include "fleet/picker/index_priv.h"

void prefix_match_init(struct prefix_match *match, const struct picker_index *index,
                       struct picker_found *found, uint32_t n_slots)
{
    match->index = index;
    match->found = found;
    match->n_slots = n_slots;
    match->has_fallen = false;
    memset(found->in_memory, 0, n_slots * sizeof(found->in_memory[0]));
    found->n_runs = found->most_in_memory = 0;
}

/* The workers of the set have n blocks of the chain in memory. Later calls have larger n. */
static void prefix_match_note(const struct prefix_match *match, const struct index_set *set, uint32_t n)
{
    for (uint32_t i = 0; i < INDEX_WORDS; i++)
        for (uint64_t left = set->words[i]; left != 0; left &= left - 1) {
            uint32_t slot = match->index->slot_of[64 * i + (uint32_t)__builtin_ctzll(left)];

            if (slot >= match->n_slots)
                continue;
            match->found->in_memory[slot] = n;
            match->found->most_in_memory = n;
        }
}

/* The workers of the set have n blocks of the chain, some of them on disk. */
static void note_fallen(const struct prefix_match *match, const struct index_set *set, uint32_t n)
{
    for (uint32_t i = 0; i < INDEX_WORDS; i++)
        for (uint64_t left = set->words[i]; left != 0; left &= left - 1) {
            uint32_t slot = match->index->slot_of[64 * i + (uint32_t)__builtin_ctzll(left)];

            if (slot < match->n_slots)
                match->found->runs[match->found->n_runs++] = (struct picker_run){.slot = slot, .n_blocks = n};
        }
}

/* The workers of the set drop out at block n. */
static void drop_out(const struct prefix_match *match, const struct index_set *set, uint32_t n)
{
    struct index_set whole = *set, fell;

    if (match->has_fallen) {
        for (uint32_t i = 0; i < INDEX_WORDS; i++) {
            fell.words[i] = set->words[i] & match->fallen.words[i];
            whole.words[i] &= ~match->fallen.words[i];
        }
        note_fallen(match, &fell, n);
    }
    prefix_match_note(match, &whole, n);
}

/* The workers that have block n on disk only fall. */
static void prefix_match_fall(struct prefix_match *match, const struct index_set *on_disk, uint32_t n)
{
    struct index_set fell;

    if (!match->has_fallen)
        memset(&match->fallen, 0, sizeof(match->fallen));
    match->has_fallen = true;
    for (uint32_t i = 0; i < INDEX_WORDS; i++) {
        fell.words[i] = match->live.words[i] & on_disk->words[i] & ~match->fallen.words[i];
        match->fallen.words[i] |= fell.words[i];
    }
    prefix_match_note(match, &fell, n);
}

bool prefix_match_narrow(struct prefix_match *match, const struct index_entry *entry, uint32_t n)
{
    struct index_set owners, on_disk, gone;
    bool has_disk = index_owners_load(&match->index->pages, entry, &owners, &on_disk);
    uint64_t any_live = 0, any_gone = 0;

    for (uint32_t i = 0; i < INDEX_WORDS; i++) {
        gone.words[i] = match->live.words[i] & ~owners.words[i];
        match->live.words[i] &= owners.words[i];
        any_gone |= gone.words[i];
        any_live |= match->live.words[i];
    }
    if (any_gone != 0)
        drop_out(match, &gone, n);
    if (has_disk)
        prefix_match_fall(match, &on_disk, n);
    return any_live != 0;
}

void prefix_match_begin(struct prefix_match *match, const struct index_entry *first)
{
    struct index_set on_disk;
    bool has_disk = index_owners_load(&match->index->pages, first, &match->live, &on_disk);

    for (uint32_t i = 0; i < INDEX_WORDS; i++)
        match->live.words[i] &= ~match->index->dead.words[i];
    if (has_disk)
        prefix_match_fall(match, &on_disk, 0);
}

void prefix_match_end(const struct prefix_match *match, uint32_t n)
{
    drop_out(match, &match->live, n);
}
