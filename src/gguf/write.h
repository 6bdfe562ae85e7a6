/* SPDX-License-Identifier: Apache-2.0 */
/* Writes GGUF v3 files: first keys, then tensor declarations, then the data in the order declared.
 *
 * A name has 1..1024 bytes and is unique: a second key or tensor of the same name is E_EXISTS.
 *
 * More than 15 functions: one for each type of metadata value, and the parts of a file in order. */
#ifndef GGUF_WRITE_H
#define GGUF_WRITE_H

#include "gguf/gguf.h"

struct gguf_writer; /* one thread */

int gguf_writer_new(struct gguf_writer **out);
void gguf_writer_free(struct gguf_writer *writer);
int gguf_put_str(struct gguf_writer *writer, const char *key, struct bytes value);
int gguf_put_u16(struct gguf_writer *writer, const char *key, uint16_t value);
int gguf_put_i32(struct gguf_writer *writer, const char *key, int32_t value);
int gguf_put_u32(struct gguf_writer *writer, const char *key, uint32_t value);
int gguf_put_f32(struct gguf_writer *writer, const char *key, float value);
int gguf_put_bool(struct gguf_writer *writer, const char *key, bool value);
int gguf_put_str_array(struct gguf_writer *writer, const char *key, const struct bytes *values, uint64_t n);
int gguf_put_i32_array(struct gguf_writer *writer, const char *key, const int32_t *values, uint64_t n);
int gguf_put_f32_array(struct gguf_writer *writer, const char *key, const float *values, uint64_t n);
/* Copies every key that begins with prefix from another file.  It skips keys that the writer already has, so put
 * keys that must differ first.  It also skips general.alignment (the writer aligns to 32) and split.* (the writer
 * writes whole models). */
int gguf_put_keys_of(struct gguf_writer *writer, const struct gguf *from, const char *prefix);
/* Declares a tensor. dims[0] is the row width, in whole quantised blocks.  E_INVAL, E_RANGE, E_EXISTS. */
int gguf_declare_tensor(struct gguf_writer *writer, const char *name, enum dtype type, uint32_t n_dims,
                        const uint64_t *dims);

/* Appends everything before the tensor data, padding included.  Without tensors this is a complete image. */
int gguf_writer_header(const struct gguf_writer *writer, struct buf *out);

/* Writes header and directory to path, then calls fill for each tensor in order. fill writes exactly the
 * tensor's bytes with gguf_writer_data().  The file gets its name only when it is complete and on the disk.
 * If fill fails, saving ends with its code. */
typedef int (*gguf_fill)(void *arg, uint64_t index, struct gguf_writer *writer);
int gguf_writer_save(struct gguf_writer *writer, const char *path, gguf_fill fill, void *arg,
                     struct fault *fault);
/* Writes data of the current tensor; inside fill only.  E_RANGE: beyond the tensor's size.  E_IO. */
int gguf_writer_data(struct gguf_writer *writer, const void *data, size_t len_bytes);

#endif
