/* SPDX-License-Identifier: Apache-2.0 */
/* What the shared store was lately seen to have, for routers: blocks that were written, found or read there.  Hints,
 * in a set that may forget.  Engine thread. */
#ifndef WORKER_RUNNER_REMOTE_SEEN_PRIV_H
#define WORKER_RUNNER_REMOTE_SEEN_PRIV_H

#include "base/mailbox.h"
#include "cache/prefix/block_events.h"
#include "cache/prefix/block_set.h"

struct remote_seen {
    struct block_set *blocks; /* NULL: no memory for it, and routers are told nothing */
    struct block_log changes;
    uint64_t store; /* names it: equal for workers that can read each other's blocks; never 0 */
};

void remote_seen_open(struct remote_seen *seen, const char *url, const char *generation);
void remote_seen_close(struct remote_seen *seen);
void remote_seen_has(struct remote_seen *seen, const struct block_hash *hash);
/* How many of these blocks, the first ones, the store was seen to have. */
uint32_t remote_seen_run(const struct remote_seen *seen, const struct block_hash *hashes, uint32_t n);
/* Told also when the set does not have it: routers may know of it from another worker. */
void remote_seen_lacks(struct remote_seen *seen, const struct block_hash *hash);
/* Reports to all routers what changed since the last call; to one router at most so many blocks of the set. */
void remote_seen_tell_changes(struct remote_seen *seen, struct mailbox *reports);
void remote_seen_tell(const struct remote_seen *seen, struct mailbox *reports, uint32_t router,
                      uint32_t most);

#endif
