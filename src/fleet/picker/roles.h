/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which roles the workers of a pool should have. The router asks once a second; the simulator asks
 * the same code under its own clock.
 *
 * Each phase has a *room*: the multiple of the present load that its workers could carry within the
 * objectives.  The policy moves one worker at a time to the phase with less room, if the move raises the
 * lesser room enough.  The same estimate gives an autoscaler the wanted numbers of workers.
 *
 * One thread; no clock, no I/O, no allocation.  All zero is a policy that has seen nothing.
 * How to change it: docs/changes-fleet.md, "A reason of placement.roles". */
#ifndef FLEET_PICKER_ROLES_H
#define FLEET_PICKER_ROLES_H

#include "fleet/picker/demand.h"
#include "fleet/picker/fleet.h"

/* X(name, text): the reason of a decision */
#define PICKER_ROLES_REASONS(X)                                                                              \
    X(COLD, "too few requests, or workers that have not measured themselves")                                \
    X(ROOM, "both phases have room")                                                                         \
    X(BALANCED, "no other split is better by enough")                                                        \
    X(MINIMUM, "the phase with room has its least number of workers")                                        \
    X(SETTLING, "another split has not been better for long enough")                                         \
    X(RECENT, "a role changed within the last minute")                                                       \
    X(PREFILL, "prefill has less room")                                                                      \
    X(DECODE, "decode has less room")                                                                        \
    X(RESTORED, "a role has fewer workers than its least number")                                            \
    X(MISSED,                                                                                                \
      "requests are refused or late though both rooms suffice, so a worker is tried in the other role")      \
    X(WORSE, "more requests are refused or late since the last change, which is taken back")                 \
    X(TRIED, "the same change was taken back under the same load")

enum picker_roles_reason {
#define X(name, text) PICKER_ROLES_##name,
    PICKER_ROLES_REASONS(X)
#undef X
        PICKER_ROLES_N_REASONS
};

struct picker_roles_opts {
    uint32_t group; /* of the model (picker.h) */
    double ttft_slo_s, itl_slo_s;
    uint32_t least;        /* workers of each role */
    uint32_t short_tokens; /* placement.local_prefill_tokens */
    bool only_shows;       /* roles are fixed: the plan has the reason and no flip */
    uint64_t period_ns;    /* between two changes of a role in the pool */
};

struct picker_roles_trial { /* a change of this router, until the refusals after it have judged it */
    uint64_t began_ns;      /* 0: none */
    enum picker_role to;
    struct picker_load before;
    double before_missed; /* mean share of requests that were refused or late, under the roles before */
    bool must_gain;       /* it fails unless fewer are refused or late */
};

struct picker_roles_lesson { /* of a trial that failed */
    uint64_t until_ns;       /* 0: none */
    uint32_t n_again;        /* trials that failed before in the same way */
    uint32_t too_many;       /* workers of the role */
    double missed;           /* share of requests that were refused or late in it */
    struct picker_load load;
};

struct picker_roles { /* of one model's workers */
    struct picker_demand demand;
    uint64_t changed_ns; /* time of the latest change of a role, by any router or operator; 0: never */
    uint64_t better_ns;  /* time since which the same other split is better; 0: none is */
    enum picker_role better_to;
    /* Decode steps against sequences, over the workers' reports: sums that fade. */
    double weight, seqs, steps_s, squares, products;
    struct picker_roles_trial trial;
    struct picker_roles_lesson lessons[2]; /* of trials of a prefill, and of a decode worker */
    double missed,
        n_missed_seen; /* shares of such requests since the latest change: sum and number, which fade */
    double seen_seqs, own_seqs; /* sequences in the reports, and in this router's ledger: other routers place
                                 * too */
};

struct picker_roles_plan { /* one decision, and the figures behind it */
    enum picker_roles_reason reason;
    uint32_t flip;                /* slot, or PICKER_NONE: no role changes now */
    enum picker_role to;          /* its new role */
    uint32_t n_prefill, n_decode; /* workers now */
    double prefill_room, decode_room;
    uint32_t wanted_prefill, wanted_decode; /* 0 in both: not known */
    struct picker_load load;
};

/* Decides for the pool of a model: its workers with the most common layout.  A worker of PICKER_BOTH decodes and
 * keeps its role.  Call it about once a second. */
void picker_roles_decide(struct picker_roles *roles, const struct picker_roles_opts *opts,
                         const struct picker_fleet *fleet, uint64_t now_ns, struct picker_roles_plan *out);
/* Call it when a worker of the pool has changed its role, at at_ns. */
void picker_roles_changed(struct picker_roles *roles, uint64_t at_ns);
const char *picker_roles_text(enum picker_roles_reason reason);

/* The estimates behind the decision, for tests: load multiples that n workers carry. */
double picker_prefill_room(const struct picker_load *load, double ttft_slo_s, uint32_t n_workers);
double picker_decode_room(double n_seqs, double busy_share, double seats, uint32_t n_workers);
/* The least number of workers with a room of 1.  overflow: decode workers that would be free to compute prompts, of which
 * whole ones count. */
uint32_t picker_prefill_wanted(const struct picker_load *load, double ttft_slo_s, double overflow);
uint32_t picker_decode_wanted(double n_seqs, double busy_share, double seats);

#endif
