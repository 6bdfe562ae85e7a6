/* SPDX-License-Identifier: Apache-2.0 */
/* The table of tool-call formats: formats.c has one row per format.
 *
 * A row says how to detect the format in a chat template, how to parse calls (the splitter), and how to
 * constrain them (serve/prompt writes the grammar from the row).
 * How to change it: docs/changes-api.md, "A tool-call format". */
#ifndef TEXT_TOOLCALL_FORMATS_H
#define TEXT_TOOLCALL_FORMATS_H

#include "base/bytes.h"

enum calls_format {
    CALLS_PLAIN, /* no calls: thinking and text only */
    /* In the order of detection, after the rows with is_tried_first (calls_format_detect()). */
    CALLS_XML,
    CALLS_GLM,
    CALLS_HERMES,
    CALLS_MISTRAL_NAMED, /* name[ARGS]{...} */
    CALLS_MISTRAL,       /* a list of objects */
    CALLS_DEEPSEEK,      /* "function", a name and a block of JSON */
    CALLS_DEEPSEEK_V31,  /* a name and an object */
    CALLS_HARMONY,
    CALLS_LLAMA,
    CALLS_GRANITE,
    CALLS_LFM2,
    CALLS_COHERE,
    CALLS_NEMOTRON,
    CALLS_HUNYUAN_LIST, /* a list of objects */
    CALLS_TOOL_CALLS,   /* the same */
    CALLS_HUNYUAN,      /* a name and a block of JSON */
    CALLS_PHI,          /* an object in each pair of marks */
    CALLS_PHI_LIST,
    CALLS_LLAMA4_PYTHON, /* as in Python */
    CALLS_LLAMA4,
    CALLS_OLMO,
    CALLS_ERNIE,
    CALLS_KIMI,
    CALLS_MINIMAX,
    CALLS_SEED,
    CALLS_GEMMA,
    CALLS_FUNCTION_GEMMA,
    CALLS_DSML, /* DeepSeek V3.2 */
    CALLS_APERTUS,
    CALLS_HY3,       /* Hunyuan 3 */
    CALLS_GLM_TIGHT, /* without line ends */
    CALLS_GIGACHAT,
    CALLS_HY3_OPEN,      /* Hunyuan 3 as it is published */
    CALLS_GIGACHAT_ROLE, /* GigaChat 3.0: a message of the role "function call" */
    CALLS_FUNCTIONARY,
    CALLS_DSML_V4, /* DeepSeek V4 */
    CALLS_MINICPM,
    CALLS_MINIMAX_M1,      /* an object on each line */
    CALLS_COMMAND,         /* Command R and R+ */
    CALLS_SOLAR,           /* Solar Open */
    CALLS_SOLAR_2,         /* Solar Open 2 */
    CALLS_FUNCTIONARY_ALL, /* Functionary 3.2: the name of a tool or "all" on a line of its own */
    CALLS_KIMI_3,          /* Kimi K3 */
    CALLS_MINIMAX_3,       /* MiniMax M3: elements */
    CALLS_FORMAT_COUNT
};

/* The marks of a call of Solar Open, which a transcript of its ids looks for too. */
#define CALLS_SOLAR_BEGIN     "<|tool_call:begin|>"
#define CALLS_SOLAR_NAME      "<|tool_call:name|>"
#define CALLS_SOLAR_ARGUMENTS "<|tool_call:args|>"
#define CALLS_SOLAR_END       "<|tool_call:end|>"

/* ---- constrain ---- */

enum calls_piece_kind {
    CALLS_PIECE_END,
    CALLS_PIECE_TEXT,
    CALLS_PIECE_MARK,
    CALLS_PIECE_INDEX,      /* the number of calls before this one */
    CALLS_PIECE_NUMBER,     /* the same, counted from 1 */
    CALLS_PIECE_MISTRAL_ID, /* the member "id" of a call in Mistral's list; the model may omit it */
    CALLS_PIECE_SOLAR_ID    /* an id of CALLS_IDS_SOLAR */
};

struct calls_piece { /* fixed text of a format */
    enum calls_piece_kind kind;
    const char *text; /* TEXT, MARK; others: NULL */
};
#define CALLS_MAX_PIECES 4 /* a list of pieces ends with CALLS_PIECE_END */

struct calls_tags {                     /* arguments between tags */
    const char *name_open, *name_close; /* around the name of a call, for calls_tags_header() */
    const char *name_end; /* ends the tag of the name, behind its other members; NULL: name_close */
    const char *key_open, *key_close; /* around a key */
    const char *value_open;           /* NULL: the key's tag opens the value */
    const char *value_close;          /* ends a value; no value contains it */
    const char *end;                  /* after the last value */
    const char *key_written;          /* all text from a key to its value, as the model writes it */
    const char *value_written;        /* all text from a value to the next tag, as the model writes it */
    const char *string_open, *string_close; /* around a string, as the model writes it; NULL: nothing */
    const char *json_open; /* before any other value; NULL: nothing, so the schema tells what a value is */
    const char
        *type_close; /* the type of any other value stands between json_open and this; NULL: it has none */
    const char *object_open,
        *object_close; /* around arguments that are one JSON object instead; NULL: none */
    const char *until; /* no value contains it, in constraints; NULL: value_close */
    const char *quoted_open,
        *quoted_close; /* around a value that has markup, the latter with value_close; NULL: none */
    bool has_braces;   /* K:V, with commas between; objects in values too (calls_braces.c) */
    bool is_tight;     /* no line end surrounds a value; if there is one, it belongs to the tags */
    bool is_exact;     /* no line end belongs to the tags */
    bool has_block;    /* one pair of marks may surround several calls */
    bool has_entities; /* keys have &quot; and &amp; */
    bool has_elements; /* objects and lists in values are elements too (calls_elements.c) */
};

/* open (call_open name_before NAME name_after name_end ARGUMENTS call_close between)* close */
struct calls_grammar {
    const char *mark; /* begins calls; text must not contain it.  "": no mark begins a call */
    struct calls_piece open[CALLS_MAX_PIECES], close[CALLS_MAX_PIECES]; /* around all calls of an answer */
    struct calls_piece call_open[CALLS_MAX_PIECES], call_close[CALLS_MAX_PIECES];
    const char *name_before, *name_after;
    struct calls_piece name_end[CALLS_MAX_PIECES];
    const struct calls_tags *tags; /* NULL: the arguments are a JSON object */
    bool has_keywords;             /* the arguments are K=V, as in Python, instead */
    const char *between;           /* text between calls */
    bool is_one;                   /* the format allows one call per answer */
    bool is_bare;                  /* calls need no mark: free text is held only if tools are strict */
    bool is_words;                 /* likewise, as the mark is words of any text; without calls it has none */
    bool has_list;                 /* one pair of open and close surrounds all calls of an answer */
    bool has_commas;               /* `between` comes between two calls, and not after the last */
    bool is_begun; /* the prompt ends with `mark`: a call that begins an answer lacks call_open */
};

/* ---- ids ---- */

/* The ids that the template shows for calls and their results.  chat_family_id() of text/token makes them. */
enum calls_ids {
    CALLS_IDS_GIVEN,         /* those of the client */
    CALLS_IDS_MISTRAL,       /* nine letters and digits, made from the client's id */
    CALLS_IDS_MISTRAL_DRAWN, /* likewise; the model writes ids in its list of calls, and results name these */
    CALLS_IDS_KIMI,          /* functions.NAME:INDEX; the model writes them, and results name these */
    CALLS_IDS_SOLAR /* ten lower-case letters and digits; the model writes them, and results name these */
};

/* When a document that the request asks for stands behind the first mark of answers. */
enum calls_answer_mark {
    CALLS_ANSWER_MAY,  /* never, as the mark may be missing */
    CALLS_ANSWER_MUST, /* always */
    CALLS_ANSWER_AFTER, /* behind thinking.  Otherwise the prompt ends with the mark, and calls follow the second one */
};

/* ---- the table ---- */

#define CALLS_MAX_DETECT       3
#define CALLS_MAX_ANSWER_MARKS 4

struct calls_parser; /* calls_priv.h */

struct calls_row {
    const char *name; /* for logs */
    /* The format is detected if all texts of one list occur in the template. */
    const char *detect[CALLS_MAX_DETECT][2];
    bool is_tried_first; /* only this family has these texts: the row is tried before all others */
    bool is_certain;     /* likewise, and the template has texts of such a row too: tried before these */
    enum calls_ids ids;
    /* Marks around the text of an answer.  They are dropped, also if calls are ignored. */
    const char *answer[CALLS_MAX_ANSWER_MARKS];
    /* They are plain text: the first one counts only where text begins, the others close it. */
    bool has_text_marks;
    enum calls_answer_mark answer_mark;
    const char *answer_end;  /* a mark that begins calls and may also end an answer; NULL: none */
    bool calls_end_thinking; /* a call may begin in thinking, which it ends */
    const struct calls_parser *parser;
    struct calls_grammar grammar;
};

const struct calls_row *calls_row_of(enum calls_format format);
/* The format that occurs in the template: the first of the rows with is_certain, else of those with is_tried_first, else of
 * the others.
 * CALLS_PLAIN: none. */
enum calls_format calls_format_detect(struct bytes chat_template);

#endif
