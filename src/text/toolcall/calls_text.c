/* SPDX-License-Identifier: Apache-2.0 */
/* The states outside calls, TEXT and THINKING, and the marks that lead from one to the other and into calls.
 *
 *      THINKING ──think_close──> TEXT ──opens, or a bare beginning──> HEADER (calls.c)
 *          └──────think_open──────┘└──drops, marks around answers──> TEXT, without the mark
 *
 * Both states hold back a possible beginning of a mark.  TEXT also holds back leading blanks: models put line ends
 * around calls and thinking, and a text block of blanks is useless. */
#include <string.h>

#include "text/toolcall/calls_priv.h"
#include "base/err.h"

/* ---- marks ---- */

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

/* Looks for the mark that opens thinking. */
static void look_for_thinking(const struct calls *calls, struct find *find, struct bytes text)
{
    const struct calls_opts *opts = &calls->opts;
    const char *const marks[] = {opts->think_open, opts->think_open_also};
    bool may_begin = calls->n_before == 0 && !calls->has_text;

    for (size_t i = 0; i < 2; i++)
        if (marks[i] != NULL && (!opts->think_is_words || (may_begin && begins_with_mark(text, marks[i]))))
            look_for(find, text, marks[i]);
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
    look_for_thinking(calls, &find, text);
    return find;
}

static bool mark_is_among(const char *mark, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n && list[i] != NULL; i++)
        if (list[i] == mark)
            return true;
    return false;
}

/* Enters the state of a mark; the mark is the beginning of the held text. */
static int enter_mark(struct calls *calls, const char *mark)
{
    if (mark_is_among(mark, calls->parser->opens, 3)) {
        calls->state = CALLS_HEADER;
        calls->opened = mark;
        calls->is_bare = calls->is_list = false;
        return calls_take(calls, strlen(mark)) < 0 ? E_NOMEM : 1;
    }
    buf_consume(&calls->held, strlen(mark));
    if (mark == calls->opts.think_open || mark == calls->opts.think_open_also) {
        calls->state = CALLS_THINKING;
        calls->has_thinking = false;
        calls->awaits_think_name = calls->opts.think_name != NULL;
    } else if (calls->row->has_text_marks &&
               mark_is_among(mark, calls->row->answer, CALLS_MAX_ANSWER_MARKS)) {
        enter_answer(calls, mark == calls->row->answer[0]);
    }
    return 1;
}

/* ---- text ---- */

void calls_begin_text(struct calls *calls)
{
    calls->state = CALLS_TEXT;
    calls->has_text = false;
    buf_clear(&calls->raw);
}

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

int calls_run_text(struct calls *calls)
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
    return rc != 0 || find.mark == NULL ? rc : enter_mark(calls, find.mark);
}

int calls_finish_text(struct calls *calls)
{
    size_t n = calls->held.len_bytes;

    return n > 0 && (calls->n_before == 0 || !is_blank_run(calls, n)) ? pass_text(calls, n) : 0;
}

/* ---- thinking ---- */

/* Finds the end of thinking; SIZE_MAX: not yet.  *n_out: the length of its mark, or of a possible beginning of one at the
 * end of the text.  The mark of a call is not skipped. */
static size_t find_thought(const struct calls *calls, size_t *n_out)
{
    struct bytes text = buf_view(&calls->held);
    struct find find = {.at = SIZE_MAX};
    size_t at;

    if (calls->opts.format == CALLS_HARMONY) {
        at = calls_harmony_end(text, n_out);
        if (at == SIZE_MAX)
            *n_out = calls_harmony_partial(text);
        return at;
    }
    look_for(&find, text, calls->opts.think_close);
    if (calls->opts.think_close_also != NULL)
        look_for(&find, text, calls->opts.think_close_also);
    if (calls_row_of(calls->opts.format)->calls_end_thinking && calls->parser->opens[0] != NULL)
        look_for(&find, text, calls->parser->opens[0]);
    if (find.at == SIZE_MAX)
        *n_out = find.n_partial;
    else
        *n_out = find.mark == calls->opts.think_close || find.mark == calls->opts.think_close_also
                     ? strlen(find.mark)
                     : 0;
    return find.at;
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
    const char *answer = calls->row->has_text_marks ? calls->row->answer[0] : NULL;
    bool was_any = calls->has_thinking;

    calls_begin_text(calls);
    if (answer != NULL && calls->opts.think_close != NULL && strcmp(answer, calls->opts.think_close) == 0)
        calls->is_answer = true; /* Apriel: one mark does both */
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
    calls->awaits_think_name = false;
    return true;
}

int calls_run_thinking(struct calls *calls)
{
    size_t n_mark;

    if (calls->awaits_think_name)
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

int calls_finish_thinking(struct calls *calls)
{
    int rc = pass_thinking(calls, calls->held.len_bytes);

    return rc == 0 ? end_thinking(calls) : rc;
}
