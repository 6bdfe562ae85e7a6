/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a job, and the one function that changes them.
 *
 *      NEW --refused--> OVER
 *       |
 *       +--no worker now--> QUEUED --full queue--> PUSHED_OUT
 *       |                    |  ^
 *       +-----placed-----+   |  +--failed--+
 *                        v   v             |
 *                        PLACED -----------+
 *                        |    | tokens before the prefill worker's report
 *                report  |    v
 *                        |  HOLDING -------------+
 *                        v    v report, time     | end
 *                        ANSWERING <--placed--+  |     no worker can
 *                        |    |               |  |         |
 *                        |    +--failed--> REQUEUED <--> FORSAKEN
 *                        | end                   |
 *                        v                       v
 *                        PROVING <--report-- PROVING_HOLDING, PROVING_PLACED
 *
 *      PROVING...: the end is received and serving stats are missing. They come, or the wait is over: OVER.
 *      From all states: the end is received and the client is paused --> ENDED --client reads--> OVER
 *                       failed for good, ended, cancelled ----------------------------------------> OVER
 *
 * A job that HOLDS leaves that state before it is placed again or ends: the front gets the tokens first. */
#include "fleet/router/router_priv.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

static const char *job_state_name(enum job_state state)
{
    static const char *const names[JOB_N_STATES] = {
        [JOB_NEW] = "new",
        [JOB_QUEUED] = "queued",
        [JOB_PUSHED_OUT] = "pushed_out",
        [JOB_PLACED] = "placed",
        [JOB_HOLDING] = "holding",
        [JOB_ANSWERING] = "answering",
        [JOB_REQUEUED] = "requeued",
        [JOB_FORSAKEN] = "forsaken",
        [JOB_PROVING_PLACED] = "proving_placed",
        [JOB_PROVING_HOLDING] = "proving_holding",
        [JOB_PROVING] = "proving",
        [JOB_ENDED] = "ended",
        [JOB_OVER] = "over",
    };

    return names[state];
}

void router_job_enter(struct gen_handle *job, enum job_state state)
{
    bool was_timed = job_is_in(job, JOB_TIMED), was_proving = job_is_in(job, JOB_PROVES);

    ASSERT(job->state != JOB_OVER);
    log_debug("job_state", LOG_STR("request", job->order.work.request_id),
              LOG_STR("from", job_state_name(job->state)), LOG_STR("to", job_state_name(state)));
    job->state = state;
    job->router->n_timed += job_is_in(job, JOB_TIMED);
    job->router->n_timed -= was_timed;
    if (state == JOB_HOLDING)
        job->held_ns = clock_now_ns();
    if (state == JOB_FORSAKEN)
        job->forsaken_ns = clock_now_ns();
    if (job_is_in(job, JOB_PROVES) && !was_proving)
        job->ended_ns = clock_now_ns();
}
