/* SPDX-License-Identifier: Apache-2.0 */
/* The disk tier's speed beside its bounds: its cipher on one core, and copying memory.
 *
 *     bench_tier [FOLDER [BLOCK_MIB [BLOCKS [DISK_MIB]]]]      "": a folder of its own
 *
 * It also measures the cost of a full disk for the saving worker.  Some blocks replace others; some are
 * refused because all stored blocks are worth more; both beside a few files and beside many.
 *
 * Blocks of 22 layers are written and read through cache/kv/tier as a worker does, with one writer and two
 * readers.  Reads come from the page cache, so they measure sealing, threads and copies, not the device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "cache/kv/block_cipher.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/tier.h"

enum { LAYERS = 22, ROUNDS = 5 };

static double gbs(uint64_t bytes, uint64_t ns)
{
    return (double)bytes / (double)ns;
}

static double seal_speed(uint8_t *from, uint8_t *to, size_t len_bytes)
{
    struct block_cipher *cipher = block_cipher_new(len_bytes);
    uint8_t key[BLOCK_CIPHER_KEY_BYTES] = {1}, nonce[BLOCK_CIPHER_NONCE_BYTES] = {2};
    uint64_t best_ns = UINT64_MAX;

    ASSERT(cipher != NULL);
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t began_ns = clock_now_ns(), took_ns;

        ASSERT(block_cipher_begin(cipher, key, nonce, bytes_of(key, 0)) == 0);
        ASSERT(block_cipher_encrypt(cipher, to, bytes_of(from, len_bytes), true) == 0);
        took_ns = clock_now_ns() - began_ns;
        best_ns = took_ns < best_ns ? took_ns : best_ns;
    }
    block_cipher_free(cipher);
    return gbs(len_bytes, best_ns);
}

static double copy_speed(uint8_t *from, uint8_t *to, size_t len_bytes)
{
    uint64_t best_ns = UINT64_MAX;

    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t began_ns = clock_now_ns(), took_ns;

        memcpy(to, from, len_bytes);
        took_ns = clock_now_ns() - began_ns;
        best_ns = took_ns < best_ns ? took_ns : best_ns;
    }
    return gbs(len_bytes, best_ns);
}

static uint32_t wait_for(struct kv_tier *tier, uint32_t least)
{
    struct kv_tier_event event;
    uint32_t n = 0;

    do {
        while (kv_tier_poll(tier, &event)) {
            ASSERT(event.result == 0);
            n++;
        }
        if (n < least)
            clock_sleep_ns(50 * NS_PER_US); /* the threads may want this core */
    } while (n < least);
    return n;
}

static struct block_hash hash_of(uint64_t number)
{
    struct block_hash hash = {{0}};

    memcpy(hash.bytes, &number, sizeof(number));
    return hash;
}

/* disk_bytes 0: eight times the blocks. */
static void run(const char *path, size_t block_bytes, uint32_t n_blocks, uint64_t disk_bytes)
{
    size_t piece_bytes = block_bytes / LAYERS, total = piece_bytes * LAYERS * n_blocks;
    uint8_t *arena = malloc(total), *other = malloc(total);
    struct kv_tier_opts opts = {.path = path,
                                .size_bytes = disk_bytes > 0 ? disk_bytes : 8 * (uint64_t)total,
                                .n_readers = 2,
                                .arena = arena,
                                .n_blocks = n_blocks,
                                .n_layers = LAYERS,
                                .piece_bytes = piece_bytes,
                                .generation = "bench"};
    double best_write = 0, best_read = 0;
    struct fault fault = {0};
    struct kv_tier *tier;
    uint64_t number = (uint64_t)clock_now_ns();

    ASSERT(arena != NULL && other != NULL);
    memset(arena, 3, total);
    memset(other, 4, total);
    if (kv_tier_open(&opts, &fault, &tier) < 0) {
        fprintf(stderr, "%s\n", fault.text);
        exit(1);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t began_ns = clock_now_ns(), first = number;
        uint32_t n_open = 0;

        for (uint32_t id = 0; id < n_blocks; id++, number++) {
            struct block_hash hash = hash_of(number);
            int rc;

            while ((rc = kv_tier_write(tier, KV_TENANT_NONE, id, &hash, 0)) == E_AGAIN)
                n_open -= wait_for(tier, n_open > 0);
            ASSERT(rc == 0);
            n_open++;
        }
        wait_for(tier, n_open);
        double speed = gbs(total, clock_now_ns() - began_ns);
        best_write = speed > best_write ? speed : best_write;
        began_ns = clock_now_ns();
        for (uint32_t id = 0; id < n_blocks; id++) {
            struct block_hash hash = hash_of(first + id);

            ASSERT(kv_tier_read(tier, id, &hash, NULL) == 0);
        }
        wait_for(tier, n_blocks);
        speed = gbs(total, clock_now_ns() - began_ns);
        best_read = speed > best_read ? speed : best_read;
    }
    kv_tier_close(tier);
    printf("%u blocks of %zu KiB, best of %u: write %.2f GB/s, read %.2f GB/s (2 threads); seal alone %.2f "
           "GB/s, "
           "copy %.2f GB/s\n",
           n_blocks, piece_bytes * LAYERS >> 10, ROUNDS, best_write, best_read,
           seal_speed(arena, other, total), copy_speed(arena, other, total));
    free(arena);
    free(other);
}

/* Saves blocks of 3 KiB.  Returns the mean time of the calls that accepted or refused them. */
static double save(struct kv_tier *tier, uint32_t n, uint64_t wanted_unix_ns, int expected)
{
    static uint64_t number = UINT64_C(1) << 40;
    uint64_t took_ns = 0;

    for (uint32_t i = 0; i < n; i++, number++) {
        struct block_hash hash = hash_of(number);
        uint64_t began_ns = clock_now_ns();
        int rc = kv_tier_write(tier, KV_TENANT_NONE, i % 64, &hash, wanted_unix_ns);

        took_ns += clock_now_ns() - began_ns;
        ASSERT(rc == expected || rc == E_AGAIN);
        if (rc == E_AGAIN) {
            wait_for(tier, 1);
            i--;
            number--;
        } else if (rc == 0) {
            wait_for(tier, i % 256 == 255);
        }
    }
    for (struct kv_tier_counts counts = {.n_writing = 1}; counts.n_writing > 0; kv_tier_counts(tier, &counts))
        wait_for(tier, 0);
    return (double)took_ns / n;
}

static void full(const char *folder, uint64_t disk_mib)
{
    static uint8_t arena[64 * 3 * 1024];
    uint64_t size_bytes = disk_mib << 20, in_an_hour = clock_unix_ns() + 3600 * NS_PER_S;
    uint32_t n_fill = (uint32_t)(size_bytes / (3 * 1024)), n = 20000;
    char path[256];
    struct kv_tier_opts opts = {.path = path,
                                .size_bytes = size_bytes,
                                .n_readers = 1,
                                .arena = arena,
                                .n_blocks = 64,
                                .n_layers = 3,
                                .piece_bytes = 1024,
                                .generation = "bench"};
    struct kv_tier_counts counts;
    struct fault fault = {0};
    struct kv_tier *tier;

    snprintf(path, sizeof(path), "%s/full-%u", folder, (unsigned)disk_mib);
    if (kv_tier_open(&opts, &fault, &tier) < 0) {
        fprintf(stderr, "%s\n", fault.text);
        exit(1);
    }
    save(tier, n_fill, in_an_hour, 0);
    double replaced_ns = save(tier, n, in_an_hour, 0);
    do { /* until there is no room for blocks of lower rank */
        save(tier, 1, in_an_hour, 0);
        kv_tier_counts(tier, &counts);
    } while (size_bytes - counts.used_bytes > 8 * 1024);
    double refused_ns = save(tier, n, 0, E_FULL);
    printf("full, %u files: a call that saves a block %.0f ns, one that is refused %.0f ns\n",
           counts.n_segments, replaced_ns, refused_ns);
    kv_tier_close(tier);
}

int main(int argc, char **argv)
{
    char path[64] = "/tmp/baton-bench-tier-XXXXXX", command[128];
    size_t mib = argc > 2 ? (size_t)atoi(argv[2]) : 1;
    uint32_t n_blocks = argc > 3 ? (uint32_t)atoi(argv[3]) : 64;

    bool has_folder = argc > 1 && argv[1][0] != '\0';

    if (!has_folder && mkdtemp(path) == NULL)
        return 1;
    run(has_folder ? argv[1] : path, mib << 20, n_blocks, argc > 4 ? strtoull(argv[4], NULL, 10) << 20 : 0);
    full(has_folder ? argv[1] : path, 2);
    full(has_folder ? argv[1] : path, 16);
    full(has_folder ? argv[1] : path, 64);
    snprintf(command, sizeof(command), "rm -rf %s", path);
    return has_folder ? 0 : system(command) != 0;
}
