/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4).  The state has eight words; each of 64 rounds moves them by one place:
 *
 *     a b c d e f g h        t = h + S1(e) + choice(e, f, g) + K[r] + w[r]
 *     + a b c + e f g        new a = t + S0(a) + majority(a, b, c), new e = d + t
 *
 * w is the block's sixteen words, big endian, followed by words that each mix four earlier ones; only the
 * last sixteen are stored.  The message is padded with a one bit, zeros, and its length in bits.
 *
 * No branch and no address depends on the hashed data.  sha256_x86.c uses the processor's instructions. */
#include "cache/prefix/sha256_priv.h"

#include <endian.h>
#include <string.h>

#define ROUNDS 64

static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

const uint32_t sha256_constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static inline uint32_t sha256_rotr(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static inline uint32_t sha256_schedule(uint32_t w[16], unsigned r)
{
    uint32_t early = w[(r + 1) % 16], late = w[(r + 14) % 16];

    w[r % 16] += (sha256_rotr(early, 7) ^ sha256_rotr(early, 18) ^ early >> 3) + w[(r + 9) % 16] +
                 (sha256_rotr(late, 17) ^ sha256_rotr(late, 19) ^ late >> 10);
    return w[r % 16];
}

/* v holds a to h, rotated by r places: the names move, not the words. */
static inline __attribute__((always_inline)) void sha256_round(uint32_t v[8], unsigned r, uint32_t word)
{
    uint32_t a = v[-r % 8], b = v[(1 - r) % 8], c = v[(2 - r) % 8], e = v[(4 - r) % 8];
    uint32_t f = v[(5 - r) % 8], g = v[(6 - r) % 8];
    uint32_t t = v[(7 - r) % 8] + (sha256_rotr(e, 6) ^ sha256_rotr(e, 11) ^ sha256_rotr(e, 25)) +
                 (g ^ (e & (f ^ g))) + sha256_constants[r] + word;

    v[(3 - r) % 8] += t;
    v[(7 - r) % 8] =
        t + (sha256_rotr(a, 2) ^ sha256_rotr(a, 13) ^ sha256_rotr(a, 22)) + ((a & b) | (c & (a | b)));
}

void sha256_compress_plain(uint32_t state[8], const uint8_t *blocks, size_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, blocks += SHA256_BLOCK_BYTES) {
        uint32_t w[16], v[8];

        memcpy(w, blocks, sizeof(w));
        memcpy(v, state, sizeof(v));
        for (int i = 0; i < 16; i++)
            w[i] = be32toh(w[i]);
#pragma GCC unroll 64
        for (unsigned r = 0; r < ROUNDS; r++)
            sha256_round(v, r, r < 16 ? w[r] : sha256_schedule(w, r));
        for (int i = 0; i < 8; i++)
            state[i] += v[i];
    }
}

void sha256_init(struct sha256 *hash)
{
    sha256_compress by_cpu = sha256_compress_cpu();

    *hash = (struct sha256){.compress = by_cpu != NULL ? by_cpu : sha256_compress_plain};
    memcpy(hash->state, start, sizeof(start));
}

void sha256_update(struct sha256 *hash, const void *data, size_t len_bytes)
{
    const uint8_t *from = data;

    hash->n_bytes += len_bytes;
    while (len_bytes > 0) {
        size_t n = sizeof(hash->held) - hash->n_held;

        if (hash->n_held == 0 && len_bytes >= sizeof(hash->held)) {
            n = len_bytes / sizeof(hash->held) * sizeof(hash->held);
            hash->compress(hash->state, from, n / sizeof(hash->held));
        } else {
            n = n < len_bytes ? n : len_bytes;
            memcpy(hash->held + hash->n_held, from, n);
            hash->n_held += (uint32_t)n;
        }
        if (hash->n_held == sizeof(hash->held)) {
            hash->compress(hash->state, hash->held, 1);
            hash->n_held = 0;
        }
        from += n;
        len_bytes -= n;
    }
}

void sha256_final(struct sha256 *hash, uint8_t out[SHA256_BYTES])
{
    uint8_t end[2 * SHA256_BLOCK_BYTES] = {0};
    size_t n = hash->n_held + 1 + sizeof(uint64_t) > SHA256_BLOCK_BYTES ? 2 : 1;
    uint64_t n_bits = htobe64(8 * hash->n_bytes);

    memcpy(end, hash->held, hash->n_held);
    end[hash->n_held] = 0x80;
    memcpy(end + n * SHA256_BLOCK_BYTES - sizeof(n_bits), &n_bits, sizeof(n_bits));
    hash->compress(hash->state, end, n);
    for (int i = 0; i < 8; i++) {
        uint32_t word = htobe32(hash->state[i]);

        memcpy(out + 4 * i, &word, sizeof(word));
    }
}
