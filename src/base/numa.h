/* SPDX-License-Identifier: Apache-2.0 */
/* Memory nodes of a machine (NUMA): which CPUs belong to which node, and which node memory comes from.
 *
 * The three calls that place memory are system calls (mbind, set_mempolicy, move_pages), so no library is needed.
 * They ask for a preferred node: when that node is full, pages come from another one. A strict binding would get
 * the process killed. */
#ifndef BASE_NUMA_H
#define BASE_NUMA_H

#include <stddef.h>

#define NUMA_FOLDER "/sys/devices/system/node"

enum { NUMA_MAX_NODES = 16, NUMA_MAX_IDS = 1024 };

struct numa_node {
    int id;     /* the kernel's number */
    int *cpus;  /* [n_cpus], ascending: those that this process may use */
    int n_cpus; /* at least 1 */
};

struct numa_topology { /* numa_topology_fini() releases it */
    unsigned n_nodes;
    struct numa_node nodes[NUMA_MAX_NODES]; /* ascending ids; nodes without a usable CPU are left out */
};

/* Reads the nodes below folder (NUMA_FOLDER, or a test's). E_NOT_FOUND: no node has a usable CPU, or the kernel shows
 * no nodes; E_FORMAT: a CPU list is malformed; E_LIMIT: more than NUMA_MAX_NODES nodes; E_NOMEM. */
int numa_topology_read(const char *folder, struct numa_topology *out);
void numa_topology_fini(struct numa_topology *topology); /* accepts a zeroed struct */

/* Future pages of [base, base + len_bytes) come from this node, whichever thread touches them first. The range is
 * rounded to the pages that begin inside it. Pages that exist stay. E_UNSUPPORTED: the kernel has no such node, or a
 * sandbox forbids the call. */
int numa_place(void *base, size_t len_bytes, int id);
/* Future pages that this thread touches, and threads that it starts, come from this node. E_UNSUPPORTED. */
int numa_prefer(int id);
/* The node of the page at this address. E_NOT_FOUND: never touched, or watched by the NUMA balancing; E_UNSUPPORTED. */
int numa_node_of(const void *address);
/* 0 if the kernel places memory on this node when asked; tries it with one page. E_UNSUPPORTED, E_NOMEM. */
int numa_try(int id);

#endif
