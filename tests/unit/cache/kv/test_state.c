/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent state in blocks: every byte has its place inside the named blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "cache/kv/state.h"
#include "cache/prefix/block_hash.h"

enum { N_BLOCKS = 12 };

static struct kv_layout some_layout(size_t state_bytes)
{
    return (struct kv_layout){.n_layers = 3,
                              .n_kv_heads = 1,
                              .k_dim = 5,
                              .v_dim = 3,
                              .block_tokens = 16,
                              .type = KV_F16,
                              .state_bytes = state_bytes};
}

static void blocks_are_as_many_as_the_bytes_need(void **state)
{
    struct kv_layout layout = some_layout(0);
    size_t block_bytes = kv_layout_block_bytes(&layout);

    (void)state;
    assert_int_equal(kv_layout_state_blocks(&layout), 0);
    for (size_t n = 1; n < 4; n++) {
        layout.state_bytes = n * block_bytes;
        assert_int_equal(kv_layout_state_blocks(&layout), n);
        layout.state_bytes++;
        assert_int_equal(kv_layout_state_blocks(&layout), n + 1);
    }
}

/* Writes random stretches to a state in scattered blocks, and to a plain array of bytes. */
static void a_written_state_is_read_back(void **state)
{
    struct kv_layout layout = some_layout(0);
    size_t n = 3 * kv_layout_block_bytes(&layout) - 17,
           arena_bytes = N_BLOCKS * kv_layout_block_bytes(&layout);
    uint8_t *arena = malloc(arena_bytes), *expected = malloc(n), *got = malloc(n);
    kv_block_id ids[3] = {7, 2, 11};
    struct kv_arena memory = {.layout = &layout, .base = arena, .n_blocks = N_BLOCKS};
    struct rng rng;

    (void)state;
    assert_true(arena && expected && got);
    layout.state_bytes = n;
    rng_init(&rng, 5);
    memset(arena, 0xee, arena_bytes);
    memset(expected, 0, n);
    kv_state_write(&memory, ids, 0, n, expected);
    for (int i = 0; i < 300; i++) {
        size_t from = rng_below(&rng, n), len = 1 + rng_below(&rng, n - from);

        memset(got, i, len);
        memset(expected + from, i, len);
        kv_state_write(&memory, ids, from, len, got);
        from = rng_below(&rng, n);
        len = 1 + rng_below(&rng, n - from);
        kv_state_read(&memory, ids, from, len, got);
        assert_memory_equal(got, expected + from, len);
    }
    for (uint32_t layer = 0; layer < layout.n_layers; layer++)
        for (kv_block_id id = 0; id < N_BLOCKS; id++)
            for (size_t at = 0; id != 7 && id != 2 && id != 11 && at < kv_layout_layer_block_bytes(&layout);
                 at++)
                assert_int_equal(arena[kv_layout_offset(&layout, N_BLOCKS, layer, id) + at], 0xee);
    kv_state_read(&memory, NULL, 3, 40, got); /* before the first token */
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(got[i], 0);
    free(arena);
    free(expected);
    free(got);
}

static void hashes_differ(void **state)
{
    struct block_hash block = {{1, 2, 3}}, other = {{1, 2, 4}}, hashes[2][5];

    (void)state;
    kv_state_hashes(&block, 5, hashes[0]);
    kv_state_hashes(&other, 5, hashes[1]);
    for (unsigned i = 0; i < 10; i++) {
        assert_false(block_hash_equal(&hashes[i / 5][i % 5], &block));
        for (unsigned j = 0; j < i; j++)
            assert_false(block_hash_equal(&hashes[i / 5][i % 5], &hashes[j / 5][j % 5]));
    }
}

static void the_fingerprint_counts_the_state(void **state)
{
    struct kv_layout plain = some_layout(0), one = some_layout(100), two = some_layout(104);

    (void)state;
    assert_true(kv_layout_fingerprint(&plain, 1) != kv_layout_fingerprint(&one, 1));
    assert_true(kv_layout_fingerprint(&two, 1) != kv_layout_fingerprint(&one, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_as_many_as_the_bytes_need),
        cmocka_unit_test(a_written_state_is_read_back),
        cmocka_unit_test(hashes_differ),
        cmocka_unit_test(the_fingerprint_counts_the_state),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
