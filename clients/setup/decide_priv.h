/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers that decide.c chooses and decide_files.c writes into files. */
#ifndef CLIENTS_SETUP_DECIDE_PRIV_H
#define CLIENTS_SETUP_DECIDE_PRIV_H

#include "clients/setup/setup.h"

enum { DECIDE_MAX_PORTS = 6 * SETUP_MAX_FILES };

struct decide_seat { /* one worker's CPUs */
    unsigned n_threads;
    const struct setup_node *node; /* NULL: not pinned */
};

struct decision {
    struct decide_seat seats[SETUP_MAX_NODES];
    unsigned n_workers, n_prefill; /* the first n_prefill of them */
    bool is_pinned;
    uint64_t kv_bytes;                /* of each worker */
    uint64_t reserve_bytes;           /* left to the system; 0: the operator chose kv_bytes */
    unsigned ports[DECIDE_MAX_PORTS]; /* given to a daemon, or chosen by the operator */
    unsigned n_ports;
    unsigned router_link; /* port of the router of this host; 0: none */
};

/* The wanted port, or the next one that neither a process nor an earlier line of the plan has. */
unsigned decide_port(const struct setup_wish *wish, struct decision *d, unsigned wanted);
/* Fills the plan's files. */
void decide_files(const struct setup_host *host, const struct setup_wish *wish, struct decision *d,
                  struct setup_plan *out);

#endif
