/* SPDX-License-Identifier: Apache-2.0 */
/* The writeback queue: cached blocks that wait to be saved to the tier below, a linked list in arrays.
 *
 * FIFO: the block that has been cached longest is also the next to be evicted.  A block that is used again
 * leaves the list and returns at its end.  Hot path: no allocation after writeback_init, no log. */
#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "cache/kv/pool_priv.h"

/* An id that is not in the list links to itself. */
int writeback_init(struct writeback *writeback, uint32_t n_ids)
{
    *writeback = (struct writeback){.older = calloc(n_ids, sizeof(kv_block_id)),
                                    .newer = calloc(n_ids, sizeof(kv_block_id)),
                                    .oldest = KV_BLOCK_NONE,
                                    .newest = KV_BLOCK_NONE};
    if (writeback->older == NULL || writeback->newer == NULL)
        return E_NOMEM;
    for (kv_block_id id = 0; id < n_ids; id++)
        writeback->older[id] = id;
    return 0;
}

void writeback_fini(struct writeback *writeback)
{
    free(writeback->older);
    free(writeback->newer);
}

void writeback_add(struct writeback *writeback, kv_block_id id)
{
    ASSERT(writeback->older[id] == id);
    writeback->older[id] = writeback->newest;
    writeback->newer[id] = KV_BLOCK_NONE;
    if (writeback->newest != KV_BLOCK_NONE)
        writeback->newer[writeback->newest] = id;
    else
        writeback->oldest = id;
    writeback->newest = id;
    writeback->n++;
}

bool writeback_has(const struct writeback *writeback, kv_block_id id)
{
    return writeback->older != NULL && writeback->older[id] != id;
}

bool writeback_remove(struct writeback *writeback, kv_block_id id)
{
    if (!writeback_has(writeback, id))
        return false;

    kv_block_id older = writeback->older[id], newer = writeback->newer[id];
    if (older != KV_BLOCK_NONE)
        writeback->newer[older] = newer;
    else
        writeback->oldest = newer;
    if (newer != KV_BLOCK_NONE)
        writeback->older[newer] = older;
    else
        writeback->newest = older;
    writeback->older[id] = id;
    writeback->n--;
    return true;
}
