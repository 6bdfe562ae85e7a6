/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are parsed as a whole: an odd order of members, escapes in the name, arguments as a string, a
 * list of calls.  Text that proves to be no call comes out unchanged, with its marks. */
#include <string.h>

#include "text/toolcall/calls_priv.h"
#include "text/json/json.h"
#include "base/err.h"

#define MAX_WHOLE_BYTES (4u << 20)

int calls_collect(struct calls *calls)
{
    calls->n_mark = strlen(calls->opened);
    calls->n_looked = 0;
    if (calls->raw.len_bytes > 0) {
        struct buf all = calls->raw;

        if (buf_append(&all, calls->held.data, calls->held.len_bytes) < 0)
            return E_NOMEM;
        calls->raw = calls->held;
        calls->held = all;
        buf_clear(&calls->raw);
    }
    calls->state = CALLS_ENTIRE;
    return 1;
}

int calls_end_broken(struct calls *calls)
{
    int rc = calls->events->on_end(calls->arg, CALLS_BROKEN);

    calls->n_before--;
    return rc != 0 ? rc : calls_collect(calls);
}

int calls_pass_raw(struct calls *calls, size_t n)
{
    int rc = n == 0 ? 0 : calls->events->on_text(calls->arg, bytes_of(calls->held.data, n));

    buf_consume(&calls->held, n);
    calls_begin_text(calls);
    calls->has_text = true;
    return rc;
}

static struct bytes called_name(const json_t *call)
{
    const json_t *name = json_object_get(call, "name");

    return api_json_str(name != NULL ? name : json_object_get(call, "tool_name"));
}

/* Reads "arguments": an object, or a string that holds one. */
static json_t *arguments_of(const json_t *call)
{
    json_t *arguments = json_object_get(call, "arguments");
    json_t *parsed;

    if (arguments == NULL)
        arguments = json_object_get(call, "parameters");
    if (called_name(call).len_bytes == 0)
        return NULL;
    if (json_is_object(arguments))
        return json_incref(arguments);
    if (!json_is_string(arguments) || api_json_load(api_json_str(arguments), NULL, &parsed) < 0)
        return NULL;
    if (json_is_object(parsed))
        return parsed;
    json_decref(parsed);
    return NULL;
}

static int pass_entire(struct calls *calls, const json_t *call)
{
    json_t *arguments = arguments_of(call);
    int rc = calls->events->on_begin(calls->arg, called_name(call));

    buf_clear(&calls->good);
    if (rc == 0)
        rc = api_json_put(&calls->good, arguments);
    if (rc == 0)
        rc = calls->events->on_arguments(calls->arg, buf_view(&calls->good));
    if (rc == 0)
        rc = calls->events->on_end(calls->arg, CALLS_WHOLE);
    json_decref(arguments);
    calls->n_before++;
    return rc;
}

static bool is_call(const json_t *call)
{
    json_t *arguments = arguments_of(call);
    bool is_one = arguments != NULL;

    json_decref(arguments);
    return is_one;
}

int calls_end_entire(struct calls *calls, size_t upto, size_t n)
{
    struct bytes raw = bytes_of(calls->held.data + calls->n_mark, upto - calls->n_mark);
    json_t *root = NULL;
    bool are_calls = api_json_load(raw, NULL, &root) == 0;
    int rc = 0;

    for (size_t i = 0; i < json_array_size(root) && are_calls; i++)
        are_calls = is_call(json_array_get(root, i));
    if (are_calls && (!json_is_array(root) || json_array_size(root) == 0))
        are_calls = is_call(root);
    if (!are_calls) {
        rc = calls_pass_raw(calls, upto + n);
    } else {
        for (size_t i = 0; i < json_array_size(root) && rc == 0; i++)
            rc = pass_entire(calls, json_array_get(root, i));
        if (!json_is_array(root))
            rc = pass_entire(calls, root);
        buf_consume(&calls->held, upto + n);
        calls_begin_text(calls);
    }
    json_decref(root);
    return rc;
}

int calls_run_entire(struct calls *calls)
{
    const char *close = calls->parser->close;
    size_t from = calls->n_looked > calls->n_mark ? calls->n_looked : calls->n_mark;
    size_t at = close == NULL ? SIZE_MAX : bytes_find(buf_view(&calls->held), bytes_str(close), from);
    int rc;

    if (at == SIZE_MAX && calls->held.len_bytes <= MAX_WHOLE_BYTES) {
        calls->n_looked =
            calls->held.len_bytes - (close == NULL ? 0 : calls_partial(buf_view(&calls->held), close));
        return 0;
    }
    if (at == SIZE_MAX)
        return calls_pass_raw(calls, calls->held.len_bytes);
    rc = calls_end_entire(calls, at, strlen(close));
    return rc != 0 ? rc : 1;
}
