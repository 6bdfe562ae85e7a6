/* SPDX-License-Identifier: Apache-2.0 */
/* Forgets a worker at once, and sweeps its column out of the entries later.
 *
 * picker_index_forget() marks the worker's column dead and gives its slot another one (see index_priv.h).
 * The sweep goes through the entries in passes:
 *
 *    pass      |------------ p ------------|---------- p + 1 ----------|
 *                        ^ a column dies here                          ^ and is free again here */
#include "fleet/picker/index_priv.h"

static void give_column(struct picker_index *index, uint32_t slot)
{
    uint16_t column = index->n_free_columns ? index->free_columns[--index->n_free_columns] : INDEX_NO_COLUMN;

    index->column_of[slot] = column;
    if (column != INDEX_NO_COLUMN)
        index->slot_of[column] = (uint16_t)slot;
    index->n_without += column == INDEX_NO_COLUMN;
}

void picker_index_forget(struct picker_index *index, uint32_t slot)
{
    uint16_t column = index->column_of[slot];

    if (column == INDEX_NO_COLUMN || !index->is_used[column])
        return;
    if (index->n_dead++ == 0) { /* no sweep was running: start a new pass */
        index->cursor = 0;
        index->pass++;
        index->died_in[column] = index->pass - 1;
    } else {
        index->died_in[column] = index->pass;
    }
    index_set_add(&index->dead, column);
    give_column(index, slot);
}

/* No entry holds a column that died before this pass. */
static void end_pass(struct picker_index *index)
{
    for (uint32_t column = 0; column < INDEX_COLUMNS; column++) {
        if (!index_set_has(&index->dead, column) || index->died_in[column] >= index->pass)
            continue;
        index_set_remove(&index->dead, column);
        index->is_used[column] = false;
        index->free_columns[index->n_free_columns++] = (uint16_t)column;
        index->n_dead--;
    }
    for (uint32_t slot = 0; index->n_without > 0 && index->n_free_columns > 0 && slot < PICKER_MAX_WORKERS;
         slot++)
        if (index->column_of[slot] == INDEX_NO_COLUMN) {
            index->n_without--;
            give_column(index, slot);
        }
    index->pass++;
    index->cursor = 0;
}

uint32_t picker_index_sweep(struct picker_index *index, uint32_t n_entries)
{
    uint32_t n = 0;

    for (; index->n_dead > 0 && n < n_entries; n++) {
        if (index->cursor >= index->n_made) {
            end_pass(index);
            continue;
        }
        struct index_entry *entry = &index->entries[index->cursor++];
        if (entry->n_owners == 0)
            continue;
        index_owners_strip(&index->pages, entry, &index->dead);
        if (entry->n_owners == 0)
            index_drop(index, entry);
        else
            index_cool(index, entry);
    }
    return n;
}
