/* SPDX-License-Identifier: Apache-2.0 */
/* All workers as one router sees them: what each reported, and the ledger of what this router dispatched to
 * it and has not seen finished.
 *
 * A report is up to a heartbeat old.  Work dispatched meanwhile is in the ledger only, work of other routers
 * in the report only, so the larger of the two counts, and what a worker still has to give blocks to is taken
 * off its free ones.  Because a dispatch counts at once, a burst of equal requests spreads: each sees those
 * before.
 *
 * One thread; no I/O and no clock.  Everything but picker_fleet_new() is without failure and allocation, but
 * for the first worker of a new kind (model, layout, role), see picker_fleet_set(). */
#ifndef FLEET_PICKER_FLEET_H
#define FLEET_PICKER_FLEET_H

#include "fleet/picker/picker.h"

struct picker_ledger { /* dispatched and not finished: counted at dispatch, not at report */
    uint64_t prefill_tokens;
    uint64_t read_tokens;    /* from its disk */
    uint64_t context_tokens; /* not yet admitted there: will take blocks */
    uint32_t n_seqs;
};

struct picker_charge { /* one sequence's part of it */
    uint64_t prefill_tokens, read_tokens, context_tokens;
};

/* E_NOMEM. */
int picker_fleet_new(struct picker_fleet **out);
void picker_fleet_free(struct picker_fleet *fleet);

/* What is known of the worker in a slot, as it says itself (blocks_free, queued_prefill_tokens and n_running
 * without the ledger; block_tokens > 0).  Not usable: it is left out of every choice from now on.  The ledger
 * stays as it is in both cases.  E_NOMEM: it is left out, as if not usable. */
int picker_fleet_set(struct picker_fleet *fleet, uint32_t slot, const struct picker_worker *reported);
/* The row that estimates are made from: reported, with the ledger. */
void picker_fleet_row(const struct picker_fleet *fleet, uint32_t slot, struct picker_worker *out);
uint32_t picker_fleet_n_usable(const struct picker_fleet *fleet, uint32_t group);

/* ---- the ledger ---- */

/* A sequence was dispatched there: so many tokens to prefill, to read, of context. */
void picker_fleet_charge(struct picker_fleet *fleet, uint32_t slot, const struct picker_charge *charge);
/* It has been admitted and prefilled: from now on the worker's reports speak of it. */
void picker_fleet_discharge(struct picker_fleet *fleet, uint32_t slot, const struct picker_charge *charge);
/* It is over there; what was charged for it has been discharged. */
void picker_fleet_leave(struct picker_fleet *fleet, uint32_t slot);
const struct picker_ledger *picker_fleet_ledger(const struct picker_fleet *fleet, uint32_t slot);

#endif
