/* SPDX-License-Identifier: Apache-2.0 */
/* A fixed team of compute threads.  The caller is rank 0.  Between jobs the other threads spin briefly, then
 * sleep.  The team owns only its threads. */
#ifndef BASE_TEAM_H
#define BASE_TEAM_H

#include <stddef.h>
#include <stdint.h>

struct team;

struct team_opts {
    unsigned n_threads; /* including the caller; 0: one for each usable CPU */
    const int *cpus;    /* CPU to pin each rank to, [n_threads]; NULL: no pinning */
    uint64_t spin_ns;   /* spin time before sleeping; 0: default */
};

typedef void (*team_job)(void *arg, unsigned rank, unsigned n_ranks);

int team_new(const struct team_opts *opts, struct team **out);
void team_free(struct team *team);
unsigned team_size(const struct team *team);

/* Runs job on every rank and returns when all ranks are done.  One calling thread at a time. */
void team_run(struct team *team, team_job job, void *arg);
/* Inside a job: waits until every rank has called it.  Each rank then sees all earlier writes of the
 * others. */
void team_barrier(struct team *team, unsigned rank);
/* Inside a job: names the memory that this rank will read soon; replaces the last such hint; 0 bytes: no
 * hint.  While the rank waits for others, it prefetches this memory into its second-level cache, front to
 * back.  The memory need not exist.  A team that does not spin ignores the hint. */
void team_ahead(struct team *team, unsigned rank, const void *from, size_t len_bytes);
/* Inside a job: how many bytes of the hint the rank has not prefetched yet. */
size_t team_ahead_left(const struct team *team, unsigned rank);

struct team_range { /* items [from, to) */
    uint64_t from, to;
};
/* The rank's part of n items, in units of grain items (the last unit may be short). */
struct team_range team_split(uint64_t n, uint64_t grain, unsigned rank, unsigned n_ranks);

#endif
