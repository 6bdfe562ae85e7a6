/* SPDX-License-Identifier: Apache-2.0 */
/* Sixty-four bytes at once, in plain C: the definition for every other b64 header. Kernels use it to
 * expand packed weights (quant.h). It belongs to the v16 header of the same instruction set. */
#ifndef COMPUTE_KERNELS_B64_SCALAR_PRIV_H
#define COMPUTE_KERNELS_B64_SCALAR_PRIV_H

#include <stdint.h>
#include <string.h>

#include "compute/kernels/v16_scalar_priv.h"

typedef struct {
    uint8_t at[64];
} b64;

static inline b64 b64_load(const void *from)
{
    b64 out;
    memcpy(out.at, from, sizeof(out.at));
    return out;
}

static inline void b64_store(void *to, b64 a)
{
    memcpy(to, a.at, sizeof(a.at));
}

/* (a >> right) & mask and (a << left) & mask, byte by byte. The mask has no bit that a shift of wider
 * words would bring in from a neighbour, or the caller ignores that bit. */
static inline b64 b64_right(b64 a, unsigned right, uint8_t mask)
{
    for (int i = 0; i < 64; i++)
        a.at[i] = (uint8_t)(a.at[i] >> right & mask);
    return a;
}

static inline b64 b64_left(b64 a, unsigned left, uint8_t mask)
{
    for (int i = 0; i < 64; i++)
        a.at[i] = (uint8_t)(a.at[i] << left & mask);
    return a;
}

static inline b64 b64_or(b64 a, b64 b)
{
    for (int i = 0; i < 64; i++)
        a.at[i] |= b.at[i];
    return a;
}

/* a's bits where the mask is set, b's elsewhere. */
static inline b64 b64_join(b64 a, uint8_t mask, b64 b)
{
    for (int i = 0; i < 64; i++)
        a.at[i] = (uint8_t)((a.at[i] & mask) | b.at[i]);
    return a;
}

/* Replaces each byte of a (0..15) by that entry of the table. */
static inline b64 b64_lookup(b64 a, const uint8_t table[16])
{
    for (int i = 0; i < 64; i++)
        a.at[i] = table[a.at[i]];
    return a;
}

/* ---- lattice points and digits (kern_points_priv.h) ---- */

#define B64_POINTS

/* A bit for each byte. */
typedef uint64_t b64_where;

/* The bytes that have this bit. */
static inline b64_where b64_where_bit(b64 a, uint8_t bit)
{
    b64_where out = 0;

    for (int i = 0; i < 64; i++)
        out |= (b64_where)((a.at[i] & bit) != 0) << i;
    return out;
}

static inline b64_where b64_where_eighth(b64 a)
{
    return b64_where_bit(a, 0x80);
}

static inline b64_where b64_where_least(b64 a, uint8_t least)
{
    b64_where out = 0;

    for (int i = 0; i < 64; i++)
        out |= (b64_where)(a.at[i] >= least) << i;
    return out;
}

static inline b64_where b64_where_both(b64_where a, b64_where b)
{
    return a & b;
}

/* a's bytes at these places, b's elsewhere. */
static inline b64 b64_choose(b64_where where, b64 a, b64 b)
{
    for (int i = 0; i < 64; i++)
        a.at[i] = where >> i & 1 ? a.at[i] : b.at[i];
    return a;
}

/* Rotates each lane to the left, by fewer than 32 bits. */
static inline b64 b64_rotated(b64 a, unsigned bits)
{
    for (uint32_t i = 0; i < 64; i += 4) {
        uint64_t lane = wide_load4(a.at + i);

        wide_store4((uint32_t)(lane << bits | lane << bits >> 32), a.at + i);
    }
    return a;
}

/* Even bytes of a, odd bytes of b. */
static inline b64 b64_alternate(b64 a, b64 b)
{
    for (uint32_t i = 1; i < 64; i += 2)
        a.at[i] = b.at[i];
    return a;
}

/* a's bits where the mask is set, b's elsewhere. */
static inline b64 b64_pick(uint8_t mask, b64 a, b64 b)
{
    for (int i = 0; i < 64; i++)
        a.at[i] = (uint8_t)((a.at[i] & mask) | (b.at[i] & ~mask));
    return a;
}

/* Replaces each byte by the entry of its six lower bits. */
static inline b64 b64_lookup_64(b64 a, const uint8_t *table)
{
    for (int i = 0; i < 64; i++)
        a.at[i] = table[a.at[i] & 63];
    return a;
}

/* The same at these places, b's bytes elsewhere. */
static inline b64 b64_lookup_where(b64_where where, b64 a, const uint8_t *table, b64 b)
{
    return b64_choose(where, b64_lookup_64(a, table), b);
}

/* a >> right, whose upper bits are undefined. */
static inline b64 b64_right_by(b64 a, unsigned right)
{
    return b64_right(a, right, 0xff);
}

/* `set` in the bytes of lanes whose 32 bits have this bit, else 0. */
static inline b64 b64_in_lanes(b64 lanes, uint32_t bit, uint8_t set)
{
    b64 out;

    for (int i = 0; i < 64; i++)
        out.at[i] = wide_load4(lanes.at + i / 4 * 4) >> bit & 1 ? set : 0;
    return out;
}

/* The same for words of 16 bits. */
static inline b64 b64_in_words(b64 words, uint32_t bit, uint8_t set)
{
    b64 out;

    for (uint32_t i = 0; i < 64; i++)
        out.at[i] = words.at[i / 2 * 2 + bit / 8] >> bit % 8 & 1 ? set : 0;
    return out;
}

#endif
