/* SPDX-License-Identifier: Apache-2.0 */
/* A job's spans in a distributed trace. */
#ifndef FLEET_ROUTER_JOB_SPANS_PRIV_H
#define FLEET_ROUTER_JOB_SPANS_PRIV_H

#include "base/trace_context.h"

struct job;

void router_spans_placed(struct job *job); /* an attempt has begun */
/* Makes the attempt's id, and the parent of its workers' spans, if the trace is recorded. */
void router_spans_context(struct job *job, struct trace_context *trace);
void router_spans_over(struct job *job,
                       int error); /* the attempt, if one is under way, is over; 0: in order */

#endif
