/* SPDX-License-Identifier: Apache-2.0 */
/* Work over many jobs, in slices.
 *
 *      a worker is lost, comes up, reports --+
 *      a job ends or is cancelled -----------+--> ask --> this turn's slice --no time is left--> next turn's slice
 *      tick ---------------------------------+              |                                         |
 *                                                           +---- all done <--------------------------+
 *
 * All kinds together take at most most_ns of a loop turn, so that sockets are served between two slices.  Each job is
 * one step.  A slice does at least one.  What was cut goes on where it stopped, so each job has its turn.  A kind that
 * is asked for again meanwhile begins anew after that, because its first jobs have not seen the change.
 *
 * Between two slices jobs come, change and end.  New jobs join at the end of their lists.  A job that leaves a list
 * moves the walk that would visit it next.  A job whose worker was lost, and that the sweep has not reached yet, still
 * has that worker as its part: router_part_is_lost().  New requests for the worker's model wait until it has
 * (dispatch.c), so that they take no seat before it. */
#include "fleet/router/router_priv.h"

#include "base/clock.h"

static bool (*const slice_steps[SLICE_KINDS])(struct router *router) = {
    [SLICE_SWEEP] = router_stream_sweep_step,
    [SLICE_PLACE] = router_place_step,
    [SLICE_TIMED] = router_stream_timed_step,
    [SLICE_EXPIRE] = router_expire_step,
};

void router_turn_soon(struct router *router)
{
    if (router->turn == NULL || router->slices.has_turn)
        return;
    router->slices.has_turn = true; /* a second start would put the turn off */
    ev_timer_start(router->turn, 0);
}

static bool slices_are_left(const struct router_slices *slices)
{
    return (slices->asked | slices->begun) != 0;
}

/* True if the work is to be done, or not finished. */
static bool slices_has(const struct router *router, enum router_slice kind)
{
    return ((router->slices.asked | router->slices.begun) >> kind & 1) != 0;
}

bool router_slices_is_asked(const struct router *router, enum router_slice kind)
{
    return (router->slices.asked >> kind & 1) != 0;
}

/* The next kind to work on. */
static unsigned slices_choose(const struct router *router)
{
    unsigned kind = router->slices.first;

    while (!slices_has(router, kind) || (kind == SLICE_PLACE && slices_has(router, SLICE_SWEEP)))
        kind = (kind + 1) % SLICE_KINDS;
    return kind;
}

/* Works on one kind until it is done.  False: no time is left. */
static bool slices_work(struct router *router, unsigned kind, uint64_t end_ns)
{
    struct router_slices *slices = &router->slices;

    if ((slices->begun >> kind & 1) == 0)
        slices->asked &= ~(1u << kind);
    slices->begun |= 1u << kind;
    while (slice_steps[kind](router))
        if (end_ns > 0 && clock_now_ns() >= end_ns)
            return false;
    slices->begun &= ~(1u << kind);
    return end_ns == 0 || clock_now_ns() < end_ns;
}

/* True if the turn has time left. */
static bool slices_have_time(struct router *router)
{
    struct router_slices *slices = &router->slices;
    uint64_t turn = router->loop != NULL ? ev_loop_turns(router->loop) : slices->turn;

    if (turn != slices->turn)
        slices->spent_ns = 0;
    slices->turn = turn;
    return slices->most_ns == 0 || slices->spent_ns < slices->most_ns;
}

static void slices_run(struct router *router)
{
    struct router_slices *slices = &router->slices;
    uint64_t began_ns, end_ns;
    bool has_time = slices_have_time(router);

    if (slices->is_running)
        return;
    slices->is_running = true;
    began_ns = clock_now_ns();
    end_ns = slices->most_ns > 0 ? began_ns + slices->most_ns - slices->spent_ns : 0;
    while (has_time && slices_are_left(slices)) {
        unsigned kind = slices_choose(router);

        has_time = slices_work(router, kind, end_ns);
        slices->first = (kind + 1) % SLICE_KINDS;
    }
    slices->spent_ns += slices->most_ns > 0 ? clock_now_ns() - began_ns : 0;
    slices->is_running = false;
    if (slices_are_left(slices))
        router_turn_soon(router);
}

void router_slices_ask(struct router *router, enum router_slice kind)
{
    router->slices.asked |= 1u << kind;
    slices_run(router);
}

void router_slices_go(struct router *router)
{
    if (router->loop == NULL)
        router->slices.spent_ns = 0;
    if (slices_are_left(&router->slices))
        slices_run(router);
}

/* ---- walks ---- */

struct list *router_walk_step(struct router_walk *walk, struct list *head)
{
    struct list *node = walk->next != NULL ? walk->next : head->next;

    walk->next = node != head ? node->next : NULL;
    return node != head ? node : NULL;
}

static void walk_leave(struct router_walk *walk, const struct list *node)
{
    if (walk->next == node)
        walk->next = node->next;
}

void router_slices_leave_queue(struct job *job)
{
    walk_leave(&job->router->slices.queue, &job->waiting);
    walk_leave(&job->router->slices.odd, &job->place.odd);
}

void router_slices_leave_timed(struct job *job)
{
    walk_leave(&job->router->slices.timed, &job->timed);
}

void router_slices_leave(struct job *job)
{
    router_slices_leave_queue(job);
    router_slices_leave_timed(job);
    walk_leave(&job->router->slices.jobs, &job->all);
}
