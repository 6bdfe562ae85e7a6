/* SPDX-License-Identifier: Apache-2.0 */
/* The remote tier's speed beside its bounds: sealing on one core, and copying memory.
 *
 *     bench_remote URL [BLOCK_KIB [BLOCKS [READERS [RUN]]]]
 *
 * Blocks are written and read through cache/remote as a worker does, in runs of RUN blocks (as many as a worker
 * takes, if not given).  bench_store.py puts the server's own figure beside it: redis-benchmark with values of the
 * same size, which neither seals nor keeps what it reads.  The blocks' lifetime is ten minutes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "cache/remote/remote.h"

enum { LAYERS = 8, ROUNDS = 5 };

static double gbs(uint64_t bytes, uint64_t ns)
{
    return (double)bytes / (double)ns;
}

static struct block_hash hash_of(uint64_t number)
{
    struct block_hash hash = {{0}};

    memcpy(hash.bytes, &number, sizeof(number));
    return hash;
}

static uint32_t wait_for(struct kv_remote *remote, uint32_t least)
{
    struct kv_remote_event event;
    uint32_t n = 0;

    do {
        while (kv_remote_poll(remote, &event)) {
            ASSERT(event.result == 0);
            n++;
        }
        if (n < least)
            clock_sleep_ns(50 * NS_PER_US); /* the threads may want this core */
    } while (n < least);
    return n;
}

static double seal_speed(const struct kv_remote_opts *opts)
{
    struct remote_seal seal;
    struct block_hash hash = hash_of(1);
    struct block_cipher *cipher = block_cipher_new(opts->arena.piece_bytes);
    uint64_t best_ns = UINT64_MAX;
    uint8_t *record;

    ASSERT(cipher != NULL && remote_seal_init(&seal, &opts->arena, opts->key, "bench") == 0);
    record = malloc(remote_record_bytes(&seal) + 16);
    ASSERT(record != NULL);
    for (unsigned i = 0; i < 50; i++) {
        uint64_t began_ns = clock_now_ns(), took_ns;

        ASSERT(remote_record_seal(&seal, cipher, 0, &hash, record) == 0);
        took_ns = clock_now_ns() - began_ns;
        best_ns = took_ns < best_ns ? took_ns : best_ns;
    }
    block_cipher_free(cipher);
    double speed = gbs(remote_record_bytes(&seal), best_ns);
    free(record);
    return speed;
}

static void await_store(struct kv_remote *remote)
{
    struct kv_remote_event event;

    for (unsigned i = 0; i < 5000 && !kv_remote_is_up(remote); i++) {
        kv_remote_tick(remote, clock_now_ns());
        (void)kv_remote_poll(remote, &event);
        clock_sleep_ns(NS_PER_MS);
    }
    ASSERT(kv_remote_is_up(remote));
}

/* A run of a bench's chain: block `at` has id `at` and the hash of first + at. */
static struct kv_remote_part part_of(uint32_t at, uint32_t n, uint64_t first)
{
    static kv_block_id ids[REMOTE_RUN_BLOCKS];
    static struct block_hash hashes[REMOTE_RUN_BLOCKS];

    for (uint32_t i = 0; i < n; i++) {
        ids[i] = at + i;
        hashes[i] = hash_of(first + at + i);
    }
    return (struct kv_remote_part){.n = n, .ids = ids, .hashes = hashes, .name = hashes[n - 1]};
}

static double time_writes(struct kv_remote *remote, uint32_t n_blocks, uint32_t run, uint64_t first)
{
    uint64_t began_ns = clock_now_ns();
    uint32_t n_open = 0;

    for (uint32_t at = 0; at < n_blocks; at += run) {
        struct kv_remote_part part = part_of(at, run, first);
        int rc;

        while ((rc = kv_remote_write(remote, &part)) == E_AGAIN)
            n_open -= wait_for(remote, 1);
        ASSERT(rc == 0);
        n_open += run;
    }
    wait_for(remote, n_open);
    return (double)(clock_now_ns() - began_ns);
}

static double time_reads(struct kv_remote *remote, uint32_t n_blocks, uint32_t run, uint64_t first)
{
    uint64_t began_ns = clock_now_ns();

    for (uint32_t at = 0; at < n_blocks; at += run) {
        struct kv_remote_part part = part_of(at, run, first);

        ASSERT(kv_remote_read(remote, &part, UINT64_MAX, NULL) == 0);
    }
    wait_for(remote, n_blocks);
    return (double)(clock_now_ns() - began_ns);
}

static double time_ask(struct kv_remote *remote, uint32_t n, uint64_t first)
{
    struct block_hash *hashes = malloc(n * sizeof(*hashes));
    uint64_t began_ns;

    ASSERT(hashes != NULL);
    for (uint32_t i = 0; i < n; i++)
        hashes[i] = hash_of(first + i);
    began_ns = clock_now_ns();
    ASSERT(kv_remote_ask(remote, hashes, n, NULL) == 0);
    wait_for(remote, 1);
    free(hashes);
    return (double)(clock_now_ns() - began_ns);
}

int main(int argc, char **argv)
{
    size_t piece_bytes = (argc > 2 ? strtoul(argv[2], NULL, 10) : 1024) * 1024 / LAYERS;
    uint32_t n_blocks = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 64;
    size_t total = LAYERS * n_blocks * piece_bytes;
    struct kv_remote_opts opts = {.url = argc > 1 ? argv[1] : "redis://127.0.0.1",
                                  .lifetime_ns = 600 * NS_PER_S,
                                  .n_readers = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 2,
                                  .arena = {malloc(total), n_blocks, LAYERS, piece_bytes},
                                  .key = {1},
                                  .generation = "bench"};
    double write_ns = 1e18, read_ns = 1e18, ask_ns = 1e18;
    uint64_t first = clock_unix_ns();
    struct kv_remote *remote;
    struct fault fault = {0};
    uint32_t run;

    ASSERT(opts.arena.base != NULL);
    memset(opts.arena.base, 3, total);
    if (kv_remote_open(&opts, &fault, &remote) < 0) {
        fprintf(stderr, "%s\n", fault.text);
        return 1;
    }
    await_store(remote);
    run = argc > 5 ? (uint32_t)strtoul(argv[5], NULL, 10) : kv_remote_run_blocks(remote);
    n_blocks -= n_blocks % run;
    for (unsigned round = 0; round < ROUNDS; round++, first += n_blocks) {
        double took_ns = time_writes(remote, n_blocks, run, first);

        write_ns = took_ns < write_ns ? took_ns : write_ns;
        took_ns = time_reads(remote, n_blocks, run, first);
        read_ns = took_ns < read_ns ? took_ns : read_ns;
        took_ns = time_ask(remote, n_blocks, first);
        ask_ns = took_ns < ask_ns ? took_ns : ask_ns;
    }
    kv_remote_close(remote);
    total = LAYERS * n_blocks * piece_bytes;
    printf("%u blocks of %zu KiB in runs of %u, best of %u: write %.2f GB/s, read %.2f GB/s (%u readers), "
           "question of %u "
           "keys %.0f us; seal alone %.2f GB/s\n",
           n_blocks, LAYERS * piece_bytes >> 10, run, ROUNDS, (double)total / write_ns,
           (double)total / read_ns, opts.n_readers, n_blocks, ask_ns / 1e3, seal_speed(&opts));
    free(opts.arena.base);
    return 0;
}
