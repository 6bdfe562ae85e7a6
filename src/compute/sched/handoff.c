/* SPDX-License-Identifier: Apache-2.0 */
/* Arrival and departure: a sequence moves between two workers.
 *
 * Arrival. A grant covers all blocks or none.  So no grant waits for more blocks while a peer keeps KV in
 * memory for it. Blocks that the cache has need not be sent. The peer reports how many tokens' KV it
 * delivered and which token came first. Both are checked against the grant, the vocabulary and the grammar.
 * Hashes are computed from this worker's own tokens and never taken from a peer.
 *
 *     all tokens, first token      DECODE
 *     all tokens, no first token   feed the last one again, into an unsealed block, to get its logits
 *     fewer                        seal the KV that arrived, compute the rest here: same bits
 *
 * Departure. A HELD sequence keeps its place and its blocks until the worker reports that the peer has their
 * KV, or that it never will. */
#include "base/err.h"
#include "compute/sched/sched_priv.h"

int handoff_admit(struct sched *sched, struct seq *seq)
{
    bool others_wait = sched->is_short && sched->n_waiting > 0;

    if (sched->n_running >= sched->opts.max_seqs || others_wait)
        return E_OVERLOADED;
    if (seq_take_blocks(sched, seq, queue_n_active(sched)) < 0)
        return E_KV_FULL;
    queue_run(sched, seq, SEQ_ARRIVING);
    return 0;
}

int sched_arrived(struct sched *sched, struct seq *seq, uint32_t n_tokens, const struct sample_result *first,
                  bool reports_first)
{
    if (seq->state != SEQ_ARRIVING)
        return E_INVAL;
    seq->spec.arrives = false; /* after a preemption it gets its blocks like any other */

    bool has_first = first && first->id < sched->opts.engine->info.vocab_size && seq_may_draw(seq, first->id);
    bool is_whole = n_tokens >= seq->n_submitted_tokens && (has_first || seq->n_left == 0);
    uint32_t n_most = is_whole ? seq->n_submitted_tokens : seq->n_submitted_tokens - 1;

    if (n_tokens > n_most)
        n_tokens = n_most;
    if ((sched->n_state_blocks > 0 || sched->windows.n_groups > 0) && !is_whole)
        n_tokens = seq->n_computed; /* keys and values are useless without the state or the window */
    else if (sched->n_state_blocks > 0)
        recurrent_arrived(sched, seq);
    windows_arrived(sched, seq, is_whole);
    if (n_tokens > seq->n_computed) {
        seq->stats.n_transferred = n_tokens - seq->n_computed;
        seq->n_computed = seq->n_reached = n_tokens;
    }
    seq->stats.transfer_ns = sched_now_ns(sched) - seq->submitted_ns;
    seq_seal(sched, seq);

    if (!is_whole) {
        seq->state = SEQ_PREFILL;
        queue_want(sched, seq);
    } else if (seq->n_left == 0) {
        seq_end(sched, seq, SEQ_FINISH_LENGTH);
    } else {
        seq->is_busy = true;
        apply_token(sched, seq, first, reports_first);
    }
    return 0;
}

void seq_unhold(struct sched *sched, struct seq *seq)
{
    seq->held_ns = sched_now_ns(sched) - seq->held_since_ns;
    seq->stats.transfer_ns += seq->held_ns;
}

int sched_release(struct sched *sched, struct seq *seq)
{
    if (seq->state != SEQ_HELD)
        return E_INVAL;
    seq_end(sched, seq, SEQ_FINISH_DEPARTED);
    return 0;
}

int sched_keep(struct sched *sched, struct seq *seq)
{
    if (seq->state != SEQ_HELD)
        return E_INVAL;
    if (seq->n_left == 0) {
        seq_end(sched, seq, SEQ_FINISH_LENGTH);
        return 0;
    }
    seq_unhold(sched, seq);
    seq->spec.departs = seq->draft.kv.departs = false;
    seq->state = SEQ_DECODE;
    return 0;
}
