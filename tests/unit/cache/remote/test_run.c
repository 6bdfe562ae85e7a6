/* SPDX-License-Identifier: Apache-2.0 */
/* Runs: the length of values, and which values have the blocks of a chain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "cache/remote/run.h"

enum { NONE = REMOTE_NOT_THERE };

static void values_have_about_four_megabytes(void **state)
{
    (void)state;
    assert_int_equal(remote_run_blocks(1 << 20), 4);
    assert_int_equal(remote_run_blocks(3 << 20), 1);
    assert_int_equal(remote_run_blocks(40 << 20), 1);
    assert_int_equal(remote_run_blocks(100 << 10), REMOTE_RUN_BLOCKS);
}

static void lengths_are_bounded(void **state)
{
    (void)state;
    assert_int_equal(remote_run_length(1000, 0), 0);
    assert_int_equal(remote_run_length(1000, 1), 1);
    assert_int_equal(remote_run_length(1000, 1000), 1);
    assert_int_equal(remote_run_length(1000, 2999), 2);
    assert_int_equal(remote_run_length(1000, 3000), 3);
    assert_int_equal(remote_run_length(1000, UINT64_MAX), REMOTE_RUN_BLOCKS);
}

static void the_last_value_wins(void **state)
{
    const uint32_t runs[] = {0, 2, 0, 0, 1, 3, 0, 9};
    const uint32_t want[] = {7, 7, 7, 7, 7, 7, 7, 7}, short_want[] = {1, 1, NONE, 5, 5, 5, NONE};
    uint32_t ends[8];

    (void)state;
    remote_run_cover(runs, 8, ends); /* the last value claims more blocks than there are */
    assert_memory_equal(ends, want, sizeof(want));
    remote_run_cover(runs, 7, ends);
    assert_memory_equal(ends, short_want, sizeof(short_want));
}

/* Compares the result with a search of all values for each block. */
static void every_block_is_found(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 5);
    for (unsigned round = 0; round < 5000; round++) {
        uint32_t n = 1 + (uint32_t)(rng_u64(&rng) % 40), runs[40], ends[40];

        for (uint32_t i = 0; i < n; i++)
            runs[i] = rng_u64(&rng) % 3 == 0 ? (uint32_t)(rng_u64(&rng) % 20) : 0;
        remote_run_cover(runs, n, ends);
        for (uint32_t at = 0; at < n; at++) {
            uint32_t want = NONE;

            for (uint32_t end = at; end < n; end++)
                want = runs[end] > end - at ? end : want;
            assert_int_equal(ends[at], want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_have_about_four_megabytes),
        cmocka_unit_test(lengths_are_bounded),
        cmocka_unit_test(the_last_value_wins),
        cmocka_unit_test(every_block_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
