/* SPDX-License-Identifier: Apache-2.0 */
/* Values: constructors, truth, lists and dicts.
 *
 * A dict keeps its entries in order. A small dict is searched one by one; from 9 entries on, an
 * open-addressing index over the keys' hashes finds them. Each probe costs steps. So a client that chooses
 * colliding keys gets its own request refused and harms no other client. 1, 1.0 and true are the same key, as
 * in Python. */
#include "text/jinja/jinja_priv.h"

#include "base/err.h"

#include <string.h>

#define FEW_ENTRIES 8

struct value value_undefined(const char *hint)
{
    return (struct value){.kind = VALUE_UNDEFINED, .hint = hint};
}

struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE};
}

struct value value_bool(bool is_true)
{
    return (struct value){.kind = VALUE_BOOL, .is_true = is_true};
}

struct value value_int(int64_t integer)
{
    return (struct value){.kind = VALUE_INT, .integer = integer};
}

struct value value_float(double real)
{
    return (struct value){.kind = VALUE_FLOAT, .real = real};
}

struct value value_text(struct jinja *jinja, struct text text)
{
    struct text *copy = jinja_take(jinja, sizeof(*copy));

    if (copy == NULL)
        return value_undefined(NULL);
    *copy = text;
    return (struct value){.kind = VALUE_TEXT, .text = copy};
}

struct value value_str(struct jinja *jinja, const char *text)
{
    return value_text(jinja, text_str(text));
}

struct value value_bytes(struct jinja *jinja, struct bytes text, uint32_t mark)
{
    return value_text(jinja, (struct text){.data = text.data, .len_bytes = text.len_bytes, .mark = mark});
}

/* ---- lists ---- */

static struct value list_of_kind(struct jinja *jinja, enum value_kind kind, size_t cap)
{
    struct value_list *list = jinja_take(jinja, sizeof(*list));

    if (list == NULL)
        return value_undefined(NULL);
    if (cap > 0) {
        if (cap > SIZE_MAX / 64)
            jinja_fail(jinja, E_LIMIT, "a list that long");
        list->items = jinja_take(jinja, cap * sizeof(*list->items));
        list->cap = list->items == NULL ? 0 : cap;
    }
    return (struct value){.kind = kind, .list = list};
}

struct value value_list(struct jinja *jinja, size_t cap)
{
    return list_of_kind(jinja, VALUE_LIST, cap);
}

struct value value_tuple(struct jinja *jinja, size_t cap)
{
    return list_of_kind(jinja, VALUE_TUPLE, cap);
}

bool value_is_sequence(struct value value)
{
    return value.kind == VALUE_LIST || value.kind == VALUE_TUPLE;
}

void list_push(struct jinja *jinja, struct value list, struct value item)
{
    if (!value_is_sequence(list) || !jinja_charge(jinja, 1))
        return;
    if (list.list->n == list.list->cap) {
        size_t cap = list.list->cap == 0 ? 4 : list.list->cap * 2;
        struct value *items = jinja_take(jinja, cap * sizeof(*items));

        if (items == NULL)
            return;
        if (list.list->n > 0)
            memcpy(items, list.list->items, list.list->n * sizeof(*items));
        list.list->items = items;
        list.list->cap = cap;
    }
    list.list->items[list.list->n++] = item;
}

/* ---- dicts ---- */

struct value value_dict(struct jinja *jinja)
{
    struct value_dict *dict = jinja_take(jinja, sizeof(*dict));

    return dict == NULL ? value_undefined(NULL) : (struct value){.kind = VALUE_DICT, .dict = dict};
}

static bool has_entries(struct value value)
{
    return value.kind == VALUE_DICT || value.kind == VALUE_NAMESPACE;
}

/* Fails for values without a hash: lists and dicts. */
static uint64_t hash_of(struct jinja *jinja, struct value key)
{
    uint64_t hash = 0;
    int64_t index;

    switch (key.kind) {
    case VALUE_TEXT:
        jinja_charge(jinja, key.text->len_bytes / 64);
        return bytes_hash(text_bytes(*key.text));
    case VALUE_TUPLE:
        if (!jinja_enter(jinja))
            return 0;
        for (size_t i = 0; i < key.list->n; i++)
            hash = hash * UINT64_C(0x100000001b3) + hash_of(jinja, key.list->items[i]);
        jinja_leave(jinja);
        return hash;
    case VALUE_FLOAT:
        if (key.real >= -9e15 && key.real <= 9e15 && key.real == (double)(int64_t)key.real)
            return (uint64_t)(int64_t)key.real * UINT64_C(0x9e3779b97f4a7c15);
        memcpy(&hash, &key.real, sizeof(hash));
        return hash;
    case VALUE_LIST:
    case VALUE_DICT:
        jinja_fail(jinja, E_FORMAT, "a %s cannot be a key", value_type(key));
        return 0;
    default:
        return value_index(key, &index) ? (uint64_t)index * UINT64_C(0x9e3779b97f4a7c15) : 1;
    }
}

static bool same_key(struct jinja *jinja, const struct value_entry *entry, struct value key, uint64_t hash)
{
    return entry->hash == hash && jinja_charge(jinja, 1) && value_equal(jinja, entry->key, key);
}

/* The index of the entry, or SIZE_MAX. */
static size_t find_entry(struct jinja *jinja, const struct value_dict *dict, struct value key, uint64_t hash)
{
    if (dict->slots == NULL) {
        for (size_t i = 0; i < dict->n; i++) {
            if (same_key(jinja, &dict->entries[i], key, hash))
                return i;
        }
        return SIZE_MAX;
    }
    for (uint32_t at = (uint32_t)hash & dict->mask; dict->slots[at] != 0; at = (at + 1) & dict->mask) {
        if (!jinja_charge(jinja, 1))
            break;
        if (same_key(jinja, &dict->entries[dict->slots[at] - 1], key, hash))
            return dict->slots[at] - 1;
    }
    return SIZE_MAX;
}

static void index_entry(struct jinja *jinja, struct value_dict *dict, size_t i)
{
    uint32_t at = (uint32_t)dict->entries[i].hash & dict->mask;

    while (dict->slots[at] != 0 && jinja_charge(jinja, 1))
        at = (at + 1) & dict->mask;
    dict->slots[at] = (uint32_t)i + 1;
}

/* Makes room for one more entry; false after a failure. */
static bool value_grow(struct jinja *jinja, struct value_dict *dict)
{
    if (dict->n < dict->cap)
        return true;
    size_t cap = dict->cap == 0 ? 4 : dict->cap * 2;
    struct value_entry *entries = cap < UINT32_MAX / 4 ? jinja_take(jinja, cap * sizeof(*entries)) : NULL;
    if (entries == NULL)
        return false;
    if (dict->n > 0)
        memcpy(entries, dict->entries, dict->n * sizeof(*entries));
    dict->entries = entries;
    dict->cap = cap;
    if (cap > FEW_ENTRIES) {
        uint32_t *slots = jinja_take(jinja, cap * 2 * sizeof(*slots));

        if (slots == NULL)
            return false;
        dict->slots = slots;
        dict->mask = (uint32_t)cap * 2 - 1;
        for (size_t i = 0; i < dict->n; i++)
            index_entry(jinja, dict, i);
    }
    return true;
}

void dict_set(struct jinja *jinja, struct value dict, struct value key, struct value value)
{
    if (!has_entries(dict) || !jinja_charge(jinja, 1))
        return;
    uint64_t hash = hash_of(jinja, key);
    size_t at = find_entry(jinja, dict.dict, key, hash);

    if (at != SIZE_MAX) {
        dict.dict->entries[at].value = value;
    } else if (jinja->rc == 0 && value_grow(jinja, dict.dict)) {
        dict.dict->entries[dict.dict->n++] = (struct value_entry){.key = key, .value = value, .hash = hash};
        if (dict.dict->slots != NULL)
            index_entry(jinja, dict.dict, dict.dict->n - 1);
    }
}

void dict_set_str(struct jinja *jinja, struct value dict, const char *key, struct value value)
{
    dict_set(jinja, dict, value_str(jinja, key), value);
}

struct value *dict_get(struct jinja *jinja, struct value dict, struct value key)
{
    if (!has_entries(dict) || dict.dict->n == 0)
        return NULL;
    size_t at = find_entry(jinja, dict.dict, key, hash_of(jinja, key));

    return at == SIZE_MAX ? NULL : &dict.dict->entries[at].value;
}

struct value *dict_get_str(struct jinja *jinja, struct value dict, const char *key)
{
    struct text text = text_str(key);

    return dict_get(jinja, dict, (struct value){.kind = VALUE_TEXT, .text = &text});
}

/* ---- queries ---- */

bool value_is_true(struct value value)
{
    switch (value.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return value.is_true;
    case VALUE_INT:
        return value.integer != 0;
    case VALUE_FLOAT:
        return value.real != 0;
    case VALUE_TEXT:
        return value.text->len_bytes > 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
        return value.list->n > 0;
    case VALUE_DICT:
        return value.dict->n > 0;
    case VALUE_BIG:
    case VALUE_NAMESPACE:
    case VALUE_MACRO:
    case VALUE_FUNCTION:
    case VALUE_METHOD:
    case VALUE_LOOP:
        return true;
    }
    return false;
}

const char *value_type(struct value value)
{
    switch (value.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
        return "undefined value";
    case VALUE_NONE:
        return "None";
    case VALUE_BOOL:
        return "bool";
    case VALUE_INT:
    case VALUE_BIG:
        return "int";
    case VALUE_FLOAT:
        return "float";
    case VALUE_TEXT:
        return "string";
    case VALUE_LIST:
        return "list";
    case VALUE_TUPLE:
        return "tuple";
    case VALUE_DICT:
        return "dict";
    case VALUE_NAMESPACE:
        return "namespace";
    case VALUE_MACRO:
        return "macro";
    case VALUE_FUNCTION:
        return "function";
    case VALUE_METHOD:
        return "method";
    case VALUE_LOOP:
        return "loop";
    }
    return "value";
}

size_t value_len(struct jinja *jinja, struct value value)
{
    switch (value.kind) {
    case VALUE_TEXT:
        jinja_charge(jinja, value.text->len_bytes / 64);
        return text_length(*value.text);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return value.list->n;
    case VALUE_DICT:
        return value.dict->n;
    case VALUE_UNDEFINED:
        return 0;
    default:
        jinja_fail(jinja, E_FORMAT, "a %s has no length", value_type(value));
        return 0;
    }
}

static struct value value_characters(struct jinja *jinja, struct text text)
{
    struct value list = value_list(jinja, 0);
    size_t len;

    for (size_t at = 0; at < text.len_bytes && jinja->rc == 0; at += len) {
        text_code(text, at, &len);
        list_push(jinja, list, value_text(jinja, text_part(text, at, at + len)));
    }
    return list;
}

struct value value_elements(struct jinja *jinja, struct value value)
{
    struct value list;

    switch (value.kind) {
    case VALUE_LIST:
    case VALUE_TUPLE:
        return value;
    case VALUE_UNDEFINED:
        return value_list(jinja, 0);
    case VALUE_TEXT:
        return value_characters(jinja, *value.text);
    case VALUE_DICT:
        list = value_list(jinja, value.dict->n);
        for (size_t i = 0; i < value.dict->n && jinja->rc == 0; i++)
            list_push(jinja, list, value.dict->entries[i].key);
        return list;
    default:
        jinja_fail(jinja, E_FORMAT, "a %s cannot be gone through", value_type(value));
        return value_undefined(NULL);
    }
}
