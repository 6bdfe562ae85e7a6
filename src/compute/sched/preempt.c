/* SPDX-License-Identifier: Apache-2.0 */
/* Room for the sequences that decode.
 *
 * A decoding sequence takes its next block when its last one is full.  When the pool has none, the youngest
 * active sequence gives all of its blocks back and waits again: the youngest has the least to lose, and the
 * oldest always gets on, so the whole always does.  If the youngest is the one in need, it preempts itself.
 *
 * A tenant that would have to take the block out of others' shares gives up its own youngest instead, as long
 * as it has another one running.
 *
 * Nothing is lost but time.  The tokens drawn so far stay with the sequence and are prefilled as if they had
 * been given, with the same bits; nothing is drawn or reported twice.  The blocks that were sealed go to the
 * cache, where the sequence finds them again if nobody needed the room after all.
 *
 * HELD and ARRIVING sequences are left alone: their blocks are somebody else's business too.
 */
#include "base/err.h"
#include "compute/sched/sched_priv.h"

/* NULL for a tenant: of all. */
static struct seq *youngest_active(const struct sched *sched, const kv_tenant *tenant)
{
    for (struct list *at = sched->running.prev; at != &sched->running; at = at->prev) {
        struct seq *seq = seq_of(at);

        if (seq_is_active(seq) && (tenant == NULL || *tenant == seq->spec.tenant))
            return seq;
    }
    return NULL;
}

static void preempt(struct sched *sched, struct seq *seq)
{
    seq_give_back(sched, seq);
    sched->n_running--;
    seq->stats.n_preempted++;
    queue_wait(sched, seq);
    sched->n_preemptions++;
}

/* Blocks that were taken for guesses and are not needed yet.  Returns whether there were any. */
static bool give_spare_back(struct sched *sched)
{
    bool has_any = false;

    list_for_each (at, &sched->running) {
        struct seq *seq = seq_of(at);

        while (seq->state == SEQ_DECODE && seq->n_blocks > sched_blocks_for(sched, seq->spec.n_tokens)) {
            kv_unref(sched->opts.pool, seq->blocks[--seq->n_blocks]);
            has_any = true;
        }
    }
    return has_any;
}

/* Returns whether seq still runs. */
static bool grow(struct sched *sched, struct seq *seq)
{
    const kv_tenant *tenant = &seq->spec.tenant;

    while (seq->n_computed / sched->block_tokens >= seq->n_blocks) {
        bool is_modest = queue_room(sched, seq) > 0 || kv_available(sched->opts.pool) == 0;

        if (is_modest && kv_take_for(sched->opts.pool, *tenant, 1, &seq->blocks[seq->n_blocks]) == 0) {
            seq->n_blocks++;
            continue;
        }
        if (give_spare_back(sched))
            continue;

        struct seq *victim = youngest_active(sched, is_modest ? NULL : tenant);

        preempt(sched, victim);
        if (victim == seq)
            return false;
    }
    return true;
}

void preempt_make_room(struct sched *sched)
{
    for (struct list *at = sched->running.next; at != &sched->running; at = at->next) {
        struct seq *seq = seq_of(at);

        if (seq->state == SEQ_DECODE && !grow(sched, seq))
            at = &sched->running; /* it is not here any more: from the start, those before it have room */
    }
}
