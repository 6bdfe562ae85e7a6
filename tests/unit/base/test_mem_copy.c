/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that bypass the caches write every byte of the destination and no other,
 * for each method, alignment and tail. */
#include "tests/unit/check.h"

#include "base/clock.h"
#include "base/mem_copy.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

#define GUARD     0xa5
#define GROUP     ((size_t)16 << 10) /* bytes that the longest inner step copies */
#define MAX_BYTES (4 * GROUP + 256)
#define ROOM      (MAX_BYTES + 256)

static const struct mem_copy_method *method;
static uint8_t *from, *to;

static void check_copy(size_t from_at, size_t to_at, size_t len_bytes)
{
    memset(to, GUARD, ROOM);
    mem_copy_past_caches(to + to_at, from + from_at, len_bytes);
    if (memcmp(to + to_at, from + from_at, len_bytes) != 0)
        fail_msg("%s: %zu bytes from %zu to %zu are not the same", method->name, len_bytes, from_at, to_at);
    for (size_t i = 0; i < ROOM; i++)
        if ((i < to_at || i >= to_at + len_bytes) && to[i] != GUARD)
            fail_msg("%s: %zu bytes from %zu to %zu: byte %zu was written too", method->name, len_bytes,
                     from_at, to_at, i);
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

static void check_alignments(void)
{
    for (size_t to_at = 0; to_at < 64; to_at++)
        for (size_t from_at = 0; from_at < 64; from_at += to_at % 4 + 1)
            check_copy(from_at, to_at, GROUP + 64 + to_at + from_at);
}

static void check_tails(void)
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

static void check_lengths(void)
{
    struct rng rng;

    rng_init(&rng, 2);
    for (unsigned i = 0; i < 500; i++)
        check_copy(rng_below(&rng, 128), rng_below(&rng, 128), rng_below(&rng, MAX_BYTES));
}

/* Calls check for each method that this processor can run. */
static void each_way(void (*check)(void))
{
    for (uint32_t i = 0; (method = mem_copy_method_at(i)) != NULL; i++) {
        mem_copy_choose(method);
        check();
    }
    mem_copy_choose(mem_copy_method_at(0));
}

static void every_alignment_of_both_ends(void **state)
{
    each_way(check_alignments);
}

static void every_tail(void **state)
{
    each_way(check_tails);
}

static void lengths_at_random(void **state)
{
    each_way(check_lengths);
}

static void begins_with_the_plain_one(void **state)
{
    assert_string_equal(mem_copy_chosen()->name, "memcpy");
    assert_ptr_equal(mem_copy_chosen(), mem_copy_method_at(0));
}

static void names_find_ways(void **state)
{
    uint32_t n = 0;

    for (const struct mem_copy_method *at; (at = mem_copy_method_at(n)) != NULL; n++)
        assert_ptr_equal(mem_copy_method_find(at->name), at);
    assert_in_range(n, 1, MEM_COPY_MAX_METHODS);
    assert_null(mem_copy_method_find("memcp"));
    assert_null(mem_copy_method_find("memcpyy"));
    assert_null(mem_copy_method_find(""));
}

/* Every method gets a figure, the choice is one of them,
 * and measuring stays in time (with room for a busy machine). */
static void measures_every_way(void **state)
{
    double gbs[MEM_COPY_MAX_METHODS] = {0};
    const struct mem_copy_method *best = NULL, *at;
    uint32_t best_at = MEM_COPY_MAX_METHODS;

    /* On a busy machine a short measurement may see nothing. */
    for (uint64_t budget_ns = 40 * NS_PER_MS; best == NULL && budget_ns < 20 * NS_PER_S; budget_ns *= 2)
        best = mem_copy_measure(budget_ns, gbs);
    assert_non_null(best);
    for (uint32_t i = 0; (at = mem_copy_method_at(i)) != NULL; i++) {
        assert_true(gbs[i] > 0);
        best_at = at == best ? i : best_at;
    }
    assert_true(best_at < MEM_COPY_MAX_METHODS);
    for (uint32_t i = 0; mem_copy_method_at(i) != NULL; i++)
        assert_true(gbs[best_at] * 1.04 >= gbs[i]);
    assert_string_equal(mem_copy_chosen()->name, "memcpy"); /* measuring alone changes no choice */
}

static void without_time_nothing_is_chosen(void **state)
{
    double gbs[MEM_COPY_MAX_METHODS] = {0};

    assert_null(mem_copy_measure(0, gbs));
    for (uint32_t i = 0; i < MEM_COPY_MAX_METHODS; i++)
        assert_true(gbs[i] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(begins_with_the_plain_one),
                                       cmocka_unit_test(names_find_ways),
                                       cmocka_unit_test(measures_every_way),
                                       cmocka_unit_test(without_time_nothing_is_chosen),
                                       cmocka_unit_test(every_alignment_of_both_ends),
                                       cmocka_unit_test(every_tail),
                                       cmocka_unit_test(lengths_at_random)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
