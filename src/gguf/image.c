/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a model that a router needs, as a GGUF image: the keys of general.* and tokenizer.* and the
 * context length, no tensors.
 *
 * Entries are copied byte for byte.  An entry does not depend on its place in the file, nor on the version
 * (2 and 3 have the same layout), so the copy is valid.  An image of an image is identical to it. */
#include "gguf/gguf_priv.h"

#include "base/err.h"

static bool is_kept(struct bytes name)
{
    return bytes_starts_with(name, "general.") || bytes_starts_with(name, "tokenizer.") ||
           bytes_ends_with(name, ".context_length") || bytes_ends_with(name, ".pooling_type");
}

int gguf_vocabulary_image(const struct gguf *gguf, struct buf *image_out)
{
    uint8_t header[24] = "GGUF";
    uint32_t n_kept = 0;
    size_t before_bytes = image_out->len_bytes;
    size_t kept_bytes = sizeof(header);

    for (uint32_t i = 0; i < gguf->n_keys; i++) {
        if (is_kept(gguf->keys[i].name)) {
            n_kept++;
            kept_bytes += gguf->keys[i].entry.len_bytes;
        }
    }
    put_u32(header + 4, GGUF_VERSION);
    put_u64(header + 8, 0);
    put_u64(header + 16, n_kept);

    int rc = buf_reserve(image_out, kept_bytes);
    if (rc != 0)
        return rc;
    buf_append(image_out, header, sizeof(header));
    for (uint32_t i = 0; i < gguf->n_keys; i++) {
        if (is_kept(gguf->keys[i].name))
            buf_append(image_out, gguf->keys[i].entry.data, gguf->keys[i].entry.len_bytes);
    }
    if (image_out->is_bad) {
        image_out->len_bytes = before_bytes;
        return E_NOMEM;
    }
    return 0;
}
