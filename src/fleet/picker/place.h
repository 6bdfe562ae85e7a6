/* SPDX-License-Identifier: Apache-2.0 */
/* One request's placement, as the router does it and the simulator repeats it: match the prompt in the
 * index, choose the workers, and book them so that the next request sees it. One thread. */
#ifndef FLEET_PICKER_PLACE_H
#define FLEET_PICKER_PLACE_H

#include "fleet/picker/fleet.h"
#include "fleet/picker/index.h"

enum { PICKER_MAX_STORES = 16 };

struct picker_place { /* one placement under way; the caller's storage. To copy it: picker_place_copy() */
    struct picker_fleet *fleet;
    struct picker_index *index;
    struct picker_index *stored; /* blocks of the shared stores; store i is slot i; NULL: there is no store */
    const struct block_hash *hashes; /* of the prompt's whole blocks */
    size_t n_hashes;
    uint64_t now_ns;
    bool may_push;                 /* workers push cached blocks to each other (prefix fetch) */
    struct picker_request request; /* picker_place_choose() sets its cached_blocks,
                                    * runs and pushable_blocks */
    struct picker_goals goals;     /* out: those of the choice */
    struct picker_found found;     /* out: the prefix match of each worker */
    struct picker_choice choice;   /* out */
};

struct picker_booking { /* the charge to one worker for one request; slot PICKER_NONE: none */
    uint32_t slot;
    uint32_t begun_report; /* it began in this report, with ... */
    uint64_t begun_tokens; /* ... this many tokens; 0: it did not begin */
    uint64_t growth_tokens;
    uint64_t overdue_pace; /* 0: it is not overdue */
    struct picker_charge charge;
};

struct picker_written { /* of one answer */
    uint32_t n_tokens;  /* so far, at all workers */
    uint32_t expected;  /* picker_answers_expect() of the whole answer */
    uint32_t most;      /* its limit */
};

/* Copies a placement.  The request points into it, so that an assignment would point into the other one. */
void picker_place_copy(struct picker_place *to, const struct picker_place *from);
/* Matches the prompt and picks. Returns picker_pick()'s codes; the choice is valid with 0 and
 * E_OVERLOADED. */
int picker_place_choose(struct picker_place *place, const struct picker_goals *goals);
/* Charges the ledgers of the chosen workers, and records in the index that they will have the prompt's
 * blocks. */
void picker_place_book(const struct picker_place *place, struct picker_booking *prefill_out,
                       struct picker_booking *decode_out);

/* The started answer is expected to grow by n_tokens from now on; 0: it will not grow. */
void picker_booking_grows(struct picker_fleet *fleet, struct picker_booking *booking, uint64_t n_tokens);
/* The answer has so many tokens.  From twice what was expected on, it is overdue: it goes on for as long again, up to
 * its limit (picker_outlook()). */
void picker_booking_wrote(struct picker_fleet *fleet, struct picker_booking *booking,
                          const struct picker_written *written);
/* started: the worker has admitted and prefilled the sequence. over: the sequence has ended there, with or
 * without having started. Both calls may be repeated. */
void picker_booking_started(struct picker_fleet *fleet, struct picker_booking *booking, uint64_t now_ns);
void picker_booking_over(struct picker_fleet *fleet, struct picker_booking *booking, uint64_t now_ns);
/* The same for a sequence of n_tokens that was cancelled: its blocks count as free at once. */
void picker_booking_cancelled(struct picker_fleet *fleet, struct picker_booking *booking,
                              uint64_t context_tokens, uint64_t now_ns);

#endif
