/* SPDX-License-Identifier: Apache-2.0 */
/* Makes room for the sequences that decode.
 *
 * A decoding sequence takes a new block when its last one is full. When the pool has none, the youngest
 * active sequence returns all of its blocks and waits again. The youngest has the least work to repeat, and
 * the oldest always continues, so the batch as a whole makes progress. If the youngest itself needs the
 * block, it preempts itself.
 *
 * If the block would have to come out of other tenants' quotas, the tenant's own youngest sequence is
 * preempted instead, as long as the tenant has another one running.
 *
 * Preemption costs only time. The sampled tokens stay with the sequence. They are prefilled later like given
 * tokens, with the same bits. No token is sampled or reported twice. The sealed blocks go to the cache, and
 * the sequence finds them there if they were not evicted.
 *
 * HELD and ARRIVING sequences are never preempted: a transfer uses their blocks. */
#include "base/err.h"
#include "cache/kv/pool_quota.h"
#include "compute/sched/sched_priv.h"

/* tenant NULL: of all tenants. */
static struct seq *youngest_active(const struct sched *sched, const kv_tenant *tenant)
{
    for (struct list *at = sched->running.prev; at != &sched->running; at = at->prev) {
        struct seq *seq = seq_of(at);

        if (seq_is_active(seq) && (tenant == NULL || *tenant == seq->spec.tenant))
            return seq;
    }
    return NULL;
}

static void sched_preempt(struct sched *sched, struct seq *seq)
{
    seq_give_back(sched, seq);
    draft_kv_give_back(sched, seq);
    sched->n_running--;
    seq->stats.n_preempted++;
    queue_wait(sched, seq);
    sched->n_preemptions++;
}

/* Returns blocks that were taken for draft tokens and are not needed yet.  True: there were some. */
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

/* Gives a sequence the blocks for its next tokens.  False: the sequence was preempted. */
static bool preempt_grow(struct sched *sched, struct seq *seq)
{
    const kv_tenant *tenant = &seq->spec.tenant;

    while (sched_blocks_for(sched, seq->spec.n_tokens) > seq->n_blocks) {
        bool is_modest = queue_room(sched, seq) > 0 || kv_available(sched->opts.pool) == 0;

        if (is_modest && kv_take_for(sched->opts.pool, *tenant, 1, &seq->blocks[seq->n_blocks]) == 0) {
            seq->n_blocks++;
            continue;
        }
        if (give_spare_back(sched))
            continue;

        struct seq *victim = youngest_active(sched, is_modest ? NULL : tenant);

        sched_preempt(sched, victim);
        if (victim == seq)
            return false;
    }
    return true;
}

void preempt_make_room(struct sched *sched)
{
    for (struct list *at = sched->running.next; at != &sched->running; at = at->next) {
        struct seq *seq = seq_of(at);

        if (seq->state == SEQ_DECODE && !preempt_grow(sched, seq))
            at = &sched->running; /* seq left the list: restart; the sequences before it have room */
    }
}
