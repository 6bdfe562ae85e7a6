/* SPDX-License-Identifier: Apache-2.0 */
/* See ranking_priv.h. */
#include "fleet/router/ranking_priv.h"

void router_ranking_add(struct router_ranking *ranking, uint32_t slot, uint64_t score)
{
    uint32_t at;

    for (at = ranking->n; at > 0 && ranking->scores[at - 1] < score; at--)
        if (at < ROUTER_RANKING_MOST) {
            ranking->scores[at] = ranking->scores[at - 1];
            ranking->slots[at] = ranking->slots[at - 1];
        }
    if (at == ROUTER_RANKING_MOST)
        return;
    ranking->scores[at] = score;
    ranking->slots[at] = slot;
    ranking->n += ranking->n < ROUTER_RANKING_MOST;
}
