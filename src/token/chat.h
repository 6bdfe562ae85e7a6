/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation -> prompt tokens, in the model's own chat format.
 *
 * Native formats for now: ChatML turns, with the Hermes tool format in the dialects of Qwen 2.5 / Qwen 3 /
 * Hermes 3 and of the bundled model; which one is decided from what the model's template contains.  Rendered
 * is byte for byte what the template gives.  Only the format emits control tokens and tags ("<tool_call>"):
 * client text, whatever it spells, is tokenised as ordinary characters. */
#ifndef TOKEN_CHAT_H
#define TOKEN_CHAT_H

#include "token/tokenizer.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL };

struct chat_call { /* a tool call the assistant made */
    struct bytes name;
    struct bytes arguments; /* one JSON object as text; spaced and escaped anew, numbers kept as spelled */
};

struct chat_message { /* one turn, borrowed text */
    enum chat_role role;
    struct bytes text;
    const struct chat_call *calls; /* assistant only */
    size_t n_calls;
};

struct chat_tool { /* one tool definition */
    struct bytes name;
    struct bytes description; /* data NULL: none was given */
    struct bytes parameters;  /* JSON schema as text, key order as the client sent it; data NULL: none */
};

struct chat_prompt {
    const struct chat_message *messages;
    size_t n_messages;
    const struct chat_tool *tools;
    size_t n_tools;
    bool adds_generation; /* open the assistant's turn at the end */
    bool continues_last;  /* the last message is the assistant's and stays open (adds_generation is then
                             ignored) */
};

struct chat_format; /* opaque, immutable */

/* E_UNSUPPORTED with a message that says what is supported when the template is not understood. */
int chat_format_new(const struct tokenizer *tokenizer, struct fault *fault, struct chat_format **out);
void chat_format_free(struct chat_format *format);
const char *chat_format_name(const struct chat_format *format); /* "chatml", "hermes (qwen2.5)", ... */
bool chat_format_has_tools(const struct chat_format *format);

/* Appends the prompt's ids.  E_LIMIT beyond max_ids; E_FORMAT when arguments or parameters are not JSON
 * (nested at most 128 deep); E_UNSUPPORTED when tools or calls are given to a format that has none. */
int chat_render(const struct chat_format *format, const struct chat_prompt *prompt, size_t max_ids,
                struct token_ids *out);
/* The same as text with control tokens spelled out, for people and tests. */
int chat_render_text(const struct chat_format *format, const struct chat_prompt *prompt, struct buf *out);

#endif
