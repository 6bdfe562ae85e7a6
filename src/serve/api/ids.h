/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of requests, messages and calls. */
#ifndef SERVE_API_IDS_H
#define SERVE_API_IDS_H

#include "base/bytes.h"

#define IDS_BYTES 40 /* room for any id of ours with its NUL */

/* Writes prefix and 24 of [A-Za-z0-9], 142 random bits. */
void ids_make(const char *prefix, char out[IDS_BYTES]);

/* Makes the id of a response's item, which names the response: prefix (without "_"), "_", the response's letters,
 * "_", index. */
void ids_make_item(const char *prefix, const char *response_id, unsigned index, char out[IDS_BYTES]);
/* Writes the id of the response that an output item's id names.  False: it is no such id. */
bool ids_response_of(struct bytes item_id, char out[IDS_BYTES]);
/* Writes prefix and 24 of [A-Za-z0-9], derived from seed and number: the same in every process. */
void ids_derive(const char *prefix, const char *seed, uint32_t number, char out[IDS_BYTES]);

#endif
