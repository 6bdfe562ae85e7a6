/* SPDX-License-Identifier: Apache-2.0 */
/* A fixed team of compute threads.  The caller is rank 0; the others spin shortly, then sleep, between jobs.
 * It owns nothing but its threads. */
#ifndef BASE_TEAM_H
#define BASE_TEAM_H

#include <stddef.h>
#include <stdint.h>

struct team;

struct team_opts {
    unsigned n_threads; /* counting the caller; 0: as many as CPUs available */
    const int *cpus;    /* one CPU per rank to pin to, or NULL: not pinned */
    uint64_t spin_ns;   /* how long to spin before sleeping; 0: a sensible default */
};

typedef void (*team_job)(void *arg, unsigned rank, unsigned n_ranks);

int team_new(const struct team_opts *opts, struct team **out);
void team_free(struct team *team);
unsigned team_size(const struct team *team);

/* Runs job on every rank and returns when all are done.  One caller thread at a time. */
void team_run(struct team *team, team_job job, void *arg);
/* Inside a job: waits until every rank is here; what was written before is seen after. */
void team_barrier(struct team *team, unsigned rank);
/* Inside a job: memory that this rank will read soon after it, in place of what was said before; 0 bytes:
 * none.  While the rank waits for others it brings the memory into its second-level cache, from the beginning
 * on.  A hint: the memory need not even exist any more, and a team that does not spin pays no heed. */
void team_ahead(struct team *team, unsigned rank, const void *from, size_t len_bytes);
/* Inside a job: how much of it the rank has not asked for yet. */
size_t team_ahead_left(const struct team *team, unsigned rank);

/* Ranks' share [*from, *to) of n items in units of grain (the last unit may be short). */
void team_split(uint64_t n, uint64_t grain, unsigned rank, unsigned n_ranks, uint64_t *from, uint64_t *to);

#endif
