/* SPDX-License-Identifier: Apache-2.0 */
/* Windowed layers in blocks of their own: which blocks a prefix needs, and which prefixes a cache can continue. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "cache/kv/window.h"
#include "cache/prefix/block_hash.h"

enum { TURNS = 2000, MOST_BLOCKS = 60, MOST_GROUPS = 7 };

static struct kv_layout some_layout(struct rng *rng)
{
    uint32_t n_layers = 1 + (uint32_t)rng_below(rng, 5);

    return (struct kv_layout){.n_layers = n_layers,
                              .n_kv_heads = 1,
                              .k_dim = 8,
                              .v_dim = 8,
                              .block_tokens = 16 << rng_below(rng, 2),
                              .type = KV_F16,
                              .n_window_layers = 1 + (uint32_t)rng_below(rng, MOST_GROUPS * n_layers),
                              .window = 1 + (uint32_t)rng_below(rng, 300)};
}

static void some_hashes(struct rng *rng, struct block_hash *hashes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof(hashes[i].bytes); k++)
            hashes[i].bytes[k] = (uint8_t)rng_below(rng, 256);
}

static void the_first_block_has_the_first_key_in_the_window(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 1);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        struct kv_layout layout = some_layout(&rng);
        uint32_t n_tokens = (uint32_t)rng_below(&rng, 1000), key = 0;

        while (n_tokens - key >= layout.window) /* the token at position n_tokens sees itself, too */
            key++;
        assert_int_equal(kv_window_first(&layout, n_tokens), key / layout.block_tokens);
    }
}

static void a_prefix_needs_the_blocks_from_the_first_on(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 2);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        struct kv_layout layout = some_layout(&rng);
        uint32_t n_groups = kv_window_groups(&layout), n = (uint32_t)rng_below(&rng, MOST_BLOCKS);
        uint32_t first = kv_window_first(&layout, n * layout.block_tokens);

        assert_true(n_groups * layout.n_layers >= layout.n_window_layers);
        assert_true((n_groups - 1) * layout.n_layers < layout.n_window_layers);
        assert_int_equal(kv_window_needed(&layout, n), n_groups * (n - first));
        assert_true(n - first <= kv_window_blocks(&layout));
    }
}

/* Peers name the length of a prefix with the windowed blocks that it needs: every length gives the prefix, or none. */
static void a_length_with_its_windows_gives_the_prefix(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 7);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        struct kv_layout layout = some_layout(&rng);
        uint32_t n_list = 0;

        if (turn % 8 == 0)
            layout.n_window_layers = 0;
        for (uint32_t n = 1; n <= MOST_BLOCKS; n++) {
            uint32_t next = n + kv_window_needed(&layout, n);

            while (++n_list < next)
                assert_int_equal(kv_window_needed_run(&layout, n_list), 0);
            assert_int_equal(kv_window_needed_run(&layout, next), n);
        }
        assert_int_equal(kv_window_needed_run(&layout, 0), 0);
        n_list = UINT32_MAX - (uint32_t)rng_below(&rng, 100); /* no overflow gives a short one */
        assert_true(kv_window_needed_run(&layout, n_list) == 0 ||
                    kv_window_needed_run(&layout, n_list) > n_list / 2);
    }
}

static void a_sequence_keeps_what_its_own_tokens_reuse(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 6);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        struct kv_layout layout = some_layout(&rng);
        uint32_t n_tokens = (uint32_t)rng_below(&rng, 1000), kept = kv_window_kept(&layout, n_tokens);
        uint32_t n_whole = n_tokens == 0 ? 0 : (n_tokens - 1) / layout.block_tokens;
        uint32_t to = n_tokens / layout.block_tokens + 1;

        assert_true(kept <= kv_window_first(&layout, n_tokens));
        assert_int_equal(kept, kv_window_first(&layout, n_whole * layout.block_tokens));
        assert_true(to - kept <= kv_window_blocks(&layout) + 2); /* with the block of the next token */
    }
}

static void hashes_are_derived_and_distinct(void **state)
{
    struct block_hash hashes[4], windowed[2][MOST_GROUPS], needed[4 * MOST_GROUPS];
    struct kv_layout layout;
    struct rng rng;

    (void)state;
    rng_init(&rng, 3);
    layout = some_layout(&rng);
    layout.n_layers = 2;
    layout.n_window_layers = 2 * MOST_GROUPS;
    layout.window = 2 * layout.block_tokens + 1;
    some_hashes(&rng, hashes, 4);
    kv_window_hashes(&hashes[2], MOST_GROUPS, windowed[0]);
    kv_window_hashes(&hashes[3], MOST_GROUPS, windowed[1]);
    for (uint32_t i = 0; i < MOST_GROUPS; i++) {
        assert_false(block_hash_equal(&windowed[0][i], &hashes[2]));
        for (uint32_t k = 0; k < MOST_GROUPS; k++) {
            assert_true(i == k || !block_hash_equal(&windowed[0][i], &windowed[0][k]));
            assert_false(block_hash_equal(&windowed[0][i], &windowed[1][k]));
        }
    }
    assert_int_equal(kv_window_needed(&layout, 4), 2 * MOST_GROUPS);
    kv_window_needed_hashes(&layout, hashes, 4, needed);
    assert_memory_equal(needed, windowed, sizeof(windowed));
}

struct held { /* a cache with some of the windowed blocks */
    struct block_hash hashes[MOST_BLOCKS * MOST_GROUPS];
    bool has[MOST_BLOCKS * MOST_GROUPS];
    uint32_t n;
};

static bool held_has(void *arg, const struct block_hash *hash)
{
    const struct held *held = arg;

    for (uint32_t i = 0; i < held->n; i++)
        if (block_hash_equal(&held->hashes[i], hash))
            return held->has[i];
    return false;
}

static void the_longest_run_is_found(void **state)
{
    struct block_hash hashes[MOST_BLOCKS];
    static struct held held;
    struct kv_window_source source = {.has = held_has, .arg = &held};
    struct rng rng;

    (void)state;
    rng_init(&rng, 4);
    for (uint32_t turn = 0; turn < TURNS / 10; turn++) {
        struct kv_layout layout = some_layout(&rng);
        uint32_t n = (uint32_t)rng_below(&rng, MOST_BLOCKS + 1), n_groups = kv_window_groups(&layout),
                 best = 0;
        uint32_t one_in = 1 + (uint32_t)rng_below(&rng, 40);

        some_hashes(&rng, hashes, n);
        held.n = n * n_groups;
        for (uint32_t i = 0; i < n; i++)
            kv_window_hashes(&hashes[i], n_groups, held.hashes + (size_t)i * n_groups);
        for (uint32_t i = 0; i < held.n; i++)
            held.has[i] = one_in == 40 || rng_below(&rng, one_in) != 0;
        for (uint32_t run = 1; run <= n; run++) {
            bool has_all = true;

            for (uint32_t i = kv_window_first(&layout, run * layout.block_tokens) * n_groups;
                 i < run * n_groups; i++)
                has_all &= held.has[i];
            best = has_all ? run : best;
        }
        assert_int_equal(kv_window_run(&layout, &source, hashes, n), best);
    }
}

static void layouts_without_windows_are_as_before(void **state)
{
    struct kv_layout layout = {
        .n_layers = 2, .n_kv_heads = 1, .k_dim = 8, .v_dim = 8, .block_tokens = 16, .type = KV_F16};
    struct kv_layout windowed = layout;

    (void)state;
    assert_int_equal(kv_window_groups(&layout), 0);
    assert_int_equal(kv_window_needed(&layout, 5), 0);
    assert_int_equal(kv_window_run(&layout, NULL, NULL, 5), 5);
    assert_int_equal(kv_window_capacity(&layout, 77), 77);

    windowed.n_window_layers = 2;
    windowed.window = 40;
    assert_true(kv_layout_fingerprint(&layout, 1) != kv_layout_fingerprint(&windowed, 1));
    layout = windowed;
    layout.window++; /* other blocks are sent and kept */
    assert_true(kv_layout_fingerprint(&layout, 1) != kv_layout_fingerprint(&windowed, 1));
    layout = windowed;
    layout.n_window_layers++;
    assert_true(kv_layout_fingerprint(&layout, 1) != kv_layout_fingerprint(&windowed, 1));
}

static void a_pool_holds_what_its_capacity_says(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 5);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        struct kv_layout layout = some_layout(&rng);
        uint32_t n_groups = kv_window_groups(&layout), n_pool = (uint32_t)rng_below(&rng, 5000);
        uint32_t n = kv_window_capacity(&layout, n_pool), n_held = 2 * kv_window_blocks(&layout) + 2;

        assert_true(n + n_groups * (n < n_held ? n : n_held) <= n_pool);
        n++;
        assert_true(n + n_groups * (n < n_held ? n : n_held) > n_pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_block_has_the_first_key_in_the_window),
        cmocka_unit_test(a_prefix_needs_the_blocks_from_the_first_on),
        cmocka_unit_test(a_length_with_its_windows_gives_the_prefix),
        cmocka_unit_test(a_sequence_keeps_what_its_own_tokens_reuse),
        cmocka_unit_test(hashes_are_derived_and_distinct),
        cmocka_unit_test(the_longest_run_is_found),
        cmocka_unit_test(layouts_without_windows_are_as_before),
        cmocka_unit_test(a_pool_holds_what_its_capacity_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
