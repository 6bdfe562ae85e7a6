/* SPDX-License-Identifier: Apache-2.0 */
/* Copies past the caches: every byte, and no other, whatever the alignment and the tail. */
#include "tests/unit/check.h"

#include "base/mem_copy.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

#define GUARD     0xa5
#define GROUP     ((size_t)16 << 10) /* what the longest inner step takes at once */
#define MAX_BYTES (4 * GROUP + 256)
#define ROOM      (MAX_BYTES + 256)

static uint8_t *from, *to;

static void check_copy(size_t from_at, size_t to_at, size_t len_bytes)
{
    memset(to, GUARD, ROOM);
    mem_copy_past_caches(to + to_at, from + from_at, len_bytes);
    if (memcmp(to + to_at, from + from_at, len_bytes) != 0)
        fail_msg("%zu bytes from %zu to %zu are not the same", len_bytes, from_at, to_at);
    for (size_t i = 0; i < ROOM; i++)
        if ((i < to_at || i >= to_at + len_bytes) && to[i] != GUARD)
            fail_msg("%zu bytes from %zu to %zu: byte %zu was written too", len_bytes, from_at, to_at, i);
}

static int set_up(void **state)
{
    struct rng rng;

    from = malloc(ROOM);
    to = aligned_alloc(128, ROOM);
    if (from == NULL || to == NULL)
        return -1;
    rng_init(&rng, 1);
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (uint8_t)rng_u64(&rng);
    return 0;
}

static int tear_down(void **state)
{
    free(from);
    free(to);
    return 0;
}

static void every_alignment_of_both_ends(void **state)
{
    for (size_t to_at = 0; to_at < 64; to_at++)
        for (size_t from_at = 0; from_at < 64; from_at += to_at % 4 + 1)
            check_copy(from_at, to_at, GROUP + 64 + to_at + from_at);
}

static void every_tail(void **state)
{
    for (size_t len_bytes = 0; len_bytes < 300; len_bytes++)
        check_copy(1, 3, len_bytes);
    for (size_t n_groups = 1; n_groups <= 3; n_groups++)
        for (size_t more_bytes = 0; more_bytes <= 192; more_bytes++) {
            check_copy(0, 0, n_groups * GROUP + more_bytes);
            check_copy(5, 0, n_groups * GROUP + 64 - more_bytes);
            check_copy(0, 63, n_groups * GROUP + more_bytes);
        }
}

static void lengths_at_random(void **state)
{
    struct rng rng;

    rng_init(&rng, 2);
    for (unsigned i = 0; i < 500; i++)
        check_copy(rng_below(&rng, 128), rng_below(&rng, 128), rng_below(&rng, MAX_BYTES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_alignment_of_both_ends),
                                       cmocka_unit_test(every_tail), cmocka_unit_test(lengths_at_random)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
