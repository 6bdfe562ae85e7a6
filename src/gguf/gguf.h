/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF v2/v3 files: a memory map, a directory of keys and a directory of tensors, every offset checked.
 *
 * Opening validates the whole directory: counts, string lengths, types, array lengths, tensor shapes,
 * alignment and extents against the file size.  A failure names the key or tensor and the byte offset in the
 * fault. After a successful open every view handed out lies inside the map, so no later check is needed;
 * tensor data is aligned as the file says (at least to 8) relative to the map's begin.  Faults do not repeat
 * the path. The object is immutable and may be read from any thread. */
#ifndef GGUF_GGUF_H
#define GGUF_GGUF_H

#include "base/bytes.h"
#include "base/fault.h"
#include "gguf/dtype.h"

#define GGUF_MAX_DIMS 4

enum gguf_kind { /* value types, numbered as in the file */
                 GGUF_U8 = 0,
                 GGUF_I8 = 1,
                 GGUF_U16 = 2,
                 GGUF_I16 = 3,
                 GGUF_U32 = 4,
                 GGUF_I32 = 5,
                 GGUF_F32 = 6,
                 GGUF_BOOL = 7,
                 GGUF_STRING = 8,
                 GGUF_ARRAY = 9,
                 GGUF_U64 = 10,
                 GGUF_I64 = 11,
                 GGUF_F64 = 12
};

struct gguf_tensor {
    struct bytes name; /* into the map */
    enum dtype type;
    uint32_t n_dims;
    uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] is the row width (contiguous); absent ones are 1 */
    const void *data;             /* into the map */
    size_t len_bytes;
};

struct gguf; /* opaque */

/* E_NOT_FOUND, E_IO; E_FORMAT, E_TRUNCATED, E_RANGE, E_LIMIT, E_UNSUPPORTED for the content. */
int gguf_open(const char *path, struct fault *fault, struct gguf **out);
/* The same over memory that stays valid and unchanged for the object's life (fuzzing, blobs from a peer). */
int gguf_open_memory(struct bytes image, struct fault *fault, struct gguf **out);
void gguf_close(struct gguf *gguf);

/* Typed look-ups.  E_NOT_FOUND when absent, E_FORMAT (with the key in the fault) when of another type or out
 * of range; integers of every width convert when they fit, floats (finite ones) from both widths and from
 * integers. */
int gguf_get_u64(const struct gguf *gguf, const char *key, struct fault *fault, uint64_t *out);
int gguf_get_i64(const struct gguf *gguf, const char *key, struct fault *fault, int64_t *out);
int gguf_get_f64(const struct gguf *gguf, const char *key, struct fault *fault, double *out);
int gguf_get_bool(const struct gguf *gguf, const char *key, struct fault *fault, bool *out);
int gguf_get_str(const struct gguf *gguf, const char *key, struct fault *fault, struct bytes *out);

/* Arrays.  Strings are indexed in O(1) after open; flags read as the integers 0 and 1.  E_RANGE beyond the
 * end; E_FORMAT when the items are of another type or do not fit. */
int gguf_array_len(const struct gguf *gguf, const char *key, enum gguf_kind *kind_out, uint64_t *len_out);
int gguf_array_str(const struct gguf *gguf, const char *key, uint64_t index, struct bytes *out);
int gguf_array_f64(const struct gguf *gguf, const char *key, uint64_t index, double *out);
int gguf_array_i64(const struct gguf *gguf, const char *key, uint64_t index, int64_t *out);

uint64_t gguf_tensor_count(const struct gguf *gguf);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, uint64_t index);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *gguf, const char *name); /* NULL: absent */

uint64_t gguf_key_count(const struct gguf *gguf);
/* Name and kind of key number index, for listings; its value as short text ("[151936 strings]" for arrays).
 */
int gguf_key_at(const struct gguf *gguf, uint64_t index, struct bytes *name_out, enum gguf_kind *kind_out);
int gguf_key_text(const struct gguf *gguf, uint64_t index, struct buf *text_out);

uint64_t gguf_file_bytes(const struct gguf *gguf);

/* Appends a complete GGUF image with those keys that begin with "general." or "tokenizer." or end in
 * ".context_length", and no tensors: what a router needs of a model.  E_NOMEM. */
int gguf_vocabulary_image(const struct gguf *gguf, struct buf *image_out);

/* 128-bit content digest (XXH3) of all metadata and of the tensor directory and of a sample of each tensor's
 * bytes (first and last 4 KiB): two files that differ in practice differ here.  Hex, 32 digits and NUL. */
void gguf_fingerprint(const struct gguf *gguf, char out[33]);

#endif
