/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by simulate and sweep: options, the trace, and the choice of the plan to simulate. */
#ifndef PLAN_SIMULATE_ARGS_H
#define PLAN_SIMULATE_ARGS_H

#include "clients/plan/simulate.h"

struct simulate_arg {
    const char *name; /* "--seed" */
    const char **text_out;
};

/* Takes the n options out of argv. EXIT_DONE, or the exit status after an error message. */
int simulate_args_take(int *argc, char **argv, const struct simulate_arg *args, size_t n);
/* A number from 1 to a million; NULL leaves out as it is. False after an error message. */
bool simulate_args_count(const char *name, const char *text, double *out);
/* The job's trace, or NULL if none was given. False after an error message. */
bool simulate_trace_of(const struct plan_job *job, const struct trace **out);
/* The plan of that rank (from 0) among those with two pools; NULL: there are fewer. */
const struct plan_candidate *simulate_candidate(const struct plan_job *job, size_t rank);

#endif
