/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of q8_vnni512_priv.h, for weights whose points are looked up by AVX-512 VBMI (POINT_TYPES).
 *
 * Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mavx512vnni -mavx512vbmi. */
#ifndef COMPUTE_KERNELS_Q8_VBMI512_PRIV_H
#define COMPUTE_KERNELS_Q8_VBMI512_PRIV_H

#include "compute/kernels/q8_vnni512_priv.h"

#undef Q8
#define Q8(name) name##_vbmi512
#define Q8_ONLY_POINTS

#endif
