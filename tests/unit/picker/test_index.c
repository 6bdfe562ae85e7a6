/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix index: who holds how much of a chain, and how it forgets.  A simple index beside it, which
 * remembers everything in arrays and looks at all of it, must say the same after each of many random steps.
 */
#include "tests/unit/check.h"

#include <string.h>

#include "base/rng.h"
#include "picker/index.h"
#include "picker/picker.h"

#define LIFETIME_NS 1000
#define N_FAMILIES  5
#define CHAIN       24
#define N_SHARED    6 /* blocks that all families begin with */
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

static uint32_t matched(struct picker_index *index, uint32_t slot, const struct block_hash *hashes, size_t n,
                        uint64_t now_ns)
{
    uint32_t blocks[PICKER_MAX_WORKERS];

    picker_index_match(index, hashes, n, now_ns, blocks, PICKER_MAX_WORKERS);
    return blocks[slot];
}

static void knows_the_last_holder(void **state)
{
    struct picker_index *index;
    struct block_hash a[2];

    assert_int_equal(picker_index_new(100, LIFETIME_NS, &index), 0);
    make_chain(a, 1, 2, 2);
    assert_int_equal(picker_index_sole(index, &a[0], 10), PICKER_NONE);
    picker_index_learn(index, 7, a, 2, 10);
    assert_int_equal(picker_index_sole(index, &a[0], 10), 7);
    picker_index_learn(index, 900, a, 1, 10);
    assert_int_equal(picker_index_sole(index, &a[0], 10), PICKER_NONE);
    assert_int_equal(picker_index_sole(index, &a[1], 10), 7);
    picker_index_forget(index, 7);
    assert_int_equal(picker_index_sole(index, &a[0], 10), 900);
    assert_int_equal(picker_index_sole(index, &a[1], 10), PICKER_NONE);
    picker_index_unlearn(index, 900, a, 0, 1);
    assert_int_equal(picker_index_sole(index, &a[0], 10), PICKER_NONE);
    picker_index_learn(index, 3, a, 2, 10);
    assert_int_equal(picker_index_sole(index, &a[0], 11 + LIFETIME_NS), PICKER_NONE);
    picker_index_free(index);
}

static void matches_the_leading_run_per_worker(void **state)
{
    struct picker_index *index;
    struct block_hash a[8], b[8];
    uint32_t blocks[4];

    assert_int_equal(picker_index_new(100, LIFETIME_NS, &index), 0);
    make_chain(a, 1, 3, 8);
    make_chain(b, 2, 3, 8);
    picker_index_learn(index, 0, a, 8, 10);
    picker_index_learn(index, 2, b, 5, 10);

    picker_index_match(index, a, 8, 20, blocks, 4);
    assert_int_equal(blocks[0], 8);
    assert_int_equal(blocks[1], 0);
    assert_int_equal(blocks[2], 3);
    picker_index_match(index, b, 8, 20, blocks, 4);
    assert_int_equal(blocks[0], 3);
    assert_int_equal(blocks[2], 5);
    picker_index_match(index, b, 8, 20, blocks, 2); /* slots beyond are not written */
    assert_int_equal(blocks[2], 5);
    picker_index_free(index);
}

static void forgets_by_age_by_worker_and_by_bound(void **state)
{
    struct picker_index *index;
    struct block_hash a[8], b[8];
    uint32_t blocks[2];

    assert_int_equal(picker_index_new(10, LIFETIME_NS, &index), 0);
    make_chain(a, 1, 0, 8);
    make_chain(b, 2, 0, 8);
    picker_index_learn(index, 0, a, 8, 0);
    picker_index_match(index, a, 8, LIFETIME_NS + 1, blocks, 2);
    assert_int_equal(blocks[0], 0);

    picker_index_learn(index, 0, a, 8, 5000);
    picker_index_learn(index, 1, a, 8, 5000);
    picker_index_unlearn(index, 1, a, 4, 8);
    picker_index_match(index, a, 8, 5001, blocks, 2);
    assert_int_equal(blocks[0], 8);
    assert_int_equal(blocks[1], 4);
    picker_index_forget(index, 0);
    picker_index_match(index, a, 8, 5001, blocks, 2);
    assert_int_equal(blocks[0], 0);
    assert_int_equal(blocks[1], 4);

    picker_index_learn(index, 0, b, 8, 5002);
    assert_true(picker_index_count(index) <= 10);
    picker_index_match(index, b, 8, 5003, blocks, 2);
    assert_int_equal(blocks[0], 8);
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

/* All workers hold one beginning, and lose it one after the other. */
static void a_block_may_be_held_by_all(void **state)
{
    struct picker_index *index;
    struct block_hash chain[4];
    uint32_t blocks[PICKER_MAX_WORKERS];

    assert_int_equal(picker_index_new(1000, LIFETIME_NS, &index), 0);
    make_chain(chain, 1, 0, 4);
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        picker_index_learn(index, slot, chain, 1 + slot % 4, 1);
    picker_index_match(index, chain, 4, 1, blocks, PICKER_MAX_WORKERS);
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        assert_int_equal(blocks[slot], 1 + slot % 4);
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
        picker_index_unlearn(index, slot, chain, 0, 4);
        assert_int_equal(matched(index, slot, chain, 4, 1), 0);
        if (slot + 1 < PICKER_MAX_WORKERS)
            assert_int_equal(matched(index, PICKER_MAX_WORKERS - 1, chain, 4, 1), 4);
    }
    assert_int_equal(picker_index_count(index), 0);
    picker_index_free(index);
}

/* More blocks with many holders than there are pages: the index knows some of them, never a wrong one. */
static void where_no_page_is_left_it_knows_less(void **state)
{
    enum { N = 32, HOLDERS = 30 };
    struct picker_index *index;
    struct block_hash chain[N];
    uint32_t blocks[PICKER_MAX_WORKERS], n_known = 0;

    assert_int_equal(picker_index_new(N, LIFETIME_NS, &index), 0);
    for (uint32_t i = 0; i < N; i++) {
        make_chain(&chain[i], (uint8_t)(i + 1), 0, 1);
        for (uint32_t slot = 0; slot < HOLDERS; slot++)
            picker_index_learn(index, slot, &chain[i], 1, 1);
        assert_int_equal(matched(index, HOLDERS - 1, &chain[i], 1, 1), 1); /* the latest is known */
    }
    for (uint32_t i = 0; i < N; i++) {
        picker_index_match(index, &chain[i], 1, 1, blocks, PICKER_MAX_WORKERS);
        for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++) {
            n_known += blocks[slot];
            assert_true(blocks[slot] == 0 || slot < HOLDERS);
        }
    }
    assert_true(n_known >= 13 * N && n_known < HOLDERS * N);
    picker_index_free(index);
}

/* ---- lives ---- */

/* A worker that comes back at once begins with nothing, keeps what it learns then, and its former blocks are
 * swept out of the memory that they took. */
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

/* All workers restart again and again while hardly anything is swept: some have to wait, none is ever said to
 * hold what it does not, and in the end all are learned of again. */
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

/* No call does more than its blocks and a little sweeping, whatever was forgotten before. */
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
    assert_int_equal(picker_index_count(index), N); /* nothing was walked */
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
    bool holds[N_SLOTS][N_BLOCKS];
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
            model.holds[slot][id] = false;
    }
    return model.is_there[id];
}

static void model_learn(uint32_t slot, uint32_t family, uint32_t n, uint64_t now_ns)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = id_of(family, i);

        (void)model_knows(id, now_ns);
        model.is_there[id] = true;
        model.used_ns[id] = now_ns;
        model.holds[slot][id] = true;
    }
}

static void model_unlearn(uint32_t slot, uint32_t family, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < n; i++)
        model.holds[slot][id_of(family, i)] = false;
}

static void assert_same(struct picker_index *index, uint32_t family, uint64_t now_ns)
{
    uint32_t blocks[N_SLOTS];

    picker_index_match(index, model.chains[family], CHAIN, now_ns, blocks, N_SLOTS);
    for (uint32_t slot = 0; slot < N_SLOTS; slot++) {
        uint32_t n = 0;

        while (n < CHAIN && model_knows(id_of(family, n), now_ns) && model.holds[slot][id_of(family, n)])
            n++;
        assert_int_equal(blocks[slot], n);
    }
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
    assert_int_equal(picker_index_new(N_BLOCKS * 16, LIFETIME_NS, &index), 0);
    for (uint32_t step = 0; step < 40000; step++) {
        uint32_t slot = (uint32_t)rng_below(&rng, N_SLOTS), family = (uint32_t)rng_below(&rng, N_FAMILIES);
        uint32_t n = (uint32_t)rng_below(&rng, CHAIN + 1), from = (uint32_t)rng_below(&rng, CHAIN);
        uint64_t what = rng_below(&rng, 100);

        now_ns += rng_below(&rng, what < 2 ? LIFETIME_NS : 20);
        if (what < 50) {
            picker_index_learn(index, slot, model.chains[family], n, now_ns);
            model_learn(slot, family, n, now_ns);
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
        cmocka_unit_test(knows_the_last_holder),
        cmocka_unit_test(forgets_by_age_by_worker_and_by_bound),
        cmocka_unit_test(ends_go_before_beginnings),
        cmocka_unit_test(a_block_may_be_held_by_all),
        cmocka_unit_test(where_no_page_is_left_it_knows_less),
        cmocka_unit_test(a_restarted_worker_begins_with_nothing),
        cmocka_unit_test(workers_that_restart_for_ever),
        cmocka_unit_test(forgetting_is_paid_for_in_small_parts),
        cmocka_unit_test(says_what_a_simple_index_says),
        cmocka_unit_test(memory_is_bounded_and_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
