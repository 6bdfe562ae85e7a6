/* SPDX-License-Identifier: Apache-2.0 */
/* Weights into quantised blocks: the way back of qblk.h. */
#ifndef GGUF_QBLK_WRITE_H
#define GGUF_QBLK_WRITE_H

#include "gguf/qblk.h"

/* Whether the two functions below take the type: Q4_0 to Q8_0 and Q2_K to Q6_K; neither IQ types nor MXFP4.
 */
bool qblk_can_write(enum dtype type);

/* The bytes of which qblk_parts() makes these parts.  scale and min must be values that a 16-bit float has,
 * quants and sub-blocks within the type's bounds. */
void qblk_pack(enum dtype type, const struct qblk_parts *parts, void *qblk);

/* n weights (whole qblks) of a row into a type that can be written, or into F32, F16, BF16.  The same weights
 * give the same bytes.  E_UNSUPPORTED for another type, E_INVAL for a broken qblk, E_RANGE when a weight is
 * not finite or too large for the type. */
int qblk_from_f32(enum dtype type, const float *weights, size_t n, void *out);

#endif
