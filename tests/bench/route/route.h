/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated traffic and simulated workers around the router's own placement code, under a virtual clock. */
#ifndef TESTS_BENCH_ROUTE_ROUTE_H
#define TESTS_BENCH_ROUTE_ROUTE_H

#include "clients/bench/trace.h"
#include "fleet/picker/place.h"

#define ROUTE_BLOCK_TOKENS TRACE_BLOCK_TOKENS

struct route_opts {
    const char *trace; /* NULL: made up */
    uint32_t n_workers, n_rounds;
    uint32_t cache_blocks;  /* of each worker */
    uint32_t index_entries; /* of the router */
    double rate_per_s;      /* arrivals offered; the trace's times are squeezed to it */
    uint32_t loss_every;    /* requests; 0: never */
    bool is_wall;           /* else the time that this thread had a core */
    uint32_t resync_blocks; /* that a worker whose events had a gap tells again */
    bool has_disks;         /* what workers evict they have on disk */
};

/* ---- traffic.c ---- */

/* Makes conversations similar to Mooncake's trace; the same at each call. */
void route_make_trace(struct trace *out);

/* ---- crew.c: workers that cache and evict blocks ---- */

struct crew;

struct crew *crew_new(uint32_t n_workers, uint32_t cache_blocks);
void crew_free(struct crew *crew);
/* Returns how many leading blocks of the chain the worker has. */
uint32_t crew_held(struct crew *crew, uint32_t slot, const struct block_hash *hashes, uint32_t n);
/* Stores the chain.  Returns how many blocks were evicted for it;
 * their hashes are in *evicted_out until the next call. */
uint32_t crew_store(struct crew *crew, uint32_t slot, const struct block_hash *hashes, uint32_t n,
                    const struct block_hash **evicted_out);
uint32_t crew_list(struct crew *crew, uint32_t slot, const struct block_hash **hashes_out);
void crew_restart(struct crew *crew, uint32_t slot);

/* ---- drive.c ---- */

struct route_result { /* of one round */
    double routed_per_s, choose_us, hash_us, other_us;
    double service_us[4],
        wait_us[4];           /* p50, p99, p99.9, most: work of a request; from its arrival to its booking */
    double longest_other_us;  /* single piece of other work: reports, block events, losses, resyncs */
    double hit, hoped, alone; /* share of blocks held by who computed them; expected; placed on one worker */
    double overloaded;
    double reading, n_runs; /* share placed where some is read; workers with more on disk, for a request */
    uint64_t n_events, n_losses;
    size_t n_indexed;
};

struct drive;

struct drive *drive_new(const struct route_opts *opts, const struct trace *trace);
void drive_free(struct drive *drive);
void drive_round(struct drive *drive, struct route_result *out);
/* Measures block look-ups per second in the index as it is, along chains and singly. */
void drive_lookups(struct drive *drive, double *chains_out, double *singly_out);

uint64_t route_stamp_ns(bool is_wall);
void *route_grab(size_t n, size_t size); /* zeroed; never NULL */

#endif
