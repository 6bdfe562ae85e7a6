/* SPDX-License-Identifier: Apache-2.0 */
/* The shared stores that workers read blocks from (stores.c). */
#ifndef FLEET_ROUTER_STORES_PRIV_H
#define FLEET_ROUTER_STORES_PRIV_H

#include "fleet/picker/place.h"
#include "proto/frame.h"

struct router;
struct router_worker;

struct router_stores {
    uint64_t names[PICKER_MAX_STORES]; /* as workers report them; 0: free */
    struct picker_index *index;        /* what they have, store i as slot i; NULL: no store yet */
};

/* The number, from 1, of the store that a worker reported.  0: no memory, or too many stores. */
uint32_t router_stores_number(struct router *router, uint64_t name);
void router_stores_receive(struct router *router, struct router_worker *worker,
                           const Baton__StoreBlocks *blocks);
uint32_t router_stores_most(const struct router *router); /* blocks that a worker may list at once */
size_t router_stores_count(const struct router *router);  /* blocks known to be in one */
void router_stores_free(struct router *router);

#endif
