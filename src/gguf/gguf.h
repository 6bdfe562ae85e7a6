/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF v2/v3 files: a memory map, a directory of keys and a directory of tensors.  Every offset is checked.
 *
 * gguf_open() validates the whole directory: counts, string lengths, types, array lengths, tensor shapes,
 * alignment, and extents against the file size.  A fault names the key or tensor and the byte offset, but
 * not the path.  After a successful open every view lies inside the map, so callers need no further checks.
 * Tensor data has the file's alignment (at least 8) relative to the start of the map.  The object is
 * immutable; any thread may read it.
 *
 * More than 15 functions: one getter for each type of metadata value. */
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
    struct bytes name; /* points into the map */
    enum dtype type;
    uint32_t n_dims;
    uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] is the contiguous row width; unused ones are 1 */
    const void *data;             /* points into the map */
    size_t len_bytes;
};

struct gguf; /* opaque */

/* Opens a model file.  For a split model, path is any of its parts, and the others lie beside it (gguf/split.c).
 * E_NOT_FOUND, E_IO. For bad content: E_FORMAT, E_TRUNCATED, E_RANGE, E_LIMIT, E_UNSUPPORTED. */
int gguf_open(const char *path, struct fault *fault, struct gguf **out);
/* The same over memory that stays valid and unchanged for the object's life.  For fuzzing and for images
 * sent by a peer. */
int gguf_open_memory(struct bytes image, struct fault *fault, struct gguf **out);
void gguf_close(struct gguf *gguf);

/* E_UNSUPPORTED, with what it is: the file holds a part of a model or something beside one, such as an adapter.  Who
 * takes a model's file asks (the model, the tokenizer, --check); a further kind of file is a line of gguf_check_model(). */
int gguf_check_model(const struct gguf *gguf, struct fault *fault);

/* Typed look-ups.  E_NOT_FOUND: the key is absent.  E_FORMAT (with the key in the fault): another type or
 * out of range.  Integers of every width convert when the value fits.  Finite floats of both widths and
 * integers convert to f64. */
int gguf_get_u64(const struct gguf *gguf, const char *key, struct fault *fault, uint64_t *out);
int gguf_get_i64(const struct gguf *gguf, const char *key, struct fault *fault, int64_t *out);
int gguf_get_f64(const struct gguf *gguf, const char *key, struct fault *fault, double *out);
int gguf_get_bool(const struct gguf *gguf, const char *key, struct fault *fault, bool *out);
int gguf_get_str(const struct gguf *gguf, const char *key, struct fault *fault, struct bytes *out);

/* Array items.  Strings are indexed in O(1) after open; booleans read as 0 and 1.  E_RANGE: index beyond the
 * end.  E_FORMAT: the items have another type or do not fit. */
int gguf_array_len(const struct gguf *gguf, const char *key, enum gguf_kind *kind_out, uint64_t *len_out);
int gguf_array_str(const struct gguf *gguf, const char *key, uint64_t index, struct bytes *out);
int gguf_array_f64(const struct gguf *gguf, const char *key, uint64_t index, double *out);
int gguf_array_i64(const struct gguf *gguf, const char *key, uint64_t index, int64_t *out);

uint64_t gguf_tensor_count(const struct gguf *gguf);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, uint64_t index);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *gguf, const char *name); /* NULL: absent */

uint64_t gguf_key_count(const struct gguf *gguf);
/* gguf_key_at: name and kind of key number index, for listings. gguf_key_text: its value as short text
 * ("[151936 strings]" for an array). */
int gguf_key_at(const struct gguf *gguf, uint64_t index, struct bytes *name_out, enum gguf_kind *kind_out);
int gguf_key_text(const struct gguf *gguf, uint64_t index, struct buf *text_out);

/* Says that the tensor's bytes are not needed soon.  Its pages leave this process's memory; the next access
 * reads them back. */
void gguf_forget(const struct gguf *gguf, const struct gguf_tensor *tensor);

uint64_t gguf_file_bytes(const struct gguf *gguf); /* of all parts */
uint32_t gguf_part_count(const struct gguf *gguf); /* 1 unless the model is split */

/* A part's file name: PREFIX-00001-of-00005.gguf. list_parts() of clients/baton/baton.in has the same rule. */
#define GGUF_PART_TAIL_BYTES 20
struct gguf_part {
    struct bytes prefix; /* points into the name */
    uint32_t number;     /* 1..count */
    uint32_t count;
};
/* True if name (with or without a folder) is a part's name. */
bool gguf_part_name(struct bytes name, struct gguf_part *out);
/* Appends the name of part `number` of the same model. */
void gguf_part_path(const struct gguf_part *part, uint32_t number, struct buf *out);

/* The name of a model in this file: without folder, ending and part number; cut to fit. It is UTF-8 without control
 * characters, quotes and backslashes. */
void gguf_model_name(const char *path, char *out, size_t room_bytes);

/* How an embedding model turns the rows of a text into one vector: values of the key ARCH.pooling_type. */
enum gguf_pooling {
    GGUF_POOLING_NONE, /* not an embedding model */
    GGUF_POOLING_MEAN,
    GGUF_POOLING_CLS,
    GGUF_POOLING_LAST, /* the row of the last token */
    GGUF_POOLING_RANK  /* a reranker: a score, not a vector */
};

/* Appends a complete GGUF image with the keys that a router needs, and without tensors.  These keys begin with
 * "general." or "tokenizer.", or end in ".context_length" or ".pooling_type".  E_NOMEM. */
int gguf_vocabulary_image(const struct gguf *gguf, struct buf *image_out);

/* 128-bit content digest (XXH3) of all metadata, the tensor directory, and the first and last 4 KiB of each
 * tensor.  Files that differ in practice get different digests.  Writes 32 hex digits and a NUL. */
void gguf_fingerprint(const struct gguf *gguf, char out[33]);

#endif
