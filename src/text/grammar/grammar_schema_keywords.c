/* SPDX-License-Identifier: Apache-2.0 */
/* The keywords of JSON Schema: enforced ones, annotations, and refused ones.
 *
 * Unknown keywords are annotations, as the specification demands.  A keyword about another kind of value than
 * the schema's has no effect.  Without a type, the keywords tell which kinds are meant.  (The specification
 * would also allow all other kinds.  Users do not want them, and the grammar may be stricter.) */
#include "text/grammar/grammar_schema_priv.h"

#include "base/err.h"

#include <string.h>

#define KIND(kind) (1u << KIND_##kind)
#define ANY_KIND   ((1u << N_KINDS) - 1)
#define NUMERIC    (KIND(NUMBER) | KIND(INTEGER))

static const struct keyword {
    const char *name;
    unsigned kinds; /* kinds that it is about; 0: any */
    bool is_refused;
} keywords[] = {
    {"type", 0, false},
    {"enum", 0, false},
    {"const", 0, false},
    {"$ref", 0, false},
    {"anyOf", 0, false},
    {"oneOf", 0, false},
    {"allOf", 0, false},
    {"properties", KIND(OBJECT), false},
    {"required", KIND(OBJECT), false},
    {"additionalProperties", KIND(OBJECT), false},
    {"minProperties", KIND(OBJECT), false},
    {"maxProperties", KIND(OBJECT), false},
    {"items", KIND(ARRAY), false},
    {"prefixItems", KIND(ARRAY), false},
    {"minItems", KIND(ARRAY), false},
    {"maxItems", KIND(ARRAY), false},
    {"uniqueItems", KIND(ARRAY), false},
    {"minLength", KIND(STRING), false},
    {"maxLength", KIND(STRING), false},
    {"pattern", KIND(STRING), false},
    {"format", KIND(STRING), false},
    {"minimum", NUMERIC, false},
    {"maximum", NUMERIC, false},
    {"exclusiveMinimum", NUMERIC, false},
    {"exclusiveMaximum", NUMERIC, false},
    {"multipleOf", NUMERIC, false},
    {"nullable", 0, false},
    {"not", 0, true},
    {"if", 0, true},
    {"then", 0, true},
    {"else", 0, true},
    {"patternProperties", KIND(OBJECT), true},
    {"propertyNames", KIND(OBJECT), true},
    {"dependentRequired", KIND(OBJECT), true},
    {"dependentSchemas", KIND(OBJECT), true},
    {"dependencies", KIND(OBJECT), true},
    {"unevaluatedProperties", KIND(OBJECT), true},
    {"unevaluatedItems", KIND(ARRAY), true},
    {"additionalItems", KIND(ARRAY), true},
    {"contains", KIND(ARRAY), true},
    {"minContains", KIND(ARRAY), true},
    {"maxContains", KIND(ARRAY), true},
    {"$dynamicRef", 0, true},
    {"$recursiveRef", 0, true},
};

static const struct keyword *grammar_schema_keywords_find(const char *name)
{
    for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++)
        if (keywords[i].name[0] == name[0] && strcmp(keywords[i].name, name) == 0)
            return &keywords[i];
    return NULL;
}

bool schema_is_assertion(const char *keyword)
{
    return grammar_schema_keywords_find(keyword) != NULL;
}

static unsigned kinds_of_name(const char *name)
{
    static const struct {
        const char *name;
        unsigned kinds;
    } names[] = {{"object", KIND(OBJECT)}, {"array", KIND(ARRAY)},     {"string", KIND(STRING)},
                 {"number", KIND(NUMBER)}, {"integer", KIND(INTEGER)}, {"boolean", KIND(BOOLEAN)},
                 {"null", KIND(NULL)}};

    for (size_t i = 0; name != NULL && i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].kinds;
    return 0;
}

/* 0: not a valid type. */
static unsigned kinds_of_type(json_t *type)
{
    unsigned kinds = 0;
    json_t *item;
    size_t i;

    if (json_is_string(type))
        return kinds_of_name(json_string_value(type));
    if (json_array_size(type) > SCHEMA_MAX_TYPES) /* there are only seven types */
        return 0;
    json_array_foreach(type, i, item)
    {
        unsigned kind = kinds_of_name(json_string_value(item));
        if (kind == 0)
            return 0;
        kinds |= kind;
    }
    return kinds;
}

unsigned schema_kinds(json_t *schema)
{
    json_t *type = json_object_get(schema, "type"), *value;
    unsigned kinds = 0;
    const char *name;

    if (type != NULL)
        kinds = kinds_of_type(type);
    json_object_foreach(schema, name, value)
    {
        const struct keyword *keyword = grammar_schema_keywords_find(name);
        if (keyword != NULL && type == NULL)
            kinds |= keyword->kinds;
    }
    if (json_is_true(json_object_get(schema, "nullable")))
        kinds |= KIND(NULL);
    if (kinds == 0 || kinds == KIND(NULL))
        kinds = type == NULL ? ANY_KIND : kinds;
    return kinds & KIND(NUMBER) ? kinds & ~KIND(INTEGER) : kinds; /* numbers include integers */
}

int schema_check_keywords(struct schema *s, json_t *schema)
{
    json_t *type = json_object_get(schema, "type"), *value;
    const char *name;

    if (schema_spend(s, STEPS_OF_VALUE * (1 + (uint64_t)json_object_size(schema))) != 0)
        return E_LIMIT;
    if (type != NULL && kinds_of_type(type) == 0)
        return schema_fault(s, E_FORMAT, "type", "must be the name of a type, or a list of them");
    unsigned kinds = schema_kinds(schema);
    json_object_foreach(schema, name, value)
    {
        const struct keyword *keyword = grammar_schema_keywords_find(name);
        bool is_vain = keyword != NULL && keyword->kinds != 0 && (keyword->kinds & kinds) == 0;

        if (keyword != NULL && keyword->is_refused && !is_vain)
            return schema_fault(s, E_UNSUPPORTED, name, "cannot be enforced");
    }
    if (json_is_true(json_object_get(schema, "uniqueItems")))
        return schema_fault(s, E_UNSUPPORTED, "uniqueItems", "cannot be enforced");
    return 0;
}

int schema_count(struct schema *s, json_t *schema, const char *keyword, uint32_t fallback, uint32_t *out)
{
    json_t *value = json_object_get(schema, keyword);
    double number = json_number_value(value);

    *out = fallback;
    if (value == NULL)
        return 0;
    if (!json_is_number(value) || number < 0 ||
        (json_is_real(value) && number < 1e9 && number != (uint32_t)number))
        return schema_fault(s, E_FORMAT, keyword, "must be a count");
    *out = number > 1e9 ? 1000000000u : (uint32_t)number;
    return 0;
}
