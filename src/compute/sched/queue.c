/* SPDX-License-Identifier: Apache-2.0 */
/* Turns and admission.
 *
 *     sched.fair      WAITING and PREFILL: sequences with a prompt to compute, by tenant, then by age
 *     sched.running   all admitted sequences, by age
 *
 * base/fair.h chooses the tenant: the one that was served fewest tokens for its weight, prompts and answers
 * together. Within a tenant the oldest sequence comes first, also if it was preempted. A tenant that arrives
 * or returns starts with neither debt nor credit, so another tenant's flood costs it one turn at most.
 *
 * A sequence is admitted when all of these hold:
 *
 *   - The next step has prompt tokens left for it after the sequences before it in the line. Earlier
 *     admission would only tie up blocks and miss blocks that those sequences are about to cache.
 *   - Fewer than max_seqs sequences are admitted.
 *   - No sequence with the same prefix is computing its next uncached block (another answer to the same
 *     prompt). That block will be cached in a moment.
 *   - The pool has its uncached blocks and one more for each active sequence. Every active sequence soon
 *     needs a block; without the margin the new sequence would be preempted at once.
 *
 * When the head of the line finds no place or no blocks, no sequence behind it is tried. is_short then keeps
 * arriving sequences from overtaking it, so large prompts make progress.  In two cases the tenant waits and other
 * tenants pass: another sequence is computing the block now, or the blocks would come out of other tenants' quotas
 * while a sequence of this tenant runs.
 *
 * A full queue accepts one more sequence of a tenant that has fewer waiting than another. The next step ends
 * the newest sequence of the tenant with most. Only a sequence that never began is ended this way. */
#include <string.h>

#include "base/err.h"
#include "cache/kv/pool_cache.h"
#include "cache/kv/pool_quota.h"
#include "compute/sched/sched_priv.h"

static void insert_by_age(struct list *list, struct seq *seq)
{
    struct list *at = list->prev;

    while (at != list && seq_of(at)->order > seq->order)
        at = at->prev;
    list_remove(&seq->in_running);
    list_insert_before(at->next, &seq->in_running);
}

void queue_want(struct sched *sched, struct seq *seq)
{
    if (!fair_item_waits(&seq->turn))
        fair_wait(sched->fair, seq->flow, &seq->turn, seq->order, seq->spec.work.weight);
}

void queue_got(struct sched *sched, struct seq *seq)
{
    fair_leave(sched->fair, &seq->turn);
}

bool queue_takes(const struct sched *sched, const struct seq_spec *spec)
{
    uint32_t max_queue = sched->opts.max_queue;

    return sched->n_waiting < max_queue || (sched->n_waiting < 2 * max_queue &&
                                            fair_is_lighter(sched->fair, spec->tenant, spec->work.weight));
}

void queue_wait(struct sched *sched, struct seq *seq)
{
    list_remove(&seq->in_running);
    seq->state = SEQ_WAITING;
    sched->n_crowd += sched->n_waiting++ >= sched->opts.max_queue && seq->stats.n_preempted == 0;
    queue_want(sched, seq);
}

void queue_run(struct sched *sched, struct seq *seq, enum seq_state state)
{
    insert_by_age(&sched->running, seq);
    seq->state = state;
    sched->n_running++;
    if (seq->stats.n_preempted == 0)
        seq->admitted_ns = sched_now_ns(sched);
}

uint32_t queue_n_active(const struct sched *sched)
{
    uint32_t n = 0;

    list_for_each (at, &sched->running)
        n += seq_is_active(seq_of(at));
    return n;
}

/* True if a sequence in PREFILL is about to seal the first block that seq would have to compute.  That
 * sequence makes progress or is preempted, so seq never waits for ever. */
static bool is_under_way(const struct sched *sched, const struct seq *seq)
{
    uint32_t n_most = seq_n_matchable(sched, seq);
    uint32_t n_cached = kv_peek(sched->opts.pool, seq->hashes, n_most);
    uint64_t end = ((uint64_t)n_cached + 1) * sched->block_tokens;

    if (n_cached == n_most)
        return false;
    list_for_each (at, &sched->running) {
        const struct seq *other = seq_of(at);

        if (other->state == SEQ_PREFILL && n_cached < other->n_hashes && other->n_computed < end &&
            end <= other->spec.n_tokens &&
            memcmp(&other->hashes[n_cached], &seq->hashes[n_cached], sizeof(seq->hashes[0])) == 0)
            return true;
    }
    return false;
}

uint32_t queue_room(const struct sched *sched, const struct seq *seq)
{
    list_for_each (at, &sched->running) {
        if (seq_of(at) != seq && seq_of(at)->spec.tenant == seq->spec.tenant)
            return kv_available_to(sched->opts.pool, seq->spec.tenant);
    }
    return kv_available(sched->opts.pool);
}

static void sched_queue_admit(struct sched *sched, struct seq *seq)
{
    bool is_first = seq->stats.n_preempted == 0;

    sched->n_waiting--;
    queue_run(sched, seq, SEQ_PREFILL);
    if (is_first) {
        seq->stats.queue_ns = seq->admitted_ns - seq->submitted_ns;
        EVENT(sched, on_admitted, seq); /* may end it */
    }
}

/* Admits the first sequence in the line that can be admitted. False: none. */
static bool admit_one(struct sched *sched, uint32_t budget)
{
    struct fair_item *at = fair_first(sched->fair);

    while (at != NULL) {
        struct seq *seq = seq_of_turn(at);
        int code;

        if (seq->state == SEQ_PREFILL) {
            at = fair_next(sched->fair, at);
            continue;
        }
        if (plan_budget_left(sched, seq, budget) == 0)
            break;
        code = is_under_way(sched, seq) ? E_OVERLOADED
               : sched->n_running >= sched->opts.max_seqs
                   ? E_KV_FULL
                   : seq_take_blocks(sched, seq, queue_n_active(sched));
        if (code == E_OVERLOADED) {
            at = fair_skip(sched->fair, at);
            continue;
        }
        fair_rewind(sched->fair);
        sched->is_short = code < 0;
        if (code == 0)
            sched_queue_admit(sched, seq);
        return code == 0;
    }
    fair_rewind(sched->fair);
    return false;
}

void queue_admit(struct sched *sched)
{
    sched->is_short = false;
    while (sched->n_waiting > 0 && admit_one(sched, plan_budget(sched)))
        ;
}

void queue_push_out(struct sched *sched)
{
    for (; sched->n_crowd > 0 && sched->n_waiting > sched->opts.max_queue; sched->n_crowd--) {
        struct seq *seq = seq_of_turn(fair_heaviest(sched->fair));

        if (seq->state != SEQ_WAITING || seq->stats.n_preempted > 0)
            break;
        seq_end(sched, seq, SEQ_FINISH_CROWDED);
    }
    sched->n_crowd = 0;
}

void queue_charge(struct sched *sched, const struct plan_item *item, uint32_t n_accepted)
{
    fair_charge(sched->fair, item->seq->flow, item->n_tokens - item->n_drafts + n_accepted,
                item->seq->spec.work.weight);
}
