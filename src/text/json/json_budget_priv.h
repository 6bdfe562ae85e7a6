/* SPDX-License-Identifier: Apache-2.0 */
/* Loading one document on this thread within a bound on memory; the first allocation that fails ends it.
 * Private to text/json/json.c. */
#ifndef TEXT_JSON_JSON_BUDGET_PRIV_H
#define TEXT_JSON_JSON_BUDGET_PRIV_H

#include <jansson.h>

#include "base/bytes.h"

enum json_budget_end {
    JSON_BUDGET_LOADED,
    JSON_BUDGET_REFUSED, /* by the library: the error says why */
    JSON_BUDGET_OVER,    /* it would have held more than the bound */
    JSON_BUDGET_NOMEM    /* the system had no more */
};

/* error and out are filled in for REFUSED and LOADED.  After a failed load nothing is held. */
enum json_budget_end json_budget_load(struct bytes text, size_t flags, size_t limit_bytes,
                                      json_error_t *error, json_t **out);

#endif
