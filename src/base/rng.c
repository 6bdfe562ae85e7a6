/* SPDX-License-Identifier: Apache-2.0 */
/* Three sources of random numbers with different purposes.
 *
 *   rng_*        xoroshiro128++, seeded through SplitMix64: fast, repeatable, for tests, load and back-off.
 *   rng_counter  Philox-4x32-10: a function of (key, counter) without state.  Sampling uses it with
 *                the request's seed as key and the token's position as counter.  So any worker that
 *                resumes an answer continues with the same tokens.  Clients can observe its output:
 *                do not change it.
 *   rng_system   the kernel's generator, for secrets and hash seeds.
 */
#include "base/rng.h"

#include <errno.h>
#include <sys/random.h>

#include "base/check.h"

static uint64_t rng_rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

void rng_init(struct rng *rng, uint64_t seed)
{
    for (int i = 0; i < 2; i++) {
        uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);

        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        rng->state[i] = z ^ z >> 31;
    }
}

uint64_t rng_u64(struct rng *rng)
{
    uint64_t a = rng->state[0], b = rng->state[1];
    uint64_t value = rng_rotl(a + b, 17) + a;

    b ^= a;
    rng->state[0] = rng_rotl(a, 49) ^ b ^ b << 21;
    rng->state[1] = rng_rotl(b, 28);
    return value;
}

uint64_t rng_below(struct rng *rng, uint64_t n)
{
    ASSERT(n > 0);

    /* The high half of value * n is uniform once the few low halves below the threshold are rejected. */
    unsigned __int128 wide = (unsigned __int128)rng_u64(rng) * n;
    if ((uint64_t)wide < n) {
        uint64_t too_low = (0 - n) % n;

        while ((uint64_t)wide < too_low)
            wide = (unsigned __int128)rng_u64(rng) * n;
    }
    return (uint64_t)(wide >> 64);
}

double rng_unit(struct rng *rng)
{
    return (double)(rng_u64(rng) >> 11) * 0x1p-53;
}

void rng_counter(uint64_t key, uint64_t counter_high, uint64_t counter_low, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32);
    uint32_t c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0;
        uint64_t p1 = (uint64_t)0xcd9e8d57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void rng_system(void *out, size_t len_bytes)
{
    uint8_t *at = out;

    while (len_bytes > 0) {
        ssize_t n = getrandom(at, len_bytes, 0);

        ASSERT(n > 0 || errno == EINTR);
        if (n > 0) {
            at += n;
            len_bytes -= (size_t)n;
        }
    }
}
