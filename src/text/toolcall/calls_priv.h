/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the splitter's files: its state, and the functions that parse each format. */
#ifndef TEXT_TOOLCALL_CALLS_PRIV_H
#define TEXT_TOOLCALL_CALLS_PRIV_H

#include <jansson.h>

#include "text/toolcall/calls.h"
#include "text/json/json_rewrite.h"
#include "text/json/json_walk.h"

#define CALLS_MAX_HEADER_BYTES 512

enum calls_state {
    CALLS_TEXT,      /* outside calls */
    CALLS_THINKING,  /* up to the closing mark */
    CALLS_HEADER,    /* before the arguments */
    CALLS_ARGUMENTS, /* in the arguments, as JSON */
    CALLS_VALUES,    /* in the arguments, between tags */
    CALLS_VALUE,     /* in a tag's value */
    CALLS_TAIL,      /* after the arguments */
    CALLS_ENTIRE     /* collecting a call that is parsed as a whole */
};

enum calls_value_kind {
    CALLS_VALUE_STRING, /* it streams as a string */
    CALLS_VALUE_OPEN,   /* `value` collects it: it may be JSON or a string */
    CALLS_VALUE_JSON    /* it is long and JSON so far: it streams as JSON */
};

enum calls_late {                     /* ENTIRE: a long call that is read as it arrives */
                  CALLS_LATE_UNKNOWN, /* the call is short so far */
                  CALLS_LATE_NONE,
                  CALLS_LATE_NAME,  /* the arguments come first; `form` has them */
                  CALLS_LATE_QUOTED /* the arguments are a string, and stream in the state ARGUMENTS */
};

enum calls_element_kind {
    CALLS_ELEMENT_OPEN, /* its tag was read; what it holds is not known */
    CALLS_ELEMENT_OBJECT,
    CALLS_ELEMENT_ARRAY,
    CALLS_ELEMENT_STRING, /* a text that streams as a string */
    CALLS_ELEMENT_WORD    /* `value` collects a text that may be JSON or a string */
};

struct calls_element {
    uint8_t kind;         /* enum calls_element_kind */
    uint8_t types;        /* bits of enum calls_type: what its value may be */
    bool has_inner;       /* an element within it has begun */
    const json_t *schema; /* a part of the tool's; NULL: unknown */
};
#define CALLS_MAX_ELEMENTS 32

struct calls_parser {     /* how a format is parsed; a part of its row in formats.c */
    const char *opens[3]; /* marks that begin a call */
    const char *drops[4]; /* marks around calls that are dropped */
    const char *close;    /* mark that ends a call; NULL: the end of the answer ends it */
    const char *bare; /* characters that also begin a call, at the beginning of the answer or after a call */
    /* Parses the header; held text begins after the mark.  1: the header was taken and the state set; 0: more
     * text is needed; -1: not the usual form; lower: an error. */
    int (*header)(struct calls *calls);
    /* Parses arguments that are not JSON, in the state ARGUMENTS, unless the call is an object (is_braced); NULL:
     * they are JSON.  Returns as header. */
    int (*arguments)(struct calls *calls);
    /* Parses the text after the arguments.  1: the state was set; 0: more text is needed. */
    int (*tail)(struct calls *calls);
    const struct calls_tags *tags; /* NULL: the arguments are JSON */
    const char
        *string_mark; /* calls_braces.c: at both sides of a string; calls_elements.c: before every tag */
    const char *const *marks; /* all marks that may be single tokens, NULL at the end */
};

/* The pieces of DeepSeek's marks. */
#define CALLS_BAR          "\xef\xbd\x9c"
#define CALLS_BLOCK        "\xe2\x96\x81"
#define CALLS_DEEPSEEK_SEP "<" CALLS_BAR "tool" CALLS_BLOCK "sep" CALLS_BAR ">"
/* Between the id of a call and its arguments, in Kimi's format. */
#define CALLS_KIMI_ARGUMENTS "<|tool_call_argument_begin|>"
/* Functionary 3.2: before each recipient, and the line of a text's recipient. */
#define CALLS_FUNCTIONARY_MARK ">>>"
#define CALLS_FUNCTIONARY_TEXT "all\n"

struct calls {       /* fields used for every piece of text come first */
    struct buf held; /* text not parsed yet */
    enum calls_state state;
    unsigned n_before; /* number of calls, thinkings and marks of answers passed on */
    const struct calls_parser *parser;
    const struct calls_row *row; /* has the marks around answers, also if calls are ignored */
    const struct calls_events *events;
    void *arg;
    bool has_text;          /* the current run of text has begun */
    bool is_answer;         /* a mark of plain text opened the answer's text */
    bool awaits_think_name; /* think_name may follow */
    bool has_thinking;      /* a part of the current thinking was passed on */
    struct calls_opts opts;
    bool is_bare;       /* the call began without a mark */
    bool is_list;       /* mistral: calls are items of a list */
    bool is_braced;     /* a closing brace must still follow the arguments */
    const char *opened; /* the mark that began the call; "" for a bare one */
    struct buf raw;     /* the raw text of the call so far, its mark included */
    size_t n_mark;      /* ENTIRE: length of the mark in held; n_looked: bytes searched for the end */
    size_t n_looked;
    enum calls_late late;
    size_t n_late; /* LATE_NAME: bytes of held that were read */
    bool is_lost;  /* ENTIRE: the call is broken; its text is passed on up to its mark */
    struct json_walk walk;
    struct buf good; /* scratch: arguments to pass on */
    /* tags */
    json_t *schema;    /* schema of the called tool; NULL: unknown */
    unsigned n_values; /* values of this call so far */
    struct buf key;    /* the value's key */
    enum calls_value_kind value_kind;
    unsigned value_types; /* that the schema allows */
    uint8_t value_first;  /* the value's first byte that is no blank; 0: none yet */
    bool has_value;       /* a part of the value was taken */
    bool is_quote_known;  /* the beginning of the value was compared with quoted_open */
    bool is_quoted;       /* quoted_close ends the value */
    bool is_formless;     /* the value so far is no JSON, and no literal that may stand for it */
    size_t n_literal;     /* bytes of `value` that were read as a Python literal */
    struct json_rewrite rewrite;
    struct buf form; /* OPEN: the value so far as JSON; JSON: what was not passed on yet */
    /* keywords */
    uint8_t quote;  /* of the open string, or the first byte of its mark; 0: none */
    bool has_key;   /* the name of the current argument was taken */
    bool has_comma; /* a comma in a list or dict was not passed on yet */
    struct buf value;
    /* elements, the outermost first: the arguments */
    unsigned n_elements;
    struct calls_element elements[CALLS_MAX_ELEMENTS];
};

/* Headers and tails, for the rows.
 * calls_json.c */
int calls_object_header(struct calls *calls);     /* {"name": "N", "arguments": {...} */
int calls_list_header(struct calls *calls);       /* a list of such objects, or one */
int calls_keyed_list_header(struct calls *calls); /* likewise, of {"N": {...}} too */
int calls_mistral_header(struct calls *calls);
int calls_deepseek_header(struct calls *calls);
int calls_fenced_header(struct calls *calls); /* N ```json {...}, or an object */
/* Begins a call whose arguments follow its name: from body on, held text has blanks and a brace.  1: begun; 0: more text is
 * needed; -1: other text, or no name of a function. */
int calls_begin_at_brace(struct calls *calls, struct bytes name, size_t body);
int calls_kimi_header(struct calls *calls);
int calls_name_header(struct calls *calls); /* N, the row's grammar.name_after, {...} */
int calls_solar_header(struct calls *calls);
/* The form of a long call that has no usual header; *at_out: where its arguments begin.  Never UNKNOWN. */
enum calls_late calls_find_late(struct bytes text, struct bytes *name_out, size_t *at_out);
/* The name in a call that was parsed, borrowed from it; empty: none.  And the key of its arguments. */
struct bytes calls_name_of(const json_t *call);
const char *calls_arguments_key_of(const json_t *call);
int calls_mark_tail(struct calls *calls); /* a closing mark */
enum calls_next {
    CALLS_NEXT_MORE, /* more text is needed */
    CALLS_NEXT_ITEM, /* a comma was taken; the state is HEADER */
    CALLS_NEXT_END,  /* the closing bracket of the list was taken */
    CALLS_NEXT_NONE  /* other text follows; nothing was taken */
};
enum calls_next calls_list_next(struct calls *calls);
int calls_list_tail(struct calls *calls);        /* the next item of a list, or its end */
int calls_marked_list_tail(struct calls *calls); /* likewise, and a closing mark after the end */
int calls_objects_tail(struct calls *calls);     /* another object, or a closing mark */
int calls_llama_tail(struct calls *calls);       /* a semicolon or a comma */
int calls_llama4_tail(struct calls *calls);      /* either */
/* calls_tags.c */
int calls_tags_header(struct calls *calls); /* the name between the row's tags */
int calls_glm_header(struct calls *calls);
int calls_tags_tail(struct calls *calls);
/* calls_keywords.c */
int calls_keywords_header(struct calls *calls);
int calls_llama4_header(struct calls *calls); /* the same, or objects */
int calls_lines_header(struct calls *calls);  /* the same without brackets */
int calls_lines_tail(struct calls *calls);    /* the next call, or a closing mark */
int calls_keywords_arguments(struct calls *calls);
/* Takes the beginning of text and appends its JSON to calls->good: the bytes taken; 0: more text is needed. */
typedef size_t calls_part_fn(struct calls *calls, struct bytes text);
#define CALLS_PART_BAD SIZE_MAX
/* The state ARGUMENTS of a format that is not JSON: part after part, as far as they make JSON. */
int calls_rewrite_arguments(struct calls *calls, calls_part_fn *part);
calls_part_fn calls_keywords_string; /* in a string between calls->quote */
/* A Python literal as JSON in calls->good.  read: as far as its parts are complete; the bytes taken.  end: reads the rest;
 * false: the text is no literal, or memory is short. */
void calls_python_begin(struct calls *calls);
size_t calls_python_read(struct calls *calls, struct bytes text);
bool calls_python_end(struct calls *calls, struct bytes rest);
/* calls_braces.c */
int calls_braces_header(struct calls *calls);
int calls_braces_arguments(struct calls *calls);
/* calls_elements.c */
int calls_elements_header(struct calls *calls);
int calls_elements_arguments(struct calls *calls);
/* calls_recipient.c */
int calls_recipient_header(struct calls *calls);
int calls_recipient_tail(struct calls *calls);
/* calls_harmony.c */
int calls_harmony_header(struct calls *calls);
int calls_harmony_tail(struct calls *calls);

/* calls.c */
bool calls_is_blank(uint8_t c);
size_t calls_skip_blanks(struct bytes text, size_t at);
/* The number of bytes at the end of text that may be the beginning of marker. */
size_t calls_partial(struct bytes text, const char *marker);
/* Moves the first n bytes held to raw. */
int calls_take(struct calls *calls, size_t n);
/* Calls on_begin and sets the state of the arguments. */
int calls_begin_call(struct calls *calls, struct bytes name, enum calls_state state);
int calls_end_whole(struct calls *calls); /* on_end; sets the state of the tail.  1 or an error */
bool calls_is_name(struct bytes name);

/* calls_text.c */
void calls_begin_text(struct calls *calls);
int calls_run_text(struct calls *calls);
int calls_run_thinking(struct calls *calls);
/* At the end of the answer.  Blanks are passed on only if the answer has nothing else. */
int calls_finish_text(struct calls *calls);
int calls_finish_thinking(struct calls *calls);

/* calls_entire.c */
int calls_collect(struct calls *calls);    /* moves the call back to held, to be parsed whole; returns 1 */
int calls_end_broken(struct calls *calls); /* on_end(CALLS_BROKEN), then calls_collect() */
/* Passes the first n held bytes on as text. */
int calls_pass_raw(struct calls *calls, size_t n);
int calls_run_entire(struct calls *calls);
/* calls_late.c */
void calls_late_reset(struct calls *calls);
int calls_late_run(struct calls *calls); /* reads what is new; 1: the state was set; 0: it is still ENTIRE */
/* Ends a call of which text follows its mark.  1: it was passed on; 0: it is no call. */
int calls_late_end(struct calls *calls, struct bytes text);
int calls_quoted_arguments(struct calls *calls);
/* Parses held[0, upto): a call, a list of calls, or text.  The next n bytes are the mark of its end. */
int calls_end_entire(struct calls *calls, size_t upto, size_t n);

/* calls_tags.c */
int calls_run_values(struct calls *calls);
/* calls_value.c */
void calls_begin_value(struct calls *calls, unsigned types, bool is_string);
int calls_run_value(struct calls *calls);
void calls_value_fini(struct calls *calls);
/* calls_harmony.c: finds the end of thinking.  SIZE_MAX: none; *n_out: bytes of the mark to skip. */
size_t calls_harmony_end(struct bytes text, size_t *n_out);
size_t calls_harmony_partial(struct bytes text);

#endif
