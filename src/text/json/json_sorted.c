/* SPDX-License-Identifier: Apache-2.0 */
/* One text for all spellings of a JSON value.
 *
 * Clients load the JSON that they received and write it again: members in another order, 1.0 as 1 or 1e0,
 * characters as escapes. Here members are sorted, equal numbers get one spelling, and strings are decoded. So
 * two values are equal exactly if their texts are equal. An integer that a double cannot hold differs from
 * the double next to it. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/json/json.h"
#include "base/err.h"
#include "base/str.h"

struct member {
    const char *key;
    const json_t *value;
};

static int compare_members(const void *a, const void *b)
{
    return strcmp(((const struct member *)a)->key, ((const struct member *)b)->key);
}

static void json_sorted_put_real(struct buf *out, double real)
{
    if (real == floor(real) && fabs(real) < 9e18)
        buf_printf(out, "%" PRId64, (int64_t)real);
    else
        buf_printf(out, "%.17g", real);
}

static void json_sorted_put_value(struct buf *out, const json_t *value);

static void json_sorted_put_object(struct buf *out, const json_t *object)
{
    size_t n = json_object_size(object), i = 0;
    struct member *members = calloc(n + 1, sizeof(*members));
    const char *key;
    json_t *value;

    if (members == NULL) {
        out->is_bad = true;
        return;
    }
    /* Jansson's parameter is not const, but it only reads. */
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        members[i++] = (struct member){.key = key, .value = value};
    }
    qsort(members, n, sizeof(*members), compare_members);
    buf_append_byte(out, '{');
    for (i = 0; i < n; i++) {
        if (i > 0)
            buf_append_byte(out, ',');
        json_put_str(out, bytes_str(members[i].key));
        buf_append_byte(out, ':');
        json_sorted_put_value(out, members[i].value);
    }
    buf_append_byte(out, '}');
    free(members);
}

/* Recursion is bounded: a loaded document nests at most JSON_WALK_MAX_DEPTH deep. */
static void json_sorted_put_value(struct buf *out, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        json_sorted_put_object(out, value);
        break;
    case JSON_ARRAY:
        buf_append_byte(out, '[');
        for (size_t i = 0; i < json_array_size(value); i++) {
            if (i > 0)
                buf_append_byte(out, ',');
            json_sorted_put_value(out, json_array_get(value, i));
        }
        buf_append_byte(out, ']');
        break;
    case JSON_REAL:
        json_sorted_put_real(out, json_real_value(value));
        break;
    case JSON_INTEGER:
    case JSON_STRING:
    case JSON_TRUE:
    case JSON_FALSE:
    case JSON_NULL:
        api_json_put(out, value);
        break;
    }
}

int api_json_put_sorted(struct buf *out, const json_t *value)
{
    json_sorted_put_value(out, value);
    return out->is_bad ? E_NOMEM : 0;
}

int api_json_sort(struct bytes text, struct buf *out)
{
    json_t *value;
    int rc = api_json_load(text, NULL, &value);

    if (rc < 0)
        return rc;
    rc = api_json_put_sorted(out, value);
    json_decref(value);
    return rc;
}
