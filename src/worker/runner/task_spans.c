/* SPDX-License-Identifier: Apache-2.0 */
/* A task's part of a distributed trace, and the same times for the router's answer.
 *
 *    router's attempt, or the request's span of the own endpoint
 *      --> prefill | decode | local      SUBMIT to the end of the task
 *            --> prefix fetch            cached blocks come from a peer
 *            --> queue                   SUBMIT, or the fetch's end, to admission
 *            --> compute prompt          admission to first token
 *            --> KV send | KV receive    the transfer of the hand-off
 *            --> decode tokens           first token to end
 *
 * The spans are made when the task is over, so they cost nothing per token. */
#include "worker/runner/transfers_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

const char *worker_task_phase(enum task_mode mode)
{
    switch (mode) {
    case TASK_LOCAL:
        return "local";
    case TASK_PREFILL:
        return "prefill";
    case TASK_DECODE:
        return "decode";
    }
    return "";
}

void worker_task_note(uint64_t *at_ns)
{
    if (*at_ns == 0)
        *at_ns = clock_now_ns();
}

void worker_task_put_times(const struct task *task, struct task_answer *answer)
{
    answer->times = malloc(sizeof(*answer->times));
    if (answer->times == NULL)
        return; /* without memory the router's trace lacks this worker */
    *answer->times = task->times;
    answer->times->ended_ns = clock_now_ns();
    answer->times->wall_ns = clock_unix_ns() - answer->times->ended_ns;
}

/* Adds the span of a part of the task.  Adds none if a time is 0: the task did not get there. */
static void task_put_part(const struct worker_engine *engine, const struct span *parent, const char *name,
                          uint64_t from_ns, uint64_t to_ns)
{
    struct trace_context context = parent->context;
    struct span span;

    if (from_ns == 0 || to_ns < from_ns)
        return;
    memcpy(context.parent_id, parent->id, SPAN_ID_BYTES);
    span_begin(&span, &context, name, from_ns);
    span.end_ns = to_ns;
    span_queue_put(engine->opts.spans, &span);
}

static void task_put_transfer(const struct worker_engine *engine, const struct task *task,
                              const struct span *parent, uint64_t end_ns)
{
    const struct task_times *times = &task->times;
    const struct peer_facts *peer = worker_engine_peer(engine, times->transfer_peer);
    struct trace_context context = parent->context;
    struct span span;

    if (times->transfer_began_ns == 0)
        return;
    memcpy(context.parent_id, parent->id, SPAN_ID_BYTES);
    span_begin(&span, &context, times->is_sender ? "KV send" : "KV receive", times->transfer_began_ns);
    span.kind = times->is_sender ? SPAN_CLIENT : SPAN_SERVER;
    span.end_ns = times->transfer_ended_ns != 0 ? times->transfer_ended_ns : end_ns;
    span_add_text(&span, "baton.peer", peer == NULL ? "" : peer->node);
    span_add_text(&span, "baton.transport", task->figures.transport);
    if (times->transfer_bytes > 0)
        span_add_count(&span, "baton.transfer.bytes", times->transfer_bytes);
    if (!times->is_sender)
        span_add_real(&span, "baton.transfer.exposed_s", (double)task->figures.exposed_ns / 1e9);
    if (times->transfer_ended_ns == 0 || times->is_transfer_failed)
        span_fail(&span, "the transfer was not completed");
    span_queue_put(engine->opts.spans, &span);
}

void worker_task_put_spans(const struct worker_engine *engine, const struct task *task)
{
    const struct task_times *times = &task->times;
    uint64_t now_ns = clock_now_ns(), ready_ns;
    struct span span;

    if (engine->opts.spans == NULL || !task->spec.order.work.trace.is_sampled)
        return;
    span_begin(&span, &task->spec.order.work.trace, worker_task_phase(times->mode), times->submitted_ns);
    span.kind = SPAN_SERVER;
    span.end_ns = now_ns;
    span_add_text(&span, "baton.request.id", task->spec.order.work.request_id);
    span_add_count(&span, "baton.tokens.answered", task->n_answered - task->n_begun);
    if (times->is_failed)
        span_fail(&span, "the worker failed the task");
    span_queue_put(engine->opts.spans, &span);

    ready_ns = times->fetched_ns != 0 ? times->fetched_ns : times->submitted_ns;
    if (times->fetched_ns != 0)
        task_put_part(engine, &span, "prefix fetch", task->fetch_began_ns, times->fetched_ns);
    task_put_transfer(engine, task, &span, now_ns);
    if (times->admitted_ns != 0) {
        task_put_part(engine, &span, "queue", ready_ns, times->admitted_ns);
        task_put_part(engine, &span, "compute prompt", times->admitted_ns,
                      times->first_ns != 0 ? times->first_ns : now_ns);
    }
    if (times->mode != TASK_PREFILL)
        task_put_part(engine, &span, "decode tokens", times->first_ns, now_ns);
}
