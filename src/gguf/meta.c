/* SPDX-License-Identifier: Apache-2.0 */
/* Typed look-ups.
 *
 * Writers of GGUF use different integer widths (a head count may be u32, i32 or u64).  So a look-up asks for
 * a number, and any width that holds it exactly will do.  A float never converts to an integer; an integer
 * converts to a float.  A key of another kind is E_FORMAT with the key's name in the fault.  So a caller
 * that needs the key passes the fault on, and a caller that does not need it can tell this case from an
 * absent key. */
#include "gguf/gguf_priv.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

/* An integer of any width, as magnitude and sign, so that both u64 and i64 fit. */
struct number {
    uint64_t value; /* two's complement when is_negative */
    bool is_negative;
};

static bool is_integer(enum gguf_kind kind)
{
    return kind <= GGUF_I32 || kind == GGUF_U64 || kind == GGUF_I64;
}

static struct number read_integer(const uint8_t *at, enum gguf_kind kind)
{
    int64_t value = 0;

    if (kind == GGUF_U64)
        return (struct number){.value = get_u64(at)};
    if (kind == GGUF_U8)
        value = *at;
    else if (kind == GGUF_I8)
        value = (int8_t)*at;
    else if (kind == GGUF_U16)
        value = get_u16(at);
    else if (kind == GGUF_I16)
        value = (int16_t)get_u16(at);
    else if (kind == GGUF_U32)
        value = get_u32(at);
    else if (kind == GGUF_I32)
        value = (int32_t)get_u32(at);
    else
        value = (int64_t)get_u64(at);
    return (struct number){.value = (uint64_t)value, .is_negative = value < 0};
}

static double read_float(const uint8_t *at, enum gguf_kind kind)
{
    if (kind == GGUF_F32) {
        uint32_t bits = get_u32(at);
        float value;
        memcpy(&value, &bits, sizeof(value));
        return (double)value;
    }
    if (kind == GGUF_F64) {
        uint64_t bits = get_u64(at);
        double value;
        memcpy(&value, &bits, sizeof(value));
        return value;
    }
    struct number number = read_integer(at, kind);
    return number.is_negative ? (double)(int64_t)number.value : (double)number.value;
}

static int fail_kind(const struct gguf *gguf, const struct gguf_key *key, const char *wanted,
                     struct fault *fault)
{
    return fault_set(fault, E_FORMAT, "key '%.*s' at byte %zu: %s where %s is needed", SHOWN(key->name),
                     (size_t)(key->entry.data - gguf->image.data), gguf_kind_name(key->kind), wanted);
}

static const struct gguf_key *meta_find(const struct gguf *gguf, const char *name, struct fault *fault)
{
    const struct gguf_key *key = gguf_find_key(gguf, bytes_str(name));

    if (key == NULL)
        fault_set(fault, E_NOT_FOUND, "key '%s' is missing", name);
    return key;
}

static int find_integer(const struct gguf *gguf, const char *name, struct fault *fault, struct number *out)
{
    const struct gguf_key *key = meta_find(gguf, name, fault);

    if (key == NULL)
        return E_NOT_FOUND;
    if (!is_integer(key->kind))
        return fail_kind(gguf, key, "an integer", fault);
    *out = read_integer(key->value.data, key->kind);
    return 0;
}

int gguf_get_u64(const struct gguf *gguf, const char *key, struct fault *fault, uint64_t *out)
{
    struct number number;
    int rc = find_integer(gguf, key, fault, &number);

    if (rc != 0)
        return rc;
    if (number.is_negative)
        return fault_set(fault, E_FORMAT, "key '%s': %lld is negative", key, (long long)number.value);
    *out = number.value;
    return 0;
}

int gguf_get_i64(const struct gguf *gguf, const char *key, struct fault *fault, int64_t *out)
{
    struct number number;
    int rc = find_integer(gguf, key, fault, &number);

    if (rc != 0)
        return rc;
    if (!number.is_negative && number.value > INT64_MAX)
        return fault_set(fault, E_FORMAT, "key '%s': %llu is too large", key,
                         (unsigned long long)number.value);
    *out = (int64_t)number.value;
    return 0;
}

int gguf_get_f64(const struct gguf *gguf, const char *key, struct fault *fault, double *out)
{
    const struct gguf_key *found = meta_find(gguf, key, fault);

    if (found == NULL)
        return E_NOT_FOUND;
    if (!is_integer(found->kind) && found->kind != GGUF_F32 && found->kind != GGUF_F64)
        return fail_kind(gguf, found, "a number", fault);
    double value = read_float(found->value.data, found->kind);
    if (!isfinite(value))
        return fault_set(fault, E_FORMAT, "key '%s': not a finite number", key);
    *out = value;
    return 0;
}

int gguf_get_bool(const struct gguf *gguf, const char *key, struct fault *fault, bool *out)
{
    const struct gguf_key *found = meta_find(gguf, key, fault);

    if (found == NULL)
        return E_NOT_FOUND;
    if (found->kind != GGUF_BOOL)
        return fail_kind(gguf, found, "a truth value", fault);
    *out = found->value.data[0] != 0;
    return 0;
}

int gguf_get_str(const struct gguf *gguf, const char *key, struct fault *fault, struct bytes *out)
{
    const struct gguf_key *found = meta_find(gguf, key, fault);

    if (found == NULL)
        return E_NOT_FOUND;
    if (found->kind != GGUF_STRING)
        return fail_kind(gguf, found, "a string", fault);
    *out = found->value;
    return 0;
}

int gguf_array_len(const struct gguf *gguf, const char *key, enum gguf_kind *kind_out, uint64_t *len_out)
{
    const struct gguf_key *found = gguf_find_key(gguf, bytes_str(key));

    if (found == NULL)
        return E_NOT_FOUND;
    if (found->kind != GGUF_ARRAY)
        return E_FORMAT;
    *kind_out = found->item_kind;
    *len_out = found->n_items;
    return 0;
}

/* The array's key if it has an item at index; E_RANGE beyond its end. */
static int find_item(const struct gguf *gguf, const char *name, uint64_t index, const struct gguf_key **out)
{
    const struct gguf_key *key = gguf_find_key(gguf, bytes_str(name));

    if (key == NULL)
        return E_NOT_FOUND;
    if (key->kind != GGUF_ARRAY)
        return E_FORMAT;
    if (index >= key->n_items)
        return E_RANGE;
    *out = key;
    return 0;
}

struct bytes gguf_item_str(const struct gguf_key *key, uint64_t index)
{
    const uint8_t *at = key->value.data + key->item_at[index];

    return bytes_of(at + 8, (size_t)get_u64(at));
}

int gguf_array_str(const struct gguf *gguf, const char *key, uint64_t index, struct bytes *out)
{
    const struct gguf_key *found;
    int rc = find_item(gguf, key, index, &found);

    if (rc != 0)
        return rc;
    if (found->item_kind != GGUF_STRING)
        return E_FORMAT;
    *out = gguf_item_str(found, index);
    return 0;
}

int gguf_array_f64(const struct gguf *gguf, const char *key, uint64_t index, double *out)
{
    const struct gguf_key *found;
    int rc = find_item(gguf, key, index, &found);

    if (rc != 0)
        return rc;
    if (!is_integer(found->item_kind) && found->item_kind != GGUF_F32 && found->item_kind != GGUF_F64)
        return E_FORMAT;
    *out = read_float(found->value.data + index * gguf_kind_bytes(found->item_kind), found->item_kind);
    return 0;
}

int gguf_array_i64(const struct gguf *gguf, const char *key, uint64_t index, int64_t *out)
{
    const struct gguf_key *found;
    int rc = find_item(gguf, key, index, &found);

    if (rc != 0)
        return rc;
    if (found->item_kind == GGUF_BOOL) {
        *out = found->value.data[index] != 0;
        return 0;
    }
    if (!is_integer(found->item_kind))
        return E_FORMAT;
    struct number number =
        read_integer(found->value.data + index * gguf_kind_bytes(found->item_kind), found->item_kind);
    if (!number.is_negative && number.value > INT64_MAX)
        return E_FORMAT;
    *out = (int64_t)number.value;
    return 0;
}
