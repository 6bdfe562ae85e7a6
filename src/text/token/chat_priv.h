/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that build a prompt: the properties of a model's template. */
#ifndef TEXT_TOKEN_CHAT_PRIV_H
#define TEXT_TOKEN_CHAT_PRIV_H

#include "base/arena.h"
#include "text/token/chat.h"
#include "text/jinja/template.h"
#include "text/json/json_text.h"
#include "text/token/tokenizer_priv.h"

/* ---- chat_family.c: ids of calls, marks around thinking ---- */

struct chat_family_call { /* a call whose id the template shows, there or beside its result */
    struct bytes id;      /* as the conversation has it */
    struct bytes name;    /* empty: no call of the conversation has this id */
    size_t index;         /* number of calls before this one in the conversation */
};
#define CHAT_FAMILY_ID_BYTES 256

/* The id in the form that this format wants: the given one, or one written to room. */
struct bytes chat_family_id(enum calls_format calls, const struct chat_family_call *call,
                            char room[CHAT_FAMILY_ID_BYTES]);
/* Finds the marks around thinking, if there are any; source is the template. */
void chat_family_thinking(const struct tokenizer *tokenizer, struct bytes source,
                          struct chat_format_info *info);
/* Finds the marks around answers.  A model writes them also if its template lists no tools, so that calls have another
 * format, and if its template does not have the marks (Cohere).  Granite 3.3 has ERNIE's marks and calls of its own. */
void chat_family_answers(const struct tokenizer *tokenizer, struct bytes source, enum calls_format detected,
                         struct chat_format_info *info);

/* ---- properties of a template ---- */

enum chat_describe { /* parts that are added to a tool that lacks something the template needs */
                     CHAT_DESCRIBE_NOTHING,
                     CHAT_DESCRIBE_TOOL,   /* a description and parameters */
                     CHAT_DESCRIBE_FIELDS, /* and a description of each parameter */
                     CHAT_DESCRIBE_COUNT
};

enum chat_call_text {                   /* how the template shows text and calls in one turn */
                      CHAT_TEXT_BESIDE, /* both are shown, or the text is dropped and no reshaping helps */
                      CHAT_TEXT_BEFORE, /* they become two turns */
                      CHAT_TEXT_DROPPED /* the template refuses the text in every form, so it is left out */
};

#define CHAT_N_EFFORTS 3
extern const char *const chat_efforts[CHAT_N_EFFORTS]; /* the words of reasoning_effort */

struct chat_format {
    struct tokenizer *tokenizer;     /* counted */
    struct chat_format *tool_format; /* the template for prompts with tools; NULL: this one */
    struct chat_format_info answers; /* how the model answers, with either template */
    struct jinja_template *parsed;   /* NULL: the file has no template */
    enum calls_format detected;      /* from the template's text */
    struct chat_format_info info;    /* of this template */
    bool asks_thinking;              /* the template gets the thinking of earlier turns */
    /* Found by trial renderings, in this order (chat_probe.c): */
    bool leaves_tools_out;   /* without tools the variable "tools" is undefined, rather than none */
    bool has_no_system;      /* the system text must go into the first user message */
    bool wants_system_tools; /* the system message has the tools, as JSON text */
    enum chat_describe describes;
    bool lists_tools;      /* the template shows tools */
    bool has_tools;        /* the template shows tools, calls and results */
    bool wants_text_calls; /* the arguments of a call are JSON text, not an object */
    bool wants_no_content; /* a message with calls only has no content at all */
    /* The template cannot show these; chat_reshape.c rewrites them: */
    bool has_one_call;         /* more than one call in a turn */
    bool has_no_late_system;   /* a system text after a question */
    bool wants_turns;          /* consecutive questions */
    bool has_no_late_question; /* a question after results */
    bool has_no_empty_answer;  /* an answer without text or calls */
    bool has_no_first_answer;  /* an answer before any question */
    enum chat_call_text call_text;
    /* What the template gets for each word of chat_efforts; NULL: nothing, as it refuses all of them. */
    const char *efforts[CHAT_N_EFFORTS];
    /* The template has no switch of thinking: without reasoning_effort it closes thinking, and with this word it thinks
     * (Hunyuan 3).  NULL: other templates. */
    const char *effort_that_thinks;
    char warning[256]; /* empty: none */
};

/* Fills in the properties. When not even a question renders: E_UNSUPPORTED or the template's own error. */
int chat_probe(struct chat_format *format, struct fault *fault);
/* Finds out whether reasoning_effort is the template's switch of thinking.  The marks around thinking are known. */
void chat_probe_effort_switch(struct chat_format *format);
/* The format whose marks of plain text the template source writes around an answer, or takes off it.  CALLS_PLAIN: none. A
 * template that only mentions the marks does not count: they may belong to the answer. */
enum calls_format chat_probe_marks(const struct chat_format *format, struct bytes source);

/* ---- chat_context.c: one rendering ---- */

/* Parts of a conversation. The marks of the rendered text's bytes name them. */
enum chat_part {
    PART_TEXT, /* the text; the places cut it into pieces with one number each */
    PART_THINKING = CHAT_MAX_PLACES + 1,
    PART_OTHER, /* role, calls, ids */
    PART_COUNT
};
#define PART_OF(message, part) ((uint32_t)(1 + (message)*PART_COUNT + (part)))

struct chat_run { /* a rendered text and its memory */
    struct text text;
    struct jinja *jinja;
    struct arena arena;
};

/* extras may be NULL. Call chat_run_fini(run) also after a failure. */
int chat_run(const struct chat_format *format, const struct chat_prompt *prompt,
             const struct chat_extras *extras, struct fault *fault, struct chat_run *run);
void chat_run_fini(struct chat_run *run);

/* ---- chat_reshape.c ---- */

/* Rewrites the conversation into turns that the template can show; new texts and lists live in the arena. In
 * a changed conversation each turn has the number of the message that it comes from. E_NOMEM. */
int chat_reshape(const struct chat_format *format, const struct chat_prompt *from, struct arena *arena,
                 struct chat_prompt *out);

/* Writes a tool as a JSON object. */
void chat_put_tool(const struct chat_tool *tool, struct buf *out);

/* ---- chat_splice.c: marked text -> tokens ---- */

int chat_splice(const struct chat_format *format, const struct chat_prompt *prompt, struct text text,
                struct chat_extras *extras, struct token_ids *out);

#endif
