/* SPDX-License-Identifier: Apache-2.0 */
/* State -> batch.  Pure: reads sequences, writes the plan, changes nothing.
 *
 *     | decode: one token each, all of them | prompt chunks, oldest first, up to the budget |
 *
 * Whoever decodes goes first, since a person is reading along.  While anything decodes, prompts get at most
 * chunk_tokens per step, which bounds what they add to the time between two tokens; alone they get all the
 * engine takes.  max_seqs is never more than max_batch_tokens, so the decoders always leave a prompt at least
 * one token.
 *
 * A chunk that does not end its prompt ends on a block boundary if it reaches one: a departing sequence can
 * ship whole blocks only, and what is sealed early is found early.
 *
 * Hot path: no allocation, no log, no system call.
 */
#include "sched/sched_priv.h"

static uint32_t prefill_budget(const struct sched *sched, uint32_t n_decode)
{
    uint32_t room = sched->opts.engine->info.max_batch_tokens - n_decode;

    return n_decode > 0 && sched->opts.chunk_tokens < room ? sched->opts.chunk_tokens : room;
}

static uint32_t count_decode(const struct sched *sched)
{
    uint32_t n = 0;

    list_for_each (at, &sched->running)
        n += seq_of(at)->state == SEQ_DECODE;
    return n;
}

uint32_t plan_chunk(const struct sched *sched, const struct seq *seq, uint32_t budget)
{
    uint32_t left = seq->spec.n_tokens - seq->n_computed;

    if (left <= budget)
        return left;

    uint32_t past_boundary = (seq->n_computed + budget) % sched->block_tokens;
    return past_boundary < budget ? budget - past_boundary : budget;
}

uint32_t plan_budget_left(const struct sched *sched)
{
    uint32_t budget = prefill_budget(sched, count_decode(sched));

    list_for_each (at, &sched->running) {
        if (seq_of(at)->state == SEQ_PREFILL)
            budget -= plan_chunk(sched, seq_of(at), budget);
    }
    return budget;
}

static void add(struct plan *plan, struct seq *seq, uint32_t n_tokens)
{
    plan->items[plan->n_items++] = (struct plan_item){.seq = seq, .n_tokens = n_tokens};
}

void plan_make(const struct sched *sched, struct plan *plan)
{
    plan->n_items = plan->n_prefill_tokens = 0;
    list_for_each (at, &sched->running) {
        if (seq_of(at)->state == SEQ_DECODE)
            add(plan, seq_of(at), 1);
    }
    plan->n_decode = plan->n_items;

    uint32_t budget = prefill_budget(sched, plan->n_decode);
    list_for_each (at, &sched->running) {
        if (seq_of(at)->state != SEQ_PREFILL || budget == 0)
            continue;
        uint32_t n_tokens = plan_chunk(sched, seq_of(at), budget);

        add(plan, seq_of(at), n_tokens);
        plan->n_prefill_tokens += n_tokens;
        budget -= n_tokens;
    }
}
