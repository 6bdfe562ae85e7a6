/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation -> prompt tokens in the model's own chat format. Our interpreter runs the model's template.
 *
 * The rendered text equals the template's output byte for byte. Only the template emits control tokens and
 * tags ("<tool_call>"). Client text is always tokenised as ordinary characters, with any spelling and
 * after any filters. */
#ifndef TEXT_TOKEN_CHAT_H
#define TEXT_TOKEN_CHAT_H

#include "text/token/tokenizer.h"
#include "text/toolcall/formats.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL };

struct chat_call { /* a tool call that the assistant made */
    struct bytes name;
    struct bytes arguments; /* one JSON object as text */
    struct bytes id;        /* may be empty */
};

struct chat_message { /* one turn; the text is borrowed */
    enum chat_role role;
    struct bytes text;
    struct bytes thinking;         /* assistant only: its reasoning; shown where the template asks for it */
    const struct chat_call *calls; /* assistant only */
    size_t n_calls;
    struct bytes call_id; /* tool only: the id of the call that this result belongs to; may be empty */
    size_t number;        /* used by the rendering only */
    /* Used by the rendering only: the spans of text that the format wrote, not the client. */
    const struct calls_span *own;
    size_t n_own;
};

struct chat_tool { /* one tool definition */
    struct bytes name;
    struct bytes description; /* data NULL: the client gave none */
    struct bytes parameters;  /* JSON schema as text, keys in the client's order; data NULL: none */
};

enum chat_thinking { CHAT_THINKING_DEFAULT, CHAT_THINKING_ON, CHAT_THINKING_OFF };

struct chat_prompt {
    const struct chat_message *messages;
    size_t n_messages;
    const struct chat_tool *tools;
    size_t n_tools;
    bool adds_generation; /* open the assistant's turn at the end */
    /* the last message is the assistant's and stays open (adds_generation is then ignored) */
    bool continues_last;
    enum chat_thinking thinking; /* the template's enable_thinking, if it reads it */
    const char *effort;          /* the template's reasoning_effort: "low", "medium", "high"; NULL: not set */
    int64_t now_unix_s;          /* for templates that write the date; 0: use the clock */
};

/* ---- optional extras of a rendering ---- */

struct chat_place { /* a place in the conversation, and its position among the tokens */
    size_t n_messages;
    size_t text_bytes; /* 0: after n_messages messages; else this far into the text of the next message */
    uint32_t n_tokens; /* out; 0: the template does not show the place */
    uint64_t sum;      /* out: chat_sum() of the tokens up to the place */
    bool is_joint;     /* out: a marker begins at the place, so the text before it is encoded separately */
};

/* An assistant message as the tokens that were sampled.  They replace the rendered text of that message. */
struct chat_drawn {
    size_t message; /* the index of the message */
    /* The prompt that the message answered, up to where the assistant's turn opens. */
    uint32_t base_tokens; /* its length */
    uint64_t base_sum;    /* its chat_sum() */
    /* The tokens that opened the turn [n_opening], then the sampled ones without the one that ended the
     * answer. */
    const token_id *ids;
    uint32_t n_opening, n_ids; /* n_ids counts both parts */
    struct bytes rest;         /* text after ids, when the answer ended within a token */
    bool needs_thinking;       /* use only where the template shows the message's thinking */
    bool is_used;              /* out */
    bool shows_thinking;       /* out: the template shows thinking there */
};

struct chat_extras {
    size_t max_ids;            /* as in chat_render() */
    struct chat_place *places; /* [n_places], in the conversation's order; n_places <= CHAT_MAX_PLACES */
    size_t n_places;
    struct chat_drawn *drawn; /* [n_drawn], ordered by message */
    size_t n_drawn;
};
#define CHAT_MAX_PLACES 6

struct chat_format_info { /* how the model writes thinking and tool calls */
    enum calls_format calls;
    enum calls_format answers; /* the format whose marks surround the text of answers */
    bool has_think_switch;     /* chat_prompt.thinking changes how the answer's turn begins */
    /* The marks around thinking, as tokens or text. NULL: the model does not think, or it thinks in harmony's
     * channel. */
    const char *think_open, *think_close;
    const char *think_name; /* stands behind think_open and is no thinking; NULL: nothing */
    bool think_is_words;    /* the marks are words, which count only where an answer begins */
    const char *think_open_also, *think_close_also; /* what models write in their place; NULL: nothing else */
};

struct chat_format; /* opaque, immutable */

/* E_UNSUPPORTED, E_FORMAT, ...: the fault gives the place in the template and the reason.  A file without a template
 * gives a format that has none: base models continue texts, and no conversation renders. */
int chat_format_new(const struct tokenizer *tokenizer, struct fault *fault, struct chat_format **out);
void chat_format_free(struct chat_format *format);
bool chat_format_has_template(const struct chat_format *format);
/* How the model writes tool calls: "hermes", "mistral", ...; "plain": it has no tool calls; "none": no template. */
const char *chat_format_name(const struct chat_format *format);
/* True if the template shows tools and calls. If not, chat_render() writes calls in the Hermes format. If the
 * template does not list tools either, chat_render() describes them in the system text. */
bool chat_format_has_tools(const struct chat_format *format);
/* Names, for logs, a thing that every conversation needs and the template cannot do; NULL: none. */
const char *chat_format_warning(const struct chat_format *format);
/* How answers are parsed and constrained. Borrowed; valid as long as the format. */
const struct chat_format_info *chat_format_info(const struct chat_format *format);

/* Appends the prompt's ids. E_UNSUPPORTED: no template. E_LIMIT: more than max_ids, or the template takes too long. E_FORMAT: arguments
 * or parameters are not JSON (nested at most 128 deep), or the template fails on this conversation. E_INVAL:
 * the template itself refuses the conversation. The fault (may be NULL) holds a message for the client. */
int chat_render(const struct chat_format *format, const struct chat_prompt *prompt, size_t max_ids,
                struct fault *fault, struct token_ids *out);
/* The same with extras. A message of extras->drawn is used only if the tokens before it are those of the
 * prompt that it answered. So a conversation that was edited, or that the template now shows differently, is
 * rendered as text. */
int chat_render_extras(const struct chat_format *format, const struct chat_prompt *prompt,
                       struct chat_extras *extras, struct fault *fault, struct token_ids *out);
/* A hash that distinguishes token sequences. It depends on byte order, so it is valid in this process's
 * memory only. */
uint64_t chat_sum(const token_id *ids, size_t n);
/* The same prompt as text with control tokens spelled out, for people and tests. */
int chat_render_text(const struct chat_format *format, const struct chat_prompt *prompt, struct fault *fault,
                     struct buf *out);

#endif
