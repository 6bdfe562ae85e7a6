/* SPDX-License-Identifier: Apache-2.0 */
/* A router's waiting requests, the earliest deadline first: a heap.  So a look for requests that waited too long
 * costs nothing while none did, however long the queue is.
 *
 * The heap's key is a time at or before the deadline: admit.c compares seconds, which are rounded.  A request whose
 * key has passed and which is not late yet is looked at again with the next tick. */
#include "fleet/sim/deadlines_priv.h"

#include <stdlib.h>

#include "base/err.h"
#include "fleet/sim/queue_priv.h"

#define ROUNDING_NS 1000
#define MAX_LIMIT_S 1e9

static void deadlines_put(struct sim_deadlines *deadlines, uint32_t at, struct sim_job *job)
{
    deadlines->heap[at] = job;
    job->deadline_at = at;
}

static void deadlines_rise(struct sim_deadlines *deadlines, uint32_t at)
{
    struct sim_job *job = deadlines->heap[at];

    for (; at > 0 && job->deadline_ns < deadlines->heap[(at - 1) / 2]->deadline_ns; at = (at - 1) / 2)
        deadlines_put(deadlines, at, deadlines->heap[(at - 1) / 2]);
    deadlines_put(deadlines, at, job);
}

static void deadlines_sink(struct sim_deadlines *deadlines, uint32_t at)
{
    struct sim_job *job = deadlines->heap[at];

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < deadlines->n &&
            deadlines->heap[child + 1]->deadline_ns < deadlines->heap[child]->deadline_ns)
            child++;
        if (child >= deadlines->n || deadlines->heap[child]->deadline_ns >= job->deadline_ns)
            break;
        deadlines_put(deadlines, at, deadlines->heap[child]);
        at = child;
    }
    deadlines_put(deadlines, at, job);
}

static uint64_t deadline_key_ns(const struct sim *sim, const struct sim_job *job)
{
    double left_s = job->limit_s - job->alone_s;
    uint64_t late_ns = job->request.at_ns;

    if (!sim_admit_bounds(sim, job))
        return job->queued_ns + sim->opts->queue_timeout_ns;
    left_s = left_s < MAX_LIMIT_S ? left_s : MAX_LIMIT_S;
    if (left_s * 1e9 > ROUNDING_NS)
        late_ns += (uint64_t)(left_s * 1e9) - ROUNDING_NS;
    return late_ns;
}

int sim_deadlines_add(const struct sim *sim, struct sim_deadlines *deadlines, struct sim_job *job)
{
    if (deadlines->n == deadlines->cap) {
        uint32_t cap = deadlines->cap > 0 ? 2 * deadlines->cap : 256;
        struct sim_job **grown = realloc(deadlines->heap, cap * sizeof(struct sim_job *));

        if (grown == NULL)
            return E_NOMEM;
        deadlines->heap = grown;
        deadlines->cap = cap;
    }
    job->deadline_ns = deadline_key_ns(sim, job);
    deadlines_put(deadlines, deadlines->n, job);
    deadlines_rise(deadlines, deadlines->n++);
    return 0;
}

void sim_deadlines_remove(struct sim_deadlines *deadlines, struct sim_job *job)
{
    uint32_t at = job->deadline_at;
    struct sim_job *last;

    if (at == SIM_NONE)
        return;
    job->deadline_at = SIM_NONE;
    last = deadlines->heap[--deadlines->n];
    if (last == job)
        return;
    deadlines_put(deadlines, at, last);
    deadlines_rise(deadlines, at);
    deadlines_sink(deadlines, last->deadline_at);
}

static bool deadline_is_over(const struct sim *sim, const struct sim_job *job)
{
    return sim_admit_bounds(sim, job) ? sim_admit_is_late(sim, job)
                                      : sim->now_ns - job->queued_ns > sim->opts->queue_timeout_ns;
}

/* By class, then in the order of turns. */
static int deadlines_by_turn(const void *left, const void *right)
{
    const struct sim_job *a = *(struct sim_job *const *)left, *b = *(struct sim_job *const *)right;

    if (a->class_at != b->class_at)
        return a->class_at < b->class_at ? -1 : 1;
    if (a->flow == b->flow && a->turn.order == b->turn.order)
        return a->queue_number < b->queue_number ? -1 : 1;
    return fair_is_before(&a->turn, &b->turn) ? -1 : 1;
}

uint32_t sim_deadlines_take_late(const struct sim *sim, struct sim_deadlines *deadlines,
                                 struct sim_job ***late_out)
{
    uint32_t n_before = deadlines->n;

    while (deadlines->n > 0 && deadlines->heap[0]->deadline_ns < sim->now_ns) {
        struct sim_job *job = deadlines->heap[0];

        sim->result->n_expiry_looks++;
        if (deadline_is_over(sim, job)) {
            sim_deadlines_remove(deadlines, job);
            deadlines->heap[deadlines->n] = job; /* the place that became free */
        } else {
            job->deadline_ns = sim->now_ns;
            deadlines_sink(deadlines, 0);
        }
    }
    *late_out = deadlines->heap + deadlines->n;
    if (n_before - deadlines->n > 1)
        qsort(*late_out, n_before - deadlines->n, sizeof(struct sim_job *), deadlines_by_turn);
    return n_before - deadlines->n;
}

void sim_deadlines_fini(struct sim_deadlines *deadlines)
{
    free(deadlines->heap);
    *deadlines = (struct sim_deadlines){0};
}
