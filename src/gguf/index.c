/* SPDX-License-Identifier: Apache-2.0 */
/* Maps a name to its number, for keys and for tensors.
 *
 * The index is a hash table of numbers, at most half full, with linear probing.  The names stay in the file;
 * the table gets them through a function.  The hash is XXH3 with a random seed for each table, so that no
 * file can be made whose names all collide. */
#include "gguf/gguf_priv.h"

#include "base/err.h"
#include "base/rng.h"

#include <stdlib.h>
#include <xxhash.h>

int gguf_index_init(struct gguf_index *index, uint64_t n_names)
{
    uint32_t n_slots = 16;

    while (n_slots < n_names * 2)
        n_slots *= 2;
    index->slots = calloc(n_slots, sizeof(*index->slots));
    if (index->slots == NULL)
        return E_NOMEM;
    index->n_slots = n_slots;
    rng_system(&index->seed, sizeof(index->seed));
    return 0;
}

void gguf_index_fini(struct gguf_index *index)
{
    free(index->slots);
    *index = (struct gguf_index){0};
}

/* The slot that holds name, or the free slot for it. */
static uint32_t gguf_index_slot_of(const struct gguf_index *index, const struct gguf *gguf,
                                   gguf_name_of name_of, struct bytes name)
{
    uint32_t mask = index->n_slots - 1;
    uint32_t slot = (uint32_t)XXH3_64bits_withSeed(name.data, name.len_bytes, index->seed) & mask;

    while (index->slots[slot] != 0 && !bytes_equal(name_of(gguf, index->slots[slot] - 1), name))
        slot = (slot + 1) & mask;
    return slot;
}

int gguf_index_add(struct gguf_index *index, const struct gguf *gguf, gguf_name_of name_of, uint32_t number)
{
    uint32_t slot = gguf_index_slot_of(index, gguf, name_of, name_of(gguf, number));

    if (index->slots[slot] != 0)
        return E_EXISTS;
    index->slots[slot] = number + 1;
    return 0;
}

uint32_t gguf_index_find(const struct gguf_index *index, const struct gguf *gguf, gguf_name_of name_of,
                         struct bytes name)
{
    if (index->slots == NULL)
        return UINT32_MAX;
    return index->slots[gguf_index_slot_of(index, gguf, name_of, name)] - 1;
}
