/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix blocks shared between workers, on the engine thread: asking for them (ask.c), lending them (lend.c)
 * and telling routers which there are (publish.c).
 *
 *   asker                                          holder
 *   task --> ASK -------------------------------->  longest run of these hashes in its pool: a loan
 *            takes blocks  <--------------- OFFER
 *            GRANT, ticket open ----------------->  pushes all layers, a window at a time
 *            every piece verified: sealed    ===>
 *   task <-- DONE ------------------------------->  loan over
 *
 * Both ends are those of a hand-off (kvxfer/send.h, kvxfer/recv.h), with their promises. */
#ifndef WORKER_SHARE_PRIV_H
#define WORKER_SHARE_PRIV_H

#include "worker/engine_thread_priv.h"

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

/* ---- publish.c ---- */
void worker_publish_block(void *arg, const struct block_hash *hash, bool is_here); /* the pool's on_block */
void worker_publish_disk_block(void *arg, const struct block_hash *hash, bool is_here); /* the tier's */
/* What the pool and the disk did since the last call, as a report.  Before the answers of the same step, so
 * that who has heard an answer knows where its KV is. */
void worker_publish_flush(struct worker_engine *engine);
/* Everything, for one router: of what is on disk at most so many. */
void worker_publish_all(struct worker_engine *engine, uint32_t router, uint32_t max_on_disk);

#endif
