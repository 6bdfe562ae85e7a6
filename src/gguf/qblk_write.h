/* SPDX-License-Identifier: Apache-2.0 */
/* Packs weights into quantised blocks; the inverse of qblk.h. */
#ifndef GGUF_QBLK_WRITE_H
#define GGUF_QBLK_WRITE_H

#include "gguf/qblk.h"

/* True if the two functions below support the type: Q4_0 to Q8_0 and Q2_K to Q6_K; not the IQ types, not
 * MXFP4. */
bool qblk_can_write(enum dtype type);

/* Packs the bytes from which qblk_parts() gives these parts. scale and min must be exact as 16-bit floats;
 * quants and sub-blocks must be in the type's range. */
void qblk_pack(enum dtype type, const struct qblk_parts *parts, void *qblk);

/* Quantises n weights (whole qblks) of a row into a type that qblk_can_write() accepts, or into F32, F16,
 * BF16.  The same weights give the same bytes.  E_UNSUPPORTED: another type.  E_INVAL: n ends inside a qblk.
 * E_RANGE: a weight is not finite or too large for the type. */
int qblk_from_f32(enum dtype type, const float *weights, size_t n, void *out);
/* The same; the squared error of weight i counts importance[i] times. NULL: as in qblk_from_f32(). */
int qblk_from_f32_important(enum dtype type, const float *weights, const float *importance, size_t n,
                            void *out);

#endif
