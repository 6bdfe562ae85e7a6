/* SPDX-License-Identifier: Apache-2.0 */
/* A model's text -> thinking, text and tool calls, as it streams.
 *
 * Every family of models writes calls in its own way.  Their arguments are passed on as they come and are
 * valid JSON at every moment, also where the family writes them as tags.  A call that cannot be understood
 * before anything of it was passed on comes out as text. */
#ifndef TEXT_TOOLCALL_CALLS_H
#define TEXT_TOOLCALL_CALLS_H

#include "base/bytes.h"

struct calls;

enum calls_format {
    CALLS_PLAIN,    /* no calls: thinking and text only */
    CALLS_HERMES,   /* <tool_call>{"name": N, "arguments": {...}}</tool_call> */
    CALLS_XML,      /* <tool_call><function=N><parameter=K>V</parameter></function></tool_call> */
    CALLS_GLM,      /* <tool_call>N<arg_key>K</arg_key><arg_value>V</arg_value></tool_call> */
    CALLS_MISTRAL,  /* [TOOL_CALLS][{"name": N, "arguments": {...}}] or [TOOL_CALLS]N[ARGS]{...} */
    CALLS_DEEPSEEK, /* between marks with bars and blocks: "function", N and ```json {...} ```, or N and {...}
                     */
    CALLS_HARMONY,  /* messages in channels: analysis, final, commentary to=functions.N */
    CALLS_LLAMA     /* {"name": N, "parameters": {...}} as the whole answer, after <|python_tag|> or not */
};

enum calls_end {
    CALLS_WHOLE, /* the arguments are complete */
    CALLS_CUT,   /* the answer ended inside them; what came is a prefix of valid JSON */
    CALLS_BROKEN /* they went on in a way that is not JSON; on_text with the raw text of the whole call
                    follows, unless it is cut */
};

struct calls_events { /* 0 to go on; a negative result ends the feeding for good and is returned */
    int (*on_text)(void *arg, struct bytes text);
    int (*on_thinking)(void *arg, struct bytes text); /* never empty, without blanks at the ends of it all */
    int (*on_thought)(void *arg);                     /* the thinking that began is over */
    int (*on_begin)(void *arg, struct bytes name);
    int (*on_arguments)(void *arg, struct bytes piece);
    int (*on_end)(void *arg, enum calls_end how);
};

struct calls_tool {
    struct bytes name;
    struct bytes schema; /* JSON text: which values of tags are strings, which are JSON */
};

struct calls_opts {
    enum calls_format format;
    bool ignores_calls;       /* only the format's other marks count; what calls say is text */
    const char *think_open;   /* around thinking; NULL: none (harmony has its channel) */
    const char *think_close;  /* both outlive the splitter */
    bool begins_thinking;     /* think_open stands in the prompt */
    struct calls_tool *tools; /* [n_tools], heap; taken, also on failure */
    size_t n_tools;           /* names and schemas are borrowed */
};

/* Marks of this format (and its thinking), for those that hold them as single tokens; NULL ends the list. */
const char *const *calls_marks(enum calls_format format);

/* events and arg are borrowed.  E_NOMEM. */
int calls_new(const struct calls_opts *opts, const struct calls_events *events, void *arg,
              struct calls **out);
void calls_free(struct calls *calls);
/* text holds whole characters. */
int calls_feed(struct calls *calls, struct bytes text);
/* The answer is over.  is_cut: by a limit; then the beginning of a call is dropped instead of given as text.
 */
int calls_finish(struct calls *calls, bool is_cut);
/* Inside a call (or what may become one). */
bool calls_is_inside(const struct calls *calls);
bool calls_is_open(const struct calls *calls); /* inside one whose arguments are not complete */
bool calls_is_thinking(const struct calls *calls);

#endif
