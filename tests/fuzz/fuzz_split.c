/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as the parts of one model.  The first byte is the number of parts; two bytes before each
 * part are its length.  Parts that open are joined, and everything in the result is read.  The input is tried as a
 * part's file name too. */
#include "gguf/gguf_priv.h"

#include "base/check.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_PARTS = 5 };

static void try_name(struct bytes name)
{
    struct gguf_part part;
    struct buf path = {0};

    if (!gguf_part_name(name, &part))
        return;
    ASSERT(part.number >= 1 && part.number <= part.count && part.prefix.len_bytes > 0);
    gguf_part_path(&part, part.number, &path);
    ASSERT(bytes_equal(buf_view(&path), name));
    buf_fini(&path);
}

static void read_all(const struct gguf *gguf)
{
    struct buf out = {0};
    char fingerprint[33];

    for (uint64_t i = 0; i < gguf_tensor_count(gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);

        buf_append(&out, tensor->data, tensor->len_bytes);
        buf_append(&out, tensor->name.data, tensor->name.len_bytes);
        buf_append_byte(&out, '\0');
        ASSERT(gguf_tensor_find(gguf, (const char *)out.data + out.len_bytes - tensor->name.len_bytes - 1) ==
               tensor);
    }
    gguf_fingerprint(gguf, fingerprint);
    buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reader reader = reader_of(bytes_of(data, size));
    struct fault fault = {0};
    struct gguf **parts;
    uint32_t n = 0, wanted;

    try_name(bytes_of(data, size));
    if (size == 0)
        return 0;
    wanted = read_u8(&reader) % MOST_PARTS + 1;
    parts = calloc(wanted, sizeof(struct gguf *));
    ASSERT(parts != NULL);
    for (; n < wanted; n++) {
        size_t len_bytes = read_u16(&reader);
        struct bytes image = read_bytes(&reader, len_bytes);

        if (reader.is_bad || gguf_open_memory(image, &fault, &parts[n]) != 0)
            break;
    }
    if (n == wanted && gguf_join(parts, n, &fault) == 0) {
        read_all(parts[0]);
        gguf_close(parts[0]); /* with the others and the array */
        return 0;
    }
    ASSERT(n < wanted || fault.code < 0);
    while (n > 0)
        gguf_close(parts[--n]);
    free(parts);
    return 0;
}
