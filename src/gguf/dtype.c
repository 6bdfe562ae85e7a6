/* SPDX-License-Identifier: Apache-2.0 */
/* Storage types: their geometry, their names, and conversions between the float widths.
 *
 *     binary32   s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm      bias 127
 *     binary16   s eeeee mmmmmmmmmm                      bias 15
 *     bfloat16   s eeeeeeee mmmmmmm                      the upper half of a binary32
 *
 * The conversions work on bits, so they give the same result on every machine and in every rounding mode.
 * They round to nearest, ties to even, keep subnormals, and overflow to infinity.  A NaN becomes a quiet
 * NaN.  Kernels have faster versions; these functions are the reference for them. */
#include "gguf/dtype.h"

#include "base/check.h"
#include "base/err.h"

#include <string.h>
#include <strings.h>

static const struct dtype_info known[] = {
    [DTYPE_F32] = {"F32", 1, 4},
    [DTYPE_F16] = {"F16", 1, 2},
    [DTYPE_Q4_0] = {"Q4_0", 32, 18},
    [DTYPE_Q4_1] = {"Q4_1", 32, 20},
    [DTYPE_Q5_0] = {"Q5_0", 32, 22},
    [DTYPE_Q5_1] = {"Q5_1", 32, 24},
    [DTYPE_Q8_0] = {"Q8_0", 32, 34},
    [DTYPE_Q8_1] = {"Q8_1", 32, 36},
    [DTYPE_Q2_K] = {"Q2_K", 256, 84},
    [DTYPE_Q3_K] = {"Q3_K", 256, 110},
    [DTYPE_Q4_K] = {"Q4_K", 256, 144},
    [DTYPE_Q5_K] = {"Q5_K", 256, 176},
    [DTYPE_Q6_K] = {"Q6_K", 256, 210},
    [DTYPE_Q8_K] = {"Q8_K", 256, 292},
    [DTYPE_IQ4_NL] = {"IQ4_NL", 32, 18},
    [DTYPE_IQ4_XS] = {"IQ4_XS", 256, 136},
    [DTYPE_I8] = {"I8", 1, 1},
    [DTYPE_I16] = {"I16", 1, 2},
    [DTYPE_I32] = {"I32", 1, 4},
    [DTYPE_I64] = {"I64", 1, 8},
    [DTYPE_F64] = {"F64", 1, 8},
    [DTYPE_BF16] = {"BF16", 1, 2},
    [DTYPE_MXFP4] = {"MXFP4", 32, 17},
    [DTYPE_IQ1_S] = {"IQ1_S", 256, 50},
    [DTYPE_IQ1_M] = {"IQ1_M", 256, 56},
    [DTYPE_IQ2_XXS] = {"IQ2_XXS", 256, 66},
    [DTYPE_IQ2_XS] = {"IQ2_XS", 256, 74},
    [DTYPE_IQ2_S] = {"IQ2_S", 256, 82},
    [DTYPE_IQ3_XXS] = {"IQ3_XXS", 256, 98},
    [DTYPE_IQ3_S] = {"IQ3_S", 256, 110},
    [DTYPE_TQ1_0] = {"TQ1_0", 256, 54},
    [DTYPE_TQ2_0] = {"TQ2_0", 256, 66},
    [DTYPE_NVFP4] = {"NVFP4", 64, 36},
    [DTYPE_Q1_0] = {"Q1_0", 128, 18},
    [DTYPE_Q2_0] = {"Q2_0", 64, 18},
};

const struct dtype_info *dtype_info(uint32_t type)
{
    return type < ARRAY_LEN(known) && known[type].name != NULL ? &known[type] : NULL;
}

int dtype_from_name(const char *name)
{
    for (uint32_t type = 0; type < ARRAY_LEN(known); type++) {
        if (known[type].name != NULL && strcasecmp(known[type].name, name) == 0)
            return (int)type;
    }
    return E_NOT_FOUND;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float dtype_float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1f;
    uint32_t mantissa = half & 0x3ff;

    if (exponent == 0x1f)
        return dtype_float_of(sign | 0x7f800000 | (mantissa == 0 ? 0 : 0x400000 | mantissa << 13));
    if (exponent != 0)
        return dtype_float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    if (mantissa == 0)
        return dtype_float_of(sign);

    /* Subnormal: mantissa * 2^-24.  Shift until the leading one is at the place of the implicit one. */
    uint32_t shift = (uint32_t)__builtin_clz(mantissa) - 21;
    return dtype_float_of(sign | (113 - shift) << 23 | (mantissa << shift & 0x3ff) << 13);
}

/* value / 2^shift to the nearest, ties to even; shift 1..31. */
static uint32_t shift_rounded(uint32_t value, unsigned shift)
{
    uint32_t half = UINT32_C(1) << (shift - 1);
    uint32_t rest = value & ((UINT32_C(1) << shift) - 1);
    uint32_t whole = value >> shift;

    return whole + (rest > half || (rest == half && (whole & 1)));
}

uint16_t f32_to_f16(float value)
{
    uint32_t bits = bits_of(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;

    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x47800000) /* 2^16 and above, and infinity */
        return sign | 0x7c00;
    if (magnitude >=
        0x38800000) /* 2^-14: normal.  A carry out of the mantissa correctly increments the exponent. */
        return (uint16_t)(sign | shift_rounded(magnitude - 0x38000000, 13));
    if (magnitude < 0x33000000) /* below 2^-25, half the smallest subnormal */
        return sign;

    uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | shift_rounded(mantissa, 126 - (magnitude >> 23)));
}

float bf16_to_f32(uint16_t brain)
{
    return dtype_float_of((uint32_t)brain << 16);
}

uint16_t f32_to_bf16(float value)
{
    uint32_t bits = bits_of(value);

    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
