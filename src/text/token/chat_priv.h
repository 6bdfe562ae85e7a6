/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that make a prompt: what is known of a model's template. */
#ifndef TEXT_TOKEN_CHAT_PRIV_H
#define TEXT_TOKEN_CHAT_PRIV_H

#include "base/arena.h"
#include "text/token/chat.h"
#include "text/jinja/template.h"
#include "text/json/json_text.h"
#include "text/token/tokenizer_priv.h"

/* ---- chat_family.c: how a model writes tool calls ---- */

struct chat_family {
    const char *name;
    const char *marks[3]; /* all of them stand in the template */
    enum chat_calls calls;
    unsigned id_chars; /* ids of calls have so many letters and digits; 0: any */
};

const struct chat_family *chat_family_of(struct bytes chat_template);
/* The id as this family wants it, in room (at least 16 bytes). */
struct bytes chat_family_id(const struct chat_family *family, struct bytes id, char room[16]);
/* The marks around thinking, if any. */
void chat_family_thinking(const struct tokenizer *tokenizer, struct chat_manner *manner);

/* ---- what is known of a template ---- */

enum chat_describe { /* what is added to tools that the client left without */
                     CHAT_DESCRIBE_NOTHING,
                     CHAT_DESCRIBE_TOOL,   /* a description and parameters */
                     CHAT_DESCRIBE_FIELDS, /* and a description of each parameter */
                     CHAT_DESCRIBE_COUNT
};

enum chat_call_text {                   /* text and calls in one turn */
                      CHAT_TEXT_BESIDE, /* are shown, or the template leaves the text out and nothing helps */
                      CHAT_TEXT_BEFORE, /* become two turns */
                      CHAT_TEXT_DROPPED /* the template refuses them in every way, so the text is left out */
};

struct chat_format {
    struct tokenizer *tokenizer; /* counted */
    struct jinja_template *parsed;
    const struct chat_family *family;
    struct chat_manner manner;
    bool asks_thinking; /* thinking of earlier turns is given to it */
    /* Found out by trying, in this order (chat_probe.c): */
    bool leaves_tools_out; /* without tools there is no variable "tools", rather than none */
    bool has_no_system;    /* a system text has to go into the first user's */
    enum chat_describe describes;
    bool lists_tools;      /* tools are shown */
    bool has_tools;        /* and so are calls and results */
    bool wants_text_calls; /* a call's arguments are JSON text, not an object */
    bool wants_no_content; /* a message of calls alone has no content at all */
    /* What it cannot show, and is reshaped (chat_reshape.c): */
    bool has_one_call;         /* more calls in a turn than one */
    bool has_no_late_system;   /* a system text behind a question */
    bool wants_turns;          /* questions in a row */
    bool has_no_late_question; /* a question behind results */
    bool has_no_empty_answer;  /* an answer without text or calls */
    bool has_no_first_answer;  /* an answer before any question */
    enum chat_call_text call_text;
    char warning[256]; /* empty: none */
};

/* Fills those in.  E_UNSUPPORTED or what the template says when not even a question renders. */
int chat_probe(struct chat_format *format, struct fault *fault);

/* ---- chat_context.c: one rendering ---- */

/* Parts of a conversation, as bytes of the rendered text are marked with them. */
enum chat_part {
    PART_TEXT, /* and the pieces that places cut it into, one number each */
    PART_THINKING = CHAT_MAX_PLACES + 1,
    PART_OTHER, /* role, calls, ids */
    PART_COUNT
};
#define PART_OF(message, part) ((uint32_t)(1 + (message)*PART_COUNT + (part)))

struct chat_run { /* what a rendered text lives on */
    struct jinja *jinja;
    struct arena arena;
};

/* extras may be NULL.  *run is to be finished also after a failure. */
int chat_run(const struct chat_format *format, const struct chat_prompt *prompt,
             const struct chat_extras *extras, struct fault *fault, struct chat_run *run, struct text *out);
void chat_run_fini(struct chat_run *run);

/* ---- chat_reshape.c ---- */

/* The conversation in turns that the template can show; new texts and lists are in the arena.  If it has to
 * be changed, each turn has the number of the message it comes from.  E_NOMEM. */
int chat_reshape(const struct chat_format *format, const struct chat_prompt *from, struct arena *arena,
                 struct chat_prompt *out);

/* ---- chat_splice.c: marked text -> tokens ---- */

int chat_splice(const struct chat_format *format, const struct chat_prompt *prompt, struct text text,
                struct chat_extras *extras, struct token_ids *out);

#endif
