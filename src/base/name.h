/* SPDX-License-Identifier: Apache-2.0 */
/* Names of nodes, tenants, classes and keys, as people give them: letters, digits, '.', '_' and '-'.  So logs, headers,
 * paths and the lines of key files hold them without quotes. */
#ifndef BASE_NAME_H
#define BASE_NAME_H

#include "base/bytes.h"

#define NAME_MOST_BYTES 63 /* the room in frames, in a KV connection's greeting and in the structs */

/* True if text is a name of 1 to max_bytes bytes. */
bool name_is_valid(struct bytes text, size_t max_bytes);
bool name_fits(const char *text); /* the same with NAME_MOST_BYTES */

#endif
