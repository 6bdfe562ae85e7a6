/* SPDX-License-Identifier: Apache-2.0 */
/* A fixed team of compute threads.  The caller is rank 0.  Between jobs the other threads spin briefly, then
 * sleep.  The team owns only its threads. */
#ifndef BASE_TEAM_H
#define BASE_TEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct team;

enum { TEAM_MAX_NODES = 16 };

struct team_node {    /* a memory node and its ranks */
    int id;           /* the kernel's number */
    unsigned n_ranks; /* at least 1: the ranks behind those of the previous node */
    const int *cpus;  /* [n_cpus] borrowed; the node's threads run on these; NULL: anywhere */
    unsigned n_cpus;
};

struct team_opts {
    unsigned n_threads; /* including the caller; 0: one for each usable CPU */
    const int *cpus;    /* CPU to pin each rank to, [n_threads]; NULL: no pinning */
    uint64_t spin_ns;   /* spin time before sleeping; 0: default */
    /* Nodes with n_threads ranks together; NULL: one node, and threads run anywhere.  The caller, rank 0, is confined to
     * the first node too. */
    const struct team_node *nodes;
    unsigned n_nodes;
    bool
        is_mirrored; /* constant data exists once for each node; else its parts are divided among the nodes */
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

/* ---- memory nodes ---- */

unsigned team_n_nodes(const struct team *team);                /* 1 or more */
unsigned team_node_of(const struct team *team, unsigned rank); /* index of the rank's node, from 0 */
bool team_is_mirrored(const struct team *team);
int team_node_id(const struct team *team, unsigned node); /* the kernel's number; -1: no node was named */

struct team_ranks { /* [first, first + n) */
    unsigned first, n;
};
struct team_ranks team_node_ranks(const struct team *team, unsigned node);

struct team_range { /* items [from, to) */
    uint64_t from, to;
};
/* The rank's part of n items, in units of grain items (the last unit may be short). */
struct team_range team_split(uint64_t n, uint64_t grain, unsigned rank, unsigned n_ranks);
/* The node's part of n items, in units of grain items: in proportion to its ranks.  Every part of the program that
 * divides something among nodes uses this rule, so that memory and its readers meet. */
struct team_range team_node_split(const struct team *team, uint64_t n, uint64_t grain, unsigned node);

#endif
