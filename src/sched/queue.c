/* SPDX-License-Identifier: Apache-2.0 */
/* The two lists and the way from one to the other.
 *
 * Both are in order of submission, so "the oldest" is the front and "the youngest" the back.  A sequence that
 * was preempted goes back to where its age puts it, which is before everything younger that still waits.
 *
 * Admission is first come, first served: when the head does not fit, nothing behind it is tried, but for one
 * reason.  A sequence that would cost other tenants the cache within their shares, while its own tenant has
 * something running, waits with all of its tenant behind it, and others pass.  A sequence is admitted when
 *
 *   - the next step has prompt tokens left for it after those already admitted.  Earlier would only
 *     tie up blocks, and would miss what the sequences before it are about to put into the cache;
 *   - there is a place among max_seqs;
 *   - the next block of its prompt that the cache does not have is not just being computed by a
 *     sequence with the same prefix (another answer to the same prompt): it will be there in a moment;
 *   - its uncached blocks are available and one more per active sequence besides.  Every active
 *     sequence needs its next block soon; without the margin the newcomer would be preempted at once.
 *
 * A head that found no room sets is_short, which keeps arriving sequences from overtaking it for ever.
 */
#include <string.h>

#include "base/err.h"
#include "sched/sched_priv.h"

void queue_insert(struct list *list, struct seq *seq)
{
    struct list *at = list->prev;

    while (at != list && seq_of(at)->order > seq->order)
        at = at->prev;
    list_remove(&seq->in_state);
    list_insert_before(at->next, &seq->in_state);
}

void queue_wait(struct sched *sched, struct seq *seq)
{
    queue_insert(&sched->queue, seq);
    seq->state = SEQ_WAITING;
    sched->n_waiting++;
}

void queue_run(struct sched *sched, struct seq *seq, enum seq_state state)
{
    queue_insert(&sched->running, seq);
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

/* Whether a sequence that is being prefilled is about to seal the first block that seq would have to compute.
 * Whoever is being prefilled gets on, or is preempted: nobody waits for ever. */
static bool is_under_way(const struct sched *sched, const struct seq *seq)
{
    uint32_t n_most = seq_n_shareable(sched, seq);
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

/* Tenants that have to wait for themselves; those beyond are found out one by one. */
struct held_back {
    kv_tenant tenants[8];
    unsigned n;
};

static bool is_held_back(const struct held_back *held, const struct seq *seq)
{
    for (unsigned i = 0; i < held->n; i++) {
        if (held->tenants[i] == seq->spec.tenant)
            return true;
    }
    return false;
}

/* The first in the queue that no other of its tenant waits before; NULL: none. */
static struct seq *next_in_queue(const struct sched *sched, const struct held_back *held)
{
    list_for_each (at, &sched->queue) {
        if (!is_held_back(held, seq_of(at)))
            return seq_of(at);
    }
    return NULL;
}

static void admit(struct sched *sched, struct seq *seq)
{
    bool is_first = seq->stats.n_preempted == 0;

    sched->n_waiting--;
    queue_run(sched, seq, SEQ_PREFILL);
    if (is_first) {
        seq->stats.queue_ns = seq->admitted_ns - seq->submitted_ns;
        EVENT(sched, on_admitted, seq); /* may end it */
    }
}

void queue_admit(struct sched *sched)
{
    struct held_back held = {.n = 0};
    struct seq *seq;

    sched->is_short = false;
    while (plan_budget_left(sched) > 0 && (seq = next_in_queue(sched, &held)) != NULL) {
        int code;

        if (is_under_way(sched, seq))
            return;
        code = sched->n_running < sched->opts.max_seqs ? seq_settle(sched, seq, queue_n_active(sched))
                                                       : E_KV_FULL;
        if (code == E_OVERLOADED && held.n < 8) {
            held.tenants[held.n++] = seq->spec.tenant;
            continue;
        }
        if (code < 0) {
            sched->is_short = true;
            return;
        }
        admit(sched, seq);
    }
}
