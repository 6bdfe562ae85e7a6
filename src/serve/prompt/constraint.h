/* SPDX-License-Identifier: Apache-2.0 */
/* The answer's constraint (text/grammar/grammar.h), derived from the request and from the model's format
 * of calls and thinking.  The prompt does not depend on it: the same prompt serves every tool_choice. */
#ifndef SERVE_PROMPT_CONSTRAINT_H
#define SERVE_PROMPT_CONSTRAINT_H

#include "serve/api/error.h"
#include "serve/api/gen.h"
#include "serve/prompt/served_model.h"

#define CONSTRAINT_MAX_BYTES                                                                                 \
    (1u << 20) /* the most that a worker accepts; more would cost the router its link */

/* True if the request has schemas to check.  The check belongs on a job thread, however short they are. */
bool constraint_has_schemas(const struct gen_request *request);

/* Appends the constraint's text, or nothing if any answer is allowed.  begins_thinking: the prompt has
 * opened the thinking.  Any thread.  Its work is bounded (GRAMMAR_MAX_STEPS, five times).  E_NOMEM; E_FORMAT
 * when a schema cannot be enforced: the error (400) names the place and the keyword. */
int constraint_make(const struct gen_model *model, const struct gen_request *request, bool begins_thinking,
                    struct buf *out, struct api_error *error);

#endif
