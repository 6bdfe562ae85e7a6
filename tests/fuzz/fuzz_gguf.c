/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a model file.  When it opens, the target reads everything in it. */
#include "gguf/gguf.h"

#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_arrays(const struct gguf *gguf, const char *key, struct buf *out)
{
    enum gguf_kind kind;
    uint64_t n;

    if (gguf_array_len(gguf, key, &kind, &n) != 0)
        return;
    for (uint64_t i = 0; i <= n; i++) {
        struct bytes text;
        int64_t whole;
        double value;

        if (gguf_array_str(gguf, key, i, &text) == 0)
            buf_append(out, text.data, text.len_bytes);
        gguf_array_i64(gguf, key, i, &whole);
        gguf_array_f64(gguf, key, i, &value);
    }
}

static void read_keys(const struct gguf *gguf, struct buf *out)
{
    for (uint64_t i = 0; i < gguf_key_count(gguf); i++) {
        struct buf name = {0};
        struct bytes view, text;
        enum gguf_kind kind;
        struct fault fault;
        uint64_t natural;
        int64_t whole;
        double value;
        bool flag;

        ASSERT(gguf_key_at(gguf, i, &view, &kind) == 0 && gguf_key_text(gguf, i, out) == 0);
        buf_append(&name, view.data, view.len_bytes);
        const char *key = (const char *)name.data;
        gguf_get_u64(gguf, key, &fault, &natural);
        gguf_get_i64(gguf, key, &fault, &whole);
        gguf_get_f64(gguf, key, &fault, &value);
        gguf_get_bool(gguf, key, &fault, &flag);
        if (gguf_get_str(gguf, key, &fault, &text) == 0)
            buf_append(out, text.data, text.len_bytes);
        read_arrays(gguf, key, out);
        buf_fini(&name);
    }
}

static void read_tensors(const struct gguf *gguf, struct buf *out)
{
    for (uint64_t i = 0; i < gguf_tensor_count(gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);

        ASSERT(dtype_info(tensor->type) != NULL);
        buf_append(out, tensor->data, tensor->len_bytes);
        buf_append(out, tensor->name.data, tensor->name.len_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fault fault = {0};
    struct gguf *gguf = NULL, *again = NULL;
    struct buf out = {0}, image = {0};
    char fingerprint[33];

    if (gguf_open_memory(bytes_of(data, size), &fault, &gguf) != 0) {
        ASSERT(gguf == NULL && fault.code < 0 && fault.text[0] != '\0');
        return 0;
    }
    read_keys(gguf, &out);
    read_tensors(gguf, &out);
    gguf_fingerprint(gguf, fingerprint);
    ASSERT(gguf_vocabulary_image(gguf, &image) == 0);
    ASSERT(gguf_open_memory(buf_view(&image), &fault, &again) == 0);
    ASSERT(gguf_tensor_count(again) == 0 && gguf_key_count(again) <= gguf_key_count(gguf));
    gguf_close(again);
    gguf_close(gguf);
    buf_fini(&image);
    buf_fini(&out);
    return 0;
}
