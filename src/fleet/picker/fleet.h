/* SPDX-License-Identifier: Apache-2.0 */
/* All workers as one router sees them: each worker's latest report, and a ledger of this router's unfinished
 * work there.
 *
 * A report is up to one heartbeat old. Only the ledger has the work dispatched since then; only the report
 * has the work of other routers. So a row takes the larger of the two. The free blocks of a row exclude those
 * that the ledger's sequences will still take. Until a sequence has begun and a report counts its blocks,
 * these are its prompt and its expected answer. After that it is the expected rest of its answer. A dispatch
 * counts at once, so a burst of equal requests spreads: each choice sees the ones before it.
 *
 * One thread; no I/O and no clock. Only picker_fleet_new() can fail or allocate, and picker_fleet_set()
 * for the first worker of a new kind (model, layout, role).
 *
 * More than 15 functions: each event of a sequence's life at a worker has its own, because each changes other parts
 * of the ledger. */
#ifndef FLEET_PICKER_FLEET_H
#define FLEET_PICKER_FLEET_H

#include "fleet/picker/picker.h"

struct picker_ledger { /* work that was dispatched and has not finished; counted from the dispatch, not
                        * from a report */
    uint64_t prefill_tokens;
    uint64_t read_tokens;    /* to be read from the worker's disk */
    uint64_t store_tokens;   /* ... from the shared store */
    uint64_t context_tokens; /* of sequences not admitted yet, which will take blocks */
    uint64_t growth_tokens;  /* further tokens of admitted sequences, which will need blocks */
    uint64_t busy_ns;        /* expected time of the prompts of prefill_tokens */
    uint64_t overdue_pace; /* sum over the overdue sequences: PICKER_PACE / tokens that are still expected */
    uint32_t n_overdue;    /* sequences that have written far more than was expected of them */
    uint32_t n_seqs;
};

#define PICKER_PACE (UINT64_C(1) << 32) /* pace of a sequence that ends after one token */

struct picker_charge { /* what one sequence adds to the ledger */
    uint64_t prefill_tokens, read_tokens, store_tokens, context_tokens;
    uint64_t answer_tokens; /* expected of its answer: they take blocks too */
    uint64_t busy_ns;       /* expected time of prefill_tokens */
};

/* order: seed for the order among equal workers; 0: by slot. Routers with different values do not all choose the same
 * worker. E_NOMEM. */
int picker_fleet_new(uint32_t order, struct picker_fleet **out);
void picker_fleet_free(struct picker_fleet *fleet);

/* Sets the report of the worker in a slot. blocks_free, queued_prefill_tokens and n_running are the
 * worker's own figures, without the ledger; block_tokens > 0. A worker that is not usable is left out of
 * every choice from now on. The ledger does not change in either case. E_NOMEM: the worker is left out, as
 * if not usable. */
int picker_fleet_set(struct picker_fleet *fleet, uint32_t slot, const struct picker_worker *reported);
/* The row that estimates use: the report combined with the ledger. */
void picker_fleet_row(const struct picker_fleet *fleet, uint32_t slot, struct picker_worker *out);
uint32_t picker_fleet_n_usable(const struct picker_fleet *fleet, uint32_t group);
/* False: the group has workers, but none is large enough for so many tokens, even when idle. */
bool picker_fleet_holds(const struct picker_fleet *fleet, uint32_t group, uint32_t n_tokens);
/* Idle workers of the group have no queue from now on.  Their last reports and the expected times may still have one,
 * of a prompt that took less time than predicted.  Changes nothing where reports carry no times. */
void picker_fleet_forget_queues(struct picker_fleet *fleet, uint32_t group);

/* ---- the ledger ---- */

/* A sequence was dispatched to the worker: charges its tokens to prefill, to read, and of context, and its time. */
void picker_fleet_charge(struct picker_fleet *fleet, uint32_t slot, const struct picker_charge *charge,
                         uint64_t now_ns);
/* Call it when the sequence has been admitted and prefilled, or never will be. has_begun: it has, and the worker's
 * reports count it from now on. */
void picker_fleet_discharge(struct picker_fleet *fleet, uint32_t slot, const struct picker_charge *charge,
                            bool has_begun, uint64_t now_ns);
/* The number of the slot's report.  Until the next one the ledger counts the blocks of sequences that began. */
uint32_t picker_fleet_report(const struct picker_fleet *fleet, uint32_t slot);
/* A sequence that began in that report has ended. */
void picker_fleet_ended(struct picker_fleet *fleet, uint32_t slot, uint32_t report, uint64_t context_tokens);
/* The sequence has ended on the worker. Its charge has been discharged before. */
void picker_fleet_leave(struct picker_fleet *fleet, uint32_t slot);
/* An admitted sequence is expected to grow by to_tokens from now on, not by from_tokens. */
void picker_fleet_grow(struct picker_fleet *fleet, uint32_t slot, uint64_t from_tokens, uint64_t to_tokens);
/* An overdue sequence has this pace from now on; 0: it is not overdue, or has ended. */
void picker_fleet_pace(struct picker_fleet *fleet, uint32_t slot, uint64_t from_pace, uint64_t to_pace);
/* A sequence of n_tokens was cancelled there: its blocks count as free until the next report includes them. */
void picker_fleet_freed(struct picker_fleet *fleet, uint32_t slot, uint64_t n_tokens);
/* Values of the slot's row: the larger of report and ledger. */
uint32_t picker_fleet_n_running(const struct picker_fleet *fleet, uint32_t slot);
const struct picker_ledger *picker_fleet_ledger(const struct picker_fleet *fleet, uint32_t slot);

#endif
