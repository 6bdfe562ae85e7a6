/* SPDX-License-Identifier: Apache-2.0 */
/* Loads one document on this thread within a memory limit. The first allocation that fails ends the load.
 * Private to text/json/json.c. */
#ifndef TEXT_JSON_JSON_BUDGET_PRIV_H
#define TEXT_JSON_JSON_BUDGET_PRIV_H

#include <jansson.h>

#include "base/bytes.h"

enum json_budget_end {
    JSON_BUDGET_LOADED,
    JSON_BUDGET_REFUSED, /* the library refused the document; the error gives the reason */
    JSON_BUDGET_OVER,    /* the document would exceed the limit */
    JSON_BUDGET_NOMEM    /* the system has no more memory */
};

/* Fills in error and out for REFUSED and LOADED. A failed load holds no memory. */
enum json_budget_end json_budget_load(struct bytes text, size_t flags, size_t limit_bytes,
                                      json_error_t *error, json_t **out);

#endif
