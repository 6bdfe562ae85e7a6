/* SPDX-License-Identifier: Apache-2.0 */
/* The cipher of blocks outside memory: the value that RFC 7253 states, and what OpenSSL makes of the same bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <openssl/evp.h>

#include "base/err.h"
#include "base/rng.h"
#include "cache/kv/block_cipher.h"

enum { TAG = BLOCK_CIPHER_TAG_BYTES };

/* Appends the encryption of n zeros, with n_beside zeros beside them, and the tag. */
static void append(struct block_cipher *cipher, unsigned number, size_t n_beside, struct bytes plain,
                   struct buf *to)
{
    static const uint8_t zeros[128];
    uint8_t key[BLOCK_CIPHER_KEY_BYTES] = {0}, nonce[BLOCK_CIPHER_NONCE_BYTES] = {0}, tag[TAG];
    uint8_t *sealed = malloc(plain.len_bytes + 1);

    key[BLOCK_CIPHER_KEY_BYTES - 1] = 8 * TAG;
    nonce[BLOCK_CIPHER_NONCE_BYTES - 2] = (uint8_t)(number >> 8);
    nonce[BLOCK_CIPHER_NONCE_BYTES - 1] = (uint8_t)number;
    assert_int_equal(block_cipher_begin(cipher, key, nonce, bytes_of(zeros, n_beside)), 0);
    assert_int_equal(block_cipher_encrypt(cipher, sealed, plain, true), 0);
    assert_int_equal(block_cipher_tag(cipher, tag), 0);
    buf_append(to, sealed, plain.len_bytes);
    buf_append(to, tag, sizeof(tag));
    free(sealed);
}

/* RFC 7253, appendix A: 384 encryptions, and one of all their results as data beside nothing. */
static void ocb_is_that_of_the_specification(void **state)
{
    static const uint8_t expected[TAG] = {0xd9, 0x0e, 0xb8, 0xe9, 0xc9, 0x77, 0xc8, 0x8b,
                                          0x79, 0xdd, 0x79, 0x3d, 0x7f, 0xfa, 0x16, 0x1c};
    static const uint8_t zeros[128];
    uint8_t key[BLOCK_CIPHER_KEY_BYTES] = {0}, nonce[BLOCK_CIPHER_NONCE_BYTES] = {0}, tag[TAG];
    struct block_cipher *cipher = block_cipher_new(BLOCK_CIPHER_UNIT_BYTES);
    struct buf all = {0};

    (void)state;
    assert_non_null(cipher);
    for (unsigned i = 0; i < 128; i++) {
        append(cipher, 3 * i + 1, i, bytes_of(zeros, i), &all);
        append(cipher, 3 * i + 2, 0, bytes_of(zeros, i), &all);
        append(cipher, 3 * i + 3, i, bytes_of(zeros, 0), &all);
    }
    key[BLOCK_CIPHER_KEY_BYTES - 1] = 8 * TAG;
    nonce[BLOCK_CIPHER_NONCE_BYTES - 2] = 385 >> 8;
    nonce[BLOCK_CIPHER_NONCE_BYTES - 1] = 385 & 255;
    assert_int_equal(block_cipher_begin(cipher, key, nonce, buf_view(&all)), 0);
    assert_int_equal(block_cipher_encrypt(cipher, tag, bytes_of(zeros, 0), true), 0);
    assert_int_equal(block_cipher_tag(cipher, tag), 0);
    assert_memory_equal(tag, expected, TAG);
    buf_fini(&all);
    block_cipher_free(cipher);
}

/* The same by OpenSSL, in one piece. */
static void seal_by_openssl(const EVP_CIPHER *mode, const uint8_t *key, const uint8_t *nonce,
                            struct bytes beside, struct bytes plain, uint8_t *out, uint8_t tag[TAG])
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int len = 0, last = 0;

    assert_int_equal(EVP_EncryptInit_ex(ctx, mode, NULL, key, nonce), 1);
    assert_int_equal(EVP_EncryptUpdate(ctx, NULL, &len, beside.data, (int)beside.len_bytes), 1);
    assert_int_equal(EVP_EncryptUpdate(ctx, out, &len, plain.data, (int)plain.len_bytes), 1);
    assert_int_equal(EVP_EncryptFinal_ex(ctx, out + len, &last), 1);
    assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG, tag), 1);
    EVP_CIPHER_CTX_free(ctx);
}

static void check_pieces(const EVP_CIPHER *mode, size_t piece_bytes, unsigned n_pieces, uint64_t seed)
{
    const size_t len = piece_bytes * n_pieces;
    uint8_t key[BLOCK_CIPHER_KEY_BYTES], nonce[BLOCK_CIPHER_NONCE_BYTES], beside[40], tag[TAG],
        other_tag[TAG];
    uint8_t *plain = malloc(len), *sealed = malloc(len), *other = malloc(len + TAG), *opened = malloc(len);
    struct block_cipher *cipher = block_cipher_new(piece_bytes);
    struct rng rng;

    rng_init(&rng, seed);
    for (size_t i = 0; i < len; i++)
        plain[i] = (uint8_t)rng_u64(&rng);
    for (unsigned i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)rng_u64(&rng);
    for (unsigned i = 0; i < sizeof(beside); i++)
        beside[i] = (uint8_t)rng_u64(&rng);
    memcpy(nonce, beside, sizeof(nonce));
    assert_int_equal(block_cipher_begin(cipher, key, nonce, bytes_of(beside, sizeof(beside))), 0);
    for (unsigned i = 0; i < n_pieces; i++)
        assert_int_equal(block_cipher_encrypt(cipher, sealed + i * piece_bytes,
                                              bytes_of(plain + i * piece_bytes, piece_bytes),
                                              i + 1 == n_pieces),
                         0);
    assert_int_equal(block_cipher_tag(cipher, tag), 0);
    seal_by_openssl(mode, key, nonce, bytes_of(beside, sizeof(beside)), bytes_of(plain, len), other,
                    other_tag);
    assert_memory_equal(sealed, other, len);
    assert_memory_equal(tag, other_tag, TAG);
    for (unsigned is_wrong = 0; is_wrong < 2; is_wrong++) {
        sealed[len - 1] ^= (uint8_t)is_wrong;
        assert_int_equal(block_cipher_begin(cipher, key, nonce, bytes_of(beside, sizeof(beside))), 0);
        for (unsigned i = 0; i < n_pieces; i++)
            assert_int_equal(block_cipher_decrypt(cipher, opened + i * piece_bytes,
                                                  bytes_of(sealed + i * piece_bytes, piece_bytes),
                                                  i + 1 == n_pieces),
                             0);
        assert_int_equal(block_cipher_check(cipher, tag), is_wrong ? E_AUTH : 0);
        assert_int_equal(memcmp(opened, plain, len) == 0, !is_wrong);
    }
    block_cipher_free(cipher);
    free(plain);
    free(sealed);
    free(other);
    free(opened);
}

static void two_libraries_agree(void **state)
{
    static const size_t sizes[] = {16, 48, 1024, 4096, 65536};

    (void)state;
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        check_pieces(EVP_aes_256_ocb(), sizes[i], 1 + i, i);
        check_pieces(EVP_aes_256_gcm(), sizes[i] + 1 + i, 1 + i, i);
    }
    check_pieces(EVP_aes_256_gcm(), 1000, 3, 9);
    check_pieces(EVP_aes_256_gcm(), 1, 5, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ocb_is_that_of_the_specification),
        cmocka_unit_test(two_libraries_agree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
