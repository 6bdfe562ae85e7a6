/* SPDX-License-Identifier: Apache-2.0 */
/* The requests that wait in a simulated router, by deadline.  Placed again, a request has none and is not here. */
#ifndef FLEET_SIM_DEADLINES_PRIV_H
#define FLEET_SIM_DEADLINES_PRIV_H

#include <stdbool.h>
#include <stdint.h>

struct sim;
struct sim_job;

struct sim_deadlines { /* zeroed: empty */
    struct sim_job **heap;
    uint32_t n, cap;
};

/* Whether sim_admit_is_late() ends the job's wait, instead of queue_timeout_ns (admit.c). */
bool sim_admit_bounds(const struct sim *sim, const struct sim_job *job);
/* The job has begun to wait.  E_NOMEM. */
int sim_deadlines_add(const struct sim *sim, struct sim_deadlines *deadlines, struct sim_job *job);
/* Does nothing if it is not here. */
void sim_deadlines_remove(struct sim_deadlines *deadlines, struct sim_job *job);
/* Removes the requests that waited too long and returns their number.  *late_out has them in the order of turns until
 * the next sim_deadlines_add(). */
uint32_t sim_deadlines_take_late(const struct sim *sim, struct sim_deadlines *deadlines,
                                 struct sim_job ***late_out);
void sim_deadlines_fini(struct sim_deadlines *deadlines);

#endif
