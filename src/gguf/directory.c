/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the keys.
 *
 *     name length u64 | name | kind u32 | value
 *                                         scalar: 1, 2, 4 or 8 bytes
 *                                         string: length u64 | text
 *                                         array:  item kind u32 | count u64 | items
 *
 * This pass walks each key to its last byte once.  For an array of strings (the tokens and merges of a
 * vocabulary) it records the offset of each string, so that a look-up of string 150000 does not pass the
 * others.  A table entry stands for at least eight bytes of file.  Arrays of arrays exist in the format, but
 * no writer makes them and no reader here knows their meaning.  They are refused, with the key's name. */
#include "gguf/gguf_priv.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t len_bytes;
} kinds[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

size_t gguf_kind_bytes(uint32_t kind)
{
    return kind <= GGUF_F64 ? kinds[kind].len_bytes : 0;
}

const char *gguf_kind_name(enum gguf_kind kind)
{
    return kinds[kind].name;
}

/* The key being read, with its start for messages. */
struct place {
    const struct gguf_key *key;
    size_t at_bytes;
    struct fault *fault;
};

#define FAIL(place, code, format, ...)                                                                       \
    fault_set((place)->fault, code, "key '%.*s' at byte %zu: " format, SHOWN((place)->key->name),            \
              (place)->at_bytes, __VA_ARGS__)

int gguf_read_name(struct reader *reader, const char *what, uint64_t number, struct fault *fault,
                   struct bytes *out)
{
    size_t at_bytes = reader->at_bytes;
    unsigned long long shown = (unsigned long long)number;
    uint64_t len_bytes = read_u64(reader);

    if (!reader->is_bad && (len_bytes == 0 || len_bytes > GGUF_MAX_NAME_BYTES)) {
        return fault_set(fault, E_FORMAT,
                         "%s %llu at byte %zu: its name is %llu bytes long, allowed are 1 to %d", what, shown,
                         at_bytes, (unsigned long long)len_bytes, GGUF_MAX_NAME_BYTES);
    }
    struct bytes name = read_bytes(reader, (size_t)len_bytes);
    if (reader->is_bad)
        return fault_set(fault, E_TRUNCATED, "%s %llu at byte %zu: the file ends inside its name", what,
                         shown, at_bytes);
    if (memchr(name.data, '\0', name.len_bytes) != NULL)
        return fault_set(fault, E_FORMAT, "%s %llu at byte %zu: its name has a NUL byte", what, shown,
                         at_bytes);
    *out = name;
    return 0;
}

static int directory_read_text(struct reader *reader, const struct place *place, struct bytes *out)
{
    uint64_t len_bytes = read_u64(reader);
    size_t left_bytes = reader->len_bytes - reader->at_bytes;

    if (reader->is_bad)
        return FAIL(place, E_TRUNCATED, "the file ends inside its %s", "value");
    if (len_bytes > left_bytes)
        return FAIL(place, E_TRUNCATED, "a string of %llu bytes, but the file has %zu left",
                    (unsigned long long)len_bytes, left_bytes);
    *out = read_bytes(reader, (size_t)len_bytes);
    return 0;
}

static int check_bools(struct bytes value, const struct place *place)
{
    for (size_t i = 0; i < value.len_bytes; i++) {
        if (value.data[i] > 1)
            return FAIL(place, E_FORMAT, "a truth value of %u", value.data[i]);
    }
    return 0;
}

static int read_fixed(struct reader *reader, struct gguf_key *key, enum gguf_kind kind, uint64_t n_items,
                      const struct place *place)
{
    size_t item_bytes = gguf_kind_bytes(kind);
    size_t left_bytes = reader->len_bytes - reader->at_bytes;

    if (n_items > left_bytes / item_bytes)
        return FAIL(place, E_TRUNCATED, "%llu values of %zu bytes, but the file has %zu left",
                    (unsigned long long)n_items, item_bytes, left_bytes);
    key->value = read_bytes(reader, (size_t)n_items * item_bytes);
    return kind == GGUF_BOOL ? check_bools(key->value, place) : 0;
}

static int read_strings(struct reader *reader, struct gguf_key *key, const struct place *place)
{
    size_t left_bytes = reader->len_bytes - reader->at_bytes;
    size_t from = reader->at_bytes;

    if (key->n_items > left_bytes / 8)
        return FAIL(place, E_TRUNCATED, "%llu strings, but the file has %zu bytes left",
                    (unsigned long long)key->n_items, left_bytes);
    if (key->n_items > 0) {
        key->item_at = malloc((size_t)key->n_items * sizeof(*key->item_at));
        if (key->item_at == NULL)
            return FAIL(place, E_NOMEM, "%s", "out of memory");
    }
    for (uint64_t i = 0; i < key->n_items; i++) {
        struct bytes text;

        key->item_at[i] = reader->at_bytes - from;
        int rc = directory_read_text(reader, place, &text);
        if (rc != 0)
            return rc;
    }
    key->value = bytes_of(reader->data + from, reader->at_bytes - from);
    return 0;
}

static int read_array(struct reader *reader, struct gguf_key *key, const struct place *place)
{
    uint32_t kind = read_u32(reader);

    key->n_items = read_u64(reader);
    if (reader->is_bad)
        return FAIL(place, E_TRUNCATED, "the file ends inside its %s", "array header");
    if (kind == GGUF_ARRAY)
        return FAIL(place, E_UNSUPPORTED, "%s", "an array of arrays");
    if (kind > GGUF_F64)
        return FAIL(place, E_FORMAT, "an array of unknown kind %u", kind);
    key->item_kind = (enum gguf_kind)kind;
    if (kind == GGUF_STRING)
        return read_strings(reader, key, place);
    return read_fixed(reader, key, key->item_kind, key->n_items, place);
}

static int directory_read_value(struct reader *reader, struct gguf_key *key, const struct place *place)
{
    uint32_t kind = read_u32(reader);

    if (reader->is_bad)
        return FAIL(place, E_TRUNCATED, "the file ends before its %s", "kind");
    if (kind > GGUF_F64)
        return FAIL(place, E_FORMAT, "unknown kind %u", kind);
    key->kind = (enum gguf_kind)kind;
    if (kind == GGUF_STRING)
        return directory_read_text(reader, place, &key->value);
    if (kind == GGUF_ARRAY)
        return read_array(reader, key, place);
    return read_fixed(reader, key, key->kind, 1, place);
}

static struct bytes key_name(const struct gguf *gguf, uint32_t number)
{
    return gguf->keys[number].name;
}

int gguf_read_keys(struct gguf *gguf, struct reader *reader, uint64_t count, struct fault *fault)
{
    if (gguf_index_init(&gguf->key_index, count) != 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    gguf->keys = calloc((size_t)count + 1, sizeof(*gguf->keys));
    if (gguf->keys == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    gguf->n_keys = (uint32_t)count;

    for (uint32_t i = 0; i < gguf->n_keys; i++) {
        struct gguf_key *key = &gguf->keys[i];
        struct place place = {.key = key, .at_bytes = reader->at_bytes, .fault = fault};

        int rc = gguf_read_name(reader, "key", i, fault, &key->name);
        if (rc == 0)
            rc = directory_read_value(reader, key, &place);
        if (rc != 0)
            return rc;
        key->entry = bytes_of(reader->data + place.at_bytes, reader->at_bytes - place.at_bytes);
        if (gguf_index_add(&gguf->key_index, gguf, key_name, i) != 0)
            return FAIL(&place, E_FORMAT, "%s", "the key appears twice");
    }
    return 0;
}

const struct gguf_key *gguf_find_key(const struct gguf *gguf, struct bytes name)
{
    uint32_t number = gguf_index_find(&gguf->key_index, gguf, key_name, name);

    return number == UINT32_MAX ? NULL : &gguf->keys[number];
}
