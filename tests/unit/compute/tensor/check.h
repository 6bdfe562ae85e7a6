/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for tests of kernels: random numbers,
 * memory with poison in it, exact and tolerant comparison. */
#ifndef TESTS_TENSOR_CHECK_H
#define TESTS_TENSOR_CHECK_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "compute/tensor/choice.h"
#include "compute/tensor/tensor.h"
#include "tests/unit/compute/check_team.h"

enum { GUARD = 32 };      /* floats behind every array */
#define POISON 0x7fc0dead /* a NaN with recognisable bits */

/* Returns n floats of poison and a guard; free() releases them. */
static inline float *check_floats(size_t n)
{
    uint32_t *memory = mem_aligned(64, (n + GUARD) * sizeof(float));

    assert_non_null(memory);
    for (size_t i = 0; i < n + GUARD; i++)
        memory[i] = POISON;
    return (float *)memory;
}

static inline void check_guard(const float *memory, size_t n)
{
    for (size_t i = n; i < n + GUARD; i++) {
        uint32_t bits;

        memcpy(&bits, memory + i, sizeof(bits));
        assert_int_equal(bits, POISON);
    }
}

static inline void *check_poisoned(size_t len_bytes)
{
    void *memory = mem_aligned(64, len_bytes);

    assert_non_null(memory);
    memset(memory, 0xff, len_bytes); /* NaN as floats, -1 as integers */
    return memory;
}

/* Roughly normal: the sum of four uniform numbers. */
static inline float check_normal(struct rng *rng)
{
    double sum = 0;

    for (int i = 0; i < 4; i++)
        sum += rng_unit(rng) - 0.5;
    return (float)(sum * 1.7);
}

static inline void check_fill(struct rng *rng, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = check_normal(rng);
}

static inline uint32_t check_pick(struct rng *rng, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(rng, high - low + 1);
}

#ifdef CHECK_EMULATED /* an emulated processor needs minutes for more; the scalar table is tested without emulation */
enum { CHECK_CHOICES = 2, CHECK_FIRST_TABLE = 1, CHECK_STEP = 2 /* each second case */ };
#else
enum { CHECK_CHOICES = 5, CHECK_FIRST_TABLE = 0, CHECK_STEP = 1 };
#endif

/* Sets choices that a measurement may make: the defaults, the second value of each field, then random ones.
 * False: no more. */
static inline bool check_choice(struct rng *rng, uint32_t index, struct kern_choice *out)
{
    for (int field = 0; field < KERN_N_FIELDS; field++)
        out->at[field] = index < 2 ? (uint8_t)index
                                   : (uint8_t)rng_below(rng, kern_choice_n_variants((enum kern_field)field));
    return index < CHECK_CHOICES;
}

static inline void check_choice_end(void)
{
    kern_choice_set(&(struct kern_choice){{0}});
}

#endif
