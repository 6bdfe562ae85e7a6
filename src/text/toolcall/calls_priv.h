/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the splitter's files: its state, and what each family brings. */
#ifndef TEXT_TOOLCALL_CALLS_PRIV_H
#define TEXT_TOOLCALL_CALLS_PRIV_H

#include <jansson.h>

#include "text/toolcall/calls.h"
#include "text/json/json_walk.h"

#define CALLS_MAX_HEADER_BYTES 512

enum calls_state {
    CALLS_TEXT,      /* outside calls */
    CALLS_THINKING,  /* up to the mark that closes it */
    CALLS_HEADER,    /* before the arguments */
    CALLS_ARGUMENTS, /* in them, as JSON */
    CALLS_VALUES,    /* in them, between tags */
    CALLS_VALUE,     /* in the value of a tag */
    CALLS_TAIL,      /* after them */
    CALLS_ENTIRE     /* collecting a call that is parsed at its end */
};

struct calls_family {
    const char *opens[3]; /* begin a call */
    const char *drops[4]; /* stand around calls and say nothing */
    const char *close;    /* ends a call; NULL: the end of the answer does */
    bool is_bare;         /* a brace at the beginning of the answer, or after a call, begins one, too */
    /* What is held begins after the mark.  1: the header was taken and the state set; 0: more is needed; -1:
     * looks otherwise; below that an error. */
    int (*header)(struct calls *calls);
    /* After the arguments.  1: the state was set; 0: more is needed. */
    int (*tail)(struct calls *calls);
    const char *const *marks; /* all that may be single tokens, NULL at the end */
};

struct calls {       /* what every piece of text needs comes first */
    struct buf held; /* not yet understood */
    enum calls_state state;
    unsigned n_before; /* calls and thinking passed on */
    const struct calls_family *family;
    const struct calls_events *events;
    void *arg;
    bool has_text;     /* the current run of text was begun */
    bool has_thinking; /* the current thinking was passed on */
    struct calls_opts opts;
    bool is_bare;       /* the call began with its own brace */
    bool is_list;       /* mistral: calls are items of a list */
    bool is_braced;     /* a brace is still to come behind the arguments */
    const char *opened; /* the mark that began the call; "" for a bare one */
    struct buf raw;     /* the call so far as the model wrote it, its mark included */
    size_t n_mark;      /* ENTIRE: bytes of held that are the mark; n_looked: were searched for the end */
    size_t n_looked;
    struct json_walk walk;
    struct buf good; /* scratch: arguments to be passed on */
    /* tags */
    json_t *schema;    /* of the tool being called; NULL: unknown */
    unsigned n_values; /* of this call */
    bool is_string;    /* the value streams as a string, else it is collected in value */
    bool has_value;    /* something of it was taken */
    struct buf key;    /* the value's */
    struct buf value;
};

extern const struct calls_family calls_hermes, calls_mistral, calls_deepseek, calls_llama; /* calls_json.c */
extern const struct calls_family calls_xml, calls_glm;                                     /* calls_tags.c */
extern const struct calls_family calls_harmony; /* calls_harmony.c */

/* calls.c */
bool calls_is_blank(uint8_t c);
size_t calls_skip_blanks(struct bytes text, size_t at);
/* How many bytes at the end of text may be the beginning of marker? */
size_t calls_partial(struct bytes text, const char *marker);
/* Moves the first n bytes held to raw. */
int calls_take(struct calls *calls, size_t n);
void calls_begin_text(struct calls *calls);
/* on_begin, and the state is that of the arguments. */
int calls_begin_call(struct calls *calls, struct bytes name, enum calls_state state);
int calls_end_whole(struct calls *calls); /* on_end; the state is that of the tail.  1 or an error */
bool calls_is_name(struct bytes name);

/* calls_entire.c */
int calls_collect(struct calls *calls);    /* all of the call is held again, to be looked at as a whole; 1 */
int calls_end_broken(struct calls *calls); /* on_end, and the same */
/* Gives the first n bytes held as the text that they are. */
int calls_pass_raw(struct calls *calls, size_t n);
int calls_run_entire(struct calls *calls);
/* What is held up to there is a call, a list of calls, or text; n bytes behind are the mark of its end. */
int calls_end_entire(struct calls *calls, size_t upto, size_t n);

/* calls_tags.c */
int calls_run_values(struct calls *calls);
int calls_run_value(struct calls *calls);
/* calls_harmony.c: what ends thinking there.  SIZE_MAX: nothing; *n_out: bytes of the mark to be skipped. */
size_t calls_harmony_end(struct bytes text, size_t *n_out);
size_t calls_harmony_partial(struct bytes text);

#endif
