/* SPDX-License-Identifier: Apache-2.0 */
/* baton-bench kv: the speed of KV between two workers of this host, beside the host's own limits. */
#ifndef CLIENTS_BENCH_KV_H
#define CLIENTS_BENCH_KV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

#define KV_LAYERS      32
#define KV_PIECE_BYTES ((size_t)64 << 10)
#define KV_MAX_ROUNDS  101

struct kv_bench {
    struct mem_region arenas[2]; /* from, to; the same size, far larger than the caches */
    size_t total_bytes;          /* moved in a transfer */
    unsigned n_connections;      /* of tcp and tls */
    unsigned n_rounds;
    const char *address; /* numeric address of this host: where the nodes listen, and which RDMA port they use
                          */
    bool is_json;
};

/* ---- kv_nodes.c: two transport nodes in this process, each with a thread of its own ---- */

enum kv_kind { KV_TCP, KV_TLS, KV_SHM, KV_RDMA };

struct kv_pair; /* of nodes */

struct kv_move {
    uint64_t took_ns;
    uint64_t used_ns[2]; /* processor time of the sender's and of the receiver's transport thread during the
                          * transfer */
};

/* Returns NULL when RDMA is not available.  Exits with a message on any other failure.  The caller keeps the
 * arenas. */
struct kv_pair *kv_pair_open(const struct kv_bench *bench, enum kv_kind kind);
/* Runs one transfer of all bytes and returns its time, from the first call to the last verified piece.  Then
 * compares the received bytes with the sent ones; that is not timed. */
struct kv_move kv_pair_move(struct kv_pair *pair, const struct kv_bench *bench);
void kv_pair_close(struct kv_pair *pair);

/* ---- kv_reference.c: the same bytes without Baton, in ns; 0: not available ---- */

uint64_t kv_reference_memcpy(const struct kv_bench *bench);
/* Plain sockets over loopback: n connections, one thread at each end, as iperf3 does it. */
uint64_t kv_reference_sockets(const struct kv_bench *bench);
/* Runs iperf3 where it is installed.  Returns the time that the bytes would take at the speed of a one-second
 * run. */
uint64_t kv_reference_iperf3(const struct kv_bench *bench);
/* One core seals AES-256-GCM records of 16 KiB with OpenSSL, as TLS 1.3 does. */
uint64_t kv_reference_seal(const struct kv_bench *bench);

/* One core opens the same records. */
uint64_t kv_reference_open(const struct kv_bench *bench);

/* ---- kv_bound.c ---- */

/* Returns the GB/s (bytes per ns) that all cores together could move from end to end through TLS.  That is the
 * number of cores divided by the processor time of sealing, opening, sending and receiving.  Overwrites the
 * destination arena. */
double kv_bound_tls(const struct kv_bench *bench);
unsigned kv_bound_cores(void); /* CPUs that this process may use */

/* ---- kv_main.c ---- */

int kv_main(int argc, char **argv); /* argv[0]: "baton-bench kv"; an exit status */

/* Prints "baton-bench: WHAT" and ends the process with EXIT_FAILED. */
__attribute__((noreturn, format(printf, 1, 2))) void kv_die(const char *format, ...);

#endif
