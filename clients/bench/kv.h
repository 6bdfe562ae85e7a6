/* SPDX-License-Identifier: Apache-2.0 */
/* baton-bench kv: how fast KV moves between two workers of this host, beside what the host can do. */
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
    const char *address; /* numeric, of this host: where the nodes listen, and whose RDMA port is used */
    bool is_json;
};

/* ---- kv_nodes.c: two transport nodes in this process, each with a thread of its own ---- */

enum kv_kind { KV_TCP, KV_TLS, KV_SHM, KV_RDMA };

struct kv_pair; /* of nodes */

struct kv_move {
    uint64_t took_ns;
    uint64_t used_ns[2]; /* processor time of the sender's and of the receiver's transport thread meanwhile */
};

/* NULL: RDMA is not to be had.  Exits with a complaint when it cannot.  The arenas stay the bench's. */
struct kv_pair *kv_pair_open(const struct kv_bench *bench, enum kv_kind kind);
/* One transfer of everything, from the first call to the last piece verified.  What arrived is compared with
 * what was sent, outside of the time. */
struct kv_move kv_pair_move(struct kv_pair *pair, const struct kv_bench *bench);
void kv_pair_close(struct kv_pair *pair);

/* ---- kv_reference.c: the same bytes without us, in ns; 0: not to be had ---- */

uint64_t kv_reference_memcpy(const struct kv_bench *bench);
/* Plain sockets over loopback, so many connections, one thread at each end: iperf3's way of doing it. */
uint64_t kv_reference_sockets(const struct kv_bench *bench);
/* iperf3 itself, where it is installed: as long as it would take for the bytes, from a run of a second. */
uint64_t kv_reference_iperf3(const struct kv_bench *bench);
/* One core sealing AES-256-GCM records of 16 KiB, as TLS 1.3 makes them, with OpenSSL. */
uint64_t kv_reference_seal(const struct kv_bench *bench);

/* The same records opened by one core. */
uint64_t kv_reference_open(const struct kv_bench *bench);

/* ---- kv_bound.c ---- */

/* GB/s (bytes in a ns) that all cores together could bring from one end through TLS to the other: cores
 * divided by the processor time of sealing, opening, sending and receiving.  Overwrites the arena that is
 * sent to. */
double kv_bound_tls(const struct kv_bench *bench);
unsigned kv_bound_cores(void); /* that this process may use */

/* ---- kv_main.c ---- */

int kv_main(int argc, char **argv); /* argv[0]: "baton-bench kv"; an exit status */

/* Prints "baton-bench: WHAT" and ends the process with EXIT_FAILED: nothing here is worth going on without.
 */
__attribute__((noreturn, format(printf, 1, 2))) void kv_die(const char *format, ...);

#endif
