/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a daemon and of its links, for people: a pure function from the JSON of /admin/status to text. */
#ifndef CLIENTS_CTL_KEY_VIEW_H
#define CLIENTS_CTL_KEY_VIEW_H

#include "base/bytes.h"

/* Appends a table, or the same as one JSON object. Returns the number of links that are behind: the peer does not
 * know the next key yet, or its current key is not the daemon's. E_FORMAT: not the status of a daemon with keys;
 * E_NOMEM. */
int key_view_render(struct bytes json, bool is_json, struct buf *out);

#endif
