/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the tensor declarations.
 *
 *     name length u64 | name | n_dims u32 | dims u64 [n_dims] | type u32 | offset u64 from the data section
 *
 * The data section begins at the first multiple of the alignment after the last declaration.  Tensors lie in
 * it in the order declared, each at a multiple of the alignment.  A tensor that begins before its
 * predecessor ends is refused, so no two share bytes.  A row (dims[0] weights) must be whole quantised
 * blocks. */
#include "gguf/gguf_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <stdlib.h>

struct place {
    const struct gguf_tensor *tensor;
    size_t at_bytes; /* start of the declaration */
    struct fault *fault;
};

#define FAIL(place, code, format, ...)                                                                       \
    fault_set((place)->fault, code, "tensor '%.*s' at byte %zu: " format, SHOWN((place)->tensor->name),      \
              (place)->at_bytes, __VA_ARGS__)

/* Types of GGUF that Baton does not support, so that the message can name them. */
static const char *foreign_type(uint32_t type)
{
    static const char *const names[] = {
        [4] = "Q4_2", [5] = "Q4_3", [31] = "Q4_0_4_4", [32] = "Q4_0_4_8", [33] = "Q4_0_8_8",
    };

    return type < ARRAY_LEN(names) && names[type] != NULL ? names[type] : "unknown";
}

static int read_dims(struct reader *reader, struct gguf_tensor *tensor, const struct place *place)
{
    tensor->n_dims = read_u32(reader);
    if (!reader->is_bad && tensor->n_dims > GGUF_MAX_DIMS)
        return FAIL(place, E_FORMAT, "%u dimensions, the limit is %d", tensor->n_dims, GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
        tensor->dims[i] = reader->is_bad || i >= tensor->n_dims ? 1 : read_u64(reader);
        if (!reader->is_bad && tensor->dims[i] == 0)
            return FAIL(place, E_FORMAT, "dimension %u is 0", i);
    }
    return 0;
}

static int gguf_tensors_size_of(struct gguf_tensor *tensor, uint32_t type, const struct place *place)
{
    const struct dtype_info *info = dtype_info(type);
    size_t len_bytes;

    if (info == NULL)
        return FAIL(place, E_UNSUPPORTED, "type %u (%s) is not supported", type, foreign_type(type));
    if (tensor->dims[0] % info->qblk_weights != 0)
        return FAIL(place, E_FORMAT, "a row of %llu weights is not whole %s blocks of %u",
                    (unsigned long long)tensor->dims[0], info->name, info->qblk_weights);
    tensor->type = (enum dtype)type;

    bool is_over = __builtin_mul_overflow(tensor->dims[0] / info->qblk_weights, info->qblk_bytes, &len_bytes);
    for (uint32_t i = 1; i < GGUF_MAX_DIMS; i++)
        is_over |= __builtin_mul_overflow(len_bytes, tensor->dims[i], &len_bytes);
    if (is_over)
        return FAIL(place, E_RANGE, "%s", "its size overflows");
    tensor->len_bytes = len_bytes;
    return 0;
}

/* Keeps the offset.  It is checked against the data section once the start of that section is known. */
static int read_tensor(struct gguf *gguf, struct reader *reader, uint32_t number, struct fault *fault,
                       uint64_t *offset_out)
{
    struct gguf_tensor *tensor = &gguf->tensors[number];
    struct place place = {.tensor = tensor, .at_bytes = reader->at_bytes, .fault = fault};

    int rc = gguf_read_name(reader, "tensor", number, fault, &tensor->name);
    if (rc == 0)
        rc = read_dims(reader, tensor, &place);
    if (rc != 0)
        return rc;
    uint32_t type = read_u32(reader);
    *offset_out = read_u64(reader);
    if (reader->is_bad)
        return FAIL(&place, E_TRUNCATED, "%s", "the file ends inside its declaration");
    return gguf_tensors_size_of(tensor, type, &place);
}

static struct bytes gguf_tensors_tensor_name(const struct gguf *gguf, uint32_t number)
{
    return gguf->tensors[number].name;
}

/* offset: from the start of the data section. *end_bytes: end of the predecessor, from there too. */
static int place_tensor(struct gguf *gguf, struct gguf_tensor *tensor, uint64_t offset, size_t *end_bytes,
                        struct fault *fault)
{
    size_t align = gguf->align_bytes;
    struct place place = {
        .tensor = tensor, .at_bytes = (size_t)(tensor->name.data - gguf->image.data) - 8, .fault = fault};
    size_t begin_bytes = (gguf->directory_len_bytes + align - 1) & ~(align - 1);
    size_t has_bytes = gguf->image.len_bytes > begin_bytes ? gguf->image.len_bytes - begin_bytes : 0;

    if (offset % align != 0)
        return FAIL(&place, E_FORMAT, "its data offset %llu is not a multiple of %zu",
                    (unsigned long long)offset, align);
    if (offset > has_bytes || tensor->len_bytes > has_bytes - offset)
        return FAIL(&place, E_TRUNCATED,
                    "%zu bytes at data offset %llu, but the data section has %zu: the file is incomplete",
                    tensor->len_bytes, (unsigned long long)offset, has_bytes);
    if (offset < *end_bytes)
        return FAIL(&place, E_FORMAT, "its data offset %llu lies inside the tensor before it",
                    (unsigned long long)offset);
    tensor->data = gguf->image.data + begin_bytes + offset;
    *end_bytes = (size_t)offset + tensor->len_bytes;
    return 0;
}

static int gguf_tensors_read_all(struct gguf *gguf, struct reader *reader, uint64_t *offsets,
                                 struct fault *fault)
{
    size_t end_bytes = 0;
    int rc = 0;

    for (uint32_t i = 0; i < gguf->n_tensors && rc == 0; i++) {
        rc = read_tensor(gguf, reader, i, fault, &offsets[i]);
        if (rc == 0 && gguf_index_add(&gguf->tensor_index, gguf, gguf_tensors_tensor_name, i) != 0) {
            struct bytes name = gguf->tensors[i].name;
            rc = fault_set(fault, E_FORMAT, "tensor '%.*s' at byte %zu: the name appears twice", SHOWN(name),
                           (size_t)(name.data - gguf->image.data) - 8);
        }
    }
    gguf->directory_len_bytes = reader->at_bytes;
    for (uint32_t i = 0; i < gguf->n_tensors && rc == 0; i++)
        rc = place_tensor(gguf, &gguf->tensors[i], offsets[i], &end_bytes, fault);
    return rc;
}

int gguf_read_tensors(struct gguf *gguf, struct reader *reader, uint64_t count, struct fault *fault)
{
    uint64_t *offsets = calloc((size_t)count + 1, sizeof(*offsets));

    gguf->tensors = calloc((size_t)count + 1, sizeof(*gguf->tensors));
    gguf->n_tensors = (uint32_t)count;
    int rc = gguf->tensors == NULL || offsets == NULL || gguf_index_init(&gguf->tensor_index, count) != 0
                 ? fault_set(fault, E_NOMEM, "out of memory")
                 : gguf_tensors_read_all(gguf, reader, offsets, fault);
    free(offsets);
    return rc;
}

uint64_t gguf_tensor_count(const struct gguf *gguf)
{
    return gguf->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, uint64_t index)
{
    return index < gguf->n_tensors ? &gguf->tensors[index] : NULL;
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *gguf, const char *name)
{
    uint32_t number = gguf_index_find(&gguf->tensor_index, gguf, gguf_tensors_tensor_name, bytes_str(name));

    return number == UINT32_MAX ? NULL : &gguf->tensors[number];
}
