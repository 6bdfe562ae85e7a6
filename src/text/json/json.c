/* SPDX-License-Identifier: Apache-2.0 */
/* Loads JSON within limits, and writes it always in the same form.
 *
 * For a body of empty objects Jansson needs up to eighty times the body's size. So the bytes are walked
 * first, and a body with too many values or too deep nesting is refused. Many values are legitimate (a prompt
 * may be a list of tokens), and their cost depends on their kind. So the memory of the loaded document is
 * limited too. The limit has room for any text and for a list of a million numbers. Long strings bypass the
 * library (json_long.c).
 *
 * The serialisation matters: it becomes part of the prompt, and one different blank loses the prefix match.
 * Clients re-serialise the JSON that they received, with other blanks and number formats. So everything is
 * parsed and written again here, in the format of the models' own templates. The models write the same
 * format. */
#include "text/json/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/json/json_budget_priv.h"
#include "text/json/json_long_priv.h"
#include "text/json/json_walk.h"
#include "base/err.h"
#include "base/str.h"

static int check_bounds(struct bytes text, struct fault *fault, struct json_longs *longs)
{
    struct json_walk walk = {0};

    for (size_t i = 0; i < text.len_bytes; i++) {
        enum json_walk_result result;

        i += json_walk_string(&walk, bytes_of(text.data + i, text.len_bytes - i));
        if (i == text.len_bytes)
            break;
        result = json_walk_byte(&walk, text.data[i]);
        if (text.data[i] == '"')
            json_longs_see(longs, &walk, i);
        if (result == JSON_WALK_DEEP)
            return fault_set(fault, E_LIMIT, "JSON nested deeper than %d", JSON_WALK_MAX_DEPTH);
        if (result == JSON_WALK_BAD)
            return fault_set(fault, E_FORMAT, "not valid JSON at byte %zu", i);
        if (walk.n_values > API_MAX_JSON_VALUES)
            return fault_set(fault, E_LIMIT, "JSON with more than %d values", API_MAX_JSON_VALUES);
    }
    if (walk.depth > 0 || walk.n_values == 0)
        return fault_set(fault, E_FORMAT, "not valid JSON: it ends too early");
    return 0;
}

/* The library doubles its buffers as they grow, so a long string briefly needs four times its size. */
static size_t memory_bound(size_t len_bytes)
{
    return API_JSON_MEMORY_BYTES + 4 * len_bytes;
}

static int load_once(struct bytes text, size_t flags, size_t limit_bytes, struct fault *fault, json_t **out)
{
    json_error_t error = {0};

    switch (json_budget_load(text, flags, limit_bytes, &error, out)) {
    case JSON_BUDGET_LOADED:
        return 0;
    case JSON_BUDGET_OVER:
        return fault_set(fault, E_LIMIT, "JSON that needs more than %zu MiB of memory", limit_bytes >> 20);
    case JSON_BUDGET_NOMEM:
        return fault_set(fault, E_NOMEM, "out of memory");
    case JSON_BUDGET_REFUSED:
        break;
    }
    if (json_error_code(&error) == json_error_numeric_overflow)
        return fault_set(fault, E_RANGE, "JSON with a number out of range");
    return fault_set(fault, E_FORMAT, "not valid JSON: %s at byte %d", error.text, error.position);
}

static int api_json_load_from(struct bytes text, size_t limit_bytes, struct fault *fault, json_t **out)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    int rc = load_once(text, flags, limit_bytes, fault, out);

    if (rc == E_RANGE)
        rc = load_once(text, flags | JSON_DECODE_INT_AS_REAL, limit_bytes, fault, out);
    return rc == E_RANGE ? E_FORMAT : rc;
}

/* Uses the limit of the whole text: a document that exceeds it without its long strings would also exceed it
 * with them. */
static int load_cut(struct bytes text, const struct json_longs *longs, struct fault *fault, json_t **out)
{
    struct buf cut = {0};
    json_t *root = NULL;
    int rc = json_longs_cut(longs, text, &cut);

    if (rc == 0)
        rc = api_json_load_from(buf_view(&cut), memory_bound(text.len_bytes), fault, &root);
    buf_fini(&cut);
    if (rc < 0)
        return rc;
    rc = json_longs_fill(longs, text, root);
    if (rc < 0)
        json_decref(root);
    else
        *out = root;
    return rc;
}

int api_json_load(struct bytes text, struct fault *fault, json_t **out)
{
    struct json_longs longs = {0};
    struct fault inner = {0};
    json_t *root;
    int rc = check_bounds(text, fault, &longs);

    if (rc == 0 && longs.is_bad)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0) {
        rc = json_longs_pay(&longs) ? load_cut(text, &longs, &inner, &root) : E_FORMAT;
        if (rc == E_LIMIT || rc == E_NOMEM)
            fault_set(fault, rc, "%s", rc == E_LIMIT ? inner.text : "out of memory");
        else if (rc < 0)
            rc = api_json_load_from(text, memory_bound(text.len_bytes), fault, &root);
    }
    json_longs_fini(&longs);
    if (rc == 0)
        *out = root;
    return rc;
}

static int api_json_put_real(struct buf *out, double value)
{
    char text[40];

    if (fabs(value) < 1e15 && value == floor(value))
        return buf_printf(out, "%.1f", value);
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return buf_append_str(out, text);
}

static int api_json_put_object(struct buf *out, const json_t *object)
{
    const char *key;
    const char *separator = "";
    json_t *value;

    buf_append_byte(out, '{');
    /* Jansson's parameter is not const, but it only reads. */
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        buf_append_str(out, separator);
        json_put_str(out, bytes_str(key));
        buf_append_str(out, ": ");
        api_json_put(out, value);
        separator = ", ";
    }
    return buf_append_byte(out, '}');
}

/* Recursion is bounded: a document loaded here nests at most JSON_WALK_MAX_DEPTH deep. */
int api_json_put(struct buf *out, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        api_json_put_object(out, value);
        break;
    case JSON_ARRAY:
        buf_append_byte(out, '[');
        for (size_t i = 0; i < json_array_size(value); i++) {
            if (i > 0)
                buf_append_str(out, ", ");
            api_json_put(out, json_array_get(value, i));
        }
        buf_append_byte(out, ']');
        break;
    case JSON_STRING:
        json_put_str(out, api_json_str(value));
        break;
    case JSON_INTEGER:
        buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        api_json_put_real(out, json_real_value(value));
        break;
    case JSON_TRUE:
        buf_append_str(out, "true");
        break;
    case JSON_FALSE:
        buf_append_str(out, "false");
        break;
    case JSON_NULL:
        buf_append_str(out, "null");
        break;
    }
    return out->is_bad ? E_NOMEM : 0;
}

struct bytes api_json_str(const json_t *value)
{
    if (!json_is_string(value))
        return bytes_of(NULL, 0);
    return bytes_of(json_string_value(value), json_string_length(value));
}

bool api_json_integer(const json_t *value, int64_t *out)
{
    double real;

    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    if (!json_is_real(value))
        return false;
    real = json_real_value(value);
    if (real != floor(real))
        return false;
    if (real >= 9.2e18)
        *out = INT64_MAX;
    else if (real <= -9.2e18)
        *out = INT64_MIN;
    else
        *out = (int64_t)real;
    return true;
}

/* ---- references ---- */

static json_t *json_step_into(const json_t *at, struct bytes step)
{
    char name[512];
    size_t n = 0;

    if (step.len_bytes >= sizeof(name))
        return NULL;
    for (size_t i = 0; i < step.len_bytes; i++) {
        uint8_t byte = step.data[i];

        if (byte == '~' && i + 1 < step.len_bytes) {
            byte = step.data[++i] == '1' ? '/' : '~';
        } else if (byte == '%' && i + 2 < step.len_bytes &&
                   hex_decode(bytes_of(step.data + i + 1, 2), &byte, 1) == 0) {
            i += 2;
        }
        name[n++] = (char)byte;
    }
    if (json_is_array(at)) {
        uint64_t index;

        return str_to_u64(bytes_of(name, n), &index) == 0 ? json_array_get(at, index) : NULL;
    }
    return json_object_getn(at, name, n);
}

json_t *api_json_follow(const json_t *root, struct bytes ref)
{
    size_t slash = 1, next;

    if (ref.len_bytes == 0 || ref.data[0] != '#' || (ref.len_bytes > 1 && ref.data[1] != '/'))
        return NULL;
    for (; root != NULL && slash < ref.len_bytes; slash = next) {
        next = bytes_find(ref, bytes_str("/"), slash + 1);
        next = next == SIZE_MAX ? ref.len_bytes : next;
        root = json_step_into(root, bytes_of(ref.data + slash + 1, next - slash - 1));
    }
    return (json_t *)root;
}

/* Recursion is safe: the parser bounded the depth. */
bool api_json_mentions(const json_t *value, const char *name)
{
    const char *key;
    json_t *member;
    size_t i;

    json_array_foreach(value, i, member) if (api_json_mentions(member, name)) return true;
    json_object_foreach((json_t *)value, key,
                        member) if (strcmp(key, name) == 0 || api_json_mentions(member, name)) return true;
    return false;
}
