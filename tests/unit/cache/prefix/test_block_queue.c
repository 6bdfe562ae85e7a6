/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of pending block events: order, slices, and the rest of a worker that is forgotten. */
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cache/prefix/block_queue.h"

enum { N_SOURCES = 3, MAX_LIST = 400 };

static struct block_queue queue;
static uint32_t next[N_SOURCES], n_applied, n_slices, n_forgotten;
static bool forgets_in_apply;

static struct block_list *list_of(uint32_t source, uint32_t first, uint32_t n)
{
    struct block_hash hashes[MAX_LIST] = {0};
    uint8_t tiers[MAX_LIST];

    for (uint32_t i = 0; i < n; i++) {
        uint32_t number = first + i;

        memcpy(hashes[i].bytes, &number, sizeof(number));
        tiers[i] = (uint8_t)(number % 3);
    }
    return block_list_new(source, hashes[0].bytes, tiers, n);
}

/* Checks that each source's blocks come in order, without gaps. */
static void apply(void *arg, const struct block_slice *slice)
{
    assert_ptr_equal(arg, &queue);
    assert_true(slice->n > 0 && slice->n <= BLOCK_SLICE);
    for (size_t i = 0; i < slice->n; i++) {
        uint32_t number;

        memcpy(&number, slice->hashes[i].bytes, sizeof(number));
        assert_int_equal(number, next[slice->source]++);
        assert_int_equal(slice->tiers[i], number % 3);
    }
    n_applied += (uint32_t)slice->n;
    n_slices++;
    if (forgets_in_apply)
        for (uint32_t source = 0; source < N_SOURCES; source++)
            if (source != slice->source)
                block_queue_forget(&queue, source);
}

static void forget(void *arg, uint32_t source)
{
    assert_ptr_equal(arg, &queue);
    n_forgotten++;
}

static int open_queue(void **state)
{
    block_queue_init(&queue, &(struct block_queue_calls){apply, forget, &queue});
    memset(next, 0, sizeof(next));
    n_applied = n_slices = n_forgotten = 0;
    forgets_in_apply = false;
    return 0;
}

static int close_queue(void **state)
{
    block_queue_fini(&queue);
    assert_int_equal(queue.n_blocks + queue.n_lists, 0);
    return 0;
}

static void slices_come_in_order(void **state)
{
    block_queue_add(&queue, list_of(0, 0, 2 * BLOCK_SLICE + 7));
    block_queue_add(&queue, list_of(1, 0, 5));
    block_queue_add(&queue, list_of(0, 2 * BLOCK_SLICE + 7, 1));
    assert_int_equal(queue.n_blocks, 2 * BLOCK_SLICE + 13);
    assert_true(block_queue_work(&queue, 1));
    assert_int_equal(n_applied, BLOCK_SLICE);
    assert_int_equal(queue.n_blocks, 2 * BLOCK_SLICE + 13); /* a list counts until all of it is applied */
    assert_true(block_queue_work(&queue, BLOCK_SLICE + 2)); /* one more slice is not enough */
    assert_int_equal(n_slices, 3);
    assert_int_equal(queue.n_lists, 2);
    assert_false(block_queue_work(&queue, SIZE_MAX));
    assert_int_equal(next[0], 2 * BLOCK_SLICE + 8);
    assert_int_equal(next[1], 5);
    assert_false(block_queue_work(&queue, 1));
}

static void small_lists_count_too(void **state)
{
    for (uint32_t i = 0; i < 10; i++)
        block_queue_add(&queue, list_of(0, i, 1));
    assert_true(block_queue_work(&queue, 8)); /* two for each */
    assert_int_equal(n_applied, 4);
}

static void a_forgotten_source_has_nothing_pending(void **state)
{
    block_queue_add(&queue, list_of(0, 0, 3 * BLOCK_SLICE));
    block_queue_add(&queue, list_of(1, 0, 4));
    block_queue_add(&queue, list_of(0, 3 * BLOCK_SLICE, 4));
    assert_true(block_queue_work(&queue, 1));
    block_queue_forget(&queue, 0);
    assert_int_equal(n_forgotten, 1);
    assert_int_equal(queue.n_blocks, 4);
    assert_false(block_queue_work(&queue, 1));
    assert_int_equal(next[1], 4);
}

static void a_new_snapshot_replaces_pending_events(void **state)
{
    struct block_list *anew = list_of(0, 100, 6);

    block_queue_add(&queue, list_of(0, 0, 3));
    block_queue_add(&queue, list_of(1, 0, 3));
    anew->is_anew = true;
    block_queue_add(&queue, anew);
    assert_int_equal(n_forgotten, 1);
    assert_int_equal(queue.n_blocks, 9);
    next[0] = 100;
    assert_false(block_queue_work(&queue, SIZE_MAX));
    anew = list_of(1, 0, 0); /* an empty list that only orders to forget */
    anew->is_anew = true;
    block_queue_add(&queue, anew);
    assert_int_equal(n_forgotten, 2);
    assert_int_equal(queue.n_lists, 0);
}

/* Applying a slice may make the reader lose other workers. */
static void apply_may_forget(void **state)
{
    forgets_in_apply = true;
    block_queue_add(&queue, list_of(0, 0, 9));
    block_queue_add(&queue, list_of(1, 0, 9));
    block_queue_add(&queue, list_of(0, 9, BLOCK_SLICE + 1));
    block_queue_add(&queue, list_of(2, 0, 9));
    assert_false(block_queue_work(&queue, SIZE_MAX));
    assert_int_equal(n_applied, 9 + BLOCK_SLICE + 1);
}

static void random_lists_are_applied_once(void **state)
{
    uint32_t made[N_SOURCES] = {0};
    struct rng rng;

    rng_init(&rng, 7);
    for (int i = 0; i < 20000; i++) {
        uint32_t source = (uint32_t)rng_below(&rng, N_SOURCES), n = (uint32_t)rng_below(&rng, MAX_LIST);

        switch (rng_below(&rng, 8)) {
        case 0:
            block_queue_forget(&queue, source);
            next[source] = made[source];
            break;
        case 1:
        case 2:
            block_queue_add(&queue, list_of(source, made[source], n));
            made[source] += n;
            break;
        default:
            (void)block_queue_work(&queue, 1 + rng_below(&rng, 2 * BLOCK_SLICE));
        }
    }
    while (block_queue_work(&queue, 1))
        ;
    assert_memory_equal(made, next, sizeof(made));
}

#define QUEUE_TEST(name) cmocka_unit_test_setup_teardown(name, open_queue, close_queue)

int main(void)
{
    const struct CMUnitTest tests[] = {
        QUEUE_TEST(slices_come_in_order),
        QUEUE_TEST(small_lists_count_too),
        QUEUE_TEST(a_forgotten_source_has_nothing_pending),
        QUEUE_TEST(a_new_snapshot_replaces_pending_events),
        QUEUE_TEST(apply_may_forget),
        QUEUE_TEST(random_lists_are_applied_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
