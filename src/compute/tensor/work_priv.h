/* SPDX-License-Identifier: Apache-2.0 */
/* Units of work for the ranks of a team: each takes those of its own share in order, then helps the others.
 *
 * A share is the same range in every call with the same numbers, so a rank meets the same weights again (its
 * caches, its memory node), yet a rank that the system took away for a while holds nobody up.  Results never
 * depend on who did a unit. */
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
};

struct work {
    struct work_share shares[WORK_MAX_RANKS];
};

/* Before the ranks start. */
void work_init(struct work *work, uint32_t n_units, unsigned n_ranks);
/* False: nothing left anywhere. */
bool work_next(struct work *work, unsigned rank, unsigned n_ranks, uint32_t *unit_out);

/* Whom a unit belongs to, of n owners that have theirs one after the other: the last whose first unit is not
 * above it.  firsts: a uint32_t of each owner, step_bytes apart, not falling. */
uint32_t work_owner(const uint32_t *firsts, size_t step_bytes, uint32_t n, uint32_t unit);

#endif
