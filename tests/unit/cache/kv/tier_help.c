/* SPDX-License-Identifier: Apache-2.0 */
/* See tier_help.h. */
#include "tier_help.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"

void rig_init(struct rig *rig, const char *name)
{
    const char *tmp = getenv("TMPDIR");

    *rig = (struct rig){.arena = calloc(RIG_BLOCKS * RIG_LAYERS, RIG_PIECE)};
    snprintf(rig->path, sizeof(rig->path), "%s/baton-tier-%s-XXXXXX", tmp ? tmp : "/tmp", name);
    assert_ptr_equal(mkdtemp(rig->path), rig->path); /* a free name; the tier makes the folder */
    assert_int_equal(rmdir(rig->path), 0);
    rig->opts = (struct kv_tier_opts){.path = rig->path,
                                      .size_bytes = 1 << 20,
                                      .n_readers = 2,
                                      .arena = rig->arena,
                                      .n_blocks = RIG_BLOCKS,
                                      .n_layers = RIG_LAYERS,
                                      .piece_bytes = RIG_PIECE,
                                      .key = {1, 2, 3},
                                      .generation = "model layout version"};
}

bool rig_file(const struct rig *rig, unsigned index, char out[400])
{
    struct dirent **items = NULL;
    int n = scandir(rig->path, &items, NULL, alphasort);
    unsigned at = 0;
    bool is_there = false;

    for (int i = 0; i < n; i++) {
        if (items[i]->d_name[0] != '.' && at++ == index) {
            snprintf(out, 400, "%s/%s", rig->path, items[i]->d_name);
            is_there = true;
        }
        free(items[i]);
    }
    free(items);
    return is_there;
}

unsigned rig_n_files(const struct rig *rig)
{
    char path[400];
    unsigned n = 0;

    while (rig_file(rig, n, path))
        n++;
    return n;
}

uint64_t rig_bytes(const struct rig *rig)
{
    uint64_t bytes = 0;
    struct stat stat_out;
    char path[400];

    for (unsigned i = 0; rig_file(rig, i, path); i++)
        if (stat(path, &stat_out) == 0)
            bytes += (uint64_t)stat_out.st_size;
    return bytes;
}

void rig_fini(struct rig *rig)
{
    char path[400];

    rig_close(rig);
    while (rig_file(rig, 0, path) && (unlink(path) == 0 || rmdir(path) == 0))
        ;
    rmdir(rig->path);
    free(rig->arena);
}

int rig_open(struct rig *rig)
{
    struct fault fault = {0};

    rig->opts.path = rig->path;
    return kv_tier_open(&rig->opts, &fault, &rig->tier);
}

void rig_close(struct rig *rig)
{
    kv_tier_close(rig->tier);
    rig->tier = NULL;
}

void rig_reopen(struct rig *rig)
{
    rig_close(rig);
    assert_int_equal(rig_open(rig), 0);
}

struct block_hash rig_hash(uint64_t number)
{
    struct block_hash hash = {{0x5a}};

    memcpy(hash.bytes + 8, &number, sizeof(number));
    return hash;
}

static uint8_t *piece_of(const struct rig *rig, unsigned layer, kv_block_id id)
{
    return rig->arena + ((size_t)layer * RIG_BLOCKS + id) * RIG_PIECE;
}

/* Computes the bytes of a piece. */
static void make(uint64_t number, unsigned layer, uint8_t out[RIG_PIECE])
{
    struct rng rng;

    rng_init(&rng, number * 31 + layer);
    for (size_t i = 0; i + 8 <= RIG_PIECE; i += 8)
        put_u64(out + i, rng_u64(&rng));
}

void rig_fill(struct rig *rig, kv_block_id id, uint64_t number)
{
    for (unsigned layer = 0; layer < RIG_LAYERS; layer++)
        make(number, layer, piece_of(rig, layer, id));
}

bool rig_is(const struct rig *rig, kv_block_id id, uint64_t number)
{
    uint8_t want[RIG_PIECE];

    for (unsigned layer = 0; layer < RIG_LAYERS; layer++) {
        make(number, layer, want);
        if (memcmp(want, piece_of(rig, layer, id), RIG_PIECE) != 0)
            return false;
    }
    return true;
}

struct kv_tier_event rig_wait(struct rig *rig)
{
    uint64_t until_ns = clock_now_ns() + 60 * NS_PER_S;
    struct kv_tier_event event = {.result = E_TIMEOUT};

    while (!kv_tier_poll(rig->tier, &event) && clock_now_ns() < until_ns)
        clock_sleep_ns(NS_PER_US * 50);
    assert_true(clock_now_ns() < until_ns);
    return event;
}

int rig_write(struct rig *rig, uint64_t number, uint64_t pin_end_unix_ns)
{
    struct block_hash hash = rig_hash(number);
    int rc;

    rig_fill(rig, RIG_BLOCKS - 1, number);
    /* E_AGAIN: a segment that leaves is not gone yet. */
    for (int i = 0;
         (rc = kv_tier_write(rig->tier, rig->tenant, RIG_BLOCKS - 1, &hash, pin_end_unix_ns)) == E_AGAIN;
         i++) {
        struct kv_tier_event none;

        assert_true(i < 600000);
        assert_false(kv_tier_poll(rig->tier, &none));
        clock_sleep_ns(NS_PER_US * 100);
    }
    return rc < 0 ? rc : rig_wait(rig).result;
}

int rig_read(struct rig *rig, kv_block_id id, uint64_t number)
{
    struct block_hash hash = rig_hash(number);
    int rc = kv_tier_read(rig->tier, id, &hash, NULL);

    return rc < 0 ? rc : rig_wait(rig).result;
}
