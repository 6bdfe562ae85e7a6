/* SPDX-License-Identifier: Apache-2.0 */
/* The KV of an MTP head at a hand-off: draft_handoff.c. Engine thread only. */
#ifndef COMPUTE_SCHED_HEAD_H
#define COMPUTE_SCHED_HEAD_H

#include "compute/sched/sched.h"

struct sched_head {
    uint32_t first;    /* token of the text at the head's position 0: the second, if no KV was cached */
    uint32_t n_tokens; /* positions with KV */
    const kv_block_id *blocks; /* in the draft engine's arena, [blocks for n_tokens] */
    float *row; /* [info.hidden] the model's, from which the next token is sampled; NULL: not computed yet */
};
/* Seconds that the peer may spend so that the head knows the prompt of this arriving sequence; HUGE_VAL with
 * SPECULATE_ALWAYS. 0: that saves nothing here. */
double sched_head_worth_s(const struct sched *sched, const struct seq *seq);
/* For a departing sequence, before its first step: lets the head read the prompt, if that takes at most worth_s.
 * Returns the first token that it will read; 0: it will not. It may still stop, then sched_head() is false or has
 * another first. */
uint32_t sched_head_depart(struct sched *sched, struct seq *seq, double worth_s);
/* What the head has read of the sequence. Valid until the next step. */
bool sched_head(const struct sched *sched, const struct seq *seq, struct sched_head *out);
/* The KV is copied, or not wanted any more: its blocks are given back. */
void sched_head_departed(struct sched *sched, struct seq *seq);
/* For an ARRIVING sequence: takes blocks for the head's KV of given tokens [first, all), and a place for the row. The
 * caller fills them at once, then calls sched_arrived(). E_INVAL: no such tokens. E_UNSUPPORTED: the sequence has no
 * head here. E_KV_FULL. */
int sched_head_arrive(struct sched *sched, struct seq *seq, uint32_t first, struct sched_head *out);

#endif
