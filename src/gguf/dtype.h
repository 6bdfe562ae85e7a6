/* SPDX-License-Identifier: Apache-2.0 */
/* Storage types of GGUF tensors, with the numbers of the file format, and the geometry of their quantised
 * blocks (qblk). */
#ifndef GGUF_DTYPE_H
#define GGUF_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_F32 = 0,
    DTYPE_F16 = 1,
    DTYPE_Q4_0 = 2,
    DTYPE_Q4_1 = 3,
    DTYPE_Q5_0 = 6,
    DTYPE_Q5_1 = 7,
    DTYPE_Q8_0 = 8,
    DTYPE_Q8_1 = 9,
    DTYPE_Q2_K = 10,
    DTYPE_Q3_K = 11,
    DTYPE_Q4_K = 12,
    DTYPE_Q5_K = 13,
    DTYPE_Q6_K = 14,
    DTYPE_Q8_K = 15,
    DTYPE_IQ2_XXS = 16,
    DTYPE_IQ2_XS = 17,
    DTYPE_IQ3_XXS = 18,
    DTYPE_IQ1_S = 19,
    DTYPE_IQ4_NL = 20,
    DTYPE_IQ3_S = 21,
    DTYPE_IQ2_S = 22,
    DTYPE_IQ4_XS = 23,
    DTYPE_I8 = 24,
    DTYPE_I16 = 25,
    DTYPE_I32 = 26,
    DTYPE_I64 = 27,
    DTYPE_F64 = 28,
    DTYPE_IQ1_M = 29,
    DTYPE_BF16 = 30,
    DTYPE_TQ1_0 = 34,
    DTYPE_TQ2_0 = 35,
    DTYPE_MXFP4 = 39,
    DTYPE_NVFP4 = 40,
    DTYPE_Q1_0 = 41,
    DTYPE_Q2_0 = 42,
    DTYPE_COUNT /* beyond the last number */
};

struct dtype_info {
    const char *name;      /* "Q8_0" */
    uint32_t qblk_weights; /* weights in one qblk; 1 for plain types */
    uint32_t qblk_bytes;
};

const struct dtype_info *dtype_info(uint32_t type); /* NULL: unknown type number */
int dtype_from_name(const char *name);              /* returns the enum value or E_NOT_FOUND; ignores case */

float f16_to_f32(uint16_t half);
uint16_t f32_to_f16(float value); /* round to nearest even */
float bf16_to_f32(uint16_t brain);
uint16_t f32_to_bf16(float value);

#endif
