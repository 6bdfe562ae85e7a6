/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF images for tests, built by hand. */
#include "tests/unit/gguf/image.h"

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

void image_u32(struct buf *image, uint32_t value)
{
    uint8_t raw[4];

    put_u32(raw, value);
    buf_append(image, raw, 4);
}

void image_u64(struct buf *image, uint64_t value)
{
    uint8_t raw[8];

    put_u64(raw, value);
    buf_append(image, raw, 8);
}

void image_str(struct buf *image, const char *text)
{
    image_u64(image, strlen(text));
    buf_append_str(image, text);
}

void image_header(struct buf *image, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
    buf_append_str(image, "GGUF");
    image_u32(image, version);
    image_u64(image, n_tensors);
    image_u64(image, n_keys);
}

void image_key_u32(struct buf *image, const char *name, uint32_t value)
{
    image_str(image, name);
    image_u32(image, GGUF_U32);
    image_u32(image, value);
}

void image_key_raw(struct buf *image, const char *name, uint32_t kind, const void *raw, size_t len_bytes)
{
    image_str(image, name);
    image_u32(image, kind);
    buf_append(image, raw, len_bytes);
}

void image_tensor(struct buf *image, const char *name, uint64_t width, uint32_t type, uint64_t offset)
{
    image_str(image, name);
    image_u32(image, 1);
    image_u64(image, width);
    image_u32(image, type);
    image_u64(image, offset);
}

void image_pad(struct buf *image, size_t align)
{
    while (image->len_bytes % align != 0)
        buf_append_byte(image, 0);
}

void image_sample(struct buf *image)
{
    static const uint8_t raw[8] = {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

    image_header(image, 3, 2, 16);
    image_str(image, "general.architecture");
    image_u32(image, GGUF_STRING);
    image_str(image, "llama");
    image_key_u32(image, "llama.context_length", 512);
    image_key_raw(image, "n.u8", GGUF_U8, raw, 1);
    image_key_raw(image, "n.i8", GGUF_I8, raw, 1);
    image_key_raw(image, "n.u16", GGUF_U16, raw, 2);
    image_key_raw(image, "n.i16", GGUF_I16, raw, 2);
    image_key_raw(image, "n.u32", GGUF_U32, raw, 4);
    image_key_raw(image, "n.i32", GGUF_I32, raw, 4);
    image_key_raw(image, "n.u64", GGUF_U64, raw, 8);
    image_key_raw(image, "n.i64", GGUF_I64, raw, 8);
    image_key_raw(image, "n.f32", GGUF_F32, "\x00\x00\xc0\x3f", 4);
    image_key_raw(image, "n.f64", GGUF_F64, "\0\0\0\0\0\0\xf8\xbf", 8);
    image_key_raw(image, "n.bool", GGUF_BOOL, "\1", 1);
    image_str(image, "tokenizer.ggml.tokens");
    image_u32(image, GGUF_ARRAY);
    image_u32(image, GGUF_STRING);
    image_u64(image, 3);
    image_str(image, "a");
    image_str(image, "");
    image_str(image, "long\ntext");
    image_str(image, "tokenizer.ggml.token_type");
    image_u32(image, GGUF_ARRAY);
    image_u32(image, GGUF_I32);
    image_u64(image, 3);
    image_u32(image, 1);
    image_u32(image, (uint32_t)-3);
    image_u32(image, 7);
    image_str(image, "empty");
    image_u32(image, GGUF_ARRAY);
    image_u32(image, GGUF_F32);
    image_u64(image, 0);
    image_tensor(image, "first", 3, DTYPE_F32, 0);
    image_tensor(image, "second", 32, DTYPE_Q8_0, 32);
    image_pad(image, 32);
    for (int i = 0; i < 32 + 34; i++)
        buf_append_byte(image, (uint8_t)i);
}

int image_open(struct bytes image, struct fault *fault, uint8_t **copy_out, struct gguf **out)
{
    uint8_t *copy = malloc(image.len_bytes == 0 ? 1 : image.len_bytes);

    assert_non_null(copy);
    if (image.len_bytes > 0)
        memcpy(copy, image.data, image.len_bytes);
    int rc = gguf_open_memory(bytes_of(copy, image.len_bytes), fault, out);
    if (rc != 0)
        free(copy);
    else
        *copy_out = copy;
    return rc;
}

void image_walk(const struct gguf *gguf)
{
    struct buf out = {0};
    uint64_t sum = 0;

    for (uint64_t i = 0; i < gguf_key_count(gguf); i++)
        assert_int_equal(gguf_key_text(gguf, i, &out), 0);
    for (uint64_t i = 0; i < gguf_tensor_count(gguf); i++) {
        const struct gguf_tensor *one = gguf_tensor_at(gguf, i);
        for (size_t k = 0; k < one->len_bytes; k++)
            sum += ((const uint8_t *)one->data)[k];
    }
    assert_true(sum < UINT64_MAX);
    assert_int_equal(gguf_vocabulary_image(gguf, &out), 0);
    buf_fini(&out);
}
