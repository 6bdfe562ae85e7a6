/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids packed for SUBMIT: golden bytes, the least width, packing and unpacking of lengths near the widths
 * of vectors, and refused input. */
#include "proto/token_list.h"

#include "base/err.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MOST 200

static void golden(void **state)
{
    static const uint32_t ids[3] = {1, 0x0203, 0xfffe};
    static const uint8_t bytes[3][12] = {{1, 0, 3, 2, 0xfe, 0xff},
                                         {1, 0, 0, 3, 2, 0, 0xfe, 0xff, 0},
                                         {1, 0, 0, 0, 3, 2, 0, 0, 0xfe, 0xff, 0, 0}};

    for (unsigned width = 2; width <= 4; width++) {
        uint8_t out[12] = {0};

        token_list_pack(ids, 3, width, out);
        assert_memory_equal(out, bytes[width - 2], sizeof(out));
    }
}

static void width_is_what_the_largest_needs(void **state)
{
    static const struct {
        uint32_t id;
        unsigned width;
    } cases[] = {{0, 2},       {65535, 2},     {65536, 3}, {151935, 3}, {(1 << 24) - 1, 3},
                 {1 << 24, 4}, {UINT32_MAX, 4}};
    uint32_t ids[MOST] = {0};

    assert_int_equal(token_list_width(ids, 0), 2);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t at = 0; at < MOST; at++) { /* at any position */
            ids[at] = cases[i].id;
            assert_int_equal(token_list_width(ids, MOST), cases[i].width);
            assert_int_equal(token_list_width(ids, at), 2);
            ids[at] = 0;
        }
}

static void there_and_back(void **state)
{
    uint32_t ids[MOST], back[MOST + 1];
    uint8_t out[4 * MOST + 4];
    struct rng rng;

    rng_init(&rng, 7);
    for (unsigned width = 2; width <= 4; width++)
        for (size_t n = 0; n <= MOST; n++) {
            size_t n_back = SIZE_MAX;

            for (size_t i = 0; i < n; i++)
                ids[i] = (uint32_t)rng_below(&rng, UINT64_C(1) << 8 * width);
            memset(out, 0xa5, sizeof(out));
            memset(back, 0x5a, sizeof(back));
            token_list_pack(ids, n, width, out);
            for (size_t i = n * width; i < sizeof(out); i++)
                assert_int_equal(out[i], 0xa5); /* no write after its end */
            assert_int_equal(token_list_count(bytes_of(out, n * width), width, &n_back), 0);
            assert_int_equal(n_back, n);
            token_list_unpack(bytes_of(out, n * width), width, n, back);
            assert_memory_equal(back, ids, n * sizeof(ids[0]));
            assert_int_equal(back[n], 0x5a5a5a5a);
        }
}

static void hostile_lengths_and_widths(void **state)
{
    static const uint32_t widths[] = {0, 1, 5, 255, 256 + 2, UINT32_MAX};
    uint8_t bytes[24] = {0};
    size_t n = 99;

    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        assert_int_equal(token_list_count(bytes_of(bytes, 24), widths[i], &n), E_PROTO);
    assert_int_equal(token_list_count(bytes_of(bytes, 23), 2, &n), E_PROTO);
    assert_int_equal(token_list_count(bytes_of(bytes, 23), 3, &n), E_PROTO);
    assert_int_equal(token_list_count(bytes_of(bytes, 22), 4, &n), E_PROTO);
    assert_int_equal(n, 99); /* unchanged */
    assert_int_equal(token_list_count(bytes_of(bytes, 0), 2, &n), 0);
    assert_int_equal(n, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(width_is_what_the_largest_needs),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(hostile_lengths_and_widths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
