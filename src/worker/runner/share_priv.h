/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix blocks shared between workers, on the engine thread: asking for them (ask.c), lending them (lend.c),
 * telling routers and peers which there are (publish.c), and knowing which peers have (peer_map.c).
 *
 *   asker                                          holder
 *   task --> ASK -------------------------------->  longest run of these hashes in its pool: a loan
 *            takes blocks  <--------------- OFFER
 *            GRANT, ticket open ----------------->  pushes all layers, a window at a time
 *            every piece verified: sealed    ===>
 *   task <-- DONE ------------------------------->  loan over
 *
 * Both ends are those of a hand-off (transfer/kvxfer/send.h, transfer/kvxfer/recv.h), with their promises. */
#ifndef WORKER_RUNNER_SHARE_PRIV_H
#define WORKER_RUNNER_SHARE_PRIV_H

#include "worker/runner/engine_thread_priv.h"

/* ---- ask.c ---- */
int worker_asks_open(struct worker_engine *engine); /* E_NOMEM */
void worker_asks_close(struct worker_engine *engine);
/* Before a task is begun.  True: it waits for a peer's blocks, and worker_tasks_go_on() is called in any case
 * when they are there or will not come.  False: there is nothing to wait for. */
bool worker_asks_begin(struct worker_engine *engine, struct task *task);
void worker_asks_leave(struct worker_engine *engine, struct task *task); /* it waits no longer: it is over */
/* True: it was for an ask. */
bool worker_asks_message(struct worker_engine *engine, uint32_t peer, const struct kvxfer_message *message);
bool worker_asks_transport(struct worker_engine *engine, const struct tr_event *event);
void worker_asks_peer(struct worker_engine *engine, uint32_t peer, bool is_up);
void worker_asks_tick(struct worker_engine *engine, uint64_t now_ns);
uint32_t worker_asks_count(const struct worker_engine *engine);

/* ---- lend.c ---- */
int worker_loans_open(struct worker_engine *engine); /* E_NOMEM */
void worker_loans_close(struct worker_engine *engine);
bool worker_loans_message(struct worker_engine *engine, uint32_t peer, const struct kvxfer_message *message);
bool worker_loans_transport(struct worker_engine *engine, const struct tr_event *event);
void worker_loans_peer(struct worker_engine *engine, uint32_t peer, bool is_up);
void worker_loans_tick(struct worker_engine *engine, uint64_t now_ns);
uint32_t worker_loans_count(const struct worker_engine *engine);

/* A read from disk that a loan waits for has ended, or takes too long. */
void worker_loans_read(struct worker_engine *engine, uint64_t read);

/* ---- peer_map.c ---- */

struct map_question {                /* of a task's prompt */
    const struct block_hash *hashes; /* [n_hashes] its blocks from the first */
    uint32_t n_hashes, n_here;       /* the latter are in the pool */
    uint32_t n_tokens;
};
struct map_choice {    /* whom to ask */
    uint32_t peer;     /* PEER_NONE: nobody */
    uint32_t tokens;   /* at the prompt's beginning that it has */
    bool is_own;       /* by this worker's own knowledge, not a router's */
    bool has_to_read;  /* a part of them from its disk */
    uint64_t limit_ns; /* what has not come by then is computed */
};

int worker_map_open(struct worker_engine *engine); /* 0 also when it is switched off; E_INVAL, E_NOMEM */
void worker_map_close(struct worker_engine *engine);
void worker_map_told(struct worker_engine *engine, struct peer_blocks *blocks); /* takes */
void worker_map_load(struct worker_engine *engine, uint32_t peer, const struct peer_load *load);
/* Takes in some of what was told, some slices of PICKER_SLICE blocks.  True: there is more. */
bool worker_map_turn(struct worker_engine *engine);
bool worker_map_is_empty(const struct worker_engine *engine); /* nothing is known, or it is switched off */
/* Leaves the choice alone unless a peer has more than is there and asking it is expected to pay. */
void worker_map_choose(struct worker_engine *engine, const struct map_question *question,
                       struct map_choice *choice);
void worker_map_asked(struct worker_engine *engine); /* its own choice was obeyed */
void worker_map_report(struct worker_engine *engine, struct load_report *out);

/* ---- publish.c ---- */
void worker_publish_block(void *arg, const struct block_hash *hash, bool is_here); /* the pool's on_block */
void worker_publish_disk_block(void *arg, const struct block_hash *hash, bool is_here); /* the tier's */
/* What the pool and the disk did since the last call, as a report.  Before the answers of the same step, so
 * that who has heard an answer knows where its KV is. */
void worker_publish_flush(struct worker_engine *engine);
/* Everything, for one reader (a router, or READER_PEER + a peer): of what is on disk at most so many. */
void worker_publish_all(struct worker_engine *engine, uint32_t reader, uint32_t max_on_disk);

#endif
