/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the remote tier: a record opens only for its block and its key, and every change of it is
 * detected.  With pieces of both ciphers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "cache/remote/record.h"

enum { LAYERS = 3, MAX_PIECE = 112, BLOCKS = 4, MAX_RECORD = REMOTE_HEAD_BYTES + LAYERS * MAX_PIECE };

struct desk {
    size_t piece_bytes, record_bytes;
    uint8_t arena[LAYERS * BLOCKS * MAX_PIECE];
    struct remote_seal seal;
    struct block_cipher *cipher;
    uint8_t record[MAX_RECORD + 16];
};

static const struct block_hash hash_one = {{1}}, hash_two = {{2}};

static void desk_seal(struct desk *desk, struct remote_seal *out, uint8_t key_byte, const char *text)
{
    const struct remote_arena arena = {desk->arena, BLOCKS, LAYERS, desk->piece_bytes};
    uint8_t key[REMOTE_KEY_BYTES] = {key_byte};

    assert_int_equal(remote_seal_init(out, &arena, key, text), 0);
}

static int desk_open(void **state, size_t piece_bytes)
{
    struct desk *desk = calloc(1, sizeof(*desk));

    desk->piece_bytes = piece_bytes;
    desk->record_bytes = REMOTE_HEAD_BYTES + LAYERS * piece_bytes;
    desk_seal(desk, &desk->seal, 7, "model layout 1");
    desk->cipher = block_cipher_new(piece_bytes);
    for (size_t i = 0; i < sizeof(desk->arena); i++)
        desk->arena[i] = (uint8_t)(i * 7 + i / 256);
    assert_int_equal(remote_record_bytes(&desk->seal), desk->record_bytes);
    assert_int_equal(remote_record_seal(&desk->seal, desk->cipher, 1, &hash_one, desk->record), 0);
    *state = desk;
    return 0;
}

static int desk_open_odd(void **state) /* sealed with GCM */
{
    return desk_open(state, 100);
}

static int desk_open_whole(void **state) /* sealed with OCB */
{
    return desk_open(state, MAX_PIECE);
}

static int desk_close(void **state)
{
    struct desk *desk = *state;

    block_cipher_free(desk->cipher);
    free(desk);
    return 0;
}

static const uint8_t *piece_at(const struct desk *desk, unsigned layer, unsigned block)
{
    return desk->arena + (layer * BLOCKS + block) * desk->piece_bytes;
}

static void a_record_opens_into_another_block(void **state)
{
    struct desk *desk = *state;

    assert_int_equal(remote_record_open(&desk->seal, desk->cipher, bytes_of(desk->record, desk->record_bytes),
                                        &hash_one, 3),
                     0);
    for (unsigned layer = 0; layer < LAYERS; layer++) {
        assert_memory_equal(piece_at(desk, layer, 3), piece_at(desk, layer, 1), desk->piece_bytes);
        assert_null(memmem(desk->record, desk->record_bytes, piece_at(desk, layer, 1), 16)); /* sealed */
    }
}

static void every_bit_counts(void **state)
{
    struct desk *desk = *state;
    struct bytes image = bytes_of(desk->record, desk->record_bytes);

    for (size_t bit = 0; bit < 8 * desk->record_bytes; bit++) {
        desk->record[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_true(remote_record_open(&desk->seal, desk->cipher, image, &hash_one, 3) < 0);
        desk->record[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t n = 0; n < desk->record_bytes; n++)
        assert_int_equal(
            remote_record_open(&desk->seal, desk->cipher, bytes_of(desk->record, n), &hash_one, 3),
            E_TRUNCATED);
    assert_int_equal(remote_record_open(&desk->seal, desk->cipher,
                                        bytes_of(desk->record, desk->record_bytes + 1), &hash_one, 3),
                     E_TRUNCATED);
}

static void the_wrong_block_key_or_model_does_not_open(void **state)
{
    struct desk *desk = *state;
    struct bytes image = bytes_of(desk->record, desk->record_bytes);
    struct remote_seal other;

    assert_int_equal(remote_record_open(&desk->seal, desk->cipher, image, &hash_two, 3), E_AUTH);
    desk_seal(desk, &other, 7, "model layout 2");
    assert_int_equal(remote_record_open(&other, desk->cipher, image, &hash_one, 3), E_MISMATCH);
    desk_seal(desk, &other, 8, "model layout 1");
    assert_int_equal(remote_record_open(&other, desk->cipher, image, &hash_one, 3), E_MISMATCH);
    /* The operator of the store may know the generation, but does not have the key. */
    memcpy(other.generation, desk->seal.generation, sizeof(other.generation));
    assert_int_equal(remote_record_open(&other, desk->cipher, image, &hash_one, 3), E_AUTH);
}

static void no_two_records_are_equal(void **state)
{
    struct desk *desk = *state;
    uint8_t again[MAX_RECORD + 16];

    assert_int_equal(remote_record_seal(&desk->seal, desk->cipher, 1, &hash_one, again), 0);
    assert_memory_not_equal(again + 32, desk->record + 32, REMOTE_SALT_BYTES);
    assert_memory_not_equal(again + REMOTE_HEAD_BYTES, desk->record + REMOTE_HEAD_BYTES,
                            LAYERS * desk->piece_bytes);
}

static void names_tell_blocks_and_models_apart(void **state)
{
    struct desk *desk = *state;
    char one[REMOTE_NAME_BYTES], two[REMOTE_NAME_BYTES];
    struct remote_seal other;

    remote_name(&desk->seal, &hash_one, one);
    remote_name(&desk->seal, &hash_two, two);
    assert_int_equal(strlen(one), REMOTE_NAME_BYTES - 1);
    assert_memory_equal(one, "baton:", 6);
    assert_string_equal(one + 39, "01000000000000000000000000000000");
    assert_string_not_equal(one, two);
    desk_seal(desk, &other, 8, "model layout 1");
    remote_name(&other, &hash_one, two);
    assert_string_not_equal(one, two);
}

enum { BIG_PIECE = 5008 };

/* Opens a record that arrives `step` bytes at a time, in a buffer that ends there. */
static int open_in_parts(const struct remote_seal *seal, struct block_cipher *cipher, const uint8_t *record,
                         size_t step)
{
    const size_t record_bytes = remote_record_bytes(seal);
    struct remote_opening opening = {0};
    int rc = E_AGAIN;

    for (size_t n = 0; rc == E_AGAIN && n < record_bytes + step; n += step) {
        size_t len = n < record_bytes ? n : record_bytes;
        uint8_t *beginning = malloc(len + 1);

        assert_non_null(beginning);
        memcpy(beginning, record, len);
        rc = remote_record_open_part(seal, cipher, bytes_of(beginning, len), &hash_one, 3, &opening);
        assert_true(rc < 0 || len == record_bytes);
        free(beginning);
    }
    return rc;
}

static void check_parts(size_t piece_bytes)
{
    struct block_cipher *cipher = block_cipher_new(piece_bytes);
    static const size_t steps[] = {1, 15, 79, 80, 81, 4095, 4096, 4097, 5001, 10000, 20000};
    const size_t arena_bytes = LAYERS * BLOCKS * piece_bytes;
    struct remote_arena arena = {malloc(arena_bytes), BLOCKS, LAYERS, piece_bytes};
    uint8_t key[REMOTE_KEY_BYTES] = {7}, *bytes = arena.base, *record;
    struct remote_seal seal;

    assert_int_equal(remote_seal_init(&seal, &arena, key, "model layout 1"), 0);
    record = malloc(remote_record_bytes(&seal) + 16);
    assert_true(bytes != NULL && record != NULL);
    for (size_t i = 0; i < arena_bytes; i++)
        bytes[i] = (uint8_t)(i * 13 + i / 256);
    assert_int_equal(remote_record_seal(&seal, cipher, 1, &hash_one, record), 0);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        for (unsigned layer = 0; layer < LAYERS; layer++)
            memset(bytes + (layer * BLOCKS + 3) * piece_bytes, 0, piece_bytes);
        assert_int_equal(open_in_parts(&seal, cipher, record, steps[i]), 0);
        for (unsigned layer = 0; layer < LAYERS; layer++)
            assert_memory_equal(bytes + (layer * BLOCKS + 3) * piece_bytes,
                                bytes + (layer * BLOCKS + 1) * piece_bytes, piece_bytes);
        record[REMOTE_HEAD_BYTES + i * 1000] ^= 1;
        assert_int_equal(open_in_parts(&seal, cipher, record, steps[i]), E_AUTH);
        record[REMOTE_HEAD_BYTES + i * 1000] ^= 1;
    }
    free(record);
    free(bytes);
    block_cipher_free(cipher);
}

static void a_record_opens_while_it_arrives(void **state)
{
    (void)state;
    check_parts(BIG_PIECE);
    check_parts(BIG_PIECE - 7);
}

/* A connection was cut, and the value comes again: less is there than was opened. */
static void a_part_that_got_shorter_opens_nothing(void **state)
{
    struct desk *desk = *state;
    struct remote_opening opening = {0};

    for (size_t n = desk->record_bytes; n-- > 0;)
        assert_int_equal(remote_record_open_part(&desk->seal, desk->cipher, bytes_of(desk->record, n),
                                                 &hash_one, 3, &opening),
                         E_AGAIN);
    assert_int_equal(remote_record_open_part(&desk->seal, desk->cipher,
                                             bytes_of(desk->record, desk->record_bytes), &hash_one, 3,
                                             &opening),
                     0);
}

#define DESK_TESTS(test)                                                                                     \
    cmocka_unit_test_setup_teardown(test, desk_open_odd, desk_close),                                        \
        cmocka_unit_test_setup_teardown(test, desk_open_whole, desk_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DESK_TESTS(a_record_opens_into_another_block),          DESK_TESTS(every_bit_counts),
        DESK_TESTS(the_wrong_block_key_or_model_does_not_open), DESK_TESTS(a_record_opens_while_it_arrives),
        DESK_TESTS(a_part_that_got_shorter_opens_nothing),      DESK_TESTS(no_two_records_are_equal),
        DESK_TESTS(names_tell_blocks_and_models_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
