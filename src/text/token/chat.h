/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation -> prompt tokens, in the model's own chat format: its template, run by our interpreter.
 *
 * Rendered is byte for byte what the template gives.  Only the template emits control tokens and tags
 * ("<tool_call>"): client text, whatever it spells and whatever filters it went through, is tokenised as
 * ordinary characters. */
#ifndef TEXT_TOKEN_CHAT_H
#define TEXT_TOKEN_CHAT_H

#include "text/token/tokenizer.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL };

struct chat_call { /* a tool call the assistant made */
    struct bytes name;
    struct bytes arguments; /* one JSON object as text */
    struct bytes id;        /* may be empty */
};

struct chat_message { /* one turn, borrowed text */
    enum chat_role role;
    struct bytes text;
    struct bytes thinking;         /* assistant only: what it thought before; shown where the template asks */
    const struct chat_call *calls; /* assistant only */
    size_t n_calls;
    struct bytes call_id; /* tool only: of the call this is the result of; may be empty */
    size_t number;        /* of rendering's own */
};

struct chat_tool { /* one tool definition */
    struct bytes name;
    struct bytes description; /* data NULL: none was given */
    struct bytes parameters;  /* JSON schema as text, key order as the client sent it; data NULL: none */
};

enum chat_thinking { CHAT_THINKING_DEFAULT, CHAT_THINKING_ON, CHAT_THINKING_OFF };

struct chat_prompt {
    const struct chat_message *messages;
    size_t n_messages;
    const struct chat_tool *tools;
    size_t n_tools;
    bool adds_generation; /* open the assistant's turn at the end */
    bool continues_last;  /* the last message is the assistant's and stays open (adds_generation is then
                             ignored) */
    enum chat_thinking thinking; /* what the template's enable_thinking says, if it asks */
    const char *effort;          /* its reasoning_effort: "low", "medium", "high"; NULL: not said */
    int64_t now_unix_s;          /* for templates that write the date; 0: the clock's */
};

/* ---- what a rendering may be asked for besides ---- */

struct chat_place { /* a place in the conversation, and where it comes to lie among the tokens */
    size_t n_messages;
    size_t text_bytes; /* 0: after n_messages messages; else so far into the text of the next one */
    uint32_t n_tokens; /* out; 0: the template does not show it */
    uint64_t sum;      /* out: chat_sum() of the tokens up to there */
    bool is_joint;     /* out: a marker begins there, so what comes before is encoded for itself */
};

struct chat_drawn { /* one of the assistant's messages as it was drawn, to stand for what rendering gives */
    size_t message; /* its index */
    uint32_t
        base_tokens;   /* the prompt that it answered, up to where the assistant's turn opens: length ... */
    uint64_t base_sum; /* ... and chat_sum() */
    const token_id
        *ids; /* what opened the turn [n_opening], and then what was drawn, without what ended it */
    uint32_t n_opening, n_ids; /* n_ids of all */
    struct bytes rest;         /* text that came after ids, when the answer ended within a token */
    bool needs_thinking;       /* only where the template shows the message's thinking */
    bool is_used;              /* out */
    bool shows_thinking;       /* out: the template shows thinking there */
};

struct chat_extras {
    size_t max_ids;            /* as of chat_render() */
    struct chat_place *places; /* [n_places], in the conversation's order; at most CHAT_MAX_PLACES */
    size_t n_places;
    struct chat_drawn *drawn; /* [n_drawn], by message */
    size_t n_drawn;
};
#define CHAT_MAX_PLACES 6

enum chat_calls { /* see chat_family.c */
                  CHAT_CALLS_HERMES,
                  CHAT_CALLS_XML,
                  CHAT_CALLS_GLM,
                  CHAT_CALLS_MISTRAL,       /* a list of objects */
                  CHAT_CALLS_MISTRAL_NAMED, /* name[ARGS]{...} */
                  CHAT_CALLS_DEEPSEEK,      /* "function", a name and a block of JSON */
                  CHAT_CALLS_DEEPSEEK_V31,  /* a name and an object */
                  CHAT_CALLS_HARMONY,
                  CHAT_CALLS_LLAMA
};

struct chat_manner { /* how the model writes what is not plain text */
    enum chat_calls calls;
    bool has_think_switch;                /* chat_prompt.thinking changes how the answer's turn begins */
    const char *think_open, *think_close; /* around thinking, as tokens or text; NULL: it does not think, or
                                             in harmony's channel */
};

struct chat_format; /* opaque, immutable */

/* E_UNSUPPORTED, E_FORMAT, ...: the fault says where in the template and why. */
int chat_format_new(const struct tokenizer *tokenizer, struct fault *fault, struct chat_format **out);
void chat_format_free(struct chat_format *format);
/* How the model writes tool calls: "hermes", "mistral", ...; "plain": not at all. */
const char *chat_format_name(const struct chat_format *format);
/* Does the template show tools and calls?  If not, chat_render() writes calls in the Hermes manner and, where
 * the template does not list tools either, describes them in the system text. */
bool chat_format_has_tools(const struct chat_format *format);
/* What the template cannot do that every conversation needs, for logs; NULL: nothing. */
const char *chat_format_warning(const struct chat_format *format);
/* How answers are to be read and shaped; as long-lived as the format. */
const struct chat_manner *chat_format_manner(const struct chat_format *format);

/* Appends the prompt's ids.  E_LIMIT beyond max_ids, or when the template takes too long; E_FORMAT when
 * arguments or parameters are not JSON (nested at most 128 deep), or the template fails on this conversation;
 * E_INVAL when the template itself refuses it.  The fault (may be NULL) says what a client can be told. */
int chat_render(const struct chat_format *format, const struct chat_prompt *prompt, size_t max_ids,
                struct fault *fault, struct token_ids *out);
/* The same with extras.  A drawn message is used where the tokens before it are those of the prompt that it
 * answered, so a conversation that was edited, or is not shown as it was, is rendered as it is given. */
int chat_render_extras(const struct chat_format *format, const struct chat_prompt *prompt,
                       struct chat_extras *extras, struct fault *fault, struct token_ids *out);
/* A sum that tells token sequences apart: in this process's memory only, since it depends on byte order. */
uint64_t chat_sum(const token_id *ids, size_t n);
/* The same as text with control tokens spelled out, for people and tests. */
int chat_render_text(const struct chat_format *format, const struct chat_prompt *prompt, struct fault *fault,
                     struct buf *out);

#endif
