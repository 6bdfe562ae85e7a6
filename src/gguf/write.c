/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a GGUF file.
 *
 * The writer lays keys out in a buffer as they come.  It knows a tensor's place in the data section as soon
 * as the tensor is declared, because tensors lie there in the same order.  A save writes to a temporary file
 * next to the target, in one pass from front to back.  When every byte is on the disk, it renames the file
 * over the target: a reader sees the old file or the whole new one.
 *
 *     header 24 | keys | declarations | pad to 32 | data 0 | pad | data 1 | pad ...
 */
#include "gguf/write.h"

#include "base/check.h"
#include "base/err.h"
#include "gguf/gguf_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct declared {
    char *name;
    enum dtype type;
    uint32_t n_dims;
    uint64_t dims[GGUF_MAX_DIMS];
    uint64_t offset;
    uint64_t len_bytes;
};

struct put_key { /* offset of the key's name in entries */
    size_t name_at;
    size_t name_len_bytes;
};

struct gguf_writer {
    struct buf entries; /* the keys, with the bytes of the file */
    struct put_key *keys;
    uint32_t n_keys;
    struct declared *tensors;
    uint32_t n_tensors;
    uint64_t data_len_bytes; /* bytes of all tensors, padded */
    FILE *file;              /* set while saving */
    uint64_t due_bytes;      /* bytes that fill has yet to write of its tensor */
};

static uint64_t write_padded(uint64_t len_bytes)
{
    return (len_bytes + GGUF_ALIGN_DEFAULT - 1) & ~(uint64_t)(GGUF_ALIGN_DEFAULT - 1);
}

int gguf_writer_new(struct gguf_writer **out)
{
    struct gguf_writer *writer = calloc(1, sizeof(*writer));

    if (writer == NULL)
        return E_NOMEM;
    *out = writer;
    return 0;
}

void gguf_writer_free(struct gguf_writer *writer)
{
    if (writer == NULL)
        return;
    for (uint32_t i = 0; i < writer->n_tensors; i++)
        free(writer->tensors[i].name);
    free(writer->tensors);
    free(writer->keys);
    buf_fini(&writer->entries);
    free(writer);
}

/* ---- keys ---- */

static bool has_key(const struct gguf_writer *writer, struct bytes name)
{
    for (uint32_t i = 0; i < writer->n_keys; i++) {
        const struct put_key *key = &writer->keys[i];
        if (bytes_equal(bytes_of(writer->entries.data + key->name_at, key->name_len_bytes), name))
            return true;
    }
    return false;
}

static void append_u32(struct buf *buf, uint32_t value)
{
    uint8_t raw[4];

    put_u32(raw, value);
    buf_append(buf, raw, sizeof(raw));
}

static void append_u64(struct buf *buf, uint64_t value)
{
    uint8_t raw[8];

    put_u64(raw, value);
    buf_append(buf, raw, sizeof(raw));
}

static void append_str(struct buf *buf, struct bytes text)
{
    append_u64(buf, text.len_bytes);
    buf_append(buf, text.data, text.len_bytes);
}

/* Adds a key whose name follows its length at the end of entries. */
static int enter_key(struct gguf_writer *writer, struct bytes name)
{
    if (name.len_bytes == 0 || name.len_bytes > GGUF_MAX_NAME_BYTES)
        return E_INVAL;
    if (writer->entries.is_bad)
        return E_NOMEM;
    if (has_key(writer, name))
        return E_EXISTS;
    if (writer->n_keys == GGUF_MAX_KEYS)
        return E_LIMIT;

    struct put_key *keys = realloc(writer->keys, (writer->n_keys + 1) * sizeof(*keys));
    if (keys == NULL)
        return E_NOMEM;
    writer->keys = keys;
    keys[writer->n_keys++] =
        (struct put_key){.name_at = writer->entries.len_bytes + 8, .name_len_bytes = name.len_bytes};
    return 0;
}

static int begin_key(struct gguf_writer *writer, const char *name, enum gguf_kind kind)
{
    int rc = enter_key(writer, bytes_str(name));

    if (rc != 0)
        return rc;
    append_str(&writer->entries, bytes_str(name));
    append_u32(&writer->entries, kind);
    return 0;
}

static int begin_array(struct gguf_writer *writer, const char *name, enum gguf_kind item_kind, uint64_t n)
{
    int rc = begin_key(writer, name, GGUF_ARRAY);

    if (rc != 0)
        return rc;
    append_u32(&writer->entries, item_kind);
    append_u64(&writer->entries, n);
    return 0;
}

static int end_key(const struct gguf_writer *writer)
{
    return writer->entries.is_bad ? E_NOMEM : 0;
}

static uint32_t float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

int gguf_put_str(struct gguf_writer *writer, const char *key, struct bytes value)
{
    int rc = begin_key(writer, key, GGUF_STRING);

    if (rc != 0)
        return rc;
    append_str(&writer->entries, value);
    return end_key(writer);
}

int gguf_put_u16(struct gguf_writer *writer, const char *key, uint16_t value)
{
    uint8_t raw[2] = {(uint8_t)value, (uint8_t)(value >> 8)};
    int rc = begin_key(writer, key, GGUF_U16);

    if (rc != 0)
        return rc;
    buf_append(&writer->entries, raw, sizeof(raw));
    return end_key(writer);
}

int gguf_put_i32(struct gguf_writer *writer, const char *key, int32_t value)
{
    int rc = begin_key(writer, key, GGUF_I32);

    if (rc != 0)
        return rc;
    append_u32(&writer->entries, (uint32_t)value);
    return end_key(writer);
}

int gguf_put_u32(struct gguf_writer *writer, const char *key, uint32_t value)
{
    int rc = begin_key(writer, key, GGUF_U32);

    if (rc != 0)
        return rc;
    append_u32(&writer->entries, value);
    return end_key(writer);
}

int gguf_put_f32(struct gguf_writer *writer, const char *key, float value)
{
    int rc = begin_key(writer, key, GGUF_F32);

    if (rc != 0)
        return rc;
    append_u32(&writer->entries, float_bits(value));
    return end_key(writer);
}

int gguf_put_bool(struct gguf_writer *writer, const char *key, bool value)
{
    int rc = begin_key(writer, key, GGUF_BOOL);

    if (rc != 0)
        return rc;
    buf_append_byte(&writer->entries, value);
    return end_key(writer);
}

int gguf_put_str_array(struct gguf_writer *writer, const char *key, const struct bytes *values, uint64_t n)
{
    int rc = begin_array(writer, key, GGUF_STRING, n);

    if (rc != 0)
        return rc;
    for (uint64_t i = 0; i < n; i++)
        append_str(&writer->entries, values[i]);
    return end_key(writer);
}

int gguf_put_i32_array(struct gguf_writer *writer, const char *key, const int32_t *values, uint64_t n)
{
    int rc = begin_array(writer, key, GGUF_I32, n);

    if (rc != 0)
        return rc;
    for (uint64_t i = 0; i < n; i++)
        append_u32(&writer->entries, (uint32_t)values[i]);
    return end_key(writer);
}

int gguf_put_f32_array(struct gguf_writer *writer, const char *key, const float *values, uint64_t n)
{
    int rc = begin_array(writer, key, GGUF_F32, n);

    if (rc != 0)
        return rc;
    for (uint64_t i = 0; i < n; i++)
        append_u32(&writer->entries, float_bits(values[i]));
    return end_key(writer);
}

int gguf_put_keys_of(struct gguf_writer *writer, const struct gguf *from, const char *prefix)
{
    for (uint32_t i = 0; i < from->n_keys; i++) {
        const struct gguf_key *key = &from->keys[i];

        if (!bytes_starts_with(key->name, prefix) || bytes_is(key->name, "general.alignment") ||
            bytes_starts_with(key->name, "split."))
            continue;
        int rc = enter_key(writer, key->name);
        if (rc == E_EXISTS)
            continue;
        if (rc != 0)
            return rc;
        buf_append(&writer->entries, key->entry.data, key->entry.len_bytes);
    }
    return end_key(writer);
}

/* ---- tensors ---- */

static int tensor_bytes(enum dtype type, uint32_t n_dims, const uint64_t *dims, uint64_t *out)
{
    const struct dtype_info *info = dtype_info(type);
    uint64_t len_bytes;

    if (info == NULL || n_dims == 0 || n_dims > GGUF_MAX_DIMS || dims[0] % info->qblk_weights != 0)
        return E_INVAL;
    bool is_over = __builtin_mul_overflow(dims[0] / info->qblk_weights, info->qblk_bytes, &len_bytes);
    for (uint32_t i = 1; i < n_dims; i++)
        is_over |= __builtin_mul_overflow(len_bytes, dims[i], &len_bytes);
    if (is_over || len_bytes > UINT64_MAX / 4)
        return E_RANGE;
    if (len_bytes == 0)
        return E_INVAL;
    *out = len_bytes;
    return 0;
}

int gguf_declare_tensor(struct gguf_writer *writer, const char *name, enum dtype type, uint32_t n_dims,
                        const uint64_t *dims)
{
    uint64_t len_bytes;
    int rc = tensor_bytes(type, n_dims, dims, &len_bytes);

    if (rc != 0)
        return rc;
    if (name[0] == '\0' || strlen(name) > GGUF_MAX_NAME_BYTES)
        return E_INVAL;
    if (writer->n_tensors == GGUF_MAX_TENSORS || writer->data_len_bytes > UINT64_MAX / 4)
        return E_LIMIT;
    for (uint32_t i = 0; i < writer->n_tensors; i++) {
        if (strcmp(writer->tensors[i].name, name) == 0)
            return E_EXISTS;
    }

    struct declared *tensors = realloc(writer->tensors, (writer->n_tensors + 1) * sizeof(*tensors));
    if (tensors == NULL)
        return E_NOMEM;
    writer->tensors = tensors;
    struct declared *tensor = &tensors[writer->n_tensors];
    *tensor = (struct declared){.name = strdup(name), .type = type, .n_dims = n_dims};
    if (tensor->name == NULL)
        return E_NOMEM;
    memcpy(tensor->dims, dims, n_dims * sizeof(*dims));
    tensor->offset = writer->data_len_bytes;
    tensor->len_bytes = len_bytes;
    writer->data_len_bytes += write_padded(len_bytes);
    writer->n_tensors++;
    return 0;
}

/* ---- the file ---- */

int gguf_writer_header(const struct gguf_writer *writer, struct buf *out)
{
    static const uint8_t zeros[GGUF_ALIGN_DEFAULT];
    size_t from = out->len_bytes;

    if (writer->entries.is_bad)
        return E_NOMEM;
    buf_append(out, "GGUF", 4);
    append_u32(out, GGUF_VERSION);
    append_u64(out, writer->n_tensors);
    append_u64(out, writer->n_keys);
    buf_append(out, writer->entries.data, writer->entries.len_bytes);
    for (uint32_t i = 0; i < writer->n_tensors; i++) {
        const struct declared *tensor = &writer->tensors[i];

        append_str(out, bytes_str(tensor->name));
        append_u32(out, tensor->n_dims);
        for (uint32_t k = 0; k < tensor->n_dims; k++)
            append_u64(out, tensor->dims[k]);
        append_u32(out, tensor->type);
        append_u64(out, tensor->offset);
    }
    if (writer->n_tensors > 0)
        buf_append(out, zeros, (size_t)(write_padded(out->len_bytes - from) - (out->len_bytes - from)));
    return out->is_bad ? E_NOMEM : 0;
}

int gguf_writer_data(struct gguf_writer *writer, const void *data, size_t len_bytes)
{
    if (writer->file == NULL)
        return E_INVAL;
    if (len_bytes > writer->due_bytes)
        return E_RANGE;
    if (len_bytes > 0 && fwrite(data, 1, len_bytes, writer->file) != len_bytes)
        return E_IO;
    writer->due_bytes -= len_bytes;
    return 0;
}

static int write_tensor(struct gguf_writer *writer, uint32_t number, gguf_fill fill, void *arg,
                        struct fault *fault)
{
    static const uint8_t zeros[GGUF_ALIGN_DEFAULT];
    const struct declared *tensor = &writer->tensors[number];

    writer->due_bytes = tensor->len_bytes;
    int rc = fill(arg, number, writer);
    if (rc != 0)
        return fault_set(fault, rc, "tensor '%s': %s", tensor->name,
                         rc == E_IO ? strerror(errno) : err_text(rc));
    if (writer->due_bytes != 0)
        return fault_set(fault, E_INVAL, "tensor '%s': %llu of its %llu bytes were not written", tensor->name,
                         (unsigned long long)writer->due_bytes, (unsigned long long)tensor->len_bytes);
    writer->due_bytes = write_padded(tensor->len_bytes) - tensor->len_bytes;
    rc = gguf_writer_data(writer, zeros, (size_t)writer->due_bytes);
    return rc == 0 ? 0 : fault_set(fault, rc, "cannot write: %s", strerror(errno));
}

static int write_all(struct gguf_writer *writer, gguf_fill fill, void *arg, struct fault *fault)
{
    struct buf header = {0};
    int rc = gguf_writer_header(writer, &header);

    if (rc != 0)
        rc = fault_set(fault, rc, "out of memory");
    else if (fwrite(header.data, 1, header.len_bytes, writer->file) != header.len_bytes)
        rc = fault_set(fault, E_IO, "cannot write: %s", strerror(errno));
    buf_fini(&header);
    for (uint32_t i = 0; i < writer->n_tensors && rc == 0; i++)
        rc = write_tensor(writer, i, fill, arg, fault);
    if (rc == 0 && (fflush(writer->file) != 0 || fsync(fileno(writer->file)) != 0))
        rc = fault_set(fault, E_IO, "cannot write: %s", strerror(errno));
    return rc;
}

/* Opens a temporary file beside path with the permissions of the umask.  Returns its name on the heap, or
 * NULL. */
static char *open_beside(struct gguf_writer *writer, const char *path, struct fault *fault)
{
    struct buf name = {0};

    buf_printf(&name, "%s.XXXXXX", path);
    char *temporary = buf_take_str(&name);
    if (temporary == NULL) {
        fault_set(fault, E_IO, "out of memory");
        return NULL;
    }

    int fd = mkstemp(temporary);
    if (fd < 0) {
        fault_set(fault, E_IO, "cannot create a file in its folder: %s", strerror(errno));
        free(temporary);
        return NULL;
    }
    mode_t mask = umask(0);
    umask(mask);
    writer->file = fchmod(fd, 0666 & ~mask) == 0 ? fdopen(fd, "wb") : NULL;
    if (writer->file == NULL) {
        fault_set(fault, E_IO, "cannot open the temporary file: %s", strerror(errno));
        close(fd);
        unlink(temporary);
        free(temporary);
        return NULL;
    }
    return temporary;
}

int gguf_writer_save(struct gguf_writer *writer, const char *path, gguf_fill fill, void *arg,
                     struct fault *fault)
{
    char *temporary = open_beside(writer, path, fault);

    if (temporary == NULL)
        return E_IO;
    int rc = write_all(writer, fill, arg, fault);
    if (fclose(writer->file) != 0 && rc == 0)
        rc = fault_set(fault, E_IO, "cannot write: %s", strerror(errno));
    writer->file = NULL;
    if (rc == 0 && rename(temporary, path) != 0)
        rc = fault_set(fault, E_IO, "cannot rename the finished file: %s", strerror(errno));
    if (rc != 0)
        unlink(temporary);
    free(temporary);
    return rc;
}
