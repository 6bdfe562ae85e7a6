/* SPDX-License-Identifier: Apache-2.0 */
/* Merging two schemas into one that requires both, and checking that branches exclude each other.
 *
 *     {"properties": {"a": A}, "required": ["a"]}  and  {"properties": {"a": B, "c": C}, "maxProperties": 3}
 *     --> {"properties": {"a": {"allOf": [A, B]}, "c": C}, "required": ["a"], "maxProperties": 3}
 *
 * The merge goes keyword by keyword.  Schemas of inner values stay an allOf until they are compiled, so
 * merging does not recurse and ends where the schema ends.  A keyword that has no merged form is refused by
 * name. */
#include "text/grammar/grammar_schema_priv.h"

#include "base/err.h"

#include <string.h>

#define ONE_OF_MAX 200u

/* An allOf of both, merged later. */
static json_t *grammar_schema_merge_both(json_t *left, json_t *right)
{
    if (left == NULL || json_is_true(left))
        return json_incref(right == NULL ? json_true() : right);
    if (right == NULL || json_is_true(right) || left == right)
        return json_incref(left);
    if (json_is_false(left) || json_is_false(right))
        return json_false();
    return json_pack("{s:[O,O]}", "allOf", left, right);
}

static json_t *others_of(json_t *schema)
{
    json_t *others = json_object_get(schema, "additionalProperties");

    return others == NULL ? json_true() : others;
}

/* Charges for finding and copying each member. */
static int spend_names(struct schema *s, json_t *object)
{
    uint64_t steps = 0;
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value) steps += 2 * STEPS_OF_VALUE + 2 * strlen(name) / STEPS_PER_BYTES;
    return schema_spend(s, steps);
}

/* Merges properties.  A property of one side only must also satisfy the other side's schema for undeclared
 * ones. */
static int merge_objects(struct schema *s, json_t *left, json_t *right, json_t *merged)
{
    json_t *mine = json_object_get(left, "properties"), *theirs = json_object_get(right, "properties");
    json_t *all = json_object(), *value;
    const char *name;
    int rc = schema_keep(s, all);

    if (rc == 0)
        rc = spend_names(s, mine);
    if (rc == 0)
        rc = spend_names(s, theirs);
    if (rc != 0)
        return rc;
    json_object_foreach(mine, name, value)
    {
        json_t *other = json_object_get(theirs, name);
        rc |= json_object_set_new(all, name,
                                  grammar_schema_merge_both(value, other != NULL ? other : others_of(right)));
    }
    json_object_foreach(theirs, name, value) if (json_object_get(mine, name) == NULL) rc |=
        json_object_set_new(all, name, grammar_schema_merge_both(others_of(left), value));
    if (mine != NULL || theirs != NULL)
        rc |= json_object_set(merged, "properties", all);
    if (json_object_get(left, "additionalProperties") != NULL ||
        json_object_get(right, "additionalProperties") != NULL)
        rc |= json_object_set_new(merged, "additionalProperties",
                                  grammar_schema_merge_both(others_of(left), others_of(right)));
    return rc == 0 ? 0 : E_NOMEM;
}

/* Spells a value; equal values have equal spellings. */
static int spell_value(struct schema *s, json_t *value, char **out)
{
    int rc = schema_weigh(s, value);

    if (rc != 0)
        return rc;
    *out = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
    return *out == NULL ? E_NOMEM : 0;
}

static int merge_lists(struct schema *s, json_t *left, json_t *right, bool is_union, json_t **out)
{
    json_t *list = json_array(), *set = json_object(), *item;
    char *text = NULL;
    size_t i;
    int rc = schema_keep(s, list);

    if (rc == 0)
        rc = schema_keep(s, set);
    json_array_foreach(left, i, item)
    {
        rc = rc != 0 ? rc : spell_value(s, item, &text);
        if (rc == 0 && json_object_set_nocheck(set, text, json_true()) != 0)
            rc = E_NOMEM;
        if (rc == 0 && is_union && json_array_append(list, item) != 0)
            rc = E_NOMEM;
        free(text);
        text = NULL;
    }
    json_array_foreach(right, i, item)
    {
        rc = rc != 0 ? rc : spell_value(s, item, &text);
        if (rc == 0 && (json_object_get(set, text) != NULL) != is_union && json_array_append(list, item) != 0)
            rc = E_NOMEM;
        free(text);
        text = NULL;
    }
    *out = list;
    return rc;
}

static bool type_has(json_t *type, const char *name)
{
    json_t *item;
    size_t i;

    if (json_is_string(type))
        return strcmp(json_string_value(type), name) == 0;
    json_array_foreach(type, i, item) if (json_is_string(item) &&
                                          strcmp(json_string_value(item), name) == 0) return true;
    return false;
}

/* True if the schema's type allows this kind. */
static bool allows_type(json_t *schema, const char *name)
{
    json_t *type = json_object_get(schema, "type");

    return type_has(type, name) || (strcmp(name, "integer") == 0 && type_has(type, "number")) ||
           (strcmp(name, "null") == 0 && json_is_true(json_object_get(schema, "nullable")));
}

static int merge_types(struct schema *s, json_t *left, json_t *right, json_t **out)
{
    static const char *const names[] = {"object", "array", "string", "number", "integer", "boolean", "null"};
    json_t *list = json_array();
    int rc = schema_keep(s, list);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && rc == 0; i++) {
        if (allows_type(left, names[i]) && allows_type(right, names[i]))
            rc = json_array_append_new(list, json_string(names[i])) == 0 ? 0 : E_NOMEM;
    }
    if (rc == 0 && json_array_size(list) == 0)
        return schema_fault(s, E_FORMAT, "type", "no type is left");
    *out = list;
    return rc;
}

/* 1: the greater value of this keyword counts; -1: the lesser; 0: neither. */
static int sense_of(const char *keyword)
{
    static const char *const lower[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                        "minProperties"};
    static const char *const upper[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                        "maxProperties"};

    for (size_t i = 0; i < 5; i++) {
        if (strcmp(keyword, lower[i]) == 0)
            return 1;
        if (strcmp(keyword, upper[i]) == 0)
            return -1;
    }
    return 0;
}

/* Merges a keyword that both schemas have; *out is borrowed. */
static int merge_keyword(struct schema *s, const char *keyword, json_t *mine, json_t *theirs, json_t **out)
{
    json_t *left = json_object_get(mine, keyword), *right = json_object_get(theirs, keyword);
    int sense = sense_of(keyword);

    *out = left;
    if (schema_equal(s, left, right))
        return schema_spend(s, 0);
    if (json_array_size(left) + json_array_size(right) > 2 * SCHEMA_MAX_TYPES && strcmp(keyword, "type") == 0)
        return schema_fault(s, E_FORMAT, "type", "must be the name of a type, or a list of them");
    if (strcmp(keyword, "type") == 0)
        return merge_types(s, mine, theirs, out);
    if (strcmp(keyword, "required") == 0)
        return merge_lists(s, left, right, true, out);
    if (strcmp(keyword, "enum") == 0)
        return merge_lists(s, left, right, false, out);
    if (strcmp(keyword, "uniqueItems") == 0) {
        *out = json_is_true(left) ? left : right;
        return 0;
    }
    if (strcmp(keyword, "items") == 0) {
        *out = grammar_schema_merge_both(left, right);
        return schema_keep(s, *out);
    }
    if (sense != 0 && json_is_number(left) && json_is_number(right)) {
        *out = (schema_compare(left, right) > 0) == (sense > 0) ? left : right;
        return 0;
    }
    return schema_fault(s, E_UNSUPPORTED, keyword, "two different values cannot be enforced together");
}

/* True if the schema allows null, or says nothing about types.  Other schemas that it leads to may say more. */
static bool may_be_null(json_t *schema)
{
    json_t *type = json_object_get(schema, "type"), *nullable = json_object_get(schema, "nullable");

    if (json_is_true(nullable))
        return true;
    if (type != NULL) /* too long a list is refused later */
        return json_array_size(type) <= SCHEMA_MAX_TYPES && type_has(type, "null");
    return nullable == NULL && json_object_get(schema, "$ref") == NULL &&
           json_object_get(schema, "anyOf") == NULL && json_object_get(schema, "oneOf") == NULL &&
           json_object_get(schema, "allOf") == NULL;
}

/* Keeps nullable only if both schemas allow null. */
static int merge_nullable(json_t *left, json_t *right, json_t *merged)
{
    json_t *mine = json_object_get(left, "nullable"), *theirs = json_object_get(right, "nullable");
    bool is_null = may_be_null(left) && may_be_null(right) && (json_is_true(mine) || json_is_true(theirs));

    if (mine == NULL && theirs == NULL)
        return 0;
    if (!is_null && !json_is_false(mine) && !json_is_false(theirs)) {
        json_object_del(merged, "nullable");
        return 0;
    }
    return json_object_set_new(merged, "nullable", json_boolean(is_null)) == 0 ? 0 : E_NOMEM;
}

/* Merges branches that both sides have: one side's stay, the other side's go into an allOf with it. */
static int merge_branches(struct schema *s, json_t *merged, json_t *right)
{
    json_t *waiting = json_array();
    int rc = schema_keep(s, waiting);

    static const char *const names[] = {"anyOf", "oneOf", "$ref", "allOf"};
    for (size_t i = 0; i < 4 && rc == 0; i++) {
        json_t *theirs = json_object_get(right, names[i]);
        if (theirs == NULL)
            continue;
        if (json_object_get(merged, names[i]) == NULL)
            rc = json_object_set(merged, names[i], theirs) == 0 ? 0 : E_NOMEM;
        else
            rc = json_array_append_new(waiting, json_pack("{s:O}", names[i], theirs)) == 0 ? 0 : E_NOMEM;
    }
    if (rc != 0 || json_array_size(waiting) == 0)
        return rc;
    json_t *all = json_object_get(merged, "allOf");
    if (all != NULL && json_array_extend(waiting, all) != 0)
        return E_NOMEM;
    return json_object_set(merged, "allOf", waiting) == 0 ? 0 : E_NOMEM;
}

int schema_merge(struct schema *s, json_t *left, json_t *right, json_t **out)
{
    const char *keyword;
    json_t *value;

    if (json_is_false(left) || json_is_false(right) || json_is_true(right) || json_is_true(left)) {
        *out = json_is_false(left) || json_is_true(right) ? left : right;
        return 0;
    }
    if (!json_is_object(left) || !json_is_object(right))
        return schema_fault(s, E_FORMAT, NULL, "a schema is an object, true or false");
    json_t *merged;
    int rc = schema_copy(s, left, &merged);
    if (rc == 0)
        rc = spend_names(s, right);
    if (rc == 0)
        rc = merge_branches(s, merged, right);
    if (rc == 0 &&
        (json_object_get(left, "prefixItems") == NULL) != (json_object_get(right, "prefixItems") == NULL) &&
        (json_object_get(left, "items") != NULL || json_object_get(right, "items") != NULL))
        return schema_fault(s, E_UNSUPPORTED, "prefixItems", "cannot be merged with another schema's items");
    json_object_foreach(right, keyword, value)
    {
        if (rc != 0)
            return rc;
        if (!schema_is_assertion(keyword) || strcmp(keyword, "anyOf") == 0 || strcmp(keyword, "oneOf") == 0 ||
            strcmp(keyword, "$ref") == 0 || strcmp(keyword, "allOf") == 0 ||
            strcmp(keyword, "properties") == 0 || strcmp(keyword, "additionalProperties") == 0 ||
            strcmp(keyword, "nullable") == 0)
            continue;
        if (json_object_get(left, keyword) != NULL)
            rc = merge_keyword(s, keyword, left, right, &value);
        if (rc == 0)
            rc = json_object_set(merged, keyword, value) == 0 ? 0 : E_NOMEM;
    }
    if (rc == 0)
        rc = merge_objects(s, left, right, merged);
    if (rc == 0)
        rc = merge_nullable(left, right, merged);
    *out = merged;
    return rc;
}

/* nullable without a type beside it is about the values that the $ref, allOf, anyOf or oneOf beside it allow. */
static int keep_nullable(json_t *outer, json_t *merged)
{
    if (!json_is_true(json_object_get(outer, "nullable")) || json_object_get(outer, "type") != NULL ||
        !json_is_object(merged))
        return 0;
    return json_object_set_new(merged, "nullable", json_true()) == 0 ? 0 : E_NOMEM;
}

int schema_merge_inner(struct schema *s, json_t *outer, json_t *inner, json_t **out)
{
    int rc = schema_merge(s, outer, inner, out);

    return rc == 0 ? keep_nullable(outer, *out) : rc;
}

int schema_all_of(struct schema *s, json_t *schema, json_t **out)
{
    json_t *all = json_object_get(schema, "allOf"), *merged, *part;
    size_t i;
    int rc = schema_copy(s, schema, &merged);

    if (rc != 0)
        return rc;
    if (!json_is_array(all) || json_array_size(all) == 0)
        return schema_fault(s, E_FORMAT, "allOf", "must be a list of schemas");
    json_object_del(merged, "allOf");
    json_array_foreach(all, i, part)
    {
        rc = schema_deref(s, part, &part);
        if (rc == 0)
            rc = schema_merge(s, merged, part, &merged);
        if (rc != 0)
            return rc;
    }
    if (schema_asserts(merged) || i > 0)
        s->depth++;
    if (s->depth > SCHEMA_MAX_NESTING)
        return schema_fault(s, E_LIMIT, "allOf", "nested deeper than %u", SCHEMA_MAX_NESTING);
    *out = merged;
    return keep_nullable(schema, merged);
}

/* ---- oneOf ---- */

/* The value at index that a schema's const or enum allows; NULL: no more. */
static json_t *value_at(json_t *schema, size_t index)
{
    json_t *one = json_object_get(schema, "const");

    if (one != NULL)
        return index == 0 ? one : NULL;
    return json_array_get(json_object_get(schema, "enum"), index);
}

static bool has_values(json_t *schema)
{
    return json_object_get(schema, "const") != NULL || json_is_array(json_object_get(schema, "enum"));
}

/* Comparing charges steps; when none are left, the values count as shared. */
static bool have_common_value(struct schema *s, json_t *left, json_t *right)
{
    json_t *mine, *theirs;

    for (size_t i = 0; (mine = value_at(left, i)) != NULL; i++)
        for (size_t j = 0; (theirs = value_at(right, j)) != NULL; j++) {
            if (schema_equal(s, mine, theirs) ||
                (json_is_number(mine) && json_is_number(theirs) && schema_compare(mine, theirs) == 0))
                return true;
        }
    return false;
}

struct branch {
    json_t *schema;   /* the schema that its $ref leads to */
    json_t *required; /* object with the required names as keys */
};

static bool grammar_schema_merge_requires(const struct branch *branch, const char *name)
{
    return json_object_get(branch->required, name) != NULL;
}

/* The kinds that its const or enum allows, otherwise its types. */
static unsigned kinds_left(json_t *schema)
{
    static const unsigned kinds[] = {[JSON_OBJECT] = 1u << KIND_OBJECT, [JSON_ARRAY] = 1u << KIND_ARRAY,
                                     [JSON_STRING] = 1u << KIND_STRING, [JSON_INTEGER] = 1u << KIND_NUMBER,
                                     [JSON_REAL] = 1u << KIND_NUMBER,   [JSON_TRUE] = 1u << KIND_BOOLEAN,
                                     [JSON_FALSE] = 1u << KIND_BOOLEAN, [JSON_NULL] = 1u << KIND_NULL};
    json_t *value;
    unsigned left = 0;

    if (!has_values(schema)) {
        unsigned declared =
            json_object_get(schema, "type") == NULL ? (1u << N_KINDS) - 1 : schema_kinds(schema);
        return declared & 1u << KIND_INTEGER ? declared | 1u << KIND_NUMBER : declared;
    }
    for (size_t i = 0; (value = value_at(schema, i)) != NULL; i++)
        left |= kinds[json_typeof(value)];
    return left;
}

bool schema_are_apart(struct schema *s, json_t *left, json_t *right)
{
    uint64_t n_values = (uint64_t)json_array_size(json_object_get(left, "enum")) +
                        json_array_size(json_object_get(right, "enum"));

    if (schema_spend(s, STEPS_OF_VALUE + n_values) != 0)
        return false;
    return (kinds_left(left) & kinds_left(right)) == 0 ||
           (has_values(left) && has_values(right) && !have_common_value(s, left, right));
}

/* True if left requires a property that right rules out. */
static bool is_ruled_out(struct schema *s, const struct branch *left, const struct branch *right)
{
    json_t *mine = json_object_get(left->schema, "properties"),
           *theirs = json_object_get(right->schema, "properties"), *value;
    const char *name;

    if (!json_is_false(others_of(right->schema)))
        return false;
    json_object_foreach(mine, name, value)
    {
        if (schema_spend(s, STEPS_OF_VALUE + strlen(name) / STEPS_PER_BYTES) != 0)
            return false;
        if (grammar_schema_merge_requires(left, name) && json_object_get(theirs, name) == NULL)
            return true;
    }
    return false;
}

/* Is there a test that no value passes for both? */
static bool exclude_each_other(struct schema *s, const struct branch *left, const struct branch *right)
{
    json_t *mine = json_object_get(left->schema, "properties"),
           *theirs = json_object_get(right->schema, "properties"), *value;
    const char *name;

    if (schema_are_apart(s, left->schema, right->schema))
        return true;
    if (kinds_left(left->schema) != 1u << KIND_OBJECT || kinds_left(right->schema) != 1u << KIND_OBJECT)
        return false;
    json_object_foreach(mine, name, value)
    { /* a property that both declare and that tells them apart */
        json_t *other = json_object_get(theirs, name);
        if (schema_spend(s, STEPS_OF_VALUE + strlen(name) / STEPS_PER_BYTES) != 0)
            return false;
        if (other == NULL || !grammar_schema_merge_requires(left, name) ||
            !grammar_schema_merge_requires(right, name) || schema_deref(s, value, &value) != 0 ||
            schema_deref(s, other, &other) != 0)
            continue;
        if (schema_are_apart(s, value, other))
            return true;
    }
    return is_ruled_out(s, left, right) || is_ruled_out(s, right, left);
}

int schema_one_of(struct schema *s, json_t *branches)
{
    struct branch list[ONE_OF_MAX];
    json_t *branch;
    size_t i, j;

    if (json_array_size(branches) > ONE_OF_MAX)
        return schema_fault(s, E_LIMIT, "oneOf", "more than %u branches", ONE_OF_MAX);
    json_array_foreach(branches, i, branch)
    {
        int rc = schema_deref(s, branch, &list[i].schema);
        if (rc == 0)
            rc = schema_names(s, json_object_get(list[i].schema, "required"), &list[i].required);
        for (j = 0; j < i && rc == 0; j++) {
            if (exclude_each_other(s, &list[i], &list[j]))
                continue;
            if (s->graph->steps == 0)
                return schema_fault(s, E_LIMIT, "oneOf", "too much to compare");
            return schema_fault(
                s, E_UNSUPPORTED, "oneOf",
                "branches %zu and %zu cannot be told apart by type, const, enum, or a required "
                "property",
                j, i);
        }
        if (rc != 0)
            return rc;
    }
    return 0;
}
