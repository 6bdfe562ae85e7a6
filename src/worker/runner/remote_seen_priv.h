/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that this worker recently wrote to, found in or read from the shared store, for routers.  They are hints,
 * in a set that may forget.  Engine thread. */
#ifndef WORKER_RUNNER_REMOTE_SEEN_PRIV_H
#define WORKER_RUNNER_REMOTE_SEEN_PRIV_H

#include "base/mailbox.h"
#include "cache/prefix/block_events.h"
#include "cache/prefix/block_set.h"

struct remote_seen {
    struct block_set *blocks; /* NULL: no memory for it, and routers get no reports */
    struct block_log changes;
    uint64_t store; /* identifies the store: equal for workers that can read each other's blocks; never 0 */
};

void remote_seen_open(struct remote_seen *seen, const char *url, const char *generation);
void remote_seen_close(struct remote_seen *seen);
/* The store has this block. */
void remote_seen_add(struct remote_seen *seen, const struct block_hash *hash);
/* Number of these blocks, from the first on, that the store was seen to have. */
uint32_t remote_seen_run(const struct remote_seen *seen, const struct block_hash *hashes, uint32_t n);
/* The store lacks this block.  Reported even if the set does not have it: routers may know it from another worker. */
void remote_seen_remove(struct remote_seen *seen, const struct block_hash *hash);
/* The first reports the changes since its last call to all routers.  The second reports at most `most` blocks of
 * the set to one router. */
void remote_seen_publish_changes(struct remote_seen *seen, struct mailbox *reports);
void remote_seen_publish_all(const struct remote_seen *seen, struct mailbox *reports, uint32_t router,
                             uint32_t most);

#endif
