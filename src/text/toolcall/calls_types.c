/* SPDX-License-Identifier: Apache-2.0 */
/* The types that a tool's schema allows for a value.  A long schema takes milliseconds to read.  So the job thread
 * that tokenises the request shortens it, and the splitter on the loop reads the short form. */
#include "text/toolcall/calls_types.h"

#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"
#include "text/json/json.h"

#define MAX_REFS   8
#define MAX_LOOKED 1000   /* limit on schemas visited for one value: references may multiply them */
#define MAX_WALKED 100000 /* the same for all values of one schema */
#define MAX_LISTED 64 /* alternatives of one schema that are looked at: a value of more may be of any type */
#define WORDS_EACH 16 /* words of an enum that count as one schema visited */

static unsigned type_of_word(struct bytes word)
{
    static const char *const words[] = {"string", "integer", "number", "boolean", "null", "array", "object"};

    for (unsigned i = 0; i < 7; i++)
        if (bytes_is(word, words[i]))
            return 1u << i;
    return CALLS_AS_ANY;
}

unsigned calls_type_of_value(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        return CALLS_AS_STRING;
    case JSON_INTEGER:
        return CALLS_AS_INTEGER | CALLS_AS_NUMBER;
    case JSON_REAL:
        return CALLS_AS_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return CALLS_AS_BOOLEAN;
    case JSON_NULL:
        return CALLS_AS_NULL;
    case JSON_ARRAY:
        return CALLS_AS_ARRAY;
    case JSON_OBJECT:
        return CALLS_AS_OBJECT;
    }
    return CALLS_AS_ANY;
}

bool calls_has_only(const json_t *schema, const char *const *known)
{
    json_t *value;
    const char *key;

    json_object_foreach((json_t *)schema, key, value)
    {
        size_t i = 0;

        while (known[i] != NULL && strcmp(known[i], key) != 0)
            i++;
        if (known[i] == NULL)
            return false;
    }
    return true;
}

/* True if the schema is one other, with nothing beside it that says more. */
static bool is_lone_all_of(const json_t *schema)
{
    static const char *const notes[] = {"allOf",    "title",       "description", "default", "examples",
                                        "$defs",    "definitions", "$comment",    "$schema", "deprecated",
                                        "readOnly", "writeOnly",   NULL};

    return json_array_size(json_object_get(schema, "allOf")) == 1 && calls_has_only(schema, notes);
}

const json_t *calls_resolve(const json_t *root, const json_t *schema)
{
    for (unsigned i = 0; i < MAX_REFS; i++) {
        const json_t *ref = json_object_get(schema, "$ref");

        if (json_is_string(ref))
            schema = api_json_follow(root, api_json_str(ref));
        else if (is_lone_all_of(schema))
            schema = json_array_get(json_object_get(schema, "allOf"), 0);
        else
            break;
    }
    return schema;
}

static unsigned types_of(const json_t *root, const json_t *schema, unsigned depth, unsigned *n_left);

/* The types that all schemas of the list allow. */
static unsigned shared_types(const json_t *root, const json_t *list, unsigned depth, unsigned *n_left)
{
    unsigned types = CALLS_AS_ANY;

    for (size_t i = 0; i < json_array_size(list) && i < MAX_LISTED; i++) {
        unsigned one = types_of(root, json_array_get(list, i), depth + 1, n_left);

        types &= one | ((one & CALLS_AS_NUMBER) != 0 ? CALLS_AS_INTEGER : 0);
    }
    return types;
}

/* The types of the words of an enum; 0: there are none. */
static unsigned types_of_words(const json_t *words, unsigned *n_left)
{
    unsigned types = 0;

    for (size_t i = 0; i < json_array_size(words) && types != CALLS_AS_ANY; i++) {
        if (i % WORDS_EACH == 0 && *n_left == 0)
            return CALLS_AS_ANY;
        *n_left -= i % WORDS_EACH == 0;
        types |= calls_type_of_value(json_array_get(words, i));
    }
    return types;
}

static unsigned types_of(const json_t *root, const json_t *schema, unsigned depth, unsigned *n_left)
{
    static const char *const choices[] = {"anyOf", "oneOf"};
    const json_t *type = json_object_get(schema, "type");
    unsigned null = json_is_true(json_object_get(schema, "nullable")) ? CALLS_AS_NULL : 0, types = 0;

    if (depth > MAX_REFS || *n_left == 0)
        return CALLS_AS_ANY;
    --*n_left;
    if (json_is_string(json_object_get(schema, "$ref")))
        return null | types_of(root, api_json_follow(root, api_json_str(json_object_get(schema, "$ref"))),
                               depth + 1, n_left);
    if (json_is_string(type))
        return type_of_word(api_json_str(type)) | null;
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_of_word(api_json_str(json_array_get(type, i)));
    if (json_array_size(type) == 0)
        types = types_of_words(json_object_get(schema, "enum"), n_left);
    for (size_t c = 0; c < 2 && types == 0; c++) {
        const json_t *branches = json_object_get(schema, choices[c]);

        if (json_array_size(branches) > MAX_LISTED)
            return CALLS_AS_ANY;
        for (size_t i = 0; i < json_array_size(branches) && types != CALLS_AS_ANY; i++)
            types |= types_of(root, json_array_get(branches, i), depth + 1, n_left);
    }
    if (json_object_get(schema, "const") != NULL && types == 0)
        types = calls_type_of_value(json_object_get(schema, "const"));
    if (types == 0)
        types = shared_types(root, json_object_get(schema, "allOf"), depth, n_left);
    return types == 0 ? CALLS_AS_ANY : types | null;
}

unsigned calls_types_of(const json_t *root, const json_t *schema)
{
    unsigned n_left = MAX_LOOKED;

    return types_of(root, schema, 0, &n_left);
}

/* The types that both sides allow; 0: a side knows nothing of the value. */
static unsigned both_types(unsigned one, unsigned other)
{
    unsigned shared;

    if (one == 0 || other == 0)
        return one | other;
    one |= (one & CALLS_AS_NUMBER) != 0 ? CALLS_AS_INTEGER : 0;
    other |= (other & CALLS_AS_NUMBER) != 0 ? CALLS_AS_INTEGER : 0;
    shared = one & other;
    return shared != 0 ? shared : CALLS_AS_ANY;
}

/* The types that an object's schema allows for the value of a key, also in its allOf and its alternatives.  0: it does not
 * know the key. */
static unsigned types_of_member(const json_t *root, const json_t *schema, struct bytes key, unsigned depth,
                                unsigned *n_left)
{
    static const char *const choices[] = {"anyOf", "oneOf"};
    const json_t *own =
        json_object_getn(json_object_get(schema, "properties"), (const char *)key.data, key.len_bytes);
    const json_t *ref = json_object_get(schema, "$ref"), *all = json_object_get(schema, "allOf");
    unsigned types;

    if (depth > MAX_REFS || *n_left == 0)
        return CALLS_AS_ANY;
    --*n_left;
    types = own == NULL ? 0 : types_of(root, own, 0, n_left);
    if (json_is_string(ref))
        types = both_types(
            types, types_of_member(root, api_json_follow(root, api_json_str(ref)), key, depth + 1, n_left));
    for (size_t i = 0; i < json_array_size(all) && *n_left > 0; i++)
        types = both_types(types, types_of_member(root, json_array_get(all, i), key, depth + 1, n_left));
    for (size_t c = 0; c < ARRAY_LEN(choices); c++) {
        const json_t *list = json_object_get(schema, choices[c]);
        unsigned some = json_array_size(list) > MAX_LISTED ? CALLS_AS_ANY : 0;

        for (size_t i = 0; i < json_array_size(list) && some != CALLS_AS_ANY; i++)
            some |= types_of_member(root, json_array_get(list, i), key, depth + 1, n_left);
        types = both_types(types, some);
    }
    return types;
}

static unsigned types_of_key(const json_t *root, struct bytes key, unsigned *n_left)
{
    unsigned types = types_of_member(root, root, key, 0, n_left);

    return types == 0 ? CALLS_AS_ANY : types;
}

unsigned calls_types_of_key(const json_t *root, struct bytes key)
{
    unsigned n_left = MAX_LOOKED;

    return types_of_key(root, key, &n_left);
}

static const json_t *only_branch(const json_t *root, const json_t *schema, unsigned types, unsigned *n_left)
{
    const json_t *list = json_object_get(schema, "anyOf"), *found = NULL;

    list = list != NULL ? list : json_object_get(schema, "oneOf");
    if (json_array_size(list) > MAX_LISTED)
        return NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if ((types_of(root, json_array_get(list, i), 0, n_left) & types) == 0)
            continue;
        if (found != NULL)
            return NULL;
        found = json_array_get(list, i);
    }
    return found;
}

const json_t *calls_only_branch(const json_t *root, const json_t *schema, unsigned types)
{
    unsigned n_left = MAX_LOOKED;

    return only_branch(root, schema, types, &n_left);
}

const json_t *calls_schema_of_type(const json_t *root, const json_t *schema, unsigned types)
{
    unsigned n_left = MAX_LOOKED;

    schema = calls_resolve(root, schema);
    for (unsigned i = 0; i < MAX_REFS && json_object_get(schema, "properties") == NULL &&
                         json_object_get(schema, "items") == NULL;
         i++) {
        if (json_object_get(schema, "anyOf") == NULL && json_object_get(schema, "oneOf") == NULL)
            break;
        schema = calls_resolve(root, only_branch(root, schema, types, &n_left));
    }
    return schema;
}

/* ---- the short form ---- */

static const char *const type_words[] = {"string", "integer", "number", "boolean", "null", "array", "object"};

static json_t *property_of(unsigned types)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < ARRAY_LEN(type_words); i++)
        if (types & 1u << i)
            json_array_append_new(list, json_string(type_words[i]));
    return json_pack("{s:o}", "type", list);
}

/* An upper bound of a member's bytes in the short form: each byte of its key may need six. */
static size_t member_bytes(size_t key_bytes)
{
    return 6 * key_bytes + sizeof("\"\": {\"type\": [\"string\", \"integer\", \"number\", \"boolean\", "
                                  "\"null\", \"array\", \"object\"]}, ");
}

struct shortened {
    const json_t *root;
    json_t *properties;
    size_t room_bytes;
    unsigned n_left;
};

static void shorten_member(struct shortened *shortened, struct bytes key)
{
    unsigned n_value = shortened->n_left < MAX_LOOKED ? shortened->n_left : MAX_LOOKED, n_before = n_value;
    const char *name = (const char *)key.data;
    unsigned types;

    if (json_object_getn(shortened->properties, name, key.len_bytes) != NULL)
        return;
    types = types_of_key(shortened->root, key, &n_value);
    shortened->n_left -= n_before - n_value;
    if (types == CALLS_AS_ANY || member_bytes(key.len_bytes) > shortened->room_bytes)
        return;
    shortened->room_bytes -= member_bytes(key.len_bytes);
    json_object_setn_new(shortened->properties, name, key.len_bytes, property_of(types));
}

/* Takes the properties that an object's schema declares, also in its allOf and its alternatives. */
static void shorten_members(struct shortened *shortened, const json_t *schema, unsigned depth)
{
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    const json_t *ref = json_object_get(schema, "$ref");
    const char *key;
    size_t key_bytes;
    json_t *value;

    if (depth > MAX_REFS || shortened->n_left == 0)
        return;
    shortened->n_left--;
    json_object_keylen_foreach(json_object_get(schema, "properties"), key, key_bytes, value)
        shorten_member(shortened, bytes_of(key, key_bytes));
    if (json_is_string(ref))
        shorten_members(shortened, api_json_follow(shortened->root, api_json_str(ref)), depth + 1);
    for (size_t c = 0; c < ARRAY_LEN(lists); c++) {
        const json_t *list = json_object_get(schema, lists[c]);

        for (size_t i = 0; i < json_array_size(list); i++)
            shorten_members(shortened, json_array_get(list, i), depth + 1);
    }
}

static json_t *short_properties(const json_t *root)
{
    struct shortened shortened = {.root = root,
                                  .properties = json_object(),
                                  .room_bytes = CALLS_MAX_SCHEMA_BYTES - sizeof("{\"properties\": {}}"),
                                  .n_left = MAX_WALKED};

    shorten_members(&shortened, root, 0);
    return json_pack("{s:o}", "properties", shortened.properties);
}

int calls_shorten_schema(struct bytes schema, struct buf *out)
{
    json_t *root, *shortened;
    int rc = api_json_load(schema, NULL, &root);

    if (rc < 0)
        return rc;
    shortened = short_properties(root);
    json_decref(root);
    rc = shortened != NULL ? api_json_put(out, shortened) : E_NOMEM;
    json_decref(shortened);
    return rc;
}

void calls_put_entities(struct bytes key, struct buf *out)
{
    for (size_t i = 0; i < key.len_bytes; i++) {
        const char *entity = key.data[i] == '&' ? "&amp;" : key.data[i] == '"' ? "&quot;" : NULL;

        if (entity != NULL)
            buf_append_str(out, entity);
        else
            buf_append_byte(out, key.data[i]);
    }
}
