/* SPDX-License-Identifier: Apache-2.0 */
/* What an answer must look like (text/grammar/grammar.h): from what the request asks for and how the model
 * writes calls and thinking.  The prompt has no part in it: the same prompt serves every tool_choice. */
#ifndef SERVE_PROMPT_SHAPE_H
#define SERVE_PROMPT_SHAPE_H

#include "serve/api/error.h"
#include "serve/api/gen.h"
#include "serve/prompt/served_model.h"

/* Are there schemas to be looked at?  That is work for a job thread, however short they are. */
bool shape_has_schemas(const struct gen_request *request);

/* Appends the shape's text; nothing when anything may be answered.  begins_thinking: the prompt has opened
 * the thinking.  Any thread.  What it may take is bounded (GRAMMAR_MAX_STEPS, twice).  E_NOMEM; E_FORMAT when
 * a schema cannot be held to: the error (400) names the place and the keyword. */
int shape_make(const struct gen_model *model, const struct gen_request *request, bool begins_thinking,
               struct buf *out, struct api_error *error);

#endif
