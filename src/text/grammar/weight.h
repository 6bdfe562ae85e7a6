/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler's exp(): the same bits on every machine. */
#ifndef TEXT_GRAMMAR_WEIGHT_H
#define TEXT_GRAMMAR_WEIGHT_H

#include <stdint.h>
#include <string.h>

#define WEIGHT_BITS  40
#define WEIGHT_ONE   (UINT64_C(1) << WEIGHT_BITS)
#define EXPONENT_MIN (-40.0)                     /* exp of this and of anything less rounds to 0 */
#define ROUNDING     (3.0 * (UINT64_C(1) << 51)) /* a sum with it is a whole number in its low bits */

/* exp(x) x 2^40, rounded, for EXPONENT_MIN <= x <= 0.  exp(x) = 2^k exp(r) with |r| <= ln 2 / 2.  The series
 * of exp(r) to the seventh power has an error of 5e-9.  Adding ROUNDING rounds to a whole number in the low
 * bits.  So the function has neither branch nor conversion, and compilers vectorise a loop over lanes. */
static inline uint64_t weight_of(double x)
{
    double shifted = x * 1.4426950408889634 + ROUNDING;
    double r = x - (shifted - ROUNDING) * 0.6931471805599453;
    double sum = 1.0 / 5040;
    double scale, weight;
    uint64_t bits;

    memcpy(&bits, &shifted, sizeof(bits)); /* the low bits are k, two's complement */
    bits = (bits + 1023 + WEIGHT_BITS) << 52;
    memcpy(&scale, &bits, sizeof(scale)); /* 2^(40 + k) */
    sum = sum * r + 1.0 / 720;
    sum = sum * r + 1.0 / 120;
    sum = sum * r + 1.0 / 24;
    sum = sum * r + 1.0 / 6;
    sum = sum * r + 0.5;
    sum = sum * r + 1.0;
    sum = sum * r + 1.0;
    weight = sum * scale + ROUNDING;
    memcpy(&bits, &weight, sizeof(bits));
    return bits & ((UINT64_C(1) << 51) - 1);
}

#endif
