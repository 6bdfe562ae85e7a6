/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that write constraints: the writer, and calls. */
#ifndef SERVE_PROMPT_CONSTRAINT_PRIV_H
#define SERVE_PROMPT_CONSTRAINT_PRIV_H

#include "serve/prompt/constraint.h"

/* The names of the tools that are neither strict nor forced. */
enum plain_names {
    PLAIN_ABSENT, /* no call of them is written */
    PLAIN_LISTED, /* each is an alternative */
    PLAIN_ANY     /* any name, as theirs are more than a grammar holds */
};

/* Keys of any name end after so many tokens.  So they are usually, not always, within CALLS_MAX_HEADER_BYTES, beyond which
 * the splitter reads no key. */
#define MAX_KEY_TOKENS 48

struct constraint {
    const struct gen_request *request;
    const struct chat_format_info *format;
    struct buf *out;
    char path[160];      /* path for errors in the schemas being written; empty: "$" */
    uint64_t steps_left; /* of GRAMMAR_MAX_STEPS, for the plain forms of schemas */
    char refusal[320];   /* the first thing that the format cannot write; empty: none */
    enum plain_names plain;
};

/* constraint_write.c
 * Writers of constraint elements, in sequence in a list or after a member's colon.  They add commas
 * themselves. */
void constraint_text(struct constraint *constraint, const char *text);
void constraint_bytes(struct constraint *constraint, struct bytes before, struct bytes text,
                      struct bytes after);
void constraint_mark(struct constraint *constraint, const char *mark);
/* Text of the format's row, whose marks may be control tokens.  Empty text and NULL write nothing. */
void constraint_written(struct constraint *constraint, const char *text);
/* A mark around thinking or answers, which the format may put together from several tokens; the other one writes it as one
 * of several alternatives. */
void constraint_outer_mark(struct constraint *constraint, const char *mark);
void constraint_one_mark(struct constraint *constraint, const char *mark);
void constraint_json(struct constraint *constraint, struct bytes schema);
/* Arguments: an object; an empty object if the schema mentions no properties. */
void constraint_arguments(struct constraint *constraint, struct bytes schema);
void constraint_keyword(struct constraint *constraint); /* the name of a keyword argument, up to its "=" */
/* The name of any argument without quotes, up to its ":". */
void constraint_bare_key(struct constraint *constraint);
/* Free text up to one of the marks (NULL ends the list); max_tokens 0: no limit. */
void constraint_free(struct constraint *constraint, const char *const *until, uint32_t max_tokens);
void constraint_open_seq(struct constraint *constraint);
void constraint_open_any(struct constraint *constraint);
void constraint_close(struct constraint *constraint); /* closes either */
/* Closes a sequence whose schemas are parts of this one, into which their references lead. */
void constraint_close_rooted(struct constraint *constraint, struct bytes root);
void constraint_open_rep(struct constraint *constraint);
void constraint_close_rep(struct constraint *constraint, int min, int max); /* max -1: no limit */

/* constraint_check.c */
struct verdicts;
bool constraint_is_forced(const struct gen_request *request);
/* Checks that the request's schemas can be enforced, all of them together.  E_NOMEM, E_FORMAT with the
 * error. */
int constraint_check_schemas(const struct constraint *constraint, struct verdicts *verdicts,
                             struct api_error *error);
/* Checks that a worker will accept the constraint. */
int constraint_check_whole(const struct constraint *constraint, const struct gen_model *model,
                           struct api_error *error);
/* Writes the path of a tool's schema in the request ("tools.3.input_schema"). */
void constraint_tool_path(const struct gen_request *request, size_t tool, char *out, size_t out_bytes);

/* constraint_root.c */
/* tags NULL: the arguments are keywords. */
void constraint_tags(struct constraint *constraint, const struct calls_tags *tags,
                     const struct gen_tool *tool);
/* constraint_nested.c: any element, with text or with elements to this depth. */
void constraint_any_element(struct constraint *constraint, const struct calls_tags *tags, unsigned depth);
/* Arguments in braces, with any names and values. */
void constraint_any_braces(struct constraint *constraint, const struct calls_tags *tags);
/* Writes the alternatives of the text between a key and its value, of tags that tell the kind of the value. */
void constraint_kinds(struct constraint *constraint, const struct calls_tags *tags);
/* Writes a string of a schema between tags.  schema is its JSON text; NULL: any string.  banned is a
 * pattern that it must not match; it may be NULL. */
void constraint_tagged(struct constraint *constraint, const struct calls_tags *tags, struct bytes schema,
                       const char *banned);

/* constraint_calls.c */
/* Writes one call, and more calls if the format and is_many allow.  is_held: the arguments of all tools
 * must match their schemas, not only those of strict tools. */
void constraint_calls(struct constraint *constraint, bool is_held, bool is_many);
/* The same where the prompt has the mark of the first call. */
void constraint_begun_calls(struct constraint *constraint, bool is_held, bool is_many);
/* The mark that begins a call; plain text must not contain it.  Empty: no mark begins a call. */
const char *constraint_call_mark(const struct constraint *constraint);
/* True if free text is held only if tools are strict, as calls need no mark, or words of any text are their mark. */
bool constraint_is_bare(const struct constraint *constraint);
/* False if tool_choice names another tool. */
bool constraint_may_call(const struct constraint *constraint, const struct gen_tool *tool);

#endif
