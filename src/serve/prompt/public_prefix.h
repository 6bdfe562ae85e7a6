/* SPDX-License-Identifier: Apache-2.0 */
/* Public prefixes: prompt beginnings that the operator declared public.  Tenants share their cached KV.
 *
 * The file holds one JSON object with the beginning of a Messages request, or a list of such objects:
 *
 *     {"system": "You are ...", "tools": [{"name": "read", "input_schema": {"type": "object"}}]}
 *
 * Public are tokens, not requests: a prompt's longest run of whole blocks that equals a declared
 * beginning token for token, however the request produced it.
 *
 * Rendering takes from milliseconds to seconds, so it runs on a job thread, before the model's first prompt.  Requests
 * that come meanwhile wait for it.  Any thread. */
#ifndef SERVE_PROMPT_PUBLIC_PREFIX_H
#define SERVE_PROMPT_PUBLIC_PREFIX_H

#include "base/fault.h"
#include "serve/api/gen.h"
#include "serve/prompt/served_model.h"

struct public_prefix;

/* Reads and checks the file.  E_IO, E_FORMAT, E_LIMIT, E_NOMEM; the fault names the file and the mistake. */
int public_prefix_load(const char *path, struct fault *fault, struct public_prefix **out);
void public_prefix_free(struct public_prefix *prefix); /* accepts NULL */

enum public_prefix_state {
    PUBLIC_PREFIX_NONE,      /* the next public_prefix_prepare() renders the beginnings for this model */
    PUBLIC_PREFIX_RENDERING, /* a thread renders the beginnings, for this model or another one */
    PUBLIC_PREFIX_READY      /* the beginnings are rendered for this model */
};
enum public_prefix_state public_prefix_state(struct public_prefix *prefix, const struct gen_model *model);
/* Renders the beginnings for this model unless that was done.  E_AGAIN: another thread renders.  E_NOMEM: without
 * them no prompt of the model is public. */
int public_prefix_prepare(struct public_prefix *prefix, const struct gen_model *model);

/* Returns the number of the prompt's public tokens; 0 while the model is not READY.  prefix may be NULL. */
uint32_t public_prefix_tokens(struct public_prefix *prefix, const struct gen_model *model,
                              const struct token_ids *prompt);

#endif
