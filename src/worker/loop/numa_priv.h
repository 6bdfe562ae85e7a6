/* SPDX-License-Identifier: Apache-2.0 */
/* engine.numa: compute threads, weights and KV on the memory nodes of the machine (numa.c). Loop thread. */
#ifndef WORKER_LOOP_NUMA_PRIV_H
#define WORKER_LOOP_NUMA_PRIV_H

#include <stdbool.h>

#include "base/bytes.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/team.h"
#include "cache/kv/layout.h"
#include "worker/loop/worker_conf.h"

enum worker_numa_mode {
    WORKER_NUMA_OFF,    /* the kernel decides */
    WORKER_NUMA_SPLIT,  /* rows of weights and KV heads are divided among the nodes */
    WORKER_NUMA_MIRROR, /* a copy of the weights on each node; KV heads are divided */
    WORKER_NUMA_NODE    /* everything on one node */
};

struct worker_numa { /* what the worker has got */
    enum worker_numa_mode mode;
    const char *why_off; /* static; why another value than off has no effect; NULL: it has */
    bool is_placed;      /* the kernel places memory on these nodes */
    unsigned n_nodes;
    int ids[TEAM_MAX_NODES];
    unsigned kv_checked, kv_right; /* sampled KV pages, and those on their node */
};

/* Refuses or warns about engine.numa together with engine.cpus and engine.threads. */
struct config_check;
void worker_numa_check(struct config_check *check, const struct worker_conf *conf);
/* With a valid node:N: this thread, and those that it starts, get memory of node N from now on. Call it before the model
 * is read. A refusal by the kernel shows in worker_numa.is_placed. */
void worker_numa_prefer(const struct worker_conf *conf);
/* Makes the compute threads as engine.threads, engine.cpus and engine.numa say. E_INVAL, E_FORMAT, E_NOMEM, with the fault. */
int worker_numa_team(const struct worker_conf *conf, struct worker_numa *numa_out, struct team **out,
                     struct fault *fault);
/* Touches all pages of a KV arena (the model's or a draft model's) that no thread has touched, if the team has several
 * nodes: each by a rank of the node whose heads it holds. Pages without heads (indexer keys, or fewer heads than nodes)
 * take turns. E_NOMEM. */
int worker_numa_place_kv(struct worker_numa *numa, struct team *team, const struct kv_layout *layout,
                         const struct mem_region *arena);
void worker_numa_log(const struct worker_numa *numa, const char *asked); /* nothing for "off" */
void worker_numa_put(const struct worker_numa *numa, struct buf *out);   /* as a JSON object */
/* Appends the part of the name of shared weights that differs where memory does; nothing when off. */
void worker_numa_put_name(const struct worker_numa *numa, const struct team *team, struct buf *out);

#endif
