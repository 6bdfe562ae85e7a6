/* SPDX-License-Identifier: Apache-2.0 */
/* Beginnings of prompts that the operator declared public: tenants share the cached KV of these.
 *
 * The file holds a JSON object with what a Messages request may begin with, or a list of such:
 *
 *     {"system": "You are ...", "tools": [{"name": "read", "input_schema": {"type": "object"}}]}
 *
 * What is public is the text as tokens: of any prompt, as much as agrees with a declared beginning, token for
 * token and in whole blocks, however the request came by it.  One loop thread. */
#ifndef SERVE_PROMPT_PUBLIC_PREFIX_H
#define SERVE_PROMPT_PUBLIC_PREFIX_H

#include "base/fault.h"
#include "serve/api/gen.h"
#include "serve/prompt/served_model.h"

struct public_prefix;

/* Reads and checks the file.  E_IO, E_FORMAT, E_LIMIT, E_NOMEM; the fault names the file and what is wrong.
 */
int public_prefix_load(const char *path, struct fault *fault, struct public_prefix **out);
void public_prefix_free(struct public_prefix *prefix); /* NULL is fine */

/* How many tokens of this prompt are public; 0 also when out of memory.  A model is rendered for once. */
uint32_t public_prefix_tokens(struct public_prefix *prefix, const struct gen_model *model,
                              const struct token_ids *prompt);

#endif
