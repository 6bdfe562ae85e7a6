/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers from three sources: a seedable sequence for tests and back-off, a counter-based generator
 * for sampling, and the system's generator for secrets.  A value of the counter-based generator depends on
 * key and counter only, so values can be computed in any order. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state[2];
};

void rng_init(struct rng *rng, uint64_t seed);
uint64_t rng_u64(struct rng *rng);
uint64_t rng_below(struct rng *rng, uint64_t n); /* unbiased; n > 0 */
double rng_unit(struct rng *rng);                /* [0, 1) */

/* Philox-4x32-10 (Salmon et al., SC'11): the block of four words for (key, counter). */
void rng_counter(uint64_t key, uint64_t counter_high, uint64_t counter_low, uint32_t out[4]);

/* Fills out from getrandom(); aborts when the system call fails. */
void rng_system(void *out, size_t len_bytes);

#endif
