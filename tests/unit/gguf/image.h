/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF images built by hand, field by field.  So the reader is tested with the format and not with our
 * writer, and each field can be made wrong separately. */
#ifndef TESTS_UNIT_GGUF_IMAGE_H
#define TESTS_UNIT_GGUF_IMAGE_H

#include "gguf/gguf.h"

void image_u32(struct buf *image, uint32_t value);
void image_u64(struct buf *image, uint64_t value);
void image_str(struct buf *image, const char *text);
void image_header(struct buf *image, uint32_t version, uint64_t n_tensors, uint64_t n_keys);
void image_key_u32(struct buf *image, const char *name, uint32_t value);
void image_key_raw(struct buf *image, const char *name, uint32_t kind, const void *raw, size_t len_bytes);
void image_tensor(struct buf *image, const char *name, uint64_t width, uint32_t type, uint64_t offset);
void image_pad(struct buf *image, size_t align);
/* Builds a valid image: every kind of key, string and number arrays, two tensors. */
void image_sample(struct buf *image);

/* Opens a copy in memory of exactly its size; the caller frees *copy_out after the close. */
int image_open(struct bytes image, struct fault *fault, uint8_t **copy_out, struct gguf **out);
/* Reads everything that a user of the object could read. */
void image_walk(const struct gguf *gguf);

#endif
