/* SPDX-License-Identifier: Apache-2.0 */
/* The geometry: pieces tile the arena.  Every change of a byte's meaning changes the fingerprint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cache/kv/layout.h"

static const struct kv_layout layout = {
    .n_layers = 3, .n_kv_heads = 2, .k_dim = 64, .v_dim = 64, .block_tokens = 32, .type = KV_F16};

static void sizes_add_up(void **state)
{
    assert_int_equal(kv_layout_k_bytes(&layout), 2 * 64 * 32 * 2);
    assert_int_equal(kv_layout_v_bytes(&layout), 2 * 64 * 32 * 2);
    assert_int_equal(kv_layout_layer_block_bytes(&layout), 2 * 2 * 64 * 32 * 2);
    assert_int_equal(kv_layout_block_bytes(&layout), 3 * 2 * 2 * 64 * 32 * 2);
    assert_int_equal(kv_layout_row_bytes(KV_F32, 33), 4 * 33);
    assert_int_equal(kv_layout_row_bytes(KV_BF16, 33), 2 * 33);
    assert_int_equal(kv_layout_row_bytes(KV_Q8_0, 64), 2 * 34);
    assert_int_equal(kv_layout_row_bytes(KV_Q8_0, 33), 2 * 34);
    assert_int_equal(kv_layout_row_bytes(KV_Q4_0, 64), 2 * 18);
    assert_int_equal(kv_layout_row_bytes(KV_Q4_0, 0), 0);
}

/* The key kv.type stores the place of a word in the list as the type, and fingerprints hold the types' numbers. */
static void types_keep_their_numbers_and_words(void **state)
{
    static const char *const words[] = {"f32", "f16", "bf16", "q8_0", "q4_0"};

    assert_true(KV_N_TYPES >= sizeof(words) / sizeof(words[0]));
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        assert_string_equal(kv_type_word((enum kv_type)i), words[i]);
    for (unsigned i = 0, at = 0; i < KV_N_TYPES; i++, at++) {
        size_t len = strlen(kv_type_word((enum kv_type)i));

        assert_memory_equal(KV_TYPE_WORDS + at, kv_type_word((enum kv_type)i), len);
        at += (unsigned)len;
        assert_int_equal(KV_TYPE_WORDS[at], i + 1 < KV_N_TYPES ? '|' : '\0');
    }
}

static void blocks_tile_the_arena(void **state)
{
    size_t piece = kv_layout_layer_block_bytes(&layout), expected = 0;

    for (uint32_t layer = 0; layer < layout.n_layers; layer++) {
        for (kv_block_id block = 0; block < 7; block++, expected += piece)
            assert_int_equal(kv_layout_offset(&layout, 7, layer, block), expected);
    }
    assert_int_equal(expected, 7 * kv_layout_block_bytes(&layout));
}

/* Multi-head latent attention has one head, and its values are parts of the keys. */
static void values_may_lie_in_keys(void **state)
{
    struct kv_layout latent = {
        .n_layers = 27, .n_kv_heads = 1, .k_dim = 576, .block_tokens = 32, .type = KV_Q8_0};

    assert_int_equal(kv_layout_v_bytes(&latent), 0);
    assert_int_equal(kv_layout_layer_block_bytes(&latent), 32 * 18 * 34);
}

/* Keys of an indexer follow those that it chooses from. */
static void an_index_lies_behind_the_keys(void **state)
{
    struct kv_layout sparse = {.n_layers = 2,
                               .n_kv_heads = 1,
                               .k_dim = 576,
                               .block_tokens = 32,
                               .type = KV_Q8_0,
                               .index_dim = 128,
                               .index_type = KV_F16};

    assert_int_equal(kv_layout_index_bytes(&sparse), 32 * 128 * 2);
    assert_int_equal(kv_layout_layer_block_bytes(&sparse), 32 * 18 * 34 + 32 * 128 * 2);
    assert_int_equal(kv_layout_index_bytes(&layout), 0);
}

static void large_arenas_do_not_overflow(void **state)
{
    struct kv_layout large = {
        .n_layers = 80, .n_kv_heads = 8, .k_dim = 128, .v_dim = 128, .block_tokens = 32, .type = KV_F16};

    assert_true(kv_layout_offset(&large, 1000000, 79, 999999) == (size_t)80 * 1000000 * 131072 - 131072);
}

static void fingerprint_covers_everything(void **state)
{
    struct kv_layout other[9], sparse;
    uint64_t base = kv_layout_fingerprint(&layout, 7);

    for (int i = 0; i < 9; i++)
        other[i] = layout;
    other[0].n_layers++;
    other[1].n_kv_heads++;
    other[2].k_dim++;
    other[3].block_tokens++;
    other[4].type = KV_BF16;
    other[5].v_dim++;
    for (int i = 0; i < 6; i++)
        assert_true(kv_layout_fingerprint(&other[i], 7) != base);
    assert_true(kv_layout_fingerprint(&layout, 8) != base);
    other[7].index_dim = 64;
    other[8].index_dim = 64;
    other[8].index_type = KV_F16;
    sparse = other[8];
    sparse.state_bytes = 100;
    assert_true(kv_layout_fingerprint(&other[7], 7) != base);
    assert_true(kv_layout_fingerprint(&other[7], 7) != kv_layout_fingerprint(&other[8], 7));
    assert_true(kv_layout_fingerprint(&sparse, 7) != kv_layout_fingerprint(&other[8], 7));
    assert_true(kv_layout_fingerprint(&other[6], 7) == base);
}

/* Workers of different builds compare fingerprints, so a layout's fingerprint may never change. */
static void fingerprint_is_frozen(void **state)
{
    assert_true(kv_layout_fingerprint(&layout, 7) == UINT64_C(0xc2560f75b51bcc68));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_keep_their_numbers_and_words),
        cmocka_unit_test(sizes_add_up),
        cmocka_unit_test(blocks_tile_the_arena),
        cmocka_unit_test(values_may_lie_in_keys),
        cmocka_unit_test(an_index_lies_behind_the_keys),
        cmocka_unit_test(large_arenas_do_not_overflow),
        cmocka_unit_test(fingerprint_covers_everything),
        cmocka_unit_test(fingerprint_is_frozen),
    };
    return cmocka_run_group_tests_name("cache/kv/layout", tests, NULL, NULL);
}
