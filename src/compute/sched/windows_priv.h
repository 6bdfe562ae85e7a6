/* SPDX-License-Identifier: Apache-2.0 */
/* The windowed blocks of a sequence, for models whose windowed layers have blocks of their own: windows.c. */
#ifndef COMPUTE_SCHED_WINDOWS_PRIV_H
#define COMPUTE_SCHED_WINDOWS_PRIV_H

#include <stdbool.h>

#include "cache/kv/window.h"

struct sched;
struct seq;
struct engine_item;

struct seq_windows {   /* of n_groups groups; all zero without them */
    kv_block_id *ids;  /* [n_groups][stride]; KV_BLOCK_NONE: not held */
    uint32_t stride;   /* blocks for cap_tokens */
    uint32_t from, to; /* the sequence holds blocks [from, to); while ARRIVING there may be a gap */
    uint32_t fork;     /* leading blocks that were cached when the sequence began */
};

struct sched_windows {
    uint32_t n_groups;         /* windowed blocks beside each block; 0: the model has none */
    struct block_hash *hashes; /* [n_groups] scratch */
    kv_block_id *ids;          /* [n_groups] scratch */
};

int windows_init(const struct sched *sched, struct seq *seq); /* E_NOMEM */
void windows_fini(struct seq *seq);
/* Returns how many leading blocks, at most n, the cache has with their windowed blocks. */
uint32_t windows_peek(const struct sched *sched, const struct seq *seq, uint32_t n);
/* Returns the number of windowed blocks that windows_take() takes after n_matched blocks. */
uint32_t windows_wanted(const struct sched *sched, const struct seq *seq, uint32_t n_matched);
/* Takes the cached windowed blocks that end n_matched blocks.  E_KV_FULL: one is gone; nothing was taken. */
int windows_match(struct sched *sched, struct seq *seq, uint32_t n_matched);
/* Takes windowed blocks to begin with: all that a transfer fills, or one window and two blocks.  E_KV_FULL. */
int windows_take(struct sched *sched, struct seq *seq, uint32_t n_matched);
void windows_give_back(struct sched *sched, struct seq *seq);
/* Takes the windowed blocks of one more block.  E_KV_FULL. */
int windows_grow(struct sched *sched, struct seq *seq);
/* Returns the windowed blocks of the last block.  Not behind the computed tokens. */
void windows_shrink(struct sched *sched, struct seq *seq);
/* Tokens from n_computed on that have windowed blocks; UINT32_MAX: the model needs none. */
uint32_t windows_room(const struct sched *sched, const struct seq *seq);
/* Takes windowed blocks for the prompt tokens of the coming step, where the pool has plenty. */
void windows_ahead(struct sched *sched);
void windows_plan(const struct seq *seq, struct engine_item *item);
/* Makes the windowed blocks beside this sealed block findable. */
void windows_seal(struct sched *sched, struct seq *seq, uint32_t block);
/* Releases the blocks before kv_window_kept(). */
void windows_slide(struct sched *sched, struct seq *seq);
/* Call it when a transfer has ended. is_whole: it has written the windowed blocks. */
void windows_arrived(struct sched *sched, struct seq *seq, bool is_whole);
/* Removes the sequence's windowed blocks from the prefix cache, because they may be damaged. */
void windows_forget(struct sched *sched, struct seq *seq);

/* ---- seq.c, plan.c: for windowed blocks ---- */

/* Takes the blocks for block_tokens more tokens, windowed ones included.  E_KV_FULL. */
int seq_grow(struct sched *sched, struct seq *seq);
/* Returns the last blocks.  They hold no token of the sequence. */
void seq_shrink(struct sched *sched, struct seq *seq);
/* Prompt tokens that the sequence would get from this budget if it had all windowed blocks. */
uint32_t plan_chunk(const struct sched *sched, const struct seq *seq, uint32_t budget);

#endif
