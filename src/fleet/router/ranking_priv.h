/* SPDX-License-Identifier: Apache-2.0 */
/* The few workers with the highest scores.  Pure. */
#ifndef FLEET_ROUTER_RANKING_PRIV_H
#define FLEET_ROUTER_RANKING_PRIV_H

#include <stdint.h>

#define ROUTER_RANKING_MOST 4

struct router_ranking { /* starts as zeros */
    uint64_t scores[ROUTER_RANKING_MOST];
    uint32_t slots[ROUTER_RANKING_MOST]; /* the highest score first */
    uint32_t n;
};

/* Adds a worker.  Of equal scores the one that was added first ranks higher. */
void router_ranking_add(struct router_ranking *ranking, uint32_t slot, uint64_t score);

#endif
