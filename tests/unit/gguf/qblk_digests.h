/* SPDX-License-Identifier: Apache-2.0 */
/* FNV-1a of the floats of 512 generated blocks (zeros positive): by make_qblk_digests.py. */
#ifndef TESTS_QBLK_DIGESTS_H
#define TESTS_QBLK_DIGESTS_H

#include "gguf/dtype.h"

static const struct qblk_digest {
    enum dtype type;
    int scale_top;
    uint64_t digest;
} qblk_digests[] = {
    {DTYPE_IQ1_S, 1, UINT64_C(0x7dc24bc82f181cc9)},   {DTYPE_IQ1_M, 55, UINT64_C(0xc53225bfb3053bc5)},
    {DTYPE_IQ2_XXS, 1, UINT64_C(0xaefd507934298937)}, {DTYPE_IQ2_XS, 1, UINT64_C(0x8a586499a88aeccf)},
    {DTYPE_IQ2_S, 1, UINT64_C(0x75d71499cc414432)},   {DTYPE_IQ3_XXS, 1, UINT64_C(0x394bf144c157df0b)},
    {DTYPE_IQ3_S, 1, UINT64_C(0x1e495ad9a58623f0)},   {DTYPE_TQ1_0, 53, UINT64_C(0xa96250cf6640e813)},
    {DTYPE_TQ2_0, 65, UINT64_C(0xe6e10bc65911e72a)},  {DTYPE_NVFP4, -1, UINT64_C(0x8f223b569d41e636)},
    {DTYPE_Q1_0, 1, UINT64_C(0x9330ded56793b5a5)},    {DTYPE_Q2_0, 1, UINT64_C(0x9b6bedef861c8b9)},
};

#endif
