/* SPDX-License-Identifier: Apache-2.0 */
/* BLAKE2s as RFC 7693 gives it: sixteen words of state in a square, ten rounds of eight mixings, first down
 * the columns, then along the diagonals, the message's words taken in another order in each round.
 *
 *   v0  v1  v2  v3     h, low half
 *   v4  v5  v6  v7     h, high half
 *   v8  v9  v10 v11    constants
 *   v12 v13 v14 v15    constants with the byte count and the mark of the last block
 *
 * The last block is compressed with its mark, so a full block is held back until more comes.  The key's block
 * is not: a message always follows it here.  No branch and no address depends on what is hashed. */
#include "prefix/blake2s_priv.h"

#include <endian.h>
#include <string.h>

#include "base/check.h"

#define ROUNDS 10

static const uint32_t iv[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const uint8_t order[ROUNDS][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static inline uint32_t rotr(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static inline __attribute__((always_inline)) void mix(uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d,
                                                      uint32_t x, uint32_t y)
{
    *a += *b + x;
    *d = rotr(*d ^ *a, 16);
    *c += *d;
    *b = rotr(*b ^ *c, 12);
    *a += *b + y;
    *d = rotr(*d ^ *a, 8);
    *c += *d;
    *b = rotr(*b ^ *c, 7);
}

static void compress(struct blake2s *state, const uint8_t block[BLAKE2S_BLOCK_BYTES], uint32_t last_mark)
{
    uint32_t m[16], v[16];

    memcpy(m, block, sizeof(m));
    for (int i = 0; i < 16; i++)
        m[i] = le32toh(m[i]);
    for (int i = 0; i < 8; i++) {
        v[i] = state->h[i];
        v[i + 8] = iv[i];
    }
    v[12] ^= (uint32_t)state->n_bytes;
    v[13] ^= (uint32_t)(state->n_bytes >> 32);
    v[14] ^= last_mark;
#pragma GCC unroll 10
    for (int r = 0; r < ROUNDS; r++) {
        const uint8_t *o = order[r];

        mix(&v[0], &v[4], &v[8], &v[12], m[o[0]], m[o[1]]);
        mix(&v[1], &v[5], &v[9], &v[13], m[o[2]], m[o[3]]);
        mix(&v[2], &v[6], &v[10], &v[14], m[o[4]], m[o[5]]);
        mix(&v[3], &v[7], &v[11], &v[15], m[o[6]], m[o[7]]);
        mix(&v[0], &v[5], &v[10], &v[15], m[o[8]], m[o[9]]);
        mix(&v[1], &v[6], &v[11], &v[12], m[o[10]], m[o[11]]);
        mix(&v[2], &v[7], &v[8], &v[13], m[o[12]], m[o[13]]);
        mix(&v[3], &v[4], &v[9], &v[14], m[o[14]], m[o[15]]);
    }
    for (int i = 0; i < 8; i++)
        state->h[i] ^= v[i] ^ v[i + 8];
}

void blake2s_init(struct blake2s *state, const uint8_t key[BLAKE2S_KEY_BYTES], size_t out_bytes)
{
    uint8_t block[BLAKE2S_BLOCK_BYTES] = {0};

    ASSERT(out_bytes >= 1 && out_bytes <= 32);
    *state = (struct blake2s){.n_bytes = sizeof(block)};
    for (int i = 0; i < 8; i++)
        state->h[i] = iv[i];
    state->h[0] ^= UINT32_C(0x01010000) ^ BLAKE2S_KEY_BYTES << 8 ^ (uint32_t)out_bytes;
    memcpy(block, key, BLAKE2S_KEY_BYTES);
    compress(state, block, 0);
    explicit_bzero(block, sizeof(block));
}

void blake2s_update(struct blake2s *state, const void *data, size_t len_bytes)
{
    const uint8_t *from = data;

    while (len_bytes > 0) {
        size_t n = sizeof(state->held) - state->n_held;

        if (n == 0) {
            state->n_bytes += sizeof(state->held);
            compress(state, state->held, 0);
            state->n_held = 0;
            continue;
        }
        n = n < len_bytes ? n : len_bytes;
        memcpy(state->held + state->n_held, from, n);
        state->n_held += (uint32_t)n;
        from += n;
        len_bytes -= n;
    }
}

void blake2s_final(struct blake2s *state, uint8_t *out, size_t out_bytes)
{
    uint32_t whole[8];

    memset(state->held + state->n_held, 0, sizeof(state->held) - state->n_held);
    state->n_bytes += state->n_held;
    compress(state, state->held, UINT32_MAX);
    for (size_t i = 0; i < 8; i++)
        whole[i] = htole32(state->h[i]);
    memcpy(out, whole, out_bytes);
}
