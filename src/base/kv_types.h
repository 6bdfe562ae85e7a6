/* SPDX-License-Identifier: Apache-2.0 */
/* The types of keys and values, in one list.
 *
 *    cache/kv/layout.h      bytes of blocks, words, fingerprints
 *    compute/kernels/attn.h bytes of rows, which types kernels take
 *
 * compute/model turns KV_... into DTYPE_..., by the names of the rows.
 * How to change it: docs/changes-worker.md, "A type of keys and values (kv.type)". */
#ifndef BASE_KV_TYPES_H
#define BASE_KV_TYPES_H

/* X(type, number, word of the key kv.type, numbers in a run, bytes of a run).  Quantised types store runs of
 * numbers with one F16 scale each; the last run of a row is padded.  Numbers count up from 0, are part of
 * fingerprints, and never change. */
#define KV_TYPE_TABLE(X)                                                                                     \
    X(F32, 0, "f32", 1, 4)                                                                                   \
    X(F16, 1, "f16", 1, 2)                                                                                   \
    X(BF16, 2, "bf16", 1, 2)                                                                                 \
    X(Q8_0, 3, "q8_0", 32, 2 + 32)                                                                           \
    X(Q4_0, 4, "q4_0", 32, 2 + 16)

#endif
