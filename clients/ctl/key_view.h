/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a daemon and of its links, for people: a pure function from the JSON of /admin/status to text. */
#ifndef CLIENTS_CTL_KEY_VIEW_H
#define CLIENTS_CTL_KEY_VIEW_H

#include "base/bytes.h"
#include "net/link/cluster_key.h"

/* Appends a table, or the same as one JSON object. Returns the number of outdated items. These are: the daemon, if
 * its keys differ from the file's; links whose peer lacks the next key or uses another current key; links that are
 * down. Links with certificates do not count. E_FORMAT: not the status of a daemon with keys; E_NOMEM. */
int key_view_render(struct bytes json, const struct cluster_keys *file, bool is_json, struct buf *out);

#endif
