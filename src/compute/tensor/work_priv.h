/* SPDX-License-Identifier: Apache-2.0 */
/* Distributes units of work to the ranks of a team. Each rank takes the units of its own share in order,
 * then helps the others.
 *
 * A share is the same range in every call with the same numbers, so a rank meets the same weights again
 * (its caches, its memory node). A rank that the system suspends for a while does not delay the others.
 * Results never depend on the rank that did a unit. */
#ifndef COMPUTE_TENSOR_WORK_PRIV_H
#define COMPUTE_TENSOR_WORK_PRIV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WORK_MAX_RANKS = 1024 };

struct work_share {
    _Alignas(64) _Atomic uint32_t next;
    uint32_t end;
    uint16_t first, n; /* ranks [first, first + n) help each other */
};

struct work {
    struct work_share shares[WORK_MAX_RANKS];
};

/* Call before the ranks start. */
void work_init(struct work *work, uint32_t n_units, unsigned n_ranks);
/* The same with units of each memory node, numbered from 0 in each: n_units [team_n_nodes()]. Ranks help only ranks
 * of their own node, so a unit is done where its memory is. */
struct team;
void work_init_nodes(struct work *work, const struct team *team, const uint32_t *n_units);
/* False: no rank, of this rank's node, has units left. */
bool work_next(struct work *work, unsigned rank, uint32_t *unit_out);

/* The owner of a unit, among n owners with consecutive runs of units: the last owner whose first unit is at
 * or below it. firsts: a uint32_t of each owner, step_bytes apart, ascending or equal. */
uint32_t work_owner(const uint32_t *firsts, size_t step_bytes, uint32_t n, uint32_t unit);

#endif
