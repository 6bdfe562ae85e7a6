/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by both files of test_prefix_fetch: two workers, and the random choices. */
#ifndef TESTS_UNIT_WORKER_PREFIX_FETCH_RIG_H
#define TESTS_UNIT_WORKER_PREFIX_FETCH_RIG_H

#include "base/rng.h"
#include "worker/runner/transfers_priv.h"

#define N_LAYERS     2
#define BLOCK_TOKENS 4
#define N_POOL       24
#define MAX_PROMPT   9 /* blocks */
#define MAX_TASKS    12
#define MAX_MAIL     256
#define MAX_READS    2
#define MAX_ENDS     64
#define MAX_PIECES   64
#define WINDOW       3 /* pieces: of 2 MiB each, see the layout */
#define TIMEOUT_NS   (40 * NS_PER_MS)

struct tr_node {
    uint32_t number;
};

struct mail {
    struct kvxfer_message message;
    kv_block_id blocks[MAX_PROMPT];
    struct block_hash hashes[MAX_PROMPT];
};

struct client {
    struct task task;
    bool is_used, is_waiting;
};

struct fake_read {   /* a read from a simulated disk, which may fail */
    uint64_t number; /* 0: none */
    struct block_hash hashes[MAX_PROMPT];
    uint32_t n;
};

struct node {
    struct tr_node transport;
    struct worker_engine engine;
    uint64_t arena[N_LAYERS][N_POOL];
    struct client clients[MAX_TASKS];
    struct mail mail[MAX_MAIL]; /* messages to this node */
    uint32_t n_mail;
    struct fake_read reads[MAX_READS];
    uint64_t n_reads;
    bool knows_nothing; /* knows none of the other's blocks */
};

extern struct node nodes[2];
extern struct rng rng;
extern bool link_is_up, is_calm;

bool happens(uint32_t one_in); /* never while the run is calm */

/* prefix_fetch_transport.c */
void transport_reset(void);
void transport_turn(void);

#endif
