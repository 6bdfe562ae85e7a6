/* SPDX-License-Identifier: Apache-2.0 */
/* The splitter.
 *
 *      THINKING <──mark── TEXT ──mark──> HEADER ──usual beginning──> ARGUMENTS ──last brace──> TAIL ──> TEXT
 *          └────mark───> TEXT               │   └──tags──> VALUES <──> VALUE ──last tag──────> TAIL
 *                                           └──other form──> ENTIRE ──mark: parsed as a whole──> TEXT
 *
 * HEADER waits for the usual beginning, so that arguments can stream.  Any other form (other order, escapes in the
 * name, arguments as a string) is collected and parsed when it is complete.  Models sometimes write raw line ends
 * and tabs in argument strings; the splitter escapes them.
 *
 * calls_text.c has TEXT and THINKING, and looks for the marks that lead out of them.  calls_json.c, calls_tags.c and
 * calls_harmony.c parse each format's header and tail; calls_entire.c has ENTIRE. */
#include "text/toolcall/calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/toolcall/calls_priv.h"
#include "base/err.h"

const char *const *calls_marks(enum calls_format format)
{
    return calls_row_of(format)->parser->marks;
}

int calls_new(const struct calls_opts *opts, const struct calls_events *events, void *arg, struct calls **out)
{
    struct calls *calls = calloc(1, sizeof(*calls));

    if (calls == NULL) {
        free(opts->tools);
        return E_NOMEM;
    }
    calls->events = events;
    calls->arg = arg;
    calls->opts = *opts;
    calls->parser =
        calls_row_of(opts->ignores_calls && opts->format != CALLS_HARMONY ? CALLS_PLAIN : opts->format)
            ->parser;
    calls->row = calls_row_of(opts->answers != CALLS_PLAIN ? opts->answers : opts->format);
    calls->state = opts->begins_thinking && opts->think_close != NULL ? CALLS_THINKING : CALLS_TEXT;
    calls->awaits_think_name = calls->state == CALLS_THINKING && opts->think_name != NULL;
    *out = calls;
    return 0;
}

void calls_free(struct calls *calls)
{
    if (calls == NULL)
        return;
    buf_fini(&calls->held);
    buf_fini(&calls->raw);
    buf_fini(&calls->good);
    buf_fini(&calls->key);
    calls_value_fini(calls);
    json_decref(calls->schema);
    free(calls->opts.tools);
    free(calls);
}

size_t calls_n_behind(const struct calls *calls, struct bytes text)
{
    return (size_t)(calls->held.data + calls->held.len_bytes - (text.data + text.len_bytes));
}

bool calls_is_inside(const struct calls *calls)
{
    return calls->state != CALLS_TEXT && calls->state != CALLS_THINKING;
}

bool calls_is_open(const struct calls *calls)
{
    return calls_is_inside(calls) && calls->state != CALLS_TAIL;
}

bool calls_is_thinking(const struct calls *calls)
{
    return calls->state == CALLS_THINKING;
}

/* ---- helpers of all formats ---- */

bool calls_is_blank(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

size_t calls_skip_blanks(struct bytes text, size_t at)
{
    while (at < text.len_bytes && calls_is_blank(text.data[at]))
        at++;
    return at;
}

size_t calls_partial(struct bytes text, const char *marker)
{
    size_t n = strlen(marker) - 1;

    if (n > text.len_bytes)
        n = text.len_bytes;
    for (; n > 0; n--)
        if (memcmp(text.data + text.len_bytes - n, marker, n) == 0)
            break;
    return n;
}

bool calls_is_name(struct bytes name)
{
    for (size_t i = 0; i < name.len_bytes; i++) {
        uint8_t c = name.data[i];

        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '_' &&
            c != '-')
            return false;
    }
    return name.len_bytes > 0;
}

int calls_take(struct calls *calls, size_t n)
{
    if (buf_append(&calls->raw, calls->held.data, n) < 0)
        return E_NOMEM;
    buf_consume(&calls->held, n);
    return 0;
}

int calls_begin_call(struct calls *calls, struct bytes name, enum calls_state state)
{
    int rc = calls->events->on_begin(calls->arg, name);

    if (rc != 0)
        return rc;
    memset(&calls->walk, 0, sizeof(calls->walk));
    calls->late = CALLS_LATE_UNKNOWN;
    calls->n_before++;
    calls->state = state;
    return 0;
}

int calls_end_whole(struct calls *calls)
{
    int rc = calls->events->on_end(calls->arg, CALLS_WHOLE);

    calls->state = CALLS_TAIL;
    buf_clear(&calls->raw);
    return rc != 0 ? rc : 1;
}

/* ---- calls ---- */

static bool has_odd_order(struct bytes call)
{
    size_t at = calls_skip_blanks(call, 1);
    struct bytes rest = bytes_of(call.data + at, call.len_bytes - at);

    return bytes_starts_with(rest, "\"parameters\"") || bytes_starts_with(rest, "\"arguments\"");
}

static int run_header(struct calls *calls)
{
    int rc = calls->parser->header(calls);

    if (rc == 0 && calls->held.len_bytes > CALLS_MAX_HEADER_BYTES)
        rc = -1;
    if (rc != -1)
        return rc;
    /* A bracket that does not begin a call begins text, unless only the order is odd. */
    if (calls->is_bare && !has_odd_order(buf_view(&calls->held))) {
        rc = calls_pass_raw(calls, 1);
        return rc != 0 ? rc : 1;
    }
    return calls_collect(calls);
}

/* Walks the held JSON and adds it to good, with line ends in strings escaped.  Returns the bytes taken. */
static size_t walk_held(struct calls *calls, enum json_walk_result *result)
{
    struct bytes text = buf_view(&calls->held);
    size_t i;

    *result = JSON_WALK_MORE;
    for (i = 0; i < text.len_bytes && *result == JSON_WALK_MORE; i++) {
        uint8_t c = text.data[i];

        if (c < ' ' && json_walk_is_in_string(&calls->walk)) {
            char escaped[8];

            snprintf(escaped, sizeof(escaped), "\\u%04x", c);
            for (const char *e = escaped; *e != '\0' && *result == JSON_WALK_MORE; e++)
                *result = json_walk_byte(&calls->walk, (uint8_t)*e);
            if (*result == JSON_WALK_MORE)
                buf_append_str(&calls->good, escaped);
            continue;
        }
        *result = json_walk_byte(&calls->walk, c);
        if (*result == JSON_WALK_MORE || *result == JSON_WALK_DONE)
            buf_append_byte(&calls->good, c);
    }
    return i;
}

static int run_arguments(struct calls *calls)
{
    enum json_walk_result result;
    size_t n;
    int rc = 0;

    if (calls->late == CALLS_LATE_QUOTED)
        return calls_quoted_arguments(calls);
    if (calls->parser->arguments != NULL && !calls->is_braced)
        return calls->parser->arguments(calls);
    buf_clear(&calls->good);
    n = walk_held(calls, &result);
    if (calls->good.is_bad || calls_take(calls, n) < 0)
        return E_NOMEM;
    if (calls->good.len_bytes > 0)
        rc = calls->events->on_arguments(calls->arg, buf_view(&calls->good));
    if (rc != 0 || result == JSON_WALK_MORE)
        return rc;
    return result == JSON_WALK_DONE ? calls_end_whole(calls) : calls_end_broken(calls);
}

/* After the arguments the call's object continues to its closing brace; other members are skipped. */
static int run_tail(struct calls *calls)
{
    static const char before[] = "{\"\":{}";
    enum json_walk_result result = JSON_WALK_MORE;
    struct json_walk walk = {0};
    size_t i;

    if (calls->is_braced) {
        for (i = 0; before[i] != '\0'; i++)
            json_walk_byte(&walk, (uint8_t)before[i]);
        for (i = 0; i < calls->held.len_bytes && result == JSON_WALK_MORE; i++)
            result = json_walk_byte(&walk, calls->held.data[i]);
        if (result == JSON_WALK_MORE && i < CALLS_MAX_HEADER_BYTES)
            return 0;
        calls->is_braced = false;
        if (result == JSON_WALK_DONE)
            buf_consume(&calls->held, i);
    }
    if (calls_skip_blanks(buf_view(&calls->held), 0) == calls->held.len_bytes) { /* every tail drops them */
        buf_clear(&calls->held);
        return 0;
    }
    return calls->parser->tail(calls);
}

/* ---- feeding ---- */

/* Runs the current state: 1 to go on, 0 when more text is needed, else an error. */
static int calls_run_state(struct calls *calls)
{
    switch (calls->state) {
    case CALLS_TEXT:
        return calls_run_text(calls);
    case CALLS_THINKING:
        return calls_run_thinking(calls);
    case CALLS_HEADER:
        return run_header(calls);
    case CALLS_ARGUMENTS:
        return run_arguments(calls);
    case CALLS_VALUES:
        return calls_run_values(calls);
    case CALLS_VALUE:
        return calls_run_value(calls);
    case CALLS_TAIL:
        return run_tail(calls);
    case CALLS_ENTIRE:
        return calls_run_entire(calls);
    }
    return 0;
}

static int run_held(struct calls *calls)
{
    int rc;

    do
        rc = calls->held.len_bytes > 0 ? calls_run_state(calls) : 0;
    while (rc == 1);
    return rc;
}

int calls_feed(struct calls *calls, struct bytes text)
{
    int rc = buf_append(&calls->held, text.data, text.len_bytes);

    return rc < 0 ? rc : run_held(calls);
}

/* The answer ended inside a call, without a limit. */
static int finish_open(struct calls *calls)
{
    int rc;

    if (calls->state == CALLS_ARGUMENTS || calls->state == CALLS_VALUE) {
        rc = calls_end_broken(calls);
        if (rc != 1)
            return rc;
    }
    return calls_end_entire(calls, calls->held.len_bytes, 0);
}

/* The answer ended between tags: only the last tag is missing. */
static int finish_values(struct calls *calls)
{
    int rc = calls->events->on_arguments(calls->arg, bytes_str("}"));

    return rc != 0 ? rc : calls->events->on_end(calls->arg, CALLS_WHOLE);
}

int calls_finish(struct calls *calls, bool is_cut)
{
    int rc = 0;

    /* A header without arguments may still be a whole call in an odd order. */
    while (rc == 0 && calls->state == CALLS_HEADER && (!is_cut || calls->is_bare)) {
        rc = calls_collect(calls);
        if (rc == 1)
            rc = run_held(calls);
    }
    if (rc != 0)
        return rc;
    switch (calls->state) {
    case CALLS_TEXT:
        rc = calls_finish_text(calls);
        break;
    case CALLS_THINKING:
        rc = calls_finish_thinking(calls);
        break;
    case CALLS_HEADER: /* cut: the call is dropped */
        break;
    case CALLS_ENTIRE:
        if (!is_cut || calls->is_bare)
            rc = finish_open(calls);
        break;
    case CALLS_ARGUMENTS:
    case CALLS_VALUE:
        rc = is_cut ? calls->events->on_end(calls->arg, CALLS_CUT) : finish_open(calls);
        break;
    case CALLS_VALUES:
        rc = is_cut ? calls->events->on_end(calls->arg, CALLS_CUT) : finish_values(calls);
        break;
    case CALLS_TAIL:
        break;
    }
    buf_clear(&calls->held);
    return rc;
}
