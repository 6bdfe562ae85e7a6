/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints of arguments whose objects and lists are written in the format's own way, as far as their schema says what
 * they hold, MAX_NESTED deep.  All other objects and lists are JSON.
 *
 *     braces      {K:V,K:V}, [V,V]       Gemma 4, with a mark at both sides of a string
 *     elements    <K>V</K>, <item>V</item>      MiniMax M3, with a mark before every tag */
#include <string.h>

#include "base/str.h"
#include "serve/prompt/constraint_priv.h"
#include "serve/prompt/constraint_tags_priv.h"
#include "text/json/json.h"
#include "text/toolcall/calls_types.h"

#define MAX_NESTED     4 /* in braces a list has its items' schema twice */
#define MAX_ANY_BRACES 2 /* objects and lists of any values have these twice */

/* Returns the names that the schema requires, as an object.  NULL: no memory. */
json_t *constraint_required(const json_t *root)
{
    const json_t *list = json_object_get(root, "required");
    json_t *names = json_object();

    for (size_t i = 0; i < json_array_size(list) && names != NULL; i++)
        if (json_is_string(json_array_get(list, i)))
            json_object_set(names, json_string_value(json_array_get(list, i)), json_true());
    return names;
}

/* ---- braces ---- */

/* Commas stand as put_keyword() puts them; calls_braces.c takes one after the last value too. */
void constraint_pair(struct constraint_place *place, const char *key, const json_t *schema, bool is_needed,
                     unsigned depth)
{
    struct constraint *constraint = place->constraint;
    struct buf quoted = {0};

    json_put_str(&quoted, bytes_str(key));
    constraint->out->is_bad |= quoted.is_bad;
    constraint_open_seq(constraint);
    constraint_bytes(constraint, bytes_str(place->has_needed ? "," : ""),
                     calls_is_bare_key(bytes_str(key)) ? bytes_str(key) : buf_view(&quoted), bytes_str(":"));
    place->types = CALLS_AS_STRING;
    constraint_value(place, schema, depth);
    if (!place->has_needed && !is_needed)
        constraint_text(constraint, ",");
    constraint_close(constraint);
    place->has_needed |= is_needed;
    buf_fini(&quoted);
}

static void put_bracketed(struct constraint_place *place, const json_t *schema, unsigned depth)
{
    struct constraint *constraint = place->constraint;
    int min = (int)json_integer_value(json_object_get(schema, "minItems"));
    const json_t *max = json_object_get(schema, "maxItems"), *items = json_object_get(schema, "items");

    constraint_text(constraint, "[");
    if (max == NULL || json_integer_value(max) > 0) {
        if (min == 0)
            constraint_open_rep(constraint);
        constraint_open_seq(constraint);
        constraint_value(place, items, depth);
        constraint_open_rep(constraint);
        constraint_open_seq(constraint);
        constraint_text(constraint, ",");
        constraint_value(place, items, depth);
        constraint_close(constraint);
        constraint_close_rep(constraint, min > 0 ? min - 1 : 0,
                             max == NULL ? -1 : (int)json_integer_value(max) - 1);
        constraint_close(constraint);
        if (min == 0)
            constraint_close_rep(constraint, 0, 1);
    }
    constraint_text(constraint, "]");
}

static void put_braced_value(struct constraint *constraint, const struct calls_tags *tags, unsigned depth);

/* One member of an object, or one item of a list. */
static void put_braced_item(struct constraint *constraint, const struct calls_tags *tags, bool has_key,
                            unsigned depth)
{
    constraint_open_seq(constraint);
    if (has_key) {
        constraint_open_any(constraint);
        constraint_bare_key(constraint);
        constraint_json(constraint, bytes_str("{\"type\":\"string\"}"));
        constraint_close(constraint);
        constraint_text(constraint, ":");
    }
    put_braced_value(constraint, tags, depth);
    constraint_close(constraint);
}

/* Members or items with commas between, or nothing. */
static void put_braced_items(struct constraint *constraint, const struct calls_tags *tags, bool has_keys,
                             unsigned depth)
{
    constraint_open_rep(constraint);
    constraint_open_seq(constraint);
    put_braced_item(constraint, tags, has_keys, depth);
    constraint_open_rep(constraint);
    constraint_open_seq(constraint);
    constraint_text(constraint, ",");
    put_braced_item(constraint, tags, has_keys, depth);
    constraint_close(constraint);
    constraint_close_rep(constraint, 0, -1);
    constraint_close(constraint);
    constraint_close_rep(constraint, 0, 1);
}

/* Any value: a string between marks, JSON, or to this depth an object or a list. */
static void put_braced_value(struct constraint *constraint, const struct calls_tags *tags, unsigned depth)
{
    const char *const until[] = {tags->string_close, NULL};

    constraint_open_any(constraint);
    constraint_open_seq(constraint);
    constraint_mark(constraint, tags->string_open);
    constraint_free(constraint, until, 0);
    constraint_mark(constraint, tags->string_close);
    constraint_close(constraint);
    constraint_json(constraint, bytes_str("{}"));
    for (unsigned is_object = 0; is_object < 2 && depth > 0; is_object++) {
        constraint_open_seq(constraint);
        constraint_text(constraint, is_object ? "{" : "[");
        put_braced_items(constraint, tags, is_object, depth - 1);
        constraint_text(constraint, is_object ? "}" : "]");
        constraint_close(constraint);
    }
    constraint_close(constraint);
}

void constraint_any_braces(struct constraint *constraint, const struct calls_tags *tags)
{
    put_braced_items(constraint, tags, true, MAX_ANY_BRACES);
}

/* ---- elements ---- */

bool constraint_is_element(const char *key)
{
    return key[0] != '\0' && strpbrk(key, "<>/ \t\r\n") == NULL && strcmp(key, "invoke") != 0 &&
           strcmp(key, "tool_call") != 0;
}

void constraint_element(struct constraint_place *place, const char *key, const json_t *schema, unsigned depth)
{
    struct constraint *constraint = place->constraint;
    unsigned types = place->types;

    place->types = depth == 0 ? calls_types_of_key(place->root, bytes_str(key)) /* an argument */
                              : calls_types_of(place->root, schema);
    constraint_open_seq(constraint);
    constraint_written(constraint, place->tags->key_open);
    constraint_bytes(constraint, bytes_str(key), bytes_str(place->tags->key_close), (struct bytes){0});
    constraint_value(place, schema, depth);
    constraint_written(constraint, place->tags->value_close);
    constraint_bytes(constraint, bytes_str(key), bytes_str(place->tags->key_close), (struct bytes){0});
    constraint_close(constraint);
    place->types = types;
}

static void put_item_elements(struct constraint_place *place, const json_t *schema, unsigned depth)
{
    const json_t *max = json_object_get(schema, "maxItems");

    constraint_open_rep(place->constraint);
    constraint_element(place, "item", json_object_get(schema, "items"), depth);
    constraint_close_rep(place->constraint, (int)json_integer_value(json_object_get(schema, "minItems")),
                         max == NULL ? -1 : (int)json_integer_value(max));
}

static bool are_elements(const json_t *properties)
{
    json_t *field;
    const char *key;

    json_object_foreach((json_t *)properties, key, field) if (!constraint_is_element(key)) return false;
    return true;
}

/* Any element, with text or with elements to this depth. */
void constraint_any_element(struct constraint *constraint, const struct calls_tags *tags, unsigned depth)
{
    static const char name[] = "{\"pattern\":\"^[^<>/ \\\\s]{1,64}$\"}";
    const struct calls_tags name_tags = {.value_close = ">("};
    const char *const until[] = {tags->value_close, tags->key_open, NULL};

    constraint_open_seq(constraint);
    constraint_written(constraint, tags->key_open);
    constraint_tagged(constraint, &name_tags, bytes_str(name), "^(invoke|tool_call)$");
    constraint_text(constraint, tags->key_close);
    constraint_open_any(constraint);
    constraint_free(constraint, until, 0);
    if (depth > 0) {
        constraint_open_rep(constraint);
        constraint_any_element(constraint, tags, depth - 1);
        constraint_close_rep(constraint, 1, -1);
    }
    constraint_close(constraint);
    constraint_written(constraint, tags->value_close);
    constraint_tagged(constraint, &name_tags, bytes_str(name), "^(invoke|tool_call)$");
    constraint_text(constraint, tags->key_close);
    constraint_close(constraint);
}

/* ---- either ---- */

static bool is_bound(const json_t *bound)
{
    return bound == NULL ||
           (json_is_integer(bound) && json_integer_value(bound) >= 0 && json_integer_value(bound) <= 1000);
}

/* True if every name that the schema requires has a property. */
static bool has_all_required(const json_t *schema)
{
    const json_t *list = json_object_get(schema, "required"),
                 *properties = json_object_get(schema, "properties");

    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i)) ||
            json_object_get(properties, json_string_value(json_array_get(list, i))) == NULL)
            return false;
    return true;
}

static void put_members(struct constraint_place *place, const json_t *schema, unsigned depth)
{
    json_t *required = constraint_required(schema), *field;
    bool had_needed = place->has_needed;
    const char *key;

    place->constraint->out->is_bad |= required == NULL;
    place->has_needed = false;
    json_object_foreach(json_object_get(schema, "properties"), key, field)
    {
        bool is_needed = json_object_get(required, key) != NULL;

        if (!is_needed)
            constraint_open_rep(place->constraint);
        if (place->tags->has_braces)
            constraint_pair(place, key, field, is_needed, depth);
        else
            constraint_element(place, key, field, depth);
        if (!is_needed)
            constraint_close_rep(place->constraint, 0, 1);
    }
    place->has_needed = had_needed;
    json_decref(required);
}

static void put_object(struct constraint_place *place, const json_t *schema, unsigned depth)
{
    constraint_open_seq(place->constraint);
    if (place->tags->has_braces)
        constraint_text(place->constraint, "{");
    put_members(place, schema, depth);
    if (place->tags->has_braces)
        constraint_text(place->constraint, "}");
    constraint_close(place->constraint);
}

bool constraint_nested(struct constraint_place *place, const json_t *schema, unsigned depth)
{
    static const char *const of_objects[] = {"type",     "properties",  "required", "additionalProperties",
                                             "title",    "description", "$defs",    "definitions",
                                             "examples", "default",     "$schema",  NULL};
    static const char *const of_lists[] = {"type",     "items",       "minItems", "maxItems",
                                           "title",    "description", "$defs",    "definitions",
                                           "examples", "default",     NULL};
    struct bytes type = api_json_str(json_object_get(schema, "type"));
    const json_t *min = json_object_get(schema, "minItems"), *max = json_object_get(schema, "maxItems");

    if ((!place->tags->has_braces && !place->tags->has_elements) || place->is_unclear || depth >= MAX_NESTED)
        return false;
    if (bytes_is(type, "object") && json_object_size(json_object_get(schema, "properties")) > 0 &&
        calls_has_only(schema, of_objects) && has_all_required(schema)) {
        if (place->tags->has_elements && !are_elements(json_object_get(schema, "properties")))
            return false;
        put_object(place, schema, depth + 1);
        return true;
    }
    if (!bytes_is(type, "array") || !json_is_object(json_object_get(schema, "items")) ||
        !calls_has_only(schema, of_lists) || !is_bound(min) || !is_bound(max) ||
        (max != NULL && json_integer_value(max) < json_integer_value(min)))
        return false;
    constraint_open_seq(place->constraint);
    if (place->tags->has_braces)
        put_bracketed(place, schema, depth + 1);
    else
        put_item_elements(place, schema, depth + 1);
    constraint_close(place->constraint);
    return true;
}
