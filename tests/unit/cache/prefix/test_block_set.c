/* SPDX-License-Identifier: Apache-2.0 */
/* The set of block hashes that may forget. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cache/prefix/block_set.h"

/* Hashes of equal `bucket` share one. */
static struct block_hash hash_of(uint32_t bucket, uint32_t number)
{
    struct block_hash hash = {.bytes = {(uint8_t)bucket, (uint8_t)(bucket >> 8)}};

    memcpy(&hash.bytes[4], &number, sizeof(number));
    return hash;
}

static void an_added_block_is_there_once(void **state)
{
    struct block_set *set = *state;
    struct block_hash a = hash_of(1, 1), b = hash_of(1, 2), list[3];

    assert_true(block_set_add(set, &a));
    assert_true(block_set_add(set, &b));
    assert_false(block_set_add(set, &a));
    assert_true(block_set_has(set, &a) && block_set_has(set, &b));
    assert_int_equal(block_set_count(set), 2);
    assert_int_equal(block_set_list(set, list, 3), 2);
    assert_memory_equal(&list[0], &b, sizeof(b));
    assert_memory_equal(&list[1], &a, sizeof(a));
    assert_int_equal(block_set_list(set, list, 1), 1);
    assert_true(block_set_remove(set, &b));
    assert_false(block_set_remove(set, &b));
    assert_true(block_set_has(set, &a) && !block_set_has(set, &b));
    assert_int_equal(block_set_list(set, list, 3), 1);
    assert_memory_equal(&list[0], &a, sizeof(a));
}

static void a_full_bucket_forgets_its_oldest(void **state)
{
    struct block_set *set = *state;
    struct block_hash other = hash_of(BLOCK_SET_BUCKETS - 1, 0);

    assert_true(block_set_add(set, &other));
    for (uint32_t i = 0; i <= BLOCK_SET_WAYS; i++) {
        struct block_hash hash = hash_of(7, i);

        assert_true(block_set_add(set, &hash));
    }
    assert_int_equal(block_set_count(set), BLOCK_SET_WAYS + 1);
    for (uint32_t i = 0; i <= BLOCK_SET_WAYS; i++) {
        struct block_hash hash = hash_of(7, i);

        assert_int_equal(block_set_remove(set, &hash), i > 0);
    }
    assert_true(block_set_remove(set, &other));
    assert_int_equal(block_set_count(set), 0);
}

static int setup(void **state)
{
    *state = block_set_new();
    return *state == NULL;
}

static int teardown(void **state)
{
    block_set_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_added_block_is_there_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_bucket_forgets_its_oldest, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
