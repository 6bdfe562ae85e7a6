/* SPDX-License-Identifier: Apache-2.0 */
/* Reads members of the daemon's JSON. A member that is missing or of another type counts as 0 or empty. */
#ifndef CLIENTS_CTL_REQUEST_VIEW_PRIV_H
#define CLIENTS_CTL_REQUEST_VIEW_PRIV_H

#include <jansson.h>

#include "base/bytes.h"

uint64_t request_count(const json_t *object, const char *key);
double request_real(const json_t *object, const char *key);
const char *request_text(const json_t *object, const char *key);
/* Appends a name that came over the network: control and other bytes become '?'. width 0: no padding, no cut. */
void request_put_name(const char *name, unsigned width, struct buf *out);

#endif
