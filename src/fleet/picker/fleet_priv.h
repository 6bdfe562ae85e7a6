/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet as the choice reads it: usable workers only, workers of one kind side by side, one cache line
 * each. Everything that does not depend on the request is computed when it changes. */
#ifndef FLEET_PICKER_FLEET_PRIV_H
#define FLEET_PICKER_FLEET_PRIV_H

#include "base/mem.h"
#include "fleet/picker/fleet.h"

/* Durations are whole nanoseconds, so sums compare exactly and in any order. Estimates above the bound
 * (over a day) count as equal. The bound keeps every sum here far from 64-bit overflow. */
#define PICK_MAX_NS      INT64_C(100000000000000)
#define PICK_MAX_ANSWER  8192  /* bound on the expected answer, for the same reason */
#define PICK_MAX_RUNNING 10000 /* bound on the sequences that a prefill delays, for the same reason */

/* The limit of a first token is the larger of the objective and this many times the prompt's own time. */
#define UNLOADED_SLACK 2

/* One byte is free.  A wider value is not copied here: the cost reads it from scan->fleet->slots[row->slot].reported.
 * How to change it: docs/changes-fleet.md, "A value of another kind that placement uses". */
struct pick_row {
    double prefill_ns;        /* per token */
    double transfer_ns;       /* per token that moves to this worker */
    int64_t queue_ns, itl_ns; /* queue_ns: duration, or in a timed fleet when its prompts are done */
    uint64_t free_tokens, total_tokens; /* in blocks; total UINT64_MAX: unknown */
    float pair_ns;                      /* per attended pair of a prompt */
    uint32_t n_running, block_tokens;
    uint16_t slot;
    bool decodes_only : 1;
    bool is_both : 1;  /* its role is PICKER_BOTH: long prompts are its work too */
    bool has_seat : 1; /* one more sequence would start without waiting for others to end */
    bool has_many : 1; /* a quarter of its seats is free, or its role is PICKER_BOTH */
};

_Static_assert(sizeof(struct pick_row) == MEM_CACHE_LINE, "one worker, one cache line");

/* The numbers that rule out most rows, side by side. As half of a pair, a worker that lacks n tokens
 * of the prompt costs n * rate + k * fixed. */
struct pick_brief {
    double rate_ns;   /* prefill workers: prefill_ns; decode workers: transfer_ns */
    int64_t fixed_ns; /* queue_ns; itl_ns */
    int64_t queue_ns;
    double prefill_ns;
    float pair_ns;
    float push_ns; /* per token that another worker pushes here; 0: computing is faster */
    uint32_t slot, block_tokens, n_running;
};

#define PICK_GROUP   16 /* rows that are next to each other in a pool */
#define PICK_NONE_NS (PICK_MAX_NS + 1)
#define PICK_LOADS   3
#define PICK_KINDS   (2 * PICK_LOADS)

static inline uint32_t pick_load(uint32_t n_running)
{
    return n_running < PICK_LOADS ? n_running : PICK_LOADS - 1;
}

/* Bounds over the rows of a group: one comparison rules out the whole group.  In a pool of prefill workers only `least`
 * is kept, without rate_ns and queue_ns; in a pool of decode workers all, but of `least` only these two, n_running and
 * block_tokens. */
struct pick_group {
    struct pick_brief least; /* no row has less, or longer blocks; push_ns: of those that may get pushes */
    int64_t most_queue_ns;   /* no row has a longer queue */
    int64_t most_fixed_ns;   /* no row has more, nor had since the group was computed */
    uint32_t most_running;   /* no row runs more sequences */
    /* The same by kind.  A row with 0, 1, or more sequences is of the kind 0, 1, or 2, and PICK_LOADS is added if it
     * computes prompts slowly.  A slow worker without sequences and a fast one with some bound each other's values
     * badly. */
    struct pick_kind {
        int64_t fixed_ns; /* PICK_NONE_NS: there is no such row */
        double prefill_ns, most_prefill_ns;
        float pair_ns, most_pair_ns;
    } kinds[PICK_KINDS];
};

struct pick_pool { /* the usable workers of one kind, by rank */
    uint32_t group;
    enum picker_role role; /* PREFILL, or DECODE, which holds workers of BOTH too */
    uint64_t layout;
    uint32_t partner; /* the pool of the other role that these workers may pair with, or PICKER_NONE */
    uint32_t n, cap;
    bool has_both; /* a worker of BOTH came in since the pool was empty */
    struct pick_row *rows;
    struct pick_brief *briefs; /* [n] of the same workers */
    struct pick_group *groups; /* group i: rows from i * PICK_GROUP */
    /* Bounds over all rows added since the pool was empty. */
    uint64_t least_total; /* total_tokens */
    int64_t least_itl_ns; /* decode workers */
    double least_prefill_ns;
};

#define FLEET_RECENT 24

/* Prompts that were probably dispatched after the figures of the latest report were taken.  The next report may
 * lack them too. */
struct fleet_recent {
    uint64_t at_ns, prefill_ns; /* dispatch of the latest of them; time of all together */
};

struct fleet_slot {
    struct picker_worker reported;
    struct picker_ledger ledger;
    uint32_t pool, at;     /* the place of its row; PICKER_NONE: not usable */
    uint64_t begun_tokens; /* of sequences that began since the report, which does not count their blocks */
    uint32_t n_reports;
    uint64_t freed_tokens; /* of sequences cancelled since the report, which counts their blocks as taken */
    /* in a timed fleet */
    uint32_t n_since;    /* sequences dispatched since the report, which does not count them */
    uint64_t free_ns;    /* its prompts are expected to be done */
    uint64_t longest_ns; /* about the longest prompt of the ledger */
    uint32_t n_prompts;  /* with a time, in the ledger */
    bool is_queue_own;   /* all prompts that the report counts are this router's */
    struct fleet_recent recent[FLEET_RECENT]; /* [n_recent], by time */
    uint32_t n_recent;
};

struct picker_fleet {
    uint32_t order;
    struct fleet_slot slots[PICKER_MAX_WORKERS];
    struct pick_pool pools[PICKER_MAX_WORKERS]; /* empty pools are used again */
    uint32_t n_pools;
    bool is_timed; /* reports have times */
};

/* The brief in place `at` has changed from `old`. */
void pick_group_update(struct pick_pool *pool, uint32_t at, const struct pick_brief *old);
/* The rows from place `at` on have moved. */
void pick_groups_compute(struct pick_pool *pool, uint32_t at);

/* The place of a worker among equal ones.  An odd factor makes it a permutation of all slots. */
static inline uint32_t pick_rank(const struct picker_fleet *fleet, uint32_t slot)
{
    return (slot + fleet->order) * (2 * fleet->order + 1) & (PICKER_MAX_WORKERS - 1);
}

/* Computes the slot's row again. */
void picker_fleet_refresh(struct picker_fleet *fleet, uint32_t slot);

/* The number of the shared store that the worker reads; 0: none, or the worker is not usable. */
static inline uint32_t picker_fleet_store(const struct picker_fleet *fleet, uint32_t slot)
{
    return fleet->slots[slot].pool != PICKER_NONE ? fleet->slots[slot].reported.store : 0;
}

static inline int64_t pick_ns(double ns)
{
    return ns < (double)PICK_MAX_NS ? (int64_t)ns : PICK_MAX_NS;
}

#endif
