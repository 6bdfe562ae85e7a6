/* SPDX-License-Identifier: Apache-2.0 */
/* Two clocks: one is cheap and the other is accurate.
 *
 *     turn   | piece | piece | ........ long piece ........ | piece |
 *     wall   ^       ^       ^                              ^       ^       each piece, 25 ns a look
 *     CPU    ^                                              ^       ^       each turn, and after a long one
 *
 * The cheap monotonic clock finds the pieces that are long enough.  Only these read the thread's CPU clock, which
 * costs a system call.  The CPU time since the last reading covers the piece and the short pieces before it in the
 * same turn.  So it is never less than the piece took.  The report never gives more than the wall time. */
#include "base/event/work_priv.h"

#include "base/clock.h"

static _Thread_local struct {
    const struct ev_watch *watch; /* NULL: no loop, or no watcher */
    unsigned depth;
    const char *what;
    uint64_t begun_ns;
    uint64_t cpu_ns;      /* at the last reading */
    uint64_t turn_cpu_ns; /* at the start of the turn */
} work;

void ev_work_watch(struct ev_loop *loop, ev_long_call call, void *arg)
{
    *ev_loop_watch(loop) = (struct ev_watch){.call = call, .arg = arg};
}

void ev_work_enter(const struct ev_watch *watch)
{
    work.watch = watch != NULL && watch->call != NULL ? watch : NULL;
    work.depth = 0;
    if (work.watch == NULL)
        return;
    work.turn_cpu_ns = work.cpu_ns = clock_thread_cpu_ns();
}

static void work_report(const char *what, uint64_t cpu_ns, uint64_t wall_ns)
{
    work.watch->call(work.watch->arg, what, cpu_ns < wall_ns ? cpu_ns : wall_ns, wall_ns);
}

void ev_work_begin(const char *what)
{
    if (work.watch == NULL || work.depth++ > 0)
        return;
    work.what = what;
    work.begun_ns = clock_now_ns();
}

void ev_work_name(const char *what)
{
    work.what = what;
}

uint64_t ev_work_age_ns(void)
{
    return work.watch == NULL || work.depth == 0 ? 0 : clock_now_ns() - work.begun_ns;
}

void ev_work_end(void)
{
    uint64_t wall_ns, cpu_ns;

    if (work.watch == NULL || --work.depth > 0)
        return;
    wall_ns = clock_now_ns() - work.begun_ns;
    if (wall_ns < EV_LONG_NS)
        return;
    cpu_ns = clock_thread_cpu_ns();
    work_report(work.what, cpu_ns - work.cpu_ns, wall_ns);
    work.cpu_ns = cpu_ns;
}

/* A turn waits before it works, so its wall time says nothing.  Its CPU time stands for both. */
void ev_work_turn(void)
{
    uint64_t cpu_ns;

    if (work.watch == NULL)
        return;
    cpu_ns = clock_thread_cpu_ns();
    if (cpu_ns - work.turn_cpu_ns >= EV_LONG_NS)
        work_report("turn", cpu_ns - work.turn_cpu_ns, cpu_ns - work.turn_cpu_ns);
    work.turn_cpu_ns = work.cpu_ns = cpu_ns;
}
