/* SPDX-License-Identifier: Apache-2.0 */
/* All arguments of a tool that no JSON object surrounds, one by one in the order of its schema.
 *
 *     the tool's schema ──plain form──> alternatives ──> each of them, likewise
 *                                  └──> properties, and names that it only requires ──> constraint_tags.c
 *
 * Keywords (LFM2) are K=V with V as JSON, which is a Python literal except for true, false and null; the parser
 * reads both. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "serve/prompt/constraint_priv.h"
#include "serve/prompt/constraint_tags_priv.h"
#include "text/grammar/grammar_plain.h"
#include "text/json/json.h"
#include "text/toolcall/calls_types.h"

#define MAX_NAMED_BYTES 80 /* properties with longer names are reported under the tool's path */

/* Commas follow the arguments before the first required one, and precede those after it.  Python allows a
 * comma after the last argument. */
static void put_keyword(struct constraint_place *place, const char *key, const json_t *schema, bool is_needed)
{
    struct constraint *constraint = place->constraint;

    constraint_open_seq(constraint);
    constraint_bytes(constraint, bytes_str(place->has_needed ? ", " : ""), bytes_str(key), bytes_str("="));
    constraint_tags_put_json(place, schema, NULL);
    if (!place->has_needed && !is_needed)
        constraint_text(constraint, ", ");
    constraint_close(constraint);
    place->has_needed |= is_needed;
}

/* Refuses an argument name that the splitter cannot read. */
static void refuse_name(struct constraint *constraint, const char *key)
{
    bool is_long = strlen(key) > MAX_NAMED_BYTES;

    if (constraint->refusal[0] == '\0')
        snprintf(
            constraint->refusal, sizeof(constraint->refusal),
            "%s.properties%s%s: this model writes arguments without quotes, and this name cannot stand there",
            constraint->path, is_long ? "" : ".", is_long ? "" : key);
}

static void put_property(struct constraint_place *place, const char *key, const json_t *schema)
{
    struct constraint *constraint = place->constraint;
    struct buf name = {0};

    if (place->tags->has_entities)
        calls_put_entities(bytes_str(key), &name);
    else
        buf_append_str(&name, key);
    constraint->out->is_bad |= name.is_bad;
    place->types = constraint_string_open(place) != NULL ? CALLS_AS_STRING
                                                         : calls_types_of_key(place->root, bytes_str(key));
    constraint_open_seq(constraint);
    constraint_written(constraint, place->tags->key_open);
    constraint_bytes(constraint, (struct bytes){0}, buf_view(&name), (struct bytes){0});
    constraint_written(constraint, place->tags->key_written);
    constraint_value(place, schema, 0);
    constraint_written(constraint, place->tags->value_written);
    constraint_close(constraint);
    buf_fini(&name);
}

/* True if the name of an argument can be written.  tags NULL: as a keyword. */
static bool can_be_key(const struct calls_tags *tags, const char *key)
{
    if (tags == NULL)
        return calls_is_keyword(bytes_str(key));
    if (tags->has_elements)
        return constraint_is_element(key);
    return tags->has_braces || tags->has_entities || strstr(key, tags->key_close) == NULL;
}

/* An argument, which may be absent unless it is needed. */
static void put_argument(struct constraint_place *place, const char *key, const json_t *schema,
                         bool is_needed)
{
    struct constraint *constraint = place->constraint;
    size_t n = strlen(constraint->path);

    if (constraint->out->len_bytes > CONSTRAINT_MAX_BYTES)
        return; /* too long, because each argument may bring all of $defs; constraint_make() refuses it */
    if (!can_be_key(place->tags, key)) {
        refuse_name(constraint, key);
        return;
    }
    if (strlen(key) <= MAX_NAMED_BYTES)
        snprintf(constraint->path + n, sizeof(constraint->path) - n, ".properties.%s", key);
    if (!is_needed)
        constraint_open_rep(constraint);
    if (place->tags == NULL)
        put_keyword(place, key, schema, is_needed);
    else if (place->tags->has_braces)
        constraint_pair(place, key, schema, is_needed, 0);
    else if (place->tags->has_elements)
        constraint_element(place, key, schema, 0);
    else
        put_property(place, key, schema);
    if (!is_needed)
        constraint_close_rep(constraint, 0, 1);
    constraint->path[n] = '\0';
}

/* True if the parser takes the types of an argument from another alternative, which declares it. */
static bool is_typed_elsewhere(const struct constraint_place *place, const char *key)
{
    return place->tags != NULL && !place->tags->has_braces && constraint_string_open(place) == NULL &&
           calls_types_of_key(place->root, bytes_str(key)) != CALLS_AS_ANY;
}

/* The arguments of a plain schema of objects.  Those that it requires and does not declare are of the schema for all
 * others. */
static void put_object_arguments(struct constraint_place *place, const json_t *schema)
{
    const json_t *properties = json_object_get(schema, "properties");
    json_t *required = constraint_required(schema), *others = json_object_get(schema, "additionalProperties");
    bool was_unclear = place->is_unclear;
    json_t *value;
    const char *key;

    place->constraint->out->is_bad |= required == NULL;
    place->has_needed = false;
    json_object_foreach((json_t *)properties, key, value)
        put_argument(place, key, value, json_object_get(required, key) != NULL);
    json_object_foreach(required, key, value)
    {
        if (json_object_get(properties, key) != NULL)
            continue;
        if (json_is_object(others) && is_typed_elsewhere(place, key))
            constraint_refuse(
                place->constraint, "required",
                "only another alternative has a property for one of these names, and this model "
                "writes strings without quotes");
        /* the parser of elements looks only for properties */
        place->is_unclear |= place->tags != NULL && place->tags->has_elements;
        put_argument(place, key, others != NULL ? others : json_true(), true);
    }
    place->is_unclear = was_unclear;
    json_decref(required);
}

/* True if the parser of elements, which knows the schema behind the tool's, finds these properties there. */
static bool has_known_properties(const struct constraint_place *place, const json_t *plain)
{
    const json_t *known = calls_resolve(place->root, place->root);
    const json_t *properties = json_object_get(plain, "properties"),
                 *theirs = json_object_get(known, "properties");
    json_t *value;
    const char *key;

    if (plain == known)
        return true;
    if (properties == NULL || json_object_size(properties) != json_object_size(theirs))
        return false;
    json_object_foreach((json_t *)properties, key,
                        value) if (json_object_get(theirs, key) != value) return false;
    return true;
}

static void put_root(struct constraint_place *place, const json_t *schema, unsigned depth);

/* The arguments of one of several schemas. */
static void put_root_choice(struct constraint_place *place, const json_t *schema, unsigned depth)
{
    const char *name = json_object_get(schema, "anyOf") != NULL ? "anyOf" : "oneOf";
    const json_t *list = json_object_get(schema, name);

    if (depth == CONSTRAINT_MAX_DEPTH)
        constraint_refuse(place->constraint, name, "nested too deep for arguments without quotes");
    constraint_open_any(place->constraint);
    for (size_t i = 0; i < json_array_size(list); i++) {
        constraint_open_seq(place->constraint);
        put_root(place, json_array_get(list, i), depth + 1);
        constraint_close(place->constraint);
    }
    constraint_close(place->constraint);
}

/* All arguments. */
static void put_root(struct constraint_place *place, const json_t *schema, unsigned depth)
{
    bool was_unclear = place->is_unclear;
    const json_t *plain;

    if (place->constraint->out->len_bytes > CONSTRAINT_MAX_BYTES || place->constraint->refusal[0] != '\0')
        return; /* the request is refused anyway */
    plain = constraint_plain(place, schema);
    if (plain == NULL)
        return;
    place->is_unclear |=
        place->tags != NULL && place->tags->has_elements && !has_known_properties(place, plain);
    if (json_object_get(plain, "anyOf") != NULL || json_object_get(plain, "oneOf") != NULL)
        put_root_choice(place, plain, depth);
    else if (json_object_get(plain, "enum") != NULL)
        constraint_refuse(place->constraint, "enum",
                          "this model writes no objects, but their members one by one");
    else if (json_is_false(plain) || (calls_types_of(place->root, plain) & CALLS_AS_OBJECT) == 0)
        constraint_json(place->constraint, bytes_str("false"));
    else
        put_object_arguments(place, plain);
    place->is_unclear = was_unclear;
}

/* Returns the schema of the objects that root allows: other kinds of values may be within its alternatives.  The APIs accept
 * no other type of a whole schema.  References lead into root, as the client sent it.  NULL: no memory. */
static json_t *objects_of(json_t *root)
{
    json_t *objects = json_object_get(root, "type") != NULL ? json_incref(root) : json_copy(root);

    if (objects != root && json_object_set_new(objects, "type", json_string("object")) != 0) {
        json_decref(objects);
        return NULL;
    }
    return objects;
}

void constraint_tags(struct constraint *constraint, const struct calls_tags *tags,
                     const struct gen_tool *tool)
{
    struct constraint_place place = {.constraint = constraint, .tags = tags};
    json_t *root = NULL, *objects;
    bool has_refs;

    if (api_json_load(tool->input_schema, NULL, &root) < 0)
        return;
    objects = objects_of(root);
    if (objects == NULL || grammar_plain_new(root, &constraint->steps_left, &place.plain) < 0) {
        constraint->out->is_bad = true;
        json_decref(objects);
        json_decref(root);
        return;
    }
    place.root = root;
    place.is_unclear =
        tags != NULL && tags->has_elements && tool->input_schema.len_bytes > CALLS_MAX_SCHEMA_BYTES;
    constraint_tool_path(constraint->request, (size_t)(tool - constraint->request->tools), constraint->path,
                         sizeof(constraint->path));
    has_refs = api_json_mentions(root, "$ref");
    if (has_refs)
        constraint_open_seq(constraint);
    put_root(&place, objects, 0);
    if (has_refs)
        constraint_close_rooted(constraint, tool->input_schema);
    constraint->path[0] = '\0';
    grammar_plain_free(place.plain);
    json_decref(objects);
    json_decref(root);
}
