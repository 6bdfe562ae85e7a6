/* SPDX-License-Identifier: Apache-2.0 */
/* A bound on what the JSON library may allocate while one document is loaded on this thread.  Private to
 * api/json.c. */
#ifndef API_JSON_BUDGET_H
#define API_JSON_BUDGET_H

#include <stdbool.h>
#include <stddef.h>

/* From here to the end, allocations of the library on this thread fail once they hold more than limit_bytes
 * together. */
void json_budget_begin(size_t limit_bytes);
/* Whether it was reached. */
bool json_budget_end(void);

#endif
