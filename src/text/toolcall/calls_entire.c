/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are parsed as a whole: an odd order of members, escapes in the name, arguments as a string, a
 * list of calls.  Text that proves to be no call comes out unchanged, with its marks.
 *
 * The splitter works on the loop, and the JSON library takes about a microsecond for a value.  So calls_late.c reads a
 * long call as it arrives, if its form allows that, and the library gets at most CALLS_MAX_TREE_BYTES with
 * CALLS_MAX_TREE_VALUES.  A larger call is text.  The text of a broken call leaves in pieces, one for each token that
 * follows. */
#include <string.h>

#include "text/toolcall/calls_priv.h"
#include "text/json/json.h"
#include "base/err.h"

#define LOST_PIECE_BYTES ((size_t)64 << 10)

int calls_collect(struct calls *calls)
{
    calls->n_mark = strlen(calls->opened);
    calls->n_looked = 0;
    calls->is_lost = false;
    calls_late_reset(calls);
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
    if (rc == 0)
        rc = calls_collect(calls);
    calls->is_lost = true;
    return rc;
}

int calls_pass_raw(struct calls *calls, size_t n)
{
    int rc = n == 0 ? 0 : calls->events->on_text(calls->arg, bytes_of(calls->held.data, n));

    buf_consume(&calls->held, n);
    calls_begin_text(calls);
    calls->has_text = true;
    return rc;
}

/* Loads JSON of at most *n_left values, and takes them off. */
static json_t *load_counted(struct bytes text, size_t *n_left)
{
    struct json_walk walk = {0};
    enum json_walk_result result = JSON_WALK_MORE;
    json_t *value;

    for (size_t i = 0; i < text.len_bytes && result <= JSON_WALK_DONE && walk.n_values <= *n_left; i++) {
        i += json_walk_string(&walk, bytes_of(text.data + i, text.len_bytes - i));
        if (i < text.len_bytes)
            result = json_walk_byte(&walk, text.data[i]);
    }
    if (result > JSON_WALK_DONE || walk.n_values > *n_left)
        return NULL;
    *n_left -= walk.n_values;
    return api_json_load(text, NULL, &value) == 0 ? value : NULL;
}

/* True for an object with a name and arguments.  Arguments that are a string become the object that it holds. */
static bool read_call(json_t *call, size_t *n_left)
{
    const char *key = calls_arguments_key_of(call);
    json_t *arguments = json_object_get(call, key);
    json_t *inner;

    if (calls_name_of(call).len_bytes == 0)
        return false;
    if (!json_is_string(arguments))
        return json_is_object(arguments);
    inner = load_counted(api_json_str(arguments), n_left);
    if (json_is_object(inner) && json_object_set(call, key, inner) == 0)
        arguments = inner;
    json_decref(inner);
    return arguments == inner && inner != NULL;
}

static int pass_entire(struct calls *calls, const json_t *call)
{
    int rc = calls->events->on_begin(calls->arg, calls_name_of(call));

    buf_clear(&calls->good);
    if (rc == 0)
        rc = api_json_put(&calls->good, json_object_get(call, calls_arguments_key_of(call)));
    if (rc == 0)
        rc = calls->events->on_arguments(calls->arg, buf_view(&calls->good));
    if (rc == 0)
        rc = calls->events->on_end(calls->arg, CALLS_WHOLE);
    calls->n_before++;
    return rc;
}

/* Loads a call or a list of calls.  NULL: the text is something else, or too long. */
static json_t *load_calls(struct bytes text)
{
    size_t n_left = CALLS_MAX_TREE_VALUES;
    json_t *root = text.len_bytes <= CALLS_MAX_TREE_BYTES ? load_counted(text, &n_left) : NULL;
    bool are_calls = root != NULL;

    for (size_t i = 0; i < json_array_size(root) && are_calls; i++)
        are_calls = read_call(json_array_get(root, i), &n_left);
    if (are_calls && (!json_is_array(root) || json_array_size(root) == 0))
        are_calls = read_call(root, &n_left);
    if (are_calls)
        return root;
    json_decref(root);
    return NULL;
}

int calls_end_entire(struct calls *calls, size_t upto, size_t n)
{
    struct bytes text = bytes_of(calls->held.data + calls->n_mark, upto - calls->n_mark);
    json_t *root = NULL;
    int rc = 0;

    if (calls->late == CALLS_LATE_NAME) {
        rc = calls_late_end(calls, text);
        if (rc == 1)
            buf_consume(&calls->held, upto + n);
        if (rc != 0)
            return rc < 0 ? rc : 0;
    } else if (!calls->is_lost) {
        root = load_calls(text);
    }
    if (root == NULL)
        return calls_pass_raw(calls, upto + n);
    for (size_t i = 0; i < json_array_size(root) && rc == 0; i++)
        rc = pass_entire(calls, json_array_get(root, i));
    if (!json_is_array(root))
        rc = pass_entire(calls, root);
    buf_consume(&calls->held, upto + n);
    calls_begin_text(calls);
    json_decref(root);
    return rc;
}

/* Passes on the text of a broken call, up to the mark that ends it. */
static int run_lost(struct calls *calls)
{
    const char *close = calls->parser->close;
    struct bytes text = buf_view(&calls->held);
    size_t at = close == NULL ? SIZE_MAX : bytes_find(text, bytes_str(close), 0);
    size_t n = at != SIZE_MAX ? at + strlen(close)
                              : text.len_bytes - (close == NULL ? 0 : calls_partial(text, close));
    int rc = 0;

    if (at != SIZE_MAX && n <= LOST_PIECE_BYTES) {
        rc = calls_pass_raw(calls, n);
        return rc != 0 ? rc : 1;
    }
    if (n > LOST_PIECE_BYTES)
        for (n = LOST_PIECE_BYTES; (text.data[n] & 0xc0) == 0x80;)
            n--;
    if (n > 0)
        rc = calls->events->on_text(calls->arg, bytes_of(text.data, n));
    buf_consume(&calls->held, n);
    return rc;
}

int calls_run_entire(struct calls *calls)
{
    const char *close = calls->parser->close;
    size_t from = calls->n_looked > calls->n_mark ? calls->n_looked : calls->n_mark;
    size_t at = close == NULL ? SIZE_MAX : bytes_find(buf_view(&calls->held), bytes_str(close), from);
    size_t most = calls->late == CALLS_LATE_NAME ? CALLS_MAX_WHOLE_BYTES : CALLS_MAX_TREE_BYTES;
    int rc;

    if (calls->is_lost)
        return run_lost(calls);
    rc = calls_late_run(calls);
    if (rc != 0)
        return rc;
    if (at == SIZE_MAX && calls->held.len_bytes <= most) {
        calls->n_looked =
            calls->held.len_bytes - (close == NULL ? 0 : calls_partial(buf_view(&calls->held), close));
        return 0;
    }
    if (at == SIZE_MAX)
        return calls_pass_raw(calls, calls->held.len_bytes);
    rc = calls_end_entire(calls, at, strlen(close));
    return rc != 0 ? rc : 1;
}
