/* SPDX-License-Identifier: Apache-2.0 */
/* The splitter.
 *
 *     TEXT ──<tool_call>──> HEADER ──usual beginning──> ARGUMENTS ──last brace──> TAIL ──</tool_call>──> TEXT
 *                              └──looks otherwise──> ENTIRE ──</tool_call>: parsed as a whole──────────> TEXT
 *
 * TEXT holds back what may be the beginning of a marker, and blanks at its own beginning: models put line
 * ends around calls, and a text block of blanks helps nobody.  HEADER waits for the usual beginning, so that
 * arguments can stream; anything else (other order, escapes in the name, arguments as a string) is collected
 * and parsed when it is whole.  Raw line ends and tabs inside argument strings, which models write now and
 * then, are escaped on the way. */
#include "api/calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/json.h"
#include "api/json_walk.h"
#include "base/err.h"

#define MAX_HEADER_BYTES 512
#define MAX_WHOLE_BYTES  (4u << 20)

static const char open_marker[] = "<tool_call>";
static const char close_marker[] = "</tool_call>";

enum calls_state {
    CALLS_TEXT,      /* outside calls */
    CALLS_HEADER,    /* before the arguments */
    CALLS_ARGUMENTS, /* in them */
    CALLS_TAIL,      /* after them */
    CALLS_ENTIRE     /* collecting a call that is parsed at its end */
};

struct calls {
    const struct calls_events *events;
    void *arg;
    enum calls_state state;
    bool has_text;    /* the current run of text was begun */
    unsigned n_calls; /* passed on */
    struct buf
        held; /* TEXT: not yet passed on; HEADER, ENTIRE: the call so far; TAIL: what follows the arguments */
    struct buf raw; /* ARGUMENTS: the whole call as the model wrote it */
    struct json_walk walk;
};

int calls_new(const struct calls_events *events, void *arg, struct calls **out)
{
    struct calls *calls = calloc(1, sizeof(*calls));

    if (calls == NULL)
        return E_NOMEM;
    calls->events = events;
    calls->arg = arg;
    *out = calls;
    return 0;
}

void calls_free(struct calls *calls)
{
    if (calls == NULL)
        return;
    buf_fini(&calls->held);
    buf_fini(&calls->raw);
    free(calls);
}

bool calls_is_inside(const struct calls *calls)
{
    return calls->state != CALLS_TEXT;
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* ---- text ---- */

/* Are the first n bytes held blanks at the beginning of a run? */
static bool is_blank_run(const struct calls *calls, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_blank(calls->held.data[i]))
            return false;
    return !calls->has_text;
}

/* Passes on the first n bytes held; after a call, without the blanks at the beginning. */
static int pass_text(struct calls *calls, size_t n)
{
    size_t skip = 0;
    int rc;

    while (calls->n_calls > 0 && !calls->has_text && skip < n && is_blank(calls->held.data[skip]))
        skip++;
    calls->has_text = true;
    rc = calls->events->on_text(calls->arg, bytes_of(calls->held.data + skip, n - skip));
    buf_consume(&calls->held, n);
    return rc;
}

/* How many bytes at the end of text may be the beginning of marker? */
static size_t partial_marker(struct bytes text, const char *marker)
{
    size_t n = strlen(marker) - 1;

    if (n > text.len_bytes)
        n = text.len_bytes;
    for (; n > 0; n--)
        if (memcmp(text.data + text.len_bytes - n, marker, n) == 0)
            break;
    return n;
}

static int run_text(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t marker = bytes_find(text, bytes_str(open_marker), 0);
    size_t n = marker != SIZE_MAX ? marker : text.len_bytes - partial_marker(text, open_marker);
    int rc = 0;

    if (n > 0 && !is_blank_run(calls, n))
        rc = pass_text(calls, n);
    else if (marker != SIZE_MAX)
        buf_consume(&calls->held, n);
    if (rc != 0 || marker == SIZE_MAX)
        return rc;
    buf_consume(&calls->held, sizeof(open_marker) - 1);
    calls->state = CALLS_HEADER;
    return 1;
}

static void begin_text(struct calls *calls)
{
    calls->state = CALLS_TEXT;
    calls->has_text = false;
}

/* Gives a call that is none as the text that it is. */
static int pass_raw(struct calls *calls, struct bytes raw, bool is_closed)
{
    struct buf text = {0};
    int rc;

    buf_append_str(&text, open_marker);
    buf_append(&text, raw.data, raw.len_bytes);
    if (is_closed)
        buf_append_str(&text, close_marker);
    rc = text.is_bad ? E_NOMEM : calls->events->on_text(calls->arg, buf_view(&text));
    buf_fini(&text);
    begin_text(calls);
    calls->has_text = true;
    return rc;
}

/* ---- the usual beginning of a call ---- */

struct header {
    struct bytes text;
    size_t at;
};

static void skip_blanks(struct header *header)
{
    while (header->at < header->text.len_bytes && is_blank(header->text.data[header->at]))
        header->at++;
}

/* 1: word is next and was skipped; 0: the text ends before that is known; -1: something else is next. */
static int take_word(struct header *header, const char *word)
{
    skip_blanks(header);
    for (; *word != '\0'; word++, header->at++) {
        if (header->at == header->text.len_bytes)
            return 0;
        if (header->text.data[header->at] != (uint8_t)*word)
            return -1;
    }
    return 1;
}

static int take_name(struct header *header, struct bytes *out)
{
    size_t from = header->at;

    for (; header->at < header->text.len_bytes; header->at++) {
        uint8_t c = header->text.data[header->at];

        if (c == '"' && header->at > from) {
            *out = bytes_of(header->text.data + from, header->at - from);
            header->at++;
            return 1;
        }
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '_' &&
            c != '-')
            return -1;
    }
    return 0;
}

/* {"name": "N", "arguments": {   1: at is at the last brace; 0: more is needed; -1: looks otherwise. */
static int match_header(struct header *header, struct bytes *name_out)
{
    static const char *const before[] = {"{", "\"name\"", ":", "\""};
    static const char *const after[] = {",", "\"arguments\"", ":", "{"};
    int rc;

    for (size_t i = 0; i < 4; i++)
        if ((rc = take_word(header, before[i])) != 1)
            return rc;
    if ((rc = take_name(header, name_out)) != 1)
        return rc;
    for (size_t i = 0; i < 4; i++)
        if ((rc = take_word(header, after[i])) != 1)
            return rc;
    header->at--;
    return 1;
}

static int run_header(struct calls *calls)
{
    struct header header = {.text = buf_view(&calls->held)};
    struct bytes name = {0};
    int rc = match_header(&header, &name);

    if (rc < 0 || header.text.len_bytes > MAX_HEADER_BYTES)
        rc = rc == 1 ? 1 : -1;
    if (rc == 0)
        return 0;
    if (rc < 0) {
        calls->state = CALLS_ENTIRE;
        return 1;
    }
    rc = calls->events->on_begin(calls->arg, name);
    if (rc != 0)
        return rc;
    buf_clear(&calls->raw);
    if (buf_append(&calls->raw, header.text.data, header.at) < 0)
        return E_NOMEM;
    memset(&calls->walk, 0, sizeof(calls->walk));
    calls->n_calls++;
    buf_consume(&calls->held, header.at);
    calls->state = CALLS_ARGUMENTS;
    return 1;
}

/* ---- arguments ---- */

/* Walks what is held; appends to out what is good (with line ends in strings escaped).  Returns bytes taken.
 */
static size_t walk_held(struct calls *calls, struct buf *out, enum json_walk_result *result)
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
                buf_append_str(out, escaped);
            continue;
        }
        *result = json_walk_byte(&calls->walk, c);
        if (*result == JSON_WALK_MORE || *result == JSON_WALK_DONE)
            buf_append_byte(out, c);
    }
    return i;
}

static int end_broken(struct calls *calls)
{
    int rc = calls->events->on_end(calls->arg, CALLS_BROKEN);

    if (rc != 0)
        return rc;
    /* The rest of it is waited for and then given as text with what came before. */
    if (buf_append(&calls->raw, calls->held.data, calls->held.len_bytes) < 0)
        return E_NOMEM;
    buf_clear(&calls->held);
    buf_append(&calls->held, calls->raw.data, calls->raw.len_bytes);
    calls->state = CALLS_ENTIRE;
    calls->n_calls--;
    return calls->held.is_bad ? E_NOMEM : 1;
}

static int run_arguments(struct calls *calls)
{
    struct buf good = {0};
    enum json_walk_result result;
    size_t n = walk_held(calls, &good, &result);
    int rc = 0;

    if (good.is_bad || buf_append(&calls->raw, calls->held.data, n) < 0)
        rc = E_NOMEM;
    else if (good.len_bytes > 0)
        rc = calls->events->on_arguments(calls->arg, buf_view(&good));
    buf_fini(&good);
    if (rc != 0)
        return rc;
    buf_consume(&calls->held, n);
    if (result == JSON_WALK_MORE)
        return 0;
    if (result != JSON_WALK_DONE)
        return end_broken(calls);
    rc = calls->events->on_end(calls->arg, CALLS_WHOLE);
    calls->state = CALLS_TAIL;
    return rc != 0 ? rc : 1;
}

/* After the arguments: a brace, blanks, the marker.  Other members are skipped up to the marker; text means
 * that the model forgot the marker. */
static int run_tail(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t marker = bytes_find(text, bytes_str(close_marker), 0);
    size_t i = 0;

    if (marker != SIZE_MAX) {
        buf_consume(&calls->held, marker + sizeof(close_marker) - 1);
        begin_text(calls);
        return 1;
    }
    while (i < text.len_bytes && (is_blank(text.data[i]) || text.data[i] == '}'))
        i++;
    if (i == text.len_bytes || text.data[i] == ',' ||
        partial_marker(text, close_marker) >= text.len_bytes - i)
        return 0;
    buf_consume(&calls->held, i);
    begin_text(calls);
    return 1;
}

/* ---- calls that are parsed as a whole ---- */

/* "arguments" as an object, or as a string that holds one. */
static json_t *arguments_of(const json_t *call)
{
    json_t *arguments = json_object_get(call, "arguments");
    json_t *parsed;

    if (arguments == NULL)
        arguments = json_object_get(call, "parameters");

    if (json_is_object(arguments))
        return json_incref(arguments);
    if (!json_is_string(arguments) || api_json_load(api_json_str(arguments), NULL, &parsed) < 0)
        return NULL;
    if (json_is_object(parsed))
        return parsed;
    json_decref(parsed);
    return NULL;
}

static int pass_entire(struct calls *calls, const json_t *call, const json_t *arguments)
{
    struct buf text = {0};
    int rc = calls->events->on_begin(calls->arg, api_json_str(json_object_get(call, "name")));

    if (rc == 0)
        rc = api_json_put(&text, arguments);
    if (rc == 0)
        rc = calls->events->on_arguments(calls->arg, buf_view(&text));
    if (rc == 0)
        rc = calls->events->on_end(calls->arg, CALLS_WHOLE);
    buf_fini(&text);
    calls->n_calls++;
    begin_text(calls);
    return rc;
}

static int end_entire(struct calls *calls, size_t len_bytes, bool is_closed)
{
    struct bytes raw = bytes_of(calls->held.data, len_bytes);
    json_t *call = NULL;
    json_t *arguments = NULL;
    int rc;

    if (api_json_load(raw, NULL, &call) == 0 && api_json_str(json_object_get(call, "name")).len_bytes > 0)
        arguments = arguments_of(call);
    rc = arguments != NULL ? pass_entire(calls, call, arguments) : pass_raw(calls, raw, is_closed);
    json_decref(arguments);
    json_decref(call);
    return rc;
}

static int run_entire(struct calls *calls)
{
    size_t marker = bytes_find(buf_view(&calls->held), bytes_str(close_marker), 0);
    int rc;

    if (marker == SIZE_MAX && calls->held.len_bytes <= MAX_WHOLE_BYTES)
        return 0;
    if (marker == SIZE_MAX) {
        rc = pass_raw(calls, buf_view(&calls->held), false);
        buf_clear(&calls->held);
        return rc;
    }
    rc = end_entire(calls, marker, true);
    buf_consume(&calls->held, marker + sizeof(close_marker) - 1);
    return rc != 0 ? rc : 1;
}

/* ---- feeding ---- */

/* One state's function: 1 to go on, 0 when more text is needed, else what stops it. */
static int run_state(struct calls *calls)
{
    switch (calls->state) {
    case CALLS_TEXT:
        return run_text(calls);
    case CALLS_HEADER:
        return run_header(calls);
    case CALLS_ARGUMENTS:
        return run_arguments(calls);
    case CALLS_TAIL:
        return run_tail(calls);
    case CALLS_ENTIRE:
        return run_entire(calls);
    }
    return 0;
}

int calls_feed(struct calls *calls, struct bytes text)
{
    int rc = buf_append(&calls->held, text.data, text.len_bytes);

    if (rc < 0)
        return rc;
    do
        rc = calls->held.len_bytes > 0 ? run_state(calls) : 0;
    while (rc == 1);
    return rc;
}

int calls_finish(struct calls *calls, bool is_cut)
{
    int rc = 0;

    switch (calls->state) {
    case CALLS_TEXT:
        /* Blanks alone are an answer only when there is no other. */
        if (calls->held.len_bytes > 0 && (calls->n_calls == 0 || !is_blank_run(calls, calls->held.len_bytes)))
            rc = pass_text(calls, calls->held.len_bytes);
        break;
    case CALLS_HEADER:
    case CALLS_ENTIRE:
        if (!is_cut)
            rc = end_entire(calls, calls->held.len_bytes, false);
        break;
    case CALLS_ARGUMENTS:
        rc = calls->events->on_end(calls->arg, CALLS_CUT);
        break;
    case CALLS_TAIL:
        break;
    }
    buf_clear(&calls->held);
    return rc;
}
