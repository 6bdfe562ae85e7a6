/* SPDX-License-Identifier: Apache-2.0 */
/* Block hashes compared with an independent implementation, and the properties that the cache relies on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <openssl/evp.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/str.h"
#include "cache/prefix/block_hash.h"
#include "cache/prefix/sha256_priv.h"

#include "tests/unit/cache/prefix/vectors.h"

#define N_MAX 256

static uint8_t cluster_key[32];
static uint32_t tokens[N_MAX];

static int setup(void **state)
{
    for (uint32_t i = 0; i < 32; i++)
        cluster_key[i] = (uint8_t)i;
    for (uint32_t i = 0; i < N_MAX; i++)
        tokens[i] = i * 2654435761u + 12345;
    return 0;
}

static void assert_hex(const uint8_t *data, size_t len_bytes, const char *expected)
{
    char hex[65];

    hex_encode(data, len_bytes, hex);
    assert_string_equal(hex, expected);
}

static void agrees_with_hashlib(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        const struct vector *v = &vectors[i];
        size_t n = v->n_tokens / v->block_tokens;
        struct block_hash hashes[8];
        struct prefix_key key;

        assert_int_equal(prefix_key_derive(cluster_key, v->fingerprint, v->tenant, &key), 0);
        assert_hex(key.bytes, sizeof(key.bytes), v->root);
        assert_int_equal(prefix_hash_chain(&key, tokens, v->n_tokens, v->block_tokens, hashes), n);
        for (size_t b = 0; b < n; b++)
            assert_hex(hashes[b].bytes, sizeof(hashes[b].bytes), v->hashes[b]);
    }
}

/* Hashes the same bytes with libcrypto, for all lengths near the ends of SHA-256's blocks. */
static void agrees_with_libcrypto(void **state)
{
    uint8_t image[32 + 32 + 4 * N_MAX + sizeof(struct block_hash)] = {0}, theirs[32];
    struct block_hash parent = {{7, 1, 200}};
    struct prefix_key key;

    for (uint32_t i = 0; i < N_MAX; i++)
        put_u32(image + 64 + (size_t)4 * i, tokens[i]);
    for (uint32_t n = 0; n <= N_MAX; n++) {
        uint8_t *end = image + 64 + (size_t)4 * n, kept[sizeof(parent)];
        struct block_hash ours;

        for (size_t i = 0; i < sizeof(key.bytes); i++)
            image[i] = key.bytes[i] = (uint8_t)(n * 31 + i);
        memcpy(kept, end, sizeof(kept));
        memcpy(end, parent.bytes, sizeof(parent));
        assert_true(EVP_Digest(image, 64 + (size_t)4 * n + sizeof(parent), theirs, NULL, EVP_sha256(), NULL));
        memcpy(end, kept, sizeof(kept));
        assert_int_equal(prefix_hash_block(&key, &parent, tokens, n, &ours), 0);
        assert_memory_equal(ours.bytes, theirs, sizeof(ours.bytes));
        parent = ours;
    }
}

/* Both implementations, plain C and the CPU's instructions, with the message in one part and in two. */
static void both_compressions_are_sha256(void **state)
{
    const sha256_compress ways[] = {sha256_compress_plain, sha256_compress_cpu()};
    uint8_t data[5 * SHA256_BLOCK_BYTES + 3], ours[SHA256_BYTES], theirs[SHA256_BYTES];

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * i + 7 * i);
    for (size_t way = 0; way < ARRAY_LEN(ways) && ways[way] != NULL; way++)
        for (size_t n = 0; n <= sizeof(data); n++) {
            size_t first = n * 5 / 7;
            struct sha256 hash;

            sha256_init(&hash);
            hash.compress = ways[way];
            sha256_update(&hash, data, first);
            sha256_update(&hash, data + first, n - first);
            sha256_final(&hash, ours);
            assert_true(EVP_Digest(data, n, theirs, NULL, EVP_sha256(), NULL));
            assert_memory_equal(ours, theirs, sizeof(ours));
        }
}

static void block_by_block_gives_the_chain(void **state)
{
    struct block_hash hashes[8], one, parent;
    struct prefix_key key;

    assert_int_equal(prefix_key_derive(cluster_key, "model", "tenant", &key), 0);
    assert_int_equal(prefix_hash_chain(&key, tokens, 8 * 32, 32, hashes), 8);
    for (uint32_t b = 0; b < 8; b++) {
        assert_int_equal(prefix_hash_block(&key, b ? &parent : NULL, tokens + b * 32, 32, &one), 0);
        assert_true(block_hash_equal(&one, &hashes[b]));
        parent = one;
    }
}

/* A chain computed in steps of any size equals a chain computed at once. */
static void a_chain_may_come_in_steps(void **state)
{
    struct prefix_roots roots;
    struct block_hash at_once[8], steps[8];

    assert_int_equal(prefix_roots_derive(cluster_key, "f", "t", 3 * 32 + 7, &roots), 0);
    for (uint32_t n_public = 0; n_public < 9 * 32; n_public += 48) {
        roots.n_public = n_public;
        assert_int_equal(prefix_roots_chain(&roots, tokens, 8 * 32, 32, at_once), 8);
        for (size_t first = 0; first <= 8; first++)
            for (size_t second = first; second <= 8; second++) {
                struct prefix_chain chain = {.tokens = tokens, .block_tokens = 32, .hashes = steps};

                memset(steps, 0, sizeof(steps));
                prefix_roots_extend(&roots, &chain, first);
                assert_int_equal(chain.n, first);
                prefix_roots_extend(&roots, &chain, second);
                prefix_roots_extend(&roots, &chain, first); /* less than exists */
                assert_int_equal(chain.n, second);
                prefix_roots_extend(&roots, &chain, 8);
                assert_memory_equal(steps, at_once, sizeof(steps));
            }
    }
}

/* All tenants share the public part.
 * The part after it belongs to one tenant, and continues the public chain. */
static void a_public_beginning_is_shared(void **state)
{
    struct block_hash a[8], b[8], alone[8], one;
    struct prefix_roots roots;

    assert_int_equal(prefix_roots_derive(cluster_key, "model", "a", 0, &roots), 0);
    assert_int_equal(prefix_roots_chain(&roots, tokens, 8 * 32, 32, alone), 8);
    assert_int_equal(prefix_hash_chain(&roots.own, tokens, 8 * 32, 32, a), 8);
    assert_memory_equal(a, alone, sizeof(a));
    assert_int_equal(prefix_roots_derive(cluster_key, "model", "a", 3 * 32 + 31, &roots), 0);
    assert_int_equal(prefix_roots_chain(&roots, tokens, 8 * 32, 32, a), 8);
    assert_int_equal(prefix_hash_block(&roots.own, &a[2], tokens + 3 * 32, 32, &one), 0);
    assert_true(block_hash_equal(&one, &a[3]));
    assert_int_equal(prefix_roots_derive(cluster_key, "model", "b", 3 * 32, &roots), 0);
    assert_int_equal(prefix_roots_chain(&roots, tokens, 8 * 32, 32, b), 8);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(block_hash_equal(&a[i], &b[i]), i < 3);
        assert_false(block_hash_equal(&a[i], &alone[i]));
    }
    roots.n_public = UINT32_MAX; /* more than exist */
    assert_int_equal(prefix_roots_chain(&roots, tokens, 2 * 32 + 5, 32, b), 2);
    assert_memory_equal(a, b, 2 * sizeof(*a));
}

static void only_full_blocks_have_hashes(void **state)
{
    struct prefix_key key = {{0}};
    struct block_hash hashes[2], before = {{0xaa}};

    hashes[0] = hashes[1] = before;
    assert_int_equal(prefix_hash_chain(&key, tokens, 31, 32, hashes), 0);
    assert_int_equal(prefix_hash_chain(&key, tokens, 0, 32, hashes), 0);
    assert_int_equal(prefix_hash_chain(&key, tokens, 32, 0, hashes), 0);
    assert_true(block_hash_equal(&hashes[0], &before));
    assert_int_equal(prefix_hash_chain(&key, tokens, 63, 32, hashes), 1);
    assert_true(block_hash_equal(&hashes[1], &before));
}

/* Every input changes every output: key, model, tenant, any token, any earlier token. */
static void differs_whenever_anything_differs(void **state)
{
    const char *const roots[][2] = {{"m", "t"}, {"m", "u"}, {"n", "t"}, {"mt", ""}, {"", "mt"}, {"m", ""}};
    struct block_hash seen[64];
    size_t n_seen = 0;
    struct prefix_key key;

    for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
        assert_int_equal(prefix_key_derive(cluster_key, roots[i][0], roots[i][1], &key), 0);
        assert_int_equal(prefix_hash_block(&key, NULL, tokens, 32, &seen[n_seen++]), 0);
    }
    cluster_key[31] ^= 1;
    assert_int_equal(prefix_key_derive(cluster_key, "m", "t", &key), 0);
    cluster_key[31] ^= 1;
    assert_int_equal(prefix_hash_block(&key, NULL, tokens, 32, &seen[n_seen++]), 0);

    uint32_t changed[64];
    for (uint32_t at = 0; at < 64; at += 9) {
        struct block_hash chain[2];

        memcpy(changed, tokens, sizeof(changed));
        changed[at] ^= 0x80000000u;
        assert_int_equal(prefix_hash_chain(&key, changed, 64, 32, chain), 2);
        seen[n_seen++] = chain[1];
    }
    for (size_t i = 0; i < n_seen; i++) {
        for (size_t j = 0; j < i; j++)
            assert_false(block_hash_equal(&seen[i], &seen[j]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_hashlib),          cmocka_unit_test(agrees_with_libcrypto),
        cmocka_unit_test(both_compressions_are_sha256), cmocka_unit_test(block_by_block_gives_the_chain),
        cmocka_unit_test(a_chain_may_come_in_steps),    cmocka_unit_test(a_public_beginning_is_shared),
        cmocka_unit_test(only_full_blocks_have_hashes), cmocka_unit_test(differs_whenever_anything_differs),
    };
    return cmocka_run_group_tests_name("cache/prefix/block_hash", tests, setup, NULL);
}
