/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix index: who holds how much of a chain, and how it forgets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "picker/index.h"

#define LIFETIME_NS 1000

static void make_chain(struct block_hash *out, uint8_t family, unsigned shared, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        out[i] = (struct block_hash){.bytes = {(uint8_t)i}};
        out[i].bytes[1] = i < shared ? 0 : family;
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_the_leading_run_per_worker),
        cmocka_unit_test(forgets_by_age_by_worker_and_by_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
