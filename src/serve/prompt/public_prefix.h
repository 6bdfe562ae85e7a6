/* SPDX-License-Identifier: Apache-2.0 */
/* Public prefixes: prompt beginnings that the operator declared public.  Tenants share their cached KV.
 *
 * The file holds one JSON object with the beginning of a Messages request, or a list of such objects:
 *
 *     {"system": "You are ...", "tools": [{"name": "read", "input_schema": {"type": "object"}}]}
 *
 * Public are tokens, not requests: a prompt's longest run of whole blocks that equals a declared
 * beginning token for token, however the request produced it.  One loop thread. */
#ifndef SERVE_PROMPT_PUBLIC_PREFIX_H
#define SERVE_PROMPT_PUBLIC_PREFIX_H

#include "base/fault.h"
#include "serve/api/gen.h"
#include "serve/prompt/served_model.h"

struct public_prefix;

/* Reads and checks the file.  E_IO, E_FORMAT, E_LIMIT, E_NOMEM; the fault names the file and the mistake. */
int public_prefix_load(const char *path, struct fault *fault, struct public_prefix **out);
void public_prefix_free(struct public_prefix *prefix); /* accepts NULL */

/* Returns the number of the prompt's public tokens; also 0 when out of memory.  The declared beginnings
 * are rendered once per model. */
uint32_t public_prefix_tokens(struct public_prefix *prefix, const struct gen_model *model,
                              const struct token_ids *prompt);

#endif
