/* SPDX-License-Identifier: Apache-2.0 */
/* The map against a plain array of its expected content. */
#include "tests/unit/check.h"

#include "base/err.h"
#include "base/hashmap.h"
#include "base/rng.h"

#include <string.h>

enum { N_KEYS = 700 };

static void behaves_like_an_array(void **state)
{
    const size_t lengths[] = {1, 3, 8, 16, 37, 64, 8};

    for (size_t which = 0; which < 7; which++) {
        struct hashmap *map;
        uintptr_t model[N_KEYS] = {0};
        size_t n_keys = lengths[which] == 1 ? 200 : N_KEYS, n_live = 0;
        struct rng rng;

        rng_init(&rng, which);
        if (which < 6)
            assert_int_equal(hashmap_new(lengths[which], &map), 0);
        else
            assert_int_equal(hashmap_new_counted(&map), 0);
        for (int step = 0; step < 20000; step++) {
            uint8_t key[64] = {0};
            size_t number = (size_t)rng_below(&rng, n_keys);
            void *old = (void *)1;

            key[0] = (uint8_t)number;
            if (lengths[which] > 1)
                key[lengths[which] - 1] = (uint8_t)(number >> 8);
            hashmap_prefetch(map, key);
            assert_ptr_equal(hashmap_get(map, key), (void *)model[number]);
            if (rng_below(&rng, 2 + step / 10000) == 0) { /* fills at first, empties later */
                uintptr_t value = 1 + (uintptr_t)rng_below(&rng, 1000);

                assert_int_equal(hashmap_put(map, key, (void *)value, &old), 0);
                assert_ptr_equal(old, (void *)model[number]);
                n_live += model[number] == 0;
                model[number] = value;
            } else {
                assert_ptr_equal(hashmap_remove(map, key), (void *)model[number]);
                n_live -= model[number] != 0;
                model[number] = 0;
            }
            assert_int_equal(hashmap_count(map), n_live);
        }
        hashmap_free(map);
    }
}

static void a_walk_may_remove_what_it_got(void **state)
{
    struct hashmap *map;
    size_t cursor = 0, n_seen = 0;
    const void *key;
    void *value;

    assert_int_equal(hashmap_new(4, &map), 0);
    assert_false(hashmap_next(map, &cursor, &key, &value));
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(hashmap_put(map, &i, (void *)(uintptr_t)(i + 1), NULL), 0);
    for (cursor = 0; hashmap_next(map, &cursor, &key, &value);) {
        uint32_t number;

        memcpy(&number, key, sizeof(number));
        assert_int_equal((uintptr_t)value, number + 1);
        if (number % 3 != 0)
            assert_ptr_equal(hashmap_remove(map, &number), value);
        n_seen++;
    }
    assert_int_equal(n_seen, 1000);
    assert_int_equal(hashmap_count(map), 334);
    n_seen = 0;
    for (cursor = 0; hashmap_next(map, &cursor, NULL, NULL);)
        n_seen++;
    assert_int_equal(n_seen, 334);
    hashmap_free(map);
}

/* Adding and removing for ever must not fill the table with tombstones. */
static void churn_does_not_grow(void **state)
{
    struct hashmap *map;

    assert_int_equal(hashmap_new(8, &map), 0);
    for (uint64_t i = 0; i < 200000; i++) {
        uint64_t gone = i - 10;

        assert_int_equal(hashmap_put(map, &i, map, NULL), 0);
        if (i >= 10)
            assert_ptr_equal(hashmap_remove(map, &gone), map);
    }
    assert_int_equal(hashmap_count(map), 10);
    size_t cursor = 0;
    while (hashmap_next(map, &cursor, NULL, NULL))
        ;
    assert_true(cursor <= 64); /* the number of slots, as an iteration shows it */
    hashmap_free(map);
}

static void key_length_is_checked(void **state)
{
    struct hashmap *map = NULL;

    assert_int_equal(hashmap_new(0, &map), E_INVAL);
    assert_int_equal(hashmap_new(65, &map), E_INVAL);
    assert_null(map);
    hashmap_free(NULL);
    assert_int_equal(hashmap_new(1, &map), 0);
    assert_null(hashmap_remove(map, "x"));
    assert_null(hashmap_get(map, "x"));
    hashmap_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behaves_like_an_array),
        cmocka_unit_test(a_walk_may_remove_what_it_got),
        cmocka_unit_test(churn_does_not_grow),
        cmocka_unit_test(key_length_is_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
