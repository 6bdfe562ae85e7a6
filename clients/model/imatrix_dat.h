/* SPDX-License-Identifier: Apache-2.0 */
/* The older form of importance matrices, imatrix.dat. llama-imatrix wrote it before GGUF, and still can.
 *
 *     i32 n_entries
 *     n_entries times: i32 bytes of the name, name, i32 calls, i32 n, n times f32: mean square times calls
 *     i32 chunks, i32 bytes of a text's name, name    (absent from the oldest files)
 *
 * All numbers are little-endian. A matrix of several experts has n = experts * columns. Calls are not read: they scale
 * all values of a matrix alike, and only relations between its columns matter. */
#ifndef MODEL_IMATRIX_DAT_H
#define MODEL_IMATRIX_DAT_H

#include "base/bytes.h"
#include "base/fault.h"

struct imatrix_dat_entry {
    struct bytes name;     /* of a tensor; points into the file */
    const uint8_t *values; /* [n_values] floats in the file, of any alignment */
    uint32_t n_values;
};

struct imatrix_dat { /* a zeroed struct is empty */
    struct imatrix_dat_entry *entries;
    uint32_t n_entries;
    uint32_t n_chunks;    /* 0: not said */
    struct bytes dataset; /* the text's name, empty: not said; points into the file */
};

/* Pure; any bytes may come. The file must outlive the result, which imatrix_dat_fini() ends. E_FORMAT, E_TRUNCATED,
 * E_NOMEM. */
int imatrix_dat_read(struct bytes file, struct imatrix_dat *out, struct fault *fault);
void imatrix_dat_fini(struct imatrix_dat *dat);
/* The last entry of this name, or NULL. */
const struct imatrix_dat_entry *imatrix_dat_find(const struct imatrix_dat *dat, struct bytes name);

#endif
