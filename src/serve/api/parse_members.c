/* SPDX-License-Identifier: Apache-2.0 */
/* The helpers of the request parser: the current place, its errors, members of an object, and cache
 * breakpoints.  Each error text begins with the place as a path. */
#include "serve/api/parse_priv.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"

/* ---- the current place, and errors ---- */

size_t parse_push(struct parse *parse, const char *name)
{
    size_t was = parse->path_len;
    int n = snprintf(parse->path + was, sizeof(parse->path) - was, "%s%s", was == 0 ? "" : ".", name);

    parse->path_len = was + (size_t)n < sizeof(parse->path) ? was + (size_t)n : sizeof(parse->path) - 1;
    return was;
}

size_t parse_push_index(struct parse *parse, size_t index)
{
    char text[24];

    snprintf(text, sizeof(text), "%zu", index);
    return parse_push(parse, text);
}

void parse_pop(struct parse *parse, size_t was)
{
    parse->path_len = was;
    parse->path[was] = '\0';
}

int parse_fail(struct parse *parse, const char *field, const char *format, ...)
{
    char text[768];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return api_fail(parse->error, 400, "%s%s%s: %s", parse->path,
                    field == NULL || parse->path_len == 0 ? "" : ".", field == NULL ? "" : field, text);
}

int parse_no_memory(struct parse *parse)
{
    api_fail(parse->error, 503, "out of memory");
    return E_NOMEM;
}

/* ---- members ---- */

json_t *parse_member(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);

    return json_is_null(value) ? NULL : value;
}

int parse_copy(struct parse *parse, struct bytes text, struct bytes *out)
{
    char *copy = arena_str(&parse->out->arena, text);

    if (copy == NULL)
        return parse_no_memory(parse);
    *out = bytes_of(copy, text.len_bytes);
    return 0;
}

int parse_string(struct parse *parse, const json_t *object, const char *name, bool is_required,
                 struct bytes *out)
{
    const json_t *value = parse_member(object, name);

    if (value == NULL)
        return is_required ? parse_fail(parse, name, "Field required") : 0;
    if (!json_is_string(value))
        return parse_fail(parse, name, "Input should be a valid string");
    return parse_copy(parse, api_json_str(value), out);
}

int parse_model(struct parse *parse, const json_t *root)
{
    int rc = parse_string(parse, root, "model", true, &parse->out->model);

    if (rc == 0 && parse->out->model.len_bytes == 0)
        rc = parse_fail(parse, "model", "String should have at least 1 character");
    return rc;
}

int parse_integer(struct parse *parse, const json_t *object, const char *name, int64_t *out, bool *found_out)
{
    const json_t *value = parse_member(object, name);

    if (found_out != NULL)
        *found_out = value != NULL;
    if (value != NULL && !api_json_integer(value, out))
        return parse_fail(parse, name, "Input should be a valid integer");
    return 0;
}

int parse_number(struct parse *parse, const json_t *object, const char *name, double *out)
{
    const json_t *value = parse_member(object, name);

    if (value == NULL)
        return 0;
    if (!json_is_number(value))
        return parse_fail(parse, name, "Input should be a valid number");
    *out = json_number_value(value);
    return 0;
}

int parse_bool(struct parse *parse, const json_t *object, const char *name, bool *out)
{
    const json_t *value = parse_member(object, name);

    if (value == NULL)
        return 0;
    if (!json_is_boolean(value))
        return parse_fail(parse, name, "Input should be a valid boolean");
    *out = json_is_true(value);
    return 0;
}

int parse_put_texts(struct parse *parse, const json_t *texts, const char *name, parse_put_fn *put,
                    struct buf *out)
{
    size_t was;

    if (json_is_string(texts)) {
        buf_append(out, api_json_str(texts).data, api_json_str(texts).len_bytes);
        return 0;
    }
    if (!json_is_array(texts))
        return parse_fail(parse, name, "Input should be a valid string or list");
    was = parse_push(parse, name);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        size_t outer = parse_push_index(parse, i);
        int rc = put(parse, json_array_get(texts, i), out);

        if (rc < 0)
            return rc;
        parse_pop(parse, outer);
    }
    parse_pop(parse, was);
    return 0;
}

int parse_serialise(struct parse *parse, const json_t *value, struct bytes *out)
{
    struct buf text = {0};
    int rc = api_json_put(&text, value);

    rc = rc < 0 ? parse_no_memory(parse) : parse_copy(parse, buf_view(&text), out);
    buf_fini(&text);
    return rc;
}

/* ---- cache breakpoints ---- */

static void set_mark(struct parse *parse, struct gen_mark *mark)
{
    size_t n_messages = parse->out->n_messages;

    mark->is_set = true;
    mark->n_messages = n_messages;
    mark->n_blocks = n_messages == 0 ? 0 : parse->n_blocks - parse->first_block[n_messages - 1];
    mark->system_bytes = parse->system_bytes;
}

static int fail_ttl(struct parse *parse)
{
    char text[128] = "Input should be ";

    for (unsigned pin = 0; pin < WORK_N_PINS; pin++) {
        size_t len = strlen(text);

        snprintf(text + len, sizeof(text) - len, "%s'%s'", pin == 0 ? "" : " or ", work_pin_ttl(pin));
    }
    return parse_fail(parse, "cache_control.ttl", "%s", text);
}

static int fail_ttl_order(struct parse *parse, enum work_pin pin)
{
    return parse_fail(parse, "cache_control.ttl",
                      "a ttl='%s' cache_control block must not come after a ttl='%s' cache_control block",
                      work_pin_ttl(pin), work_pin_ttl(parse->least_pin));
}

/* Reads the time to live; without one the shortest applies.  WORK_N_PINS: the table has no such time. */
static enum work_pin ttl_of(const json_t *ttl)
{
    enum work_pin pin = 0;

    while (ttl != NULL && pin < WORK_N_PINS && !bytes_is(api_json_str(ttl), work_pin_ttl(pin)))
        pin++;
    return pin;
}

int parse_cache_control(struct parse *parse, const json_t *object)
{
    const json_t *control = parse_member(object, "cache_control");
    struct bytes type;
    enum work_pin pin;

    if (control == NULL)
        return 0;
    if (!json_is_object(control))
        return parse_fail(parse, "cache_control", "Input should be an object");
    type = api_json_str(parse_member(control, "type"));
    if (!bytes_is(type, "ephemeral"))
        return parse_fail(parse, "cache_control.type", "Input should be 'ephemeral'");
    pin = ttl_of(parse_member(control, "ttl"));
    if (pin == WORK_N_PINS)
        return fail_ttl(parse);
    if (parse->n_marks > 0 && pin > parse->least_pin)
        return fail_ttl_order(parse, pin);
    if (++parse->n_marks > 4)
        return parse_fail(parse, "cache_control", "at most 4 blocks may have cache_control");
    parse->least_pin = pin;
    for (unsigned i = 0; i <= pin; i++)
        set_mark(parse, &parse->out->marks[i]);
    return 0;
}
