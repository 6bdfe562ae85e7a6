/* SPDX-License-Identifier: Apache-2.0 */
/* Measures each piece of work of the loop.  Every stream waits during one, so it may take at most two
 * milliseconds. docs/http.md gives the longest of each kind of request.  Longer work belongs on job
 * threads. */
#include "serve/endpoint/stall_priv.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/event/work.h"

#define SHOWN_NS  (NS_PER_MS / 2)  /* logged at debug level */
#define WARNED_NS (20 * NS_PER_MS) /* long enough to delay streams noticeably */

static const double bounds_s[] = {0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5};

struct stall {
    struct ev_loop *loop;
    struct metric_family *work, *longest;
    uint64_t warned_ns; /* time of the last warning */
};

static void on_long_work(void *arg, const char *what, uint64_t cpu_ns, uint64_t wall_ns)
{
    struct stall *stall = arg;
    struct metric *longest = metric_series(stall->longest, &what);
    double s = (double)cpu_ns / (double)NS_PER_S;
    uint64_t now_ns;

    metric_observe(metric_series(stall->work, &what), s);
    if (s > metric_value(longest))
        metric_set(longest, s);
    if (cpu_ns >= SHOWN_NS)
        log_debug("loop_work", LOG_STR("work", what), LOG_U64("cpu_us", cpu_ns / NS_PER_US),
                  LOG_U64("wall_us", wall_ns / NS_PER_US));
    now_ns = clock_now_ns();
    if (cpu_ns < WARNED_NS || now_ns - stall->warned_ns < NS_PER_S)
        return;
    stall->warned_ns = now_ns;
    log_warn("loop_stall", LOG_STR("work", what), LOG_U64("cpu_us", cpu_ns / NS_PER_US),
             LOG_U64("wall_us", wall_ns / NS_PER_US));
}

int stall_new(struct ev_loop *loop, struct metrics *metrics, struct stall **out)
{
    struct stall *stall = calloc(1, sizeof(*stall));

    if (stall == NULL)
        return E_NOMEM;
    stall->loop = loop;
    stall->work = metric_histogram_family(
        metrics, "baton_loop_stall_seconds",
        "Processor time of one piece of the loop's work, of those over 0.1 ms; work=turn: of all in a turn.",
        "work", METRIC_BOUNDS(bounds_s));
    stall->longest = metric_family(metrics, METRIC_GAUGE, "baton_loop_stall_max_seconds",
                                   "The longest of them since the start.", "work");
    (void)log_set_limit("loop_work", 0); /* no limit on these lines: a dropped one might report the longest
                                          * work */
    ev_work_watch(loop, on_long_work, stall);
    *out = stall;
    return 0;
}

void stall_free(struct stall *stall)
{
    if (stall == NULL)
        return;
    ev_work_watch(stall->loop, NULL, NULL);
    free(stall);
}
