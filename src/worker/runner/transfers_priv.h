/* SPDX-License-Identifier: Apache-2.0 */
/* The transfers of a worker, on the engine thread. Four siblings with one shape own them:
 *
 *                  in                                 out
 *    hand-off      kv_receive.c: decode from prefill  kv_send.c: prefill to decode
 *    cached KV     prefix_fetch.c: pull from a peer   prefix_serve.c: give to a peer
 *
 *    peer message    --> by kind and (peer, id) --+
 *    transport event --> by id or ticket ---------+--> struct transfer --> the sibling that owns it
 *                        (the transfer table)
 *
 * The sender chooses a transfer's id, and uses it for the push at its transport too.  The receiver chooses
 * the ticket at random.  One table has both (transfers.c).
 *
 * Each sibling drives one end of transfer/kvxfer (send.h or recv.h). An object goes through:
 *
 *    before the transfer --> MOVING --> STOPPING --> CLOSED --> freed by the next tick
 *    (LINKING, REQUESTED,
 *     READING, WAITING)
 *
 * In STOPPING the result is known, but the transport may still use the blocks.  In CLOSED no block is held.
 * Only the tick frees an object, because kvxfer is still on the stack in its callbacks. */
#ifndef WORKER_RUNNER_TRANSFERS_PRIV_H
#define WORKER_RUNNER_TRANSFERS_PRIV_H

#include "worker/runner/engine_thread_priv.h"

enum transfer_side { TRANSFER_PREFIX_FETCH, TRANSFER_PREFIX_SERVE, TRANSFER_KV_SEND, TRANSFER_KV_RECEIVE };

struct transfer { /* embedded in each sibling's object */
    enum transfer_side side;
    uint32_t peer;
    uint64_t id;     /* chosen by the sender; outgoing and 0: not in the table */
    uint64_t ticket; /* incoming: chosen here; 0: not in the table */
};

/* ---- transfers.c: the table ---- */

int worker_transfers_open(struct worker_engine *engine); /* opens the table and the four siblings; E_NOMEM */
void worker_transfers_close(struct worker_engine *engine);
/* Sets the id. E_NOMEM. */
int worker_transfers_add_outgoing(struct worker_engine *engine, struct transfer *transfer);
/* id: the sender's. Sets the ticket. E_EXISTS, E_NOMEM. */
int worker_transfers_add_incoming(struct worker_engine *engine, struct transfer *transfer, uint64_t id);
/* The transfer may or may not be listed. */
void worker_transfers_remove(struct worker_engine *engine, struct transfer *transfer);
void worker_transfers_message(struct worker_engine *engine, uint32_t peer,
                              const struct kvxfer_message *message);
void worker_transfers_event(struct worker_engine *engine, const struct tr_event *event);
void worker_transfers_peer(struct worker_engine *engine, uint32_t peer, bool is_up);
void worker_transfers_tick(struct worker_engine *engine, uint64_t now_ns);
uint32_t worker_transfers_count(const struct worker_engine *engine); /* transfers of all siblings, which need
                                                                      * ticks */
void worker_transfers_refuse_offer(struct worker_engine *engine, uint32_t peer, uint64_t id, int code);

/* ---- each sibling: what the table calls ---- */

int worker_prefix_fetch_open(struct worker_engine *engine);
void worker_prefix_fetch_close(struct worker_engine *engine);
void worker_prefix_fetch_offer(struct worker_engine *engine, uint32_t peer,
                               const struct kvxfer_message *offer);
void worker_prefix_fetch_refused(struct worker_engine *engine, uint32_t peer, uint64_t number);
void worker_prefix_fetch_message(struct transfer *transfer, const struct kvxfer_message *message);
void worker_prefix_fetch_event(struct transfer *transfer, const struct tr_event *event);
void worker_prefix_fetch_peer(struct worker_engine *engine, uint32_t peer, bool is_up);
void worker_prefix_fetch_tick(struct worker_engine *engine, uint64_t now_ns);
/* Transfers under way.  Tasks that wait for one: engine->n_fetching. */
uint32_t worker_prefix_fetch_count(const struct worker_engine *engine);

int worker_prefix_serve_open(struct worker_engine *engine);
void worker_prefix_serve_close(struct worker_engine *engine);
void worker_prefix_serve_request(struct worker_engine *engine, uint32_t peer,
                                 const struct kvxfer_message *request);
void worker_prefix_serve_message(struct transfer *transfer, const struct kvxfer_message *message);
void worker_prefix_serve_event(struct transfer *transfer, const struct tr_event *event);
void worker_prefix_serve_peer(struct worker_engine *engine, uint32_t peer, bool is_up);
void worker_prefix_serve_tick(struct worker_engine *engine, uint64_t now_ns);
uint32_t worker_prefix_serve_count(const struct worker_engine *engine);

int worker_kv_send_open(struct worker_engine *engine);
void worker_kv_send_close(struct worker_engine *engine);
void worker_kv_send_message(struct transfer *transfer, const struct kvxfer_message *message);
void worker_kv_send_event(struct transfer *transfer, const struct tr_event *event);
void worker_kv_send_peer(struct worker_engine *engine, uint32_t peer, bool is_up);
void worker_kv_send_tick(struct worker_engine *engine, uint64_t now_ns);
uint32_t worker_kv_send_count(const struct worker_engine *engine);

int worker_kv_receive_open(struct worker_engine *engine);
void worker_kv_receive_close(struct worker_engine *engine);
void worker_kv_receive_offer(struct worker_engine *engine, uint32_t peer, const struct kvxfer_message *offer);
void worker_kv_receive_message(struct transfer *transfer, const struct kvxfer_message *message);
void worker_kv_receive_event(struct transfer *transfer, const struct tr_event *event);
void worker_kv_receive_peer(struct worker_engine *engine, uint32_t peer, bool is_up);
void worker_kv_receive_tick(struct worker_engine *engine, uint64_t now_ns);
uint32_t worker_kv_receive_count(const struct worker_engine *engine);

/* ---- each sibling: what tasks and the disk call ---- */

/* Called before a task begins.  True: the task waits for a peer's blocks, and worker_tasks_go_on() will be
 * called when they arrive or will not.  False: there is nothing to wait for. */
bool worker_prefix_fetch_begin(struct worker_engine *engine, struct task *task);
/* The task may or may not wait. */
void worker_prefix_fetch_leave(struct worker_engine *engine, struct task *task);

/* A disk read that a serve waits for ended or timed out. */
void worker_prefix_serve_read(struct worker_engine *engine, uint64_t read);

/* The sequence was admitted, maybe again after a preemption: offers its blocks before they are computed. */
void worker_kv_send_begin(struct worker_engine *engine, struct task *task);
void worker_kv_send_layer(struct worker_engine *engine, uint32_t layer);
void worker_kv_send_prefilled(struct task *task, uint32_t to);
void worker_kv_send_first(struct task *task, const struct sample_result *first, bool is_finished);
/* The task is over, for any reason, and its sequence is ending. */
void worker_kv_send_end(struct task *task);

/* The task's sequence was submitted and waits for an OFFER. */
void worker_kv_receive_begin(struct worker_engine *engine, struct task *task);
/* PROCEED: stop waiting, compute here. */
void worker_kv_receive_proceed(struct worker_engine *engine, struct task *task);
void worker_kv_receive_end(struct task *task); /* as worker_kv_send_end() */

#endif
