/* SPDX-License-Identifier: Apache-2.0 */
/* Enumerations: the texts of the values that the keywords beside enum allow. */
#include "text/grammar/grammar_schema_priv.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

static unsigned grammar_schema_enum_kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return 1u << KIND_OBJECT;
    case JSON_ARRAY:
        return 1u << KIND_ARRAY;
    case JSON_STRING:
        return 1u << KIND_STRING;
    case JSON_INTEGER:
        return 1u << KIND_INTEGER | 1u << KIND_NUMBER;
    case JSON_REAL:
        return 1u << KIND_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return 1u << KIND_BOOLEAN;
    case JSON_NULL:
        return 1u << KIND_NULL;
    }
    return 0;
}

/* Refuses a schema with a keyword about values of this kind, other than the names that are checked here. */
static int refuse_beside(struct schema *s, json_t *schema, const char *const *names)
{
    for (; *names != NULL; names++)
        if (json_object_get(schema, *names) != NULL)
            return schema_fault(s, E_UNSUPPORTED, *names, "cannot be enforced beside enum or const");
    return 0;
}

static bool grammar_schema_enum_is_within(json_t *schema, const json_t *number, const char *least,
                                          const char *most)
{
    json_t *lo = json_object_get(schema, least), *hi = json_object_get(schema, most);

    return (!json_is_number(lo) || schema_compare(number, lo) >= 0) &&
           (!json_is_number(hi) || schema_compare(number, hi) <= 0);
}

static bool is_apart(json_t *schema, const json_t *number)
{
    json_t *lo = json_object_get(schema, "exclusiveMinimum"),
           *hi = json_object_get(schema, "exclusiveMaximum");

    return (!json_is_number(lo) || schema_compare(number, lo) > 0) &&
           (!json_is_number(hi) || schema_compare(number, hi) < 0);
}

/* Checks the text's length in characters.  1, 0, or E_NOMEM. */
static int is_long_enough(json_t *schema, const json_t *text)
{
    json_int_t n_chars = 0;

    for (size_t i = 0; i < json_string_length(text); i++)
        n_chars += (json_string_value(text)[i] & 0xc0) != 0x80;
    json_t *length = json_integer(n_chars);
    int rc =
        length == NULL ? E_NOMEM : grammar_schema_enum_is_within(schema, length, "minLength", "maxLength");
    json_decref(length);
    return rc;
}

/* Checks value against the keywords beside enum.  1, 0, or the fault of an unsupported keyword. */
static int grammar_schema_enum_is_allowed(struct schema *s, json_t *schema, json_t *value)
{
    static const char *const text[] = {"pattern", "format", NULL}, *const number[] = {"multipleOf", NULL};
    static const char *const parts[] = {"properties",
                                        "required",
                                        "additionalProperties",
                                        "minProperties",
                                        "maxProperties",
                                        "prefixItems",
                                        "items",
                                        "minItems",
                                        "maxItems",
                                        NULL};
    int rc = 0;

    if (json_is_string(value)) {
        rc = refuse_beside(s, schema, text);
        return rc != 0 ? rc : is_long_enough(schema, value);
    }
    if (json_is_number(value)) {
        rc = refuse_beside(s, schema, number);
        return rc != 0 ? rc
                       : grammar_schema_enum_is_within(schema, value, "minimum", "maximum") &&
                             is_apart(schema, value);
    }
    if (json_is_object(value) || json_is_array(value))
        rc = refuse_beside(s, schema, parts);
    return rc != 0 ? rc : 1;
}

int schema_values(struct schema *s, json_t *schema, json_t **out)
{
    json_t *values = json_object_get(schema, "enum"), *one = json_object_get(schema, "const"), *value;
    unsigned kinds = json_object_get(schema, "type") != NULL ? schema_kinds(schema) : (1u << N_KINDS) - 1;
    size_t n = values == NULL ? 1 : json_array_size(values);
    int rc;

    if (values != NULL && !json_is_array(values))
        return schema_fault(s, E_FORMAT, "enum", "must be a list of values");
    *out = json_array();
    rc = schema_keep(s, *out);
    for (size_t i = 0; i < n && rc == 0; i++) {
        value = values == NULL ? one : json_array_get(values, i);
        rc = schema_spend(s, STEPS_OF_VALUE);
        if (rc != 0 || (grammar_schema_enum_kind_of(value) & kinds) == 0 ||
            (values != NULL && one != NULL && !schema_equal(s, value, one)))
            continue;
        rc = schema_weigh(s, value);
        if (rc == 0)
            rc = grammar_schema_enum_is_allowed(s, schema, value);
        if (rc > 0)
            rc = json_array_append(*out, value) == 0 ? 0 : E_NOMEM;
    }
    return rc;
}

int schema_enum(struct schema *s, json_t *schema, uint32_t *pc_out)
{
    json_t *values, *value;
    size_t n = 0, i;
    int rc = schema_values(s, schema, &values);

    if (rc != 0)
        return rc;
    struct bytes *texts = calloc(json_array_size(values) + 1, sizeof(*texts));
    if (texts == NULL)
        return E_NOMEM;
    json_array_foreach(values, i, value)
    {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

        if (text == NULL) {
            rc = E_NOMEM;
            break;
        }
        texts[n++] = bytes_str(text);
    }
    if (rc == 0)
        *pc_out = graph_texts(s->graph, texts, n, PC_RET);
    while (n > 0)
        free((void *)(uintptr_t)texts[--n].data);
    free(texts);
    return rc;
}
