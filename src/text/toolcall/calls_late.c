/* SPDX-License-Identifier: Apache-2.0 */
/* Long calls in two unusual forms, read as they arrive:
 *
 *     {"name": "N", "arguments": "{\"K\": ...}"}      the arguments stream, unquoted
 *     {"arguments": {"K": ...}, "name": "N"}          they are rewritten, and passed on once the name is known
 *
 * Short calls are parsed by the JSON library at their end (calls_entire.c).  A call is long, and read here, from
 * LATE_BYTES on, so that no piece of text costs more because the call is long. */
#include <string.h>

#include "text/toolcall/calls_priv.h"
#include "text/json/json.h"
#include "base/err.h"

#define LATE_BYTES ((size_t)16 << 10)

void calls_late_reset(struct calls *calls)
{
    calls->late = CALLS_LATE_UNKNOWN;
    calls->n_late = 0;
    buf_clear(&calls->form);
    json_rewrite_fini(&calls->rewrite);
}

/* ---- arguments before the name ---- */

static bool late_is_whole(const struct calls *calls)
{
    return calls->rewrite.walk.n_values > 0 && calls->rewrite.walk.depth == 0;
}

/* Rewrites the new bytes up to the end of the arguments. */
static int late_rewrite(struct calls *calls)
{
    struct json_walk *walk = &calls->rewrite.walk;
    size_t before = walk->n_bytes;
    enum json_walk_result result;

    if (late_is_whole(calls))
        return 0;
    result = json_rewrite_feed(
        &calls->rewrite, bytes_of(calls->held.data + calls->n_late, calls->held.len_bytes - calls->n_late),
        &calls->form);
    calls->n_late += walk->n_bytes - before;
    if (result == JSON_WALK_BAD && late_is_whole(calls))
        calls->n_late--; /* the byte belongs to the rest of the call */
    else if (result == JSON_WALK_BAD || result == JSON_WALK_DEEP)
        calls->late = CALLS_LATE_NONE;
    return calls->form.is_bad ? E_NOMEM : 0;
}

/* Loads the members behind the arguments as an object. */
static json_t *load_rest(struct bytes rest)
{
    size_t at = calls_skip_blanks(rest, 0);
    struct buf text = {0};
    json_t *value = NULL;

    if (at == rest.len_bytes || rest.data[at] != ',' || rest.len_bytes > CALLS_MAX_HEADER_BYTES)
        return NULL;
    buf_append_byte(&text, '{');
    buf_append(&text, rest.data + at + 1, rest.len_bytes - at - 1);
    if (text.is_bad || api_json_load(buf_view(&text), NULL, &value) < 0)
        value = NULL;
    buf_fini(&text);
    return value;
}

int calls_late_end(struct calls *calls, struct bytes text)
{
    size_t n_read = calls->n_late - calls->n_mark;
    json_t *rest = late_is_whole(calls) && !calls->rewrite.is_odd && n_read <= text.len_bytes
                       ? load_rest(bytes_of(text.data + n_read, text.len_bytes - n_read))
                       : NULL;
    struct bytes called = calls_name_of(rest);
    int rc = 0;

    if (called.len_bytes > 0) {
        rc = calls_begin_call(calls, called, CALLS_TAIL);
        if (rc == 0)
            rc = calls->events->on_arguments(calls->arg, buf_view(&calls->form));
        if (rc == 0)
            rc = calls->events->on_end(calls->arg, CALLS_WHOLE);
        calls_begin_text(calls);
        rc = rc < 0 ? rc : 1;
    }
    json_decref(rest);
    return rc;
}

/* ---- arguments as a string ---- */

static bool is_high_escape(struct bytes text, size_t at)
{
    uint8_t second = text.data[at + 3];

    return (text.data[at + 2] | 0x20) == 'd' && second != 0 && strchr("89abAB", second) != NULL;
}

/* The length of the text up to the quote that ends the string, or up to an escape that is not complete. */
static size_t quoted_prefix(struct bytes text)
{
    size_t at = 0;

    while (at < text.len_bytes && text.data[at] != '"') {
        size_t left = text.len_bytes - at, n = 1;

        if (text.data[at] == '\\')
            n = left > 1 && text.data[at + 1] == 'u' ? 6 : 2;
        if (n == 6 && left >= 6 && is_high_escape(text, at) && (left == 6 || text.data[at + 6] == '\\'))
            n = 12;
        if (n > left)
            break;
        at += n;
    }
    return at;
}

/* Decodes the first n held bytes and rewrites them; false: they are no JSON. */
static bool quoted_rewrite(struct calls *calls, size_t n)
{
    enum json_walk_result result;
    json_t *piece = NULL;
    int rc;

    buf_clear(&calls->good);
    buf_clear(&calls->form);
    buf_append_byte(&calls->good, '"');
    buf_append(&calls->good, calls->held.data, n);
    buf_append_byte(&calls->good, '"');
    rc = calls->good.is_bad ? E_NOMEM : api_json_load(buf_view(&calls->good), NULL, &piece);
    calls->form.is_bad |= rc == E_NOMEM;
    if (rc < 0)
        return false;
    result = json_rewrite_feed(&calls->rewrite, api_json_str(piece), &calls->form);
    json_decref(piece);
    return result <= JSON_WALK_DONE;
}

int calls_quoted_arguments(struct calls *calls)
{
    size_t n = quoted_prefix(buf_view(&calls->held));
    bool is_end = n < calls->held.len_bytes && calls->held.data[n] == '"';
    bool is_good = quoted_rewrite(calls, n);
    int rc = calls->form.is_bad ? E_NOMEM : 0;

    if (rc == 0 && calls->form.len_bytes > 0)
        rc = calls->events->on_arguments(calls->arg, buf_view(&calls->form));
    if (rc == 0)
        rc = calls_take(calls, is_end ? n + 1 : n);
    if (rc < 0 || (is_good && !is_end))
        return rc;
    if (!is_good || !json_rewrite_end(&calls->rewrite, &calls->form))
        return calls_end_broken(calls);
    calls->is_braced = true; /* the brace of the call follows */
    return calls_end_whole(calls);
}

/* ---- a call that has become long ---- */

int calls_late_run(struct calls *calls)
{
    struct bytes text = bytes_of(calls->held.data + calls->n_mark, calls->held.len_bytes - calls->n_mark);
    struct bytes name;
    size_t at = 0;
    int rc;

    if (calls->late == CALLS_LATE_UNKNOWN && text.len_bytes > LATE_BYTES) {
        calls->late = calls_find_late(text, &name, &at);
        calls->n_late = calls->n_mark + at;
    }
    if (calls->late == CALLS_LATE_NAME)
        return late_rewrite(calls);
    if (calls->late != CALLS_LATE_QUOTED)
        return 0;
    if (!calls_is_name(name)) {
        calls->late = CALLS_LATE_NONE;
        return 0;
    }
    rc = calls_begin_call(calls, name, CALLS_ARGUMENTS);
    calls->late = CALLS_LATE_QUOTED;
    if (rc == 0)
        rc = calls_take(calls, calls->n_mark + at);
    return rc < 0 ? rc : 1;
}
