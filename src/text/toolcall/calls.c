/* SPDX-License-Identifier: Apache-2.0 */
/* The splitter.
 *
 *      THINKING <──mark── TEXT ──mark──> HEADER ──usual beginning──> ARGUMENTS ──last brace──> TAIL ──> TEXT
 *          └────mark───> TEXT               │   └──tags──> VALUES <──> VALUE ──last tag──────> TAIL
 *                                           └──other form──> ENTIRE ──mark: parsed as a whole──> TEXT
 *
 * TEXT holds back a possible beginning of a mark.  It also holds back leading blanks: models put line ends
 * around calls and thinking, and a text block of blanks is useless.  HEADER waits for the usual beginning, so
 * that arguments can stream.  Any other form (other order, escapes in the name, arguments as a string) is
 * collected and parsed when it is complete.  Models sometimes write raw line ends and tabs in argument
 * strings; the splitter escapes them.
 *
 * calls_json.c, calls_tags.c and calls_harmony.c parse each format's header and tail; calls_entire.c has
 * ENTIRE. */
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
    calls->is_unnamed = calls->state == CALLS_THINKING && opts->think_name != NULL;
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

void calls_begin_text(struct calls *calls)
{
    calls->state = CALLS_TEXT;
    calls->has_text = false;
    buf_clear(&calls->raw);
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

/* ---- text ---- */

/* True if the first n held bytes are blanks at the beginning of a run. */
static bool is_blank_run(const struct calls *calls, size_t n)
{
    return !calls->has_text && calls_skip_blanks(bytes_of(calls->held.data, n), 0) == n;
}

/* Passes on the first n held bytes; after a call or thinking, without leading blanks. */
static int pass_text(struct calls *calls, size_t n)
{
    size_t skip = 0;
    int rc = 0;

    if (calls->n_before > 0 && !calls->has_text)
        skip = calls_skip_blanks(bytes_of(calls->held.data, n), 0);
    calls->has_text = true;
    if (n > skip)
        rc = calls->events->on_text(calls->arg, bytes_of(calls->held.data + skip, n - skip));
    buf_consume(&calls->held, n);
    return rc;
}

struct find { /* the first mark in the held text */
    size_t at;
    const char *mark;
    size_t n_partial; /* bytes at the end that may be the beginning of a mark */
};

static void look_for(struct find *find, struct bytes text, const char *mark)
{
    size_t at = bytes_find(text, bytes_str(mark), 0);
    size_t n = calls_partial(text, mark);

    if (at < find->at) {
        find->at = at;
        find->mark = mark;
    }
    if (n > find->n_partial)
        find->n_partial = n;
}

/* True if text begins with the mark after blanks, or may do so with more text. */
static bool begins_with_mark(struct bytes text, const char *mark)
{
    size_t at = calls_skip_blanks(text, 0), n = strlen(mark);

    n = n < text.len_bytes - at ? n : text.len_bytes - at;
    return memcmp(text.data + at, mark, n) == 0;
}

/* Looks for the marks around the text of an answer. */
static void look_for_answer(const struct calls *calls, struct find *find, struct bytes text)
{
    const char *const *marks = calls->row->answer;

    for (size_t i = 0; i < CALLS_MAX_ANSWER_MARKS && marks[i] != NULL; i++) {
        bool is_close = i > 0;

        if (calls->row->has_text_marks &&
            (is_close ? !calls->is_answer : calls->has_text || !begins_with_mark(text, marks[i])))
            continue;
        look_for(find, text, marks[i]);
    }
}

/* The text of an answer begins or ends at a mark of plain text: blanks beside it are left out. */
static void enter_answer(struct calls *calls, bool is_open)
{
    calls->is_answer = is_open;
    calls->has_text = false;
    calls->n_before++;
}

static struct find find_marks(const struct calls *calls)
{
    const struct calls_parser *parser = calls->parser;
    struct find find = {.at = SIZE_MAX};
    struct bytes text = buf_view(&calls->held);

    for (size_t i = 0; i < 3 && parser->opens[i] != NULL; i++)
        look_for(&find, text, parser->opens[i]);
    for (size_t i = 0; i < 4 && parser->drops[i] != NULL; i++)
        look_for(&find, text, parser->drops[i]);
    look_for_answer(calls, &find, text);
    if (calls->opts.think_open != NULL)
        look_for(&find, text, calls->opts.think_open);
    return find;
}

static bool calls_is_among(const char *mark, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n && list[i] != NULL; i++)
        if (list[i] == mark)
            return true;
    return false;
}

/* Enters the state of a mark; the mark is the beginning of the held text. */
static int calls_enter(struct calls *calls, const char *mark)
{
    if (calls_is_among(mark, calls->parser->opens, 3)) {
        calls->state = CALLS_HEADER;
        calls->opened = mark;
        calls->is_bare = calls->is_list = false;
        return calls_take(calls, strlen(mark)) < 0 ? E_NOMEM : 1;
    }
    buf_consume(&calls->held, strlen(mark));
    if (mark == calls->opts.think_open) {
        calls->state = CALLS_THINKING;
        calls->has_thinking = false;
        calls->is_unnamed = calls->opts.think_name != NULL;
    } else if (calls->row->has_text_marks &&
               calls_is_among(mark, calls->row->answer, CALLS_MAX_ANSWER_MARKS)) {
        enter_answer(calls, mark == calls->row->answer[0]);
    }
    return 1;
}

/* 1: a character begins a call without a mark; 0: not known yet; -1: no. */
static int enter_bare(struct calls *calls)
{
    struct bytes text = buf_view(&calls->held);
    size_t at;

    if (calls->parser->bare == NULL || calls->has_text)
        return -1;
    at = calls_skip_blanks(text, 0);
    if (at == text.len_bytes)
        return at <= CALLS_MAX_HEADER_BYTES ? 0 : -1;
    if (text.data[at] == '\0' || strchr(calls->parser->bare, text.data[at]) == NULL)
        return -1;
    buf_consume(&calls->held, at);
    calls->state = CALLS_HEADER;
    calls->opened = "";
    calls->is_bare = true;
    calls->is_list = false;
    return 1;
}

static int calls_run_text(struct calls *calls)
{
    int rc = enter_bare(calls);
    struct find find;
    size_t n;

    if (rc >= 0)
        return rc;
    find = find_marks(calls);
    n = find.mark != NULL ? find.at : calls->held.len_bytes - find.n_partial;
    rc = 0;
    if (n > CALLS_MAX_HEADER_BYTES || (n > 0 && !is_blank_run(calls, n)))
        rc = pass_text(calls, n);
    else if (find.mark != NULL)
        buf_consume(&calls->held, n);
    return rc != 0 || find.mark == NULL ? rc : calls_enter(calls, find.mark);
}

/* ---- thinking ---- */

/* Finds the end of thinking; SIZE_MAX: not yet.  *n_out: the mark's length, or the length of a possible
 * beginning of it at the end. */
static size_t find_thought(const struct calls *calls, size_t *n_out)
{
    struct bytes text = buf_view(&calls->held);
    size_t at;

    if (calls->opts.format == CALLS_HARMONY) {
        at = calls_harmony_end(text, n_out);
        if (at == SIZE_MAX)
            *n_out = calls_harmony_partial(text);
        return at;
    }
    at = bytes_find(text, bytes_str(calls->opts.think_close), 0);
    *n_out = at == SIZE_MAX ? calls_partial(text, calls->opts.think_close) : strlen(calls->opts.think_close);
    return at;
}

/* Passes on the first n held bytes, without blanks at both ends of the thinking. */
static int pass_thinking(struct calls *calls, size_t n)
{
    struct bytes text = buf_view(&calls->held);
    size_t from = 0, n_all = n;
    int rc = 0;

    while (n > 0 && calls_is_blank(text.data[n - 1]))
        n--;
    n = n_all - n > CALLS_MAX_HEADER_BYTES ? n_all : n; /* a long run of blanks is not held back */
    if (!calls->has_thinking)
        from = calls_skip_blanks(bytes_of(text.data, n), 0);
    if (n > from) {
        calls->has_thinking = true;
        rc = calls->events->on_thinking(calls->arg, bytes_of(text.data + from, n - from));
    }
    buf_consume(&calls->held, n);
    return rc;
}

static int end_thinking(struct calls *calls)
{
    bool was_any = calls->has_thinking;

    calls_begin_text(calls);
    calls->n_before++;
    calls->has_thinking = false;
    return was_any ? calls->events->on_thought(calls->arg) : 0;
}

/* Skips the name.  False: it is not known yet if the name follows. */
static bool skip_thought_name(struct calls *calls)
{
    const char *name = calls->opts.think_name;
    size_t n = strlen(name), held = calls->held.len_bytes;

    if (memcmp(calls->held.data, name, held < n ? held : n) == 0) {
        if (held < n)
            return false;
        buf_consume(&calls->held, n);
    }
    calls->is_unnamed = false;
    return true;
}

static int run_thinking(struct calls *calls)
{
    size_t n_mark;

    if (calls->is_unnamed)
        return skip_thought_name(calls) ? 1 : 0;

    size_t at = find_thought(calls, &n_mark);
    size_t before = calls->held.len_bytes;
    int rc;

    if (at == SIZE_MAX)
        return pass_thinking(calls, before - n_mark);
    rc = pass_thinking(calls, at);
    if (rc != 0)
        return rc;
    buf_consume(&calls->held, at - (before - calls->held.len_bytes) + n_mark);
    rc = end_thinking(calls);
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
        return run_thinking(calls);
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
        /* Blanks are passed on only if the answer has nothing else. */
        if (calls->held.len_bytes > 0 &&
            (calls->n_before == 0 || !is_blank_run(calls, calls->held.len_bytes)))
            rc = pass_text(calls, calls->held.len_bytes);
        break;
    case CALLS_THINKING:
        rc = pass_thinking(calls, calls->held.len_bytes);
        if (rc == 0)
            rc = end_thinking(calls);
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
