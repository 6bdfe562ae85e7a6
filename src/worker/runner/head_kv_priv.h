/* SPDX-License-Identifier: Apache-2.0 */
/* The KV of an MTP head in blocks of the pool, for both ends of a hand-off: head_kv.c. Engine thread only. */
#ifndef WORKER_RUNNER_HEAD_KV_PRIV_H
#define WORKER_RUNNER_HEAD_KV_PRIV_H

#include "compute/sched/head.h"
#include "worker/runner/engine_thread_priv.h"

struct head_kv {         /* zeroed: none */
    uint32_t first;      /* sending end: token of the prompt at the head's position 0 */
    uint32_t n_tokens;   /* positions of the head */
    kv_block_id *blocks; /* [n_blocks] FILLING, one reference each; NULL: none */
    uint32_t n_blocks;
    uint32_t n_packed; /* blocks of the head's own arena that are copied */
    bool is_lost, is_packed;
};

/* The fingerprint of the layout of this worker's head; 0: it has none. */
uint64_t worker_head_layout(const struct worker_engine *engine);
/* Takes blocks for n_tokens positions, but none that sequences will need. E_KV_FULL, E_NOMEM. */
int worker_head_open(struct worker_engine *engine, kv_tenant tenant, uint32_t n_tokens, struct head_kv *head);
/* Returns the blocks to the pool; those that are leased stay until their lease ends. */
void worker_head_close(struct worker_engine *engine, struct head_kv *head);
/* Copies the KV that the sequence's head has by now; with is_last, what is behind it too. Returns how many leading
 * blocks are complete. */
uint32_t worker_head_pack(struct worker_engine *engine, struct seq *seq, struct head_kv *head, bool is_last);
/* Gives the received KV to the head of an ARRIVING sequence. False: the sender's head did not read the prompt, or this
 * one has no room. */
bool worker_head_unpack(struct worker_engine *engine, struct seq *seq, const struct head_kv *head);

#endif
