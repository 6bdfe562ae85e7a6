/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that write constraints: the writer, and calls. */
#ifndef SERVE_PROMPT_SHAPE_PRIV_H
#define SERVE_PROMPT_SHAPE_PRIV_H

#include "serve/prompt/shape.h"

#define SHAPE_MAX_BYTES (1u << 20) /* the most that a worker accepts; more would cost the router its link */

struct shape {
    const struct gen_request *request;
    const struct chat_manner *manner;
    struct buf *out;
    char path[160]; /* path for errors in the schemas being written; empty: "$" */
};

/* Writers of constraint elements, in sequence in a list or after a member's colon.  They add commas
 * themselves. */
void shape_text(struct shape *shape, const char *text);
void shape_bytes(struct shape *shape, struct bytes before, struct bytes text, struct bytes after);
void shape_mark(struct shape *shape, const char *mark);
void shape_json(struct shape *shape, struct bytes schema);
/* Arguments: an object; an empty object if the schema mentions no properties. */
void shape_arguments(struct shape *shape, struct bytes schema);
/* Free text up to one of the marks (NULL ends the list); max_tokens 0: no limit. */
void shape_free(struct shape *shape, const char *const *until, uint32_t max_tokens);
void shape_open_seq(struct shape *shape);
void shape_open_any(struct shape *shape);
void shape_close(struct shape *shape); /* closes either */
void shape_open_rep(struct shape *shape);
void shape_close_rep(struct shape *shape, int min, int max); /* max -1: no limit */

/* shape_check.c */
struct verdicts;
bool shape_is_forced(const struct gen_request *request);
/* Checks that the request's schemas can be enforced, all of them together.  E_NOMEM, E_FORMAT with the
 * error. */
int shape_check_schemas(const struct shape *shape, struct verdicts *verdicts, struct api_error *error);
/* Checks that a worker will accept the constraint. */
int shape_check_whole(const struct shape *shape, const struct gen_model *model, struct api_error *error);
/* Writes the path of a tool's schema in the request ("tools.3.input_schema"). */
void shape_tool_path(const struct gen_request *request, size_t tool, char *out, size_t out_bytes);

/* shape_tags.c */
struct shape_tags {                   /* the tags of one model family */
    const char *key_open, *key_close; /* around a key, up to its value */
    const char *value_close;          /* as the model writes it */
    const char *value_end; /* the part of it that ends a value for the parser; no value contains it */
    const char *line_end;  /* after it */
    bool is_tight; /* no line end is written around a value; one that stands there belongs to the tags */
};
extern const struct shape_tags shape_xml_tags, shape_glm_tags;
void shape_tags(struct shape *shape, const struct shape_tags *tags, const struct gen_tool *tool);
/* Writes a string of a schema between tags.  schema is its JSON text; NULL: any string.  banned is a
 * pattern that it must not match; it may be NULL. */
void shape_tagged(struct shape *shape, const struct shape_tags *tags, struct bytes schema,
                  const char *banned);

/* shape_calls.c */
/* Writes one call, and more calls if the format and is_many allow.  is_held: the arguments of all tools
 * must match their schemas, not only those of strict tools. */
void shape_calls(struct shape *shape, bool is_held, bool is_many);
/* The mark that begins a call; plain text must not contain it.  Empty: no mark begins a call. */
const char *shape_call_mark(const struct shape *shape);
/* False if tool_choice names another tool. */
bool shape_may_call(const struct shape *shape, const struct gen_tool *tool);

#endif
