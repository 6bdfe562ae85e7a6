/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that write shapes: the writer, and calls. */
#ifndef SERVE_PROMPT_SHAPE_PRIV_H
#define SERVE_PROMPT_SHAPE_PRIV_H

#include "serve/prompt/shape.h"

#define SHAPE_MAX_BYTES (1u << 20) /* what a worker takes; more would cost the router its link */

struct shape {
    const struct gen_request *request;
    const struct chat_manner *manner;
    struct buf *out;
    char path[160]; /* what faults of schemas written now are named after; empty: "$" */
};

/* Writers of shapes, one after another in a list or behind a member's colon: commas come by themselves. */
void shape_text(struct shape *shape, const char *text);
void shape_bytes(struct shape *shape, struct bytes before, struct bytes text, struct bytes after);
void shape_mark(struct shape *shape, const char *mark);
void shape_json(struct shape *shape, struct bytes schema);
/* Arguments: an object, and an empty one where the schema says nothing of properties. */
void shape_arguments(struct shape *shape, struct bytes schema);
/* Text up to one of the marks (NULL ends the list); max_tokens 0: no bound. */
void shape_free(struct shape *shape, const char *const *until, uint32_t max_tokens);
void shape_open_seq(struct shape *shape);
void shape_open_any(struct shape *shape);
void shape_close(struct shape *shape); /* either */
void shape_open_rep(struct shape *shape);
void shape_close_rep(struct shape *shape, int min, int max); /* max -1: no bound */

/* shape_check.c */
struct verdicts;
bool shape_is_forced(const struct gen_request *request);
/* Can the request's schemas be held to, all of them together?  E_NOMEM, E_FORMAT with the error. */
int shape_check_schemas(const struct shape *shape, struct verdicts *verdicts, struct api_error *error);
/* Will a worker take the shape? */
int shape_check_whole(const struct shape *shape, const struct gen_model *model, struct api_error *error);
/* The place of a tool's schema in the request ("tools.3.input_schema"). */
void shape_tool_path(const struct gen_request *request, size_t tool, char *out, size_t out_bytes);

/* shape_tags.c */
struct shape_tags {                   /* a family's */
    const char *key_open, *key_close; /* around a key, up to its value */
    const char *value_close;          /* as it is written */
    const char *value_end;            /* of it, what ends a value for who reads it: in no value */
    const char *line_end;             /* behind it */
    bool is_tight; /* no line end is written around a value, but is taken for the tags' where it stands there
                    */
};
extern const struct shape_tags shape_xml_tags, shape_glm_tags;
void shape_tags(struct shape *shape, const struct shape_tags *tags, const struct gen_tool *tool);
/* A string of a schema (its text as JSON; NULL: any) between tags; banned, a pattern, may be NULL. */
void shape_tagged(struct shape *shape, const struct shape_tags *tags, struct bytes schema,
                  const char *banned);

/* shape_calls.c */
/* One call and, where the format and is_many allow, more; is_held: their arguments are held to the schemas,
 * not only those of strict tools. */
void shape_calls(struct shape *shape, bool is_held, bool is_many);
/* What text must not hold, or a call begins; empty: nothing tells the beginning of a call. */
const char *shape_call_mark(const struct shape *shape);
/* Not by a tool_choice that names another. */
bool shape_may_call(const struct shape *shape, const struct gen_tool *tool);

#endif
