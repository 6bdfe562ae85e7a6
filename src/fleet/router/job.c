/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a job, and the one function that changes them.
 *
 *      NEW --no worker now--> QUEUED --full queue--> PUSHED_OUT
 *       |                      |  ^
 *       |               placed |  | failed
 *       |                      v  |
 *       +-------placed-------> PLACED ---tokens before the report---> HOLDING
 *                              |                                         |
 *                              | the report                              | the report, or the wait is over
 *                              v                                         |
 *                              ANSWERING <-------------------------------+
 *                              |  ^
 *                       failed |  | placed
 *                              v  |
 *                              REQUEUED <--some worker can, no worker can--> FORSAKEN
 *
 *      ANSWERING ---a higher class takes its seat---> PAUSED ---placed---> ANSWERING
 *      PAUSED ---paused for as long as it may be, or no worker is left---> REQUEUED
 *
 *      PLACED, HOLDING, ANSWERING ---the end, without stats---> REPORTING_PLACED, REPORTING_HOLDING, REPORTING
 *      REPORTING_PLACED, REPORTING_HOLDING ---the report, or the wait is over---> REPORTING
 *      any ---ended---> ENDED, ---failed for good---> FAILED: the front's last event
 *      any ---event delivered, refused, cancelled---> OVER
 *
 *      NEW ---its client comes back for a stream---> RESUMING ---a worker has it---> PLACED
 *                                                    |
 *                                                    +-----its order was kept------> READMITTING ---in its limits---> PLACED, QUEUED
 *
 * A job that holds tokens delivers them to the front before it is placed again or ends. */
#include "fleet/router/router_priv.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "fleet/router/streams_priv.h"

static const char *job_state_name(enum job_state state)
{
    static const char *const names[] = {"new",
                                        "resuming",
                                        "readmitting",
                                        "queued",
                                        "pushed_out",
                                        "placed",
                                        "holding",
                                        "answering",
                                        "requeued",
                                        "forsaken",
                                        "paused",
                                        "reporting_placed",
                                        "reporting_holding",
                                        "reporting",
                                        "ended",
                                        "failed",
                                        "over"};
    CHECK_ROWS(names, JOB_N_STATES);

    return names[state];
}

void router_job_enter(struct job *job, enum job_state state)
{
    bool was_timed = job_is_in(job, JOB_TIMED), was_closing = job_is_in(job, JOB_CLOSING);
    enum job_state was = job->state;

    ASSERT(job->state != JOB_OVER);
    log_debug("job_state", LOG_STR("request_id", job->order.work.request_id),
              LOG_STR("from", job_state_name(job->state)), LOG_STR("to", job_state_name(state)));
    job->state = state;
    if (was == JOB_RESUMING)
        router_streams_unask(job);
    router_pause_track(job, was);
    if ((JOB_AT_WORKERS >> state & 1) == 0)
        list_remove(&job->unsent);
    if (state != JOB_FAILED && state != JOB_OVER) /* a job that failed or is over releases no held tokens */
        gen_handle_hold(&job->handle, job_is_in(job, JOB_HOLDS));
    if (job_is_in(job, JOB_TIMED) && !was_timed)
        list_push_back(&job->router->timed, &job->timed);
    if (!job_is_in(job, JOB_TIMED) && was_timed) {
        router_slices_leave_timed(job);
        list_remove(&job->timed);
    }
    if (state == JOB_HOLDING || state == JOB_RESUMING)
        job->held_ns = clock_now_ns();
    if (state == JOB_FORSAKEN)
        job->forsaken_ns = clock_now_ns();
    if (job_is_in(job, JOB_CLOSING) && !was_closing)
        job->ended_ns = clock_now_ns();
}
