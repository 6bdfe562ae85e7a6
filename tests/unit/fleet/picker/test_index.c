/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix index: the workers' parts of a chain, and eviction.  A simple index, which keeps everything in
 * arrays and searches all of it, must agree after each of many random steps. */
#include "tests/unit/check.h"

#include <string.h>

#include "base/rng.h"
#include "fleet/picker/index.h"
#include "fleet/picker/picker.h"

#define LIFETIME_NS 1000
#define N_FAMILIES  5
#define CHAIN       24
#define N_SHARED    6 /* blocks that begin all families */
#define N_SLOTS     40
#define N_BLOCKS    (N_SHARED + N_FAMILIES * (CHAIN - N_SHARED))

static void make_chain(struct block_hash *out, uint8_t family, unsigned shared, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        out[i] = (struct block_hash){.bytes = {(uint8_t)i}};
        out[i].bytes[1] = i < shared ? 0 : family;
        out[i].bytes[2] = (uint8_t)(i >> 8);
    }
}

static struct picker_found found;

/* Returns how many blocks the worker has in memory. */
static uint32_t matched(struct picker_index *index, uint32_t slot, const struct block_hash *hashes, size_t n,
                        uint64_t now_ns)
{
    picker_index_match(index, &(struct picker_query){hashes, n, PICKER_MAX_WORKERS, now_ns}, &found);
    return found.in_memory[slot];
}

/* Returns how many blocks the worker has in memory or on disk, by the latest match. */
static uint32_t stored(uint32_t slot)
{
    uint32_t n = found.in_memory[slot], n_named = 0;

    for (uint32_t i = 0; i < found.n_runs; i++)
        if (found.runs[i].slot == slot) {
            assert_true(found.runs[i].n_blocks > n);
            n = found.runs[i].n_blocks;
            n_named++;
        }
    assert_true(n_named <= 1);
    return n;
}

static void knows_the_last_owner(void **state)
{
    struct picker_index *index;
    struct block_hash a[2];

    assert_int_equal(picker_index_new(100, LIFETIME_NS, &index), 0);
    make_chain(a, 1, 2, 2);
    assert_int_equal(picker_index_last_replica(index, &a[0], 10), PICKER_NONE);
    picker_index_learn(index, 7, a, 2, 10);
    assert_int_equal(picker_index_last_replica(index, &a[0], 10), 7);
    picker_index_learn(index, 900, a, 1, 10);
    assert_int_equal(picker_index_last_replica(index, &a[0], 10), PICKER_NONE);
    assert_int_equal(picker_index_last_replica(index, &a[1], 10), 7);
    picker_index_forget(index, 7);
    assert_int_equal(picker_index_last_replica(index, &a[0], 10), 900);
    assert_int_equal(picker_index_last_replica(index, &a[1], 10), PICKER_NONE);
    picker_index_unlearn(index, 900, a, 0, 1);
    assert_int_equal(picker_index_last_replica(index, &a[0], 10), PICKER_NONE);
    picker_index_learn(index, 3, a, 2, 10);
    assert_int_equal(picker_index_last_replica(index, &a[0], 11 + LIFETIME_NS), PICKER_NONE);
    picker_index_free(index);
}

static void matches_the_leading_run_per_worker(void **state)
{
    struct picker_index *index;
    struct block_hash a[8], b[8];

    assert_int_equal(picker_index_new(100, LIFETIME_NS, &index), 0);
    make_chain(a, 1, 3, 8);
    make_chain(b, 2, 3, 8);
    picker_index_learn(index, 0, a, 8, 10);
    picker_index_learn(index, 2, b, 5, 10);

    picker_index_match(index, &(struct picker_query){a, 8, 4, 20}, &found);
    assert_int_equal(found.in_memory[0], 8);
    assert_int_equal(found.in_memory[1], 0);
    assert_int_equal(found.in_memory[2], 3);
    picker_index_match(index, &(struct picker_query){b, 8, 4, 20}, &found);
    assert_int_equal(found.in_memory[0], 3);
    assert_int_equal(found.in_memory[2], 5);
    picker_index_match(index, &(struct picker_query){b, 8, 2, 20},
                       &found); /* slots beyond these are not written */
    assert_int_equal(found.in_memory[2], 5);
    picker_index_free(index);
}

static void forgets_by_age_by_worker_and_by_bound(void **state)
{
    struct picker_index *index;
    struct block_hash a[8], b[8];

    assert_int_equal(picker_index_new(10, LIFETIME_NS, &index), 0);
    make_chain(a, 1, 0, 8);
    make_chain(b, 2, 0, 8);
    picker_index_learn(index, 0, a, 8, 0);
    picker_index_match(index, &(struct picker_query){a, 8, 2, LIFETIME_NS + 1}, &found);
    assert_int_equal(found.in_memory[0], 0);

    picker_index_learn(index, 0, a, 8, 5000);
    picker_index_learn(index, 1, a, 8, 5000);
    picker_index_unlearn(index, 1, a, 4, 8);
    picker_index_match(index, &(struct picker_query){a, 8, 2, 5001}, &found);
    assert_int_equal(found.in_memory[0], 8);
    assert_int_equal(found.in_memory[1], 4);
    picker_index_forget(index, 0);
    picker_index_match(index, &(struct picker_query){a, 8, 2, 5001}, &found);
    assert_int_equal(found.in_memory[0], 0);
    assert_int_equal(found.in_memory[1], 4);

    picker_index_learn(index, 0, b, 8, 5002);
    assert_true(picker_index_count(index) <= 10);
    picker_index_match(index, &(struct picker_query){b, 8, 2, 5003}, &found);
    assert_int_equal(found.in_memory[0], 8);
    picker_index_free(index);
}

static void ends_go_before_beginnings(void **state)
{
    struct picker_index *index;
    struct block_hash a[8], b[8], longer[20];

    assert_int_equal(picker_index_new(12, LIFETIME_NS, &index), 0);
    make_chain(a, 1, 0, 8);
    make_chain(b, 2, 0, 8);
    make_chain(longer, 3, 0, 20);
    picker_index_learn(index, 0, a, 8, 1);
    picker_index_learn(index, 1, b, 8, 1);
    assert_int_equal(matched(index, 0, a, 8, 1), 4);
    assert_int_equal(matched(index, 1, b, 8, 1), 8);
    picker_index_learn(index, 2, longer, 20, 1); /* longer than the whole index */
    assert_int_equal(matched(index, 2, longer, 20, 1), 12);
    assert_int_equal(picker_index_count(index), 12);
    picker_index_free(index);
}

/* All workers have one prefix, and lose it one after another. */
static void a_block_may_be_held_by_all(void **state)
{
    struct picker_index *index;
    struct block_hash chain[4];

    assert_int_equal(picker_index_new(1000, LIFETIME_NS, &index), 0);
    make_chain(chain, 1, 0, 4);
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        picker_index_learn(index, slot, chain, 1 + slot % 4, 1);
    picker_index_match(index, &(struct picker_query){chain, 4, PICKER_MAX_WORKERS, 1}, &found);
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        assert_int_equal(found.in_memory[slot], 1 + slot % 4);
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
        picker_index_unlearn(index, slot, chain, 0, 4);
        assert_int_equal(matched(index, slot, chain, 4, 1), 0);
        if (slot + 1 < PICKER_MAX_WORKERS)
            assert_int_equal(matched(index, PICKER_MAX_WORKERS - 1, chain, 4, 1), 4);
    }
    assert_int_equal(picker_index_count(index), 0);
    picker_index_free(index);
}

/* With more blocks of many owners than pages, the index knows some of them, and never a wrong one. */
static void where_no_page_is_left_it_knows_less(void **state)
{
    enum { N = 32, OWNERS = 30 };
    struct picker_index *index;
    struct block_hash chain[N];
    uint32_t n_known = 0;

    assert_int_equal(picker_index_new(N, LIFETIME_NS, &index), 0);
    for (uint32_t i = 0; i < N; i++) {
        make_chain(&chain[i], (uint8_t)(i + 1), 0, 1);
        for (uint32_t slot = 0; slot < OWNERS; slot++)
            picker_index_learn(index, slot, &chain[i], 1, 1);
        assert_int_equal(matched(index, OWNERS - 1, &chain[i], 1, 1), 1); /* the latest is known */
    }
    for (uint32_t i = 0; i < N; i++) {
        picker_index_match(index, &(struct picker_query){&chain[i], 1, PICKER_MAX_WORKERS, 1}, &found);
        for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
            n_known += found.in_memory[slot];
            assert_true(found.in_memory[slot] == 0 || slot < OWNERS);
        }
    }
    assert_true(n_known >= 13 * N && n_known < OWNERS * N);
    picker_index_free(index);
}

/* ---- tiers ---- */

static void memory_ends_where_disk_begins(void **state)
{
    struct picker_index *index;
    struct block_hash a[8];

    assert_int_equal(picker_index_new(100, LIFETIME_NS, &index), 0);
    make_chain(a, 1, 0, 8);
    picker_index_learn(index, 3, a, 8, 10);
    picker_index_learn_on_disk(index, 3, a + 5, 3, 10); /* evicted from memory */
    picker_index_learn_on_disk(index, 4, a, 6, 10);     /* from a snapshot */
    picker_index_learn(index, 5, a, 2, 10);
    assert_int_equal(matched(index, 3, a, 8, 10), 5);
    assert_int_equal(found.n_runs, 2);
    assert_int_equal(stored(3), 8);
    assert_int_equal(found.in_memory[4], 0);
    assert_int_equal(stored(4), 6);
    assert_int_equal(found.in_memory[5], 2);
    assert_int_equal(stored(5), 2);
    picker_index_learn(index, 3, a + 5, 1, 10); /* read back: memory counts */
    assert_int_equal(matched(index, 3, a, 8, 10), 6);
    picker_index_learn_on_disk(index, 3, a, 1, 10); /* the blocks after it are in memory */
    assert_int_equal(matched(index, 3, a, 8, 10), 0);
    assert_int_equal(stored(3), 8);
    picker_index_unlearn(index, 4, a, 2, 3); /* the disk's file was deleted */
    assert_int_equal(matched(index, 4, a, 8, 10), 0);
    assert_int_equal(stored(4), 2);
    picker_index_forget(index, 3);
    assert_int_equal(matched(index, 3, a, 8, 10), 0);
    assert_int_equal(stored(3), 0);
    picker_index_match(index, &(struct picker_query){a, 8, 4, 10}, &found); /* slot 4 is out of range */
    assert_int_equal(found.n_runs, 0);
    picker_index_free(index);
}

static void who_has_it_on_disk_has_no_last_replica(void **state)
{
    struct picker_index *index;
    struct block_hash a[1];

    assert_int_equal(picker_index_new(100, LIFETIME_NS, &index), 0);
    make_chain(a, 1, 0, 1);
    picker_index_learn_on_disk(index, 3, a, 1, 10);
    assert_int_equal(picker_index_last_replica(index, a, 10), PICKER_NONE);
    picker_index_learn(index, 4, a, 1, 10);
    assert_int_equal(picker_index_last_replica(index, a, 10), 4);
    picker_index_learn(index, 3, a, 1, 10);
    assert_int_equal(picker_index_last_replica(index, a, 10), PICKER_NONE);
    picker_index_free(index);
}

static void known_by_tier_is_counted(void **state)
{
    struct picker_index *index;
    struct block_hash a[6];

    assert_int_equal(picker_index_new(100, LIFETIME_NS, &index), 0);
    make_chain(a, 1, 0, 6);
    picker_index_learn_on_disk(index, 1, a, 6, 10);
    assert_int_equal(picker_index_on_disk(index), 6);
    picker_index_learn(index, 2, a, 4, 10);
    assert_int_equal(picker_index_on_disk(index), 2);
    picker_index_learn_on_disk(index, 2, a, 1, 10);
    assert_int_equal(picker_index_on_disk(index), 3);
    picker_index_unlearn(index, 2, a, 0, 2);
    assert_int_equal(picker_index_on_disk(index), 4);
    picker_index_forget(index, 2);
    while (picker_index_sweep(index, 10) > 0)
        ;
    assert_int_equal(picker_index_on_disk(index), 6);
    assert_int_equal(picker_index_count(index), 6);
    picker_index_forget(index, 1);
    while (picker_index_sweep(index, 10) > 0)
        ;
    assert_int_equal(picker_index_on_disk(index), 0);
    assert_int_equal(picker_index_count(index), 0);
    picker_index_free(index);
}

/* A worker with a large disk reports all of it many times:
 * half of the blocks in memory stay known, and vice versa. */
static void neither_tier_floods_the_other(void **state)
{
    enum { N = 200, FLOOD = 5000 };
    struct block_hash kept[N / 2], flood[1];
    struct picker_index *index;
    uint32_t n_other = 0;

    assert_int_equal(picker_index_new(N, LIFETIME_NS, &index), 0);
    make_chain(kept, 1, 0, N / 2);
    for (int is_disk_flooded = 0; is_disk_flooded < 2; is_disk_flooded++) {
        if (is_disk_flooded)
            picker_index_learn_on_disk(index, 1, kept, N / 2, 1);
        else
            picker_index_learn(index, 1, kept, N / 2, 1);
        for (uint32_t i = 0; i < FLOOD; i++) {
            make_chain(flood, 2, 0, 1);
            memcpy(flood[0].bytes + 4, &n_other, sizeof(n_other));
            n_other++;
            if (is_disk_flooded)
                picker_index_learn(index, 2, flood, 1, 1);
            else
                picker_index_learn_on_disk(index, 2, flood, 1, 1);
            assert_true(picker_index_count(index) <= N);
        }
        matched(index, 1, kept, N / 2, 1);
        assert_int_equal(stored(1), N / 2);
        assert_int_equal(picker_index_count(index), N);
        assert_int_equal(picker_index_on_disk(index), N / 2);
        picker_index_unlearn(index, 1, kept, 0, N / 2);
    }
    picker_index_free(index);
}

/* With many blocks on disk and no page left, fewer are known, and none wrongly. */
static void where_no_page_is_left_disks_are_not_known(void **state)
{
    enum { N = 40, OWNERS = 30 };
    struct picker_index *index;
    struct block_hash chain[1];
    uint32_t n_known = 0;

    assert_int_equal(picker_index_new(N, LIFETIME_NS, &index), 0);
    for (uint32_t i = 0; i < N; i++) {
        make_chain(chain, (uint8_t)(i + 1), 0, 1);
        for (uint32_t slot = 0; slot < OWNERS; slot++)
            picker_index_learn(index, slot, chain, 1, 1);
        for (uint32_t slot = 0; slot < OWNERS; slot += 2)
            picker_index_learn_on_disk(index, slot, chain, 1, 1);
    }
    for (uint32_t i = 0; i < N; i++) {
        make_chain(chain, (uint8_t)(i + 1), 0, 1);
        picker_index_match(index, &(struct picker_query){chain, 1, PICKER_MAX_WORKERS, 1}, &found);
        for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
            assert_true(found.in_memory[slot] == 0 || (slot < OWNERS && slot % 2 == 1));
        for (uint32_t k = 0; k < found.n_runs; k++)
            assert_int_equal(found.runs[k].slot % 2, 0);
        n_known += found.n_runs;
    }
    assert_true(n_known > 0 && n_known < N * OWNERS / 2);
    for (uint32_t slot = 0; slot < OWNERS; slot++) /* all pages are given back */
        picker_index_forget(index, slot);
    while (picker_index_sweep(index, 10) > 0)
        ;
    assert_int_equal(picker_index_count(index), 0);
    picker_index_free(index);
}

/* ---- lives ---- */

/* A worker that returns at once begins without blocks, keeps those that it learns then, and its former blocks
 * are swept out of memory. */
static void a_restarted_worker_begins_with_nothing(void **state)
{
    struct picker_index *index;
    struct block_hash a[100], b[100];

    assert_int_equal(picker_index_new(1000, LIFETIME_NS, &index), 0);
    make_chain(a, 1, 0, 100);
    make_chain(b, 2, 0, 100);
    picker_index_learn(index, 7, a, 100, 1);
    picker_index_forget(index, 7);
    picker_index_learn(index, 7, b, 100, 1);
    assert_int_equal(matched(index, 7, a, 100, 1), 0);
    assert_int_equal(matched(index, 7, b, 100, 1), 100);
    while (picker_index_sweep(index, 10) > 0)
        assert_int_equal(matched(index, 7, b, 100, 1), 100);
    assert_int_equal(picker_index_count(index), 100);
    assert_int_equal(matched(index, 7, b, 100, 1), 100);
    picker_index_free(index);
}

/* All workers restart many times while hardly anything is swept.  Some have to wait, none is credited with
 * blocks that it lacks, and in the end all are learned again. */
static void workers_that_restart_for_ever(void **state)
{
    enum { ROUNDS = 5 };
    struct picker_index *index;
    struct block_hash old[8], fresh[8];

    assert_int_equal(picker_index_new(1000, LIFETIME_NS, &index), 0);
    make_chain(old, 1, 0, 8);
    make_chain(fresh, 2, 0, 8);
    for (int round = 0; round < ROUNDS; round++)
        for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
            picker_index_learn(index, slot, old, 8, 1);
            picker_index_forget(index, slot);
            assert_int_equal(matched(index, slot, old, 8, 1), 0);
        }
    while (picker_index_sweep(index, 100) > 0)
        ;
    assert_int_equal(picker_index_count(index), 0);
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        picker_index_learn(index, slot, fresh, 8, 1);
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot += 100) {
        assert_int_equal(matched(index, slot, old, 8, 1), 0);
        assert_int_equal(matched(index, slot, fresh, 8, 1), 8);
    }
    picker_index_free(index);
}

/* The work of a call is its own blocks and a little sweeping, for any number of forgotten blocks. */
static void forgetting_is_paid_for_in_small_parts(void **state)
{
    enum { N = 20000 };
    struct picker_index *index;
    struct block_hash hash = {{0}};
    struct rng rng;

    rng_init(&rng, 5);
    assert_int_equal(picker_index_new(N, LIFETIME_NS, &index), 0);
    for (uint32_t i = 0; i < N; i++) {
        for (size_t k = 0; k < sizeof(hash.bytes); k++)
            hash.bytes[k] = (uint8_t)rng_u64(&rng);
        picker_index_learn(index, i % 10, &hash, 1, 1);
    }
    picker_index_forget(index, 3);
    assert_int_equal(picker_index_count(index), N); /* nothing was swept yet */
    for (uint32_t i = 0; picker_index_count(index) > N - N / 10; i++) {
        size_t before = picker_index_count(index);

        assert_true(i < N);
        picker_index_learn(index, 1, &hash, 1, 1);
        assert_true(before - picker_index_count(index) <= 32);
    }
    picker_index_free(index);
}

/* ---- beside a simple index ---- */

struct model {
    enum { NOWHERE, IN_MEMORY, ON_DISK } holds[N_SLOTS][N_BLOCKS];
    uint64_t used_ns[N_BLOCKS];
    bool is_there[N_BLOCKS];
    struct block_hash chains[N_FAMILIES][CHAIN];
};

static struct model model;

static uint32_t id_of(uint32_t family, uint32_t i)
{
    return i < N_SHARED ? i : N_SHARED + family * (CHAIN - N_SHARED) + i - N_SHARED;
}

static bool model_knows(uint32_t id, uint64_t now_ns)
{
    if (model.is_there[id] && now_ns - model.used_ns[id] > LIFETIME_NS) {
        model.is_there[id] = false;
        for (uint32_t slot = 0; slot < N_SLOTS; slot++)
            model.holds[slot][id] = NOWHERE;
    }
    return model.is_there[id];
}

static void model_learn(uint32_t slot, uint32_t family, uint32_t n, uint64_t now_ns, bool is_on_disk)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = id_of(family, i);

        (void)model_knows(id, now_ns);
        model.is_there[id] = true;
        model.used_ns[id] = now_ns;
        model.holds[slot][id] = is_on_disk ? ON_DISK : IN_MEMORY;
    }
}

static void model_unlearn(uint32_t slot, uint32_t family, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < n; i++)
        model.holds[slot][id_of(family, i)] = NOWHERE;
}

static void assert_same(struct picker_index *index, uint32_t family, uint64_t now_ns)
{
    picker_index_match(index, &(struct picker_query){model.chains[family], CHAIN, N_SLOTS, now_ns}, &found);
    for (uint32_t slot = 0; slot < N_SLOTS; slot++) {
        uint32_t n = 0, n_in_memory = CHAIN;

        for (; n < CHAIN && model_knows(id_of(family, n), now_ns); n++) {
            if (model.holds[slot][id_of(family, n)] == NOWHERE)
                break;
            if (n_in_memory == CHAIN && model.holds[slot][id_of(family, n)] == ON_DISK)
                n_in_memory = n;
        }
        assert_int_equal(found.in_memory[slot], n < n_in_memory ? n : n_in_memory);
        assert_int_equal(stored(slot), n);
    }
}

/* Compares how many blocks have an owner, and how many have none in memory. */
static void assert_same_counts(struct picker_index *index, uint64_t now_ns)
{
    size_t n = 0, n_on_disk = 0;

    for (uint32_t family = 0; family < N_FAMILIES; family++)
        for (uint32_t i = 0; i < CHAIN; i++) {
            /* Removes the blocks that are too old. */
            picker_index_last_replica(index, &model.chains[family][i], now_ns);
            (void)model_knows(id_of(family, i), now_ns);
        }

    for (uint32_t id = 0; id < N_BLOCKS; id++) {
        bool has_any = false, has_memory = false;

        for (uint32_t slot = 0; slot < N_SLOTS; slot++) {
            has_any |= model.holds[slot][id] != NOWHERE;
            has_memory |= model.holds[slot][id] == IN_MEMORY;
        }
        n += has_any;
        n_on_disk += has_any && !has_memory;
    }
    assert_int_equal(picker_index_count(index), n);
    assert_int_equal(picker_index_on_disk(index), n_on_disk);
}

static void says_what_a_simple_index_says(void **state)
{
    struct picker_index *index;
    struct rng rng;
    uint64_t now_ns = LIFETIME_NS;

    rng_init(&rng, 11);
    memset(&model, 0, sizeof(model));
    for (uint32_t family = 0; family < N_FAMILIES; family++)
        make_chain(model.chains[family], (uint8_t)(family + 1), N_SHARED, CHAIN);
    assert_int_equal(picker_index_new(N_BLOCKS * 32, LIFETIME_NS, &index), 0);
    for (uint32_t step = 0; step < 60000; step++) {
        uint32_t slot = (uint32_t)rng_below(&rng, N_SLOTS), family = (uint32_t)rng_below(&rng, N_FAMILIES);
        uint32_t n = (uint32_t)rng_below(&rng, CHAIN + 1), from = (uint32_t)rng_below(&rng, CHAIN);
        uint64_t what = rng_below(&rng, 100);

        now_ns += rng_below(&rng, what < 2 ? LIFETIME_NS : 20);
        if (what < 40) {
            picker_index_learn(index, slot, model.chains[family], n, now_ns);
            model_learn(slot, family, n, now_ns, false);
        } else if (what < 60) {
            picker_index_learn_on_disk(index, slot, model.chains[family], n, now_ns);
            model_learn(slot, family, n, now_ns, true);
        } else if (what < 80) {
            picker_index_unlearn(index, slot, model.chains[family], from, n);
            model_unlearn(slot, family, from, n);
        } else if (what < 85) {
            picker_index_forget(index, slot);
            memset(model.holds[slot], 0, sizeof(model.holds[slot]));
        } else if (what < 87) {
            picker_index_sweep(index, 30);
        }
        assert_same(index, family, now_ns);
        if (step % 500 == 0) {
            while (picker_index_sweep(index, 100) > 0)
                ;
            assert_same_counts(index, now_ns);
        }
    }
    picker_index_free(index);
}

static void memory_is_bounded_and_stated(void **state)
{
    static const uint32_t sizes[] = {1000, 65536, 1000000, 5000000, 100000000};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        assert_true((picker_index_bytes(sizes[i]) - 65536) / sizes[i] <= 112);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_the_leading_run_per_worker),
        cmocka_unit_test(knows_the_last_owner),
        cmocka_unit_test(forgets_by_age_by_worker_and_by_bound),
        cmocka_unit_test(ends_go_before_beginnings),
        cmocka_unit_test(a_block_may_be_held_by_all),
        cmocka_unit_test(where_no_page_is_left_it_knows_less),
        cmocka_unit_test(memory_ends_where_disk_begins),
        cmocka_unit_test(who_has_it_on_disk_has_no_last_replica),
        cmocka_unit_test(known_by_tier_is_counted),
        cmocka_unit_test(neither_tier_floods_the_other),
        cmocka_unit_test(where_no_page_is_left_disks_are_not_known),
        cmocka_unit_test(a_restarted_worker_begins_with_nothing),
        cmocka_unit_test(workers_that_restart_for_ever),
        cmocka_unit_test(forgetting_is_paid_for_in_small_parts),
        cmocka_unit_test(says_what_a_simple_index_says),
        cmocka_unit_test(memory_is_bounded_and_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
