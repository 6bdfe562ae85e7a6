/* SPDX-License-Identifier: Apache-2.0 */
/* The splitter: streams a model's text into thinking, text and tool calls.
 *
 * Every model family writes calls in its own format.  The splitter passes a call's arguments on as they
 * arrive.  They are a prefix of valid JSON at every moment, even where the family writes them as tags.  A
 * call that cannot be parsed comes out as text, unless a part of it was passed on already. */
#ifndef TEXT_TOOLCALL_CALLS_H
#define TEXT_TOOLCALL_CALLS_H

#include "text/toolcall/formats.h"

struct calls;

/* A value between tags that may be JSON or a string is collected up to this size.  A longer one that is JSON so far
 * streams as JSON; if it stops being JSON, the call is CALLS_BROKEN. */
#define CALLS_MAX_OPEN_BYTES ((size_t)64 << 10)
/* A call whose arguments come before its name is collected up to this size; a larger one is text. */
#define CALLS_MAX_WHOLE_BYTES ((size_t)256 << 10)
/* The limits on a call that is collected because its form is unusual in another way (ENTIRE in calls.c). */
#define CALLS_MAX_TREE_BYTES  ((size_t)64 << 10)
#define CALLS_MAX_TREE_VALUES 2048

enum calls_end {
    CALLS_WHOLE, /* the arguments are complete */
    CALLS_CUT,   /* the answer ended inside them; the passed part is a prefix of valid JSON */
    CALLS_BROKEN /* they stopped being JSON; on_text with the call's raw text follows, unless cut */
};

struct calls_events { /* return 0 to go on; a negative result ends all feeding and is returned */
    int (*on_text)(void *arg, struct bytes text);
    int (*on_thinking)(void *arg, struct bytes text); /* never empty; outer blanks stripped */
    int (*on_thought)(void *arg);                     /* the current thinking is over */
    int (*on_begin)(void *arg, struct bytes name);
    int (*on_arguments)(void *arg, struct bytes piece);
    int (*on_end)(void *arg, enum calls_end how);
};

struct calls_tool {
    struct bytes name;
    struct bytes schema; /* JSON text; tells which tag values are strings and which are JSON */
};

struct calls_opts {
    enum calls_format format;
    enum calls_format answers; /* marks around the text of answers are this format's; CALLS_PLAIN: format's */
    bool ignores_calls;        /* only the format's other marks count; calls stay text */
    /* Marks around thinking; NULL: none (harmony has its channel).  think_name: a text behind think_open that is no
     * thinking; NULL: none.  The last two: other spellings of the marks; NULL: none.  All outlive the splitter. */
    const char *think_open, *think_close, *think_name;
    const char *think_open_also, *think_close_also;
    bool think_is_words;      /* think_open counts only where the answer begins */
    bool begins_thinking;     /* the prompt already has think_open */
    struct calls_tool *tools; /* [n_tools], heap; taken, also on failure */
    size_t n_tools;           /* names and schemas are borrowed */
};

/* The marks of this format and its thinking, for callers that have them as single tokens.  NULL ends the
 * list. */
const char *const *calls_marks(enum calls_format format);

/* Borrows events and arg until calls_free().  E_NOMEM. */
int calls_new(const struct calls_opts *opts, const struct calls_events *events, void *arg,
              struct calls **out);
void calls_free(struct calls *calls);
/* Feeds more of the answer; text holds whole characters. */
int calls_feed(struct calls *calls, struct bytes text);
/* Ends the answer.  is_cut: a limit ended it; then an incomplete beginning of a call is dropped instead of
 * passed on as text. */
int calls_finish(struct calls *calls, bool is_cut);
/* The bytes fed behind this text, which on_text() passes at this moment. */
size_t calls_n_behind(const struct calls *calls, struct bytes text);
/* True inside a call, or inside text that may become one. */
bool calls_is_inside(const struct calls *calls);
bool calls_is_open(const struct calls *calls); /* inside a call whose arguments are incomplete */
bool calls_is_thinking(const struct calls *calls);

#endif
