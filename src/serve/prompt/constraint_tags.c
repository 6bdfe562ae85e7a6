/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints of the values of arguments that no JSON object surrounds, for a tool whose arguments must match its schema.
 * Each value has one of three forms:
 *
 *     only a string    its text as it is, within the schema's pattern, format and lengths: {"tagged": ...}
 *     no string        JSON
 *     both             either; but no text that would be read as the JSON
 *
 * The parser of these arguments (text/toolcall/calls_tags.c) decides by the schema's types, so this file asks
 * the parser for them.  It follows lists of types, enums and alternatives down to the strings, each schema in its plain
 * form (text/grammar/grammar_plain.h).  A schema without types is JSON.
 *
 * constraint_root.c puts the values together.  constraint_nested.c has braces (Gemma 4) and elements (MiniMax M3). */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "text/grammar/grammar_plain.h"
#include "text/toolcall/calls_types.h"
#include "text/json/json.h"
#include "base/check.h"
#include "base/err.h"
#include "base/str.h"
#include "serve/prompt/constraint_priv.h"
#include "serve/prompt/constraint_tags_priv.h"

static struct bytes constraint_tags_text_of(const json_t *value)
{
    return bytes_of(json_string_value(value), json_string_length(value));
}

/* ---- a string, a word, any other value ---- */

/* Writes what the tags have before a value of this kind. */
static void open_value(struct constraint_place *place, const char *open)
{
    if (open != NULL) {
        constraint_open_seq(place->constraint);
        constraint_written(place->constraint, open);
    }
}

static void close_value(struct constraint_place *place, const char *open, const char *close)
{
    if (open != NULL) {
        constraint_written(place->constraint, close);
        constraint_close(place->constraint);
    }
}

const char *constraint_string_open(const struct constraint_place *place)
{
    return place->tags == NULL ? NULL : place->tags->string_open;
}

/* The words of types in the tags of Kimi K3, besides "string". */
static const struct {
    const char *word;
    unsigned types;
} kinds[] = {{"number", CALLS_AS_INTEGER | CALLS_AS_NUMBER},
             {"boolean", CALLS_AS_BOOLEAN},
             {"null", CALLS_AS_NULL},
             {"array", CALLS_AS_ARRAY},
             {"object", CALLS_AS_OBJECT}};

static void put_kind(struct constraint *constraint, const struct calls_tags *tags, const char *word)
{
    constraint_written(constraint, tags->json_open);
    constraint_text(constraint, word);
    constraint_written(constraint, tags->type_close);
}

void constraint_kinds(struct constraint *constraint, const struct calls_tags *tags)
{
    constraint_open_any(constraint);
    constraint_open_seq(constraint);
    constraint_written(constraint, tags->string_open);
    constraint_close(constraint);
    for (size_t i = 0; i < ARRAY_LEN(kinds) && tags->type_close != NULL; i++) {
        constraint_open_seq(constraint);
        put_kind(constraint, tags, kinds[i].word);
        constraint_close(constraint);
    }
    if (tags->type_close == NULL)
        constraint_text(constraint, tags->json_open);
    constraint_close(constraint);
}

static void put_typed_schema(struct constraint_place *place, const json_t *schema, const char *type);
static void put_string(struct constraint_place *place, const json_t *schema);

/* A value whose type the tag of its key names: one alternative for each type that the schema allows. */
static void put_typed(struct constraint_place *place, const json_t *schema, const char *type)
{
    json_t *only = type == NULL ? NULL : json_pack("{s:s}", "type", type);
    unsigned types = calls_types_of(place->root, type == NULL ? schema : only);

    place->constraint->out->is_bad |= type != NULL && only == NULL;
    json_decref(only);
    constraint_open_any(place->constraint);
    if (types & CALLS_AS_STRING)
        put_string(place, schema);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        bool is_integer = i == 0 && (types & CALLS_AS_NUMBER) == 0;

        if ((types & kinds[i].types) == 0)
            continue;
        constraint_open_seq(place->constraint);
        put_kind(place->constraint, place->tags, kinds[i].word);
        put_typed_schema(place, schema, is_integer ? "integer" : kinds[i].word);
        constraint_close(place->constraint);
    }
    constraint_close(place->constraint);
}

void constraint_tags_put_json(struct constraint_place *place, const json_t *schema, const char *type)
{
    const char *open = place->tags == NULL ? NULL : place->tags->json_open;

    if (place->tags != NULL && place->tags->type_close != NULL) {
        put_typed(place, schema, type);
        return;
    }
    open_value(place, open);
    put_typed_schema(place, schema, type);
    close_value(place, open, NULL);
}

/* Writes a schema as JSON.  Its references lead into the tool's schema (constraint_close_rooted()).  Workers of an earlier
 * version find only definitions, and only in the schema itself. */
static void put_typed_schema(struct constraint_place *place, const json_t *schema, const char *type)
{
    static const char *const shared[] = {"$defs", "definitions"};
    json_t *whole = json_is_object(schema) ? json_copy((json_t *)schema) : json_object();
    struct buf text = {0};

    if (json_is_false(schema)) {
        constraint_json(place->constraint, bytes_str("false"));
        json_decref(whole);
        return;
    }
    for (size_t i = 0; i < 2 && whole != NULL && api_json_mentions(whole, "$ref"); i++)
        if (json_object_get(place->root, shared[i]) != NULL && json_object_get(whole, shared[i]) == NULL)
            json_object_set(whole, shared[i], json_object_get(place->root, shared[i]));
    if (whole != NULL && type != NULL)
        json_object_set_new(whole, "type", json_string(type));
    if (whole == NULL || api_json_put(&text, whole) < 0)
        place->constraint->out->is_bad = true;
    else
        constraint_json(place->constraint, buf_view(&text));
    buf_fini(&text);
    json_decref(whole);
}

/* Appends a pattern of the texts that begin with this mark, which may have brackets. */
static void put_beginning(const char *mark, struct buf *out)
{
    for (const char *at = mark; *at != '\0'; at++)
        buf_printf(out, "%s%c", strchr("[]", *at) != NULL ? "\\" : "", *at);
    buf_append_str(out, "[\\s\\S]*");
}

/* Appends a pattern of the texts that the parser reads as another type, or as quoted.  False: there are none. */
static bool other_readings(const struct calls_tags *tags, unsigned types, struct buf *out)
{
    if (types == CALLS_AS_STRING && tags->quoted_open == NULL)
        return false;
    buf_append_str(out, "^(");
    if (tags->quoted_open != NULL)
        put_beginning(tags->quoted_open, out);
    if (tags->quoted_open != NULL && types != CALLS_AS_STRING)
        buf_append_byte(out, '|');
    if (types != CALLS_AS_STRING)
        buf_append_str(out, "[ \\t\\n\\r][\\s\\S]*"); /* blanks may precede JSON */
    if (types & CALLS_AS_NULL)
        buf_append_str(out, "|(null|None)[ \\t\\n\\r]*");
    if (types & CALLS_AS_BOOLEAN)
        buf_append_str(out, "|(true|false|True|False)[ \\t\\n\\r]*");
    if (types & (CALLS_AS_INTEGER | CALLS_AS_NUMBER))
        buf_append_str(out, "|[-0-9][\\s\\S]*");
    if (types & CALLS_AS_ARRAY)
        buf_append_str(out, "|\\[[\\s\\S]*");
    if (types & CALLS_AS_OBJECT)
        buf_append_str(out, "|\\{[\\s\\S]*");
    buf_append_str(out, ")$");
    return true;
}

static void put_string(struct constraint_place *place, const json_t *schema)
{
    static const char *const limits[] = {"minLength", "maxLength", "pattern", "format"};
    json_t *kept = json_object();
    struct buf text = {0}, banned = {0};
    bool has_banned = other_readings(place->tags, place->types, &banned);

    for (size_t i = 0; i < ARRAY_LEN(limits) && kept != NULL; i++)
        if (json_object_get(schema, limits[i]) != NULL)
            json_object_set(kept, limits[i], json_object_get(schema, limits[i]));
    if (has_banned)
        buf_append_byte(&banned, '\0');
    open_value(place, constraint_string_open(place));
    if (kept == NULL || api_json_put(&text, kept) < 0 || banned.is_bad)
        place->constraint->out->is_bad = true;
    else
        constraint_tagged(place->constraint, place->tags, buf_view(&text),
                          has_banned ? (const char *)banned.data : NULL);
    close_value(place, constraint_string_open(place), place->tags->string_close);
    buf_fini(&banned);
    buf_fini(&text);
    json_decref(kept);
}

/* True if the parser reads this text as another type. */
static bool is_read_otherwise(const struct constraint_place *place, struct bytes word)
{
    const char *json = calls_python_word(word);
    json_t *value = NULL;
    bool is_other = false;

    if (place->types != CALLS_AS_STRING &&
        api_json_load(json != NULL ? bytes_str(json) : word, NULL, &value) == 0)
        is_other = !json_is_string(value) && (calls_type_of_value(value) & place->types) != 0;
    json_decref(value);
    return is_other;
}

/* True if the parser takes a line end of the text for one of the tags. */
static bool loses_line_end(const struct calls_tags *tags, struct bytes text)
{
    return tags->is_tight && text.len_bytes > 0 &&
           (text.data[0] == '\n' || text.data[text.len_bytes - 1] == '\n');
}

/* Closes a list of alternatives, of which there may be none. */
static void close_any(struct constraint *constraint)
{
    if (constraint->out->len_bytes > 0 && constraint->out->data[constraint->out->len_bytes - 1] == '[')
        constraint_json(constraint, bytes_str("false"));
    constraint_close(constraint);
}

void constraint_refuse(struct constraint *constraint, const char *keyword, const char *why)
{
    if (constraint->refusal[0] == '\0')
        snprintf(constraint->refusal, sizeof(constraint->refusal), "%s.%s: %s", constraint->path, keyword,
                 why);
}

/* Writes a word of an enum.  Words that could be read as another type, or that hold the closing tag, are
 * left out. */
static void constraint_tags_put_word(struct constraint_place *place, const json_t *word)
{
    const struct bytes nothing = {0};
    json_t *lone;

    if (json_is_string(word)) {
        struct bytes text = constraint_tags_text_of(word);

        if (!is_read_otherwise(place, text) && !loses_line_end(place->tags, text) &&
            (place->tags->quoted_open == NULL || !bytes_starts_with(text, place->tags->quoted_open)) &&
            bytes_find(text, bytes_str(place->tags->value_close), 0) == SIZE_MAX) {
            open_value(place, constraint_string_open(place));
            constraint_bytes(place->constraint, nothing, text, nothing);
            close_value(place, constraint_string_open(place), place->tags->string_close);
        }
        return;
    }
    lone = json_pack("{s:O}", "const", (json_t *)word);
    if (lone == NULL)
        place->constraint->out->is_bad = true;
    else
        constraint_tags_put_json(place, lone, NULL);
    json_decref(lone);
}

/* True if the parser cannot tell this alternative from others that are objects, or lists, too. */
static bool is_unclear(const struct constraint_place *place, const json_t *schema, const json_t *branch)
{
    static const unsigned nested[] = {CALLS_AS_ARRAY, CALLS_AS_OBJECT};
    unsigned types = calls_types_of(place->root, branch);

    for (size_t i = 0; i < ARRAY_LEN(nested); i++)
        if ((types & nested[i]) != 0 && calls_only_branch(place->root, schema, nested[i]) != branch)
            return true;
    return false;
}

static void put_each(struct constraint_place *place, const json_t *schema, const char *name, unsigned depth)
{
    const json_t *list = json_object_get(schema, name);
    bool was_unclear = place->is_unclear;

    constraint_open_any(place->constraint);
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (place->tags->has_elements)
            place->is_unclear = was_unclear || is_unclear(place, schema, json_array_get(list, i));
        constraint_value(place, json_array_get(list, i), depth + 1);
    }
    place->is_unclear = was_unclear;
    close_any(place->constraint);
}

static void constraint_tags_put_types(struct constraint_place *place, const json_t *schema,
                                      const json_t *types)
{
    constraint_open_any(place->constraint);
    for (size_t i = 0; i < json_array_size(types); i++) {
        struct bytes type = constraint_tags_text_of(json_array_get(types, i));

        if (bytes_is(type, "string"))
            put_string(place, schema);
        else
            constraint_tags_put_json(place, schema, json_string_value(json_array_get(types, i)));
    }
    constraint_close(place->constraint);
}

static void constraint_tags_put_words(struct constraint_place *place, const json_t *schema)
{
    const json_t *words = json_object_get(schema, "enum");
    size_t n = 0;

    while (n < json_array_size(words) && !json_is_string(json_array_get(words, n)))
        n++;
    if (n > 0 && n == json_array_size(words)) { /* no strings */
        constraint_tags_put_json(place, schema, NULL);
        return;
    }
    constraint_open_any(place->constraint);
    for (size_t i = 0; i < json_array_size(words); i++)
        constraint_tags_put_word(place, json_array_get(words, i));
    close_any(place->constraint);
}

/* True if the format writes strings as JSON too. */
static bool has_json_strings(const struct calls_tags *tags)
{
    return tags->has_braces || (tags->json_open != NULL && tags->type_close == NULL);
}

static void put_alternatives(struct constraint_place *place, const json_t *schema, unsigned depth)
{
    const char *name = json_object_get(schema, "anyOf") != NULL ? "anyOf" : "oneOf";

    if (depth < CONSTRAINT_MAX_DEPTH)
        put_each(place, schema, name, depth);
    else if (has_json_strings(place->tags) || (calls_types_of(place->root, schema) & CALLS_AS_STRING) == 0)
        constraint_tags_put_json(place, schema, NULL);
    else
        constraint_refuse(place->constraint, name, "nested too deep for a value without quotes");
}

/* Writes a value of a schema in its plain form (text/grammar/grammar_plain.h). */
static void put_plain_form(struct constraint_place *place, const json_t *schema, unsigned depth)
{
    const json_t *type = json_object_get(schema, "type");

    if (json_is_false(schema))
        constraint_json(place->constraint, bytes_str("false"));
    else if (json_object_get(schema, "enum") != NULL)
        constraint_tags_put_words(place, schema);
    else if (json_object_get(schema, "anyOf") != NULL || json_object_get(schema, "oneOf") != NULL)
        put_alternatives(place, schema, depth);
    else if (bytes_is(api_json_str(type), "string"))
        put_string(place, schema);
    else if (json_is_array(type))
        constraint_tags_put_types(place, schema, type);
    else if (!constraint_nested(place, schema, depth))
        constraint_tags_put_json(place, schema, NULL);
}

const json_t *constraint_plain(struct constraint_place *place, const json_t *schema)
{
    struct constraint *constraint = place->constraint;
    struct fault fault = {0};
    const json_t *plain;
    int rc = grammar_plain_of(place->plain, constraint->path, schema, &fault, &plain);

    if (rc == 0)
        return plain;
    if (rc == E_NOMEM)
        constraint->out->is_bad = true;
    else if (constraint->refusal[0] == '\0')
        snprintf(constraint->refusal, sizeof(constraint->refusal), "%.300s", fault.text);
    return NULL;
}

void constraint_value(struct constraint_place *place, const json_t *schema, unsigned depth)
{
    const json_t *known = calls_resolve(place->root, schema), *plain; /* what the parser knows of the value */
    bool was_unclear = place->is_unclear;

    if (place->constraint->out->len_bytes > CONSTRAINT_MAX_BYTES || place->constraint->refusal[0] != '\0')
        return; /* the request is refused anyway */
    if (json_object_get(known, "allOf") != NULL && has_json_strings(place->tags)) {
        constraint_tags_put_json(place, schema, NULL);
        return;
    }
    plain = constraint_plain(place, schema);
    if (plain == NULL)
        return;
    place->is_unclear |= place->tags->has_elements && plain != known;
    put_plain_form(place, plain, depth);
    place->is_unclear = was_unclear;
}
