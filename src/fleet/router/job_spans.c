/* SPDX-License-Identifier: Apache-2.0 */
/* A job's part of a distributed trace: one span while it waits for a placement, one for each attempt.
 *
 *    request's span --> queue     from its arrival, or from its last worker's failure, to the placement
 *                   --> dispatch  from the placement to the end of the attempt; the workers' spans have it as parent
 *
 * An attempt gets its span id before its SUBMIT; the span is made when the attempt is over. */
#include "fleet/router/router_priv.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "fleet/router/decisions_priv.h"
#include "fleet/router/job_spans_priv.h"

#define QUEUE_LEAST_NS NS_PER_MS /* a shorter wait gets no span of its own */

static bool job_is_traced(const struct job *job)
{
    return job->router->spans != NULL && job->order.work.trace.is_sampled;
}

void router_spans_placed(struct job *job)
{
    uint64_t now_ns = clock_now_ns(), since_ns = job->attempt_ended_ns;
    struct span span;

    job->attempt_ns = now_ns;
    if (since_ns == 0)
        since_ns = job->submitted_ns;
    if (!job_is_traced(job) || now_ns - since_ns < QUEUE_LEAST_NS)
        return;
    span_begin(&span, &job->order.work.trace, "queue", since_ns);
    span.end_ns = now_ns;
    span_add_count(&span, "baton.queue.others", job->router->n_queued);
    span_queue_put(job->router->spans, &span);
}

void router_spans_context(struct job *job, struct trace_context *trace)
{
    if (!job_is_traced(job))
        return;
    trace_span_id_make(job->attempt_id);
    memcpy(trace->parent_id, job->attempt_id, SPAN_ID_BYTES);
}

void router_spans_over(struct job *job, int error)
{
    const struct router_worker *workers = job->router->workers;
    struct span span;

    if (job->attempt_ns == 0)
        return;
    job->attempt_ended_ns = clock_now_ns();
    router_decisions_over(job, error);
    if (job_is_traced(job)) {
        span_begin(&span, &job->order.work.trace, "dispatch", job->attempt_ns);
        memcpy(span.id, job->attempt_id, SPAN_ID_BYTES);
        span.kind = SPAN_CLIENT;
        span.end_ns = job->attempt_ended_ns;
        if (job->prefill.slot != PICKER_NONE)
            span_add_text(&span, "baton.prefill.worker", workers[job->prefill.slot].node);
        if (job->decode.slot != PICKER_NONE)
            span_add_text(&span, "baton.decode.worker", workers[job->decode.slot].node);
        span_add_count(&span, "baton.attempt", job->sum.n_redispatched + job->n_pauses + 1);
        span_add_count(&span, "baton.tokens.uncached", job->estimate.uncached_tokens);
        if (error < 0) {
            span_add_text(&span, "error.type", err_text(error));
            span_fail(&span, err_text(error));
        }
        span_queue_put(job->router->spans, &span);
    }
    job->attempt_ns = 0;
}
