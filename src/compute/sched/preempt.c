/* SPDX-License-Identifier: Apache-2.0 */
/* Makes room for the sequences that decode, and for prompts without windowed blocks (windows.c).
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
            seq_shrink(sched, seq);
            has_any = true;
        }
    }
    return has_any;
}

/* Leaves the snapshots of running answers to the cache.  True: there were some. */
static bool give_snapshots_back(struct sched *sched)
{
    bool has_any = false;

    list_for_each (at, &sched->running)
        has_any |= recurrent_release_latest(sched, seq_of(at));
    return has_any;
}

/* Takes a block that the sequence needs in the coming step.  E_NOT_FOUND: it needs none. */
static int preempt_take(struct sched *sched, struct seq *seq)
{
    if (sched_blocks_for(sched, seq->spec.n_tokens) > seq->n_blocks)
        return seq_grow(sched, seq);
    return windows_room(sched, seq) == 0 ? windows_grow(sched, seq) : E_NOT_FOUND;
}

/* Gives a sequence the blocks for its next tokens.  False: the sequence was preempted. */
static bool preempt_grow(struct sched *sched, struct seq *seq)
{
    const kv_tenant *tenant = &seq->spec.tenant;

    while (sched_blocks_for(sched, seq->spec.n_tokens) > seq->n_blocks || windows_room(sched, seq) == 0) {
        uint32_t n_beside = sched->windows.n_groups;
        bool is_modest = queue_room(sched, seq) > n_beside || kv_available(sched->opts.pool) <= n_beside;

        if (is_modest && preempt_take(sched, seq) == 0)
            continue;
        if (give_spare_back(sched) || give_snapshots_back(sched))
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

        if (seq_is_active(seq) && !preempt_grow(sched, seq))
            at = &sched->running; /* seq left the list: restart; the sequences before it have room */
    }
}
