/* SPDX-License-Identifier: Apache-2.0 */
/* The writeback queue: cached blocks that wait to be saved to the tier below, a linked list in arrays.
 *
 * FIFO: the block that has been cached longest is also the next to be evicted.  A block that is used again
 * leaves the list and returns at its end.  Hot path: no allocation after unsaved_init, no log. */
#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "cache/kv/pool_priv.h"

/* An id outside the list is its own neighbour. */
int unsaved_init(struct unsaved *unsaved, uint32_t n_ids)
{
    *unsaved = (struct unsaved){.older = calloc(n_ids, sizeof(kv_block_id)),
                                .newer = calloc(n_ids, sizeof(kv_block_id)),
                                .oldest = KV_BLOCK_NONE,
                                .newest = KV_BLOCK_NONE};
    if (unsaved->older == NULL || unsaved->newer == NULL)
        return E_NOMEM;
    for (kv_block_id id = 0; id < n_ids; id++)
        unsaved->older[id] = id;
    return 0;
}

void unsaved_fini(struct unsaved *unsaved)
{
    free(unsaved->older);
    free(unsaved->newer);
}

void unsaved_add(struct unsaved *unsaved, kv_block_id id)
{
    ASSERT(unsaved->older[id] == id);
    unsaved->older[id] = unsaved->newest;
    unsaved->newer[id] = KV_BLOCK_NONE;
    if (unsaved->newest != KV_BLOCK_NONE)
        unsaved->newer[unsaved->newest] = id;
    else
        unsaved->oldest = id;
    unsaved->newest = id;
    unsaved->n++;
}

bool unsaved_remove(struct unsaved *unsaved, kv_block_id id)
{
    if (unsaved->older == NULL || unsaved->older[id] == id)
        return false;

    kv_block_id older = unsaved->older[id], newer = unsaved->newer[id];
    if (older != KV_BLOCK_NONE)
        unsaved->newer[older] = newer;
    else
        unsaved->oldest = newer;
    if (newer != KV_BLOCK_NONE)
        unsaved->older[newer] = older;
    else
        unsaved->newest = older;
    unsaved->older[id] = id;
    unsaved->n--;
    return true;
}
