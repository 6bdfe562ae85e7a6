/* SPDX-License-Identifier: Apache-2.0 */
/* Locations of cached blocks, on the engine thread: the map of peers' blocks (peer_map.c), and this worker's
 * block events for routers and peers (publish.c). */
#ifndef WORKER_RUNNER_BLOCK_MAP_PRIV_H
#define WORKER_RUNNER_BLOCK_MAP_PRIV_H

#include "worker/runner/engine_thread_priv.h"

/* ---- peer_map.c ---- */

struct map_question {                /* a task's prompt */
    const struct block_hash *hashes; /* [n_hashes] of the prompt's blocks */
    uint32_t n_hashes, n_here;       /* n_here: leading blocks that the pool has */
    uint32_t n_tokens;
};
struct map_choice {    /* the owner for a prefix fetch */
    uint32_t peer;     /* PEER_NONE: none */
    uint32_t tokens;   /* leading tokens of the prompt that the peer has */
    bool is_own;       /* chosen by this worker's map, not by a router */
    bool has_to_read;  /* the peer has some of them on disk only */
    uint64_t limit_ns; /* blocks that arrive later are computed instead */
};

int worker_map_open(struct worker_engine *engine); /* 0 also if the map is switched off; E_INVAL, E_NOMEM */
void worker_map_close(struct worker_engine *engine);
void worker_map_add(struct worker_engine *engine, struct block_list *blocks); /* takes */
void worker_map_load(struct worker_engine *engine, uint32_t peer, const struct peer_load *load);
/* Applies a few slices of pending events, each of BLOCK_SLICE blocks.  True: more events are pending. */
bool worker_map_turn(struct worker_engine *engine);
bool worker_map_is_empty(const struct worker_engine *engine); /* empty, or switched off */
/* Sets choice_out only if a peer has more blocks than the pool and fetching them is expected to pay. */
void worker_map_choose(struct worker_engine *engine, const struct map_question *question,
                       struct map_choice *choice);
void worker_map_used(struct worker_engine *engine); /* counts a choice of this map that became a prefix
                                                     * fetch */
void worker_map_report(struct worker_engine *engine, struct load_report *out);

/* ---- publish.c ---- */
void worker_publish_block(void *arg, const struct block_hash *hash, bool is_here); /* the pool's on_block */
void worker_publish_disk_block(void *arg, const struct block_hash *hash, bool is_here); /* the tier's */
/* Reports the changes in pool and disk since the last call.  Call it before sending the answers of the same
 * step, so that a router that has an answer knows where its KV is. */
void worker_publish_flush(struct worker_engine *engine);
/* Reports all blocks to one reader (a router,
 * or READER_PEER + a peer), but at most max_on_disk blocks on disk. */
void worker_publish_all(struct worker_engine *engine, uint32_t reader, uint32_t max_on_disk);

#endif
