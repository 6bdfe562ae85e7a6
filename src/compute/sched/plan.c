/* SPDX-License-Identifier: Apache-2.0 */
/* Plans a batch from the state.  It reads sequences, writes the plan and the line, and changes no sequence.
 *
 *     | decode: one token each, plus draft tokens | prompt chunks in order of the line, up to the budget |
 *
 * Decoding sequences come first, because users read their tokens as they come. While any sequence decodes,
 * the prompt budget (budget.c) is the most tokens with which the step is expected (cost.c) to keep the objective for the
 * time between two tokens. It is at most chunk_tokens. It is at least a fixed share of the machine's time,
 * with any objective, so prompts always make progress. Without decoding sequences, prompts get all that
 * the engine takes within max_step_ns, because the worker's timers and transfers run between steps. max_seqs
 * never exceeds max_batch_tokens, so decoding always leaves at least one token for a prompt.
 *
 * The fair queue (base/fair.h) orders the line of prompts: first the tenant that was served least for its
 * weight, with its oldest prompt. Tokens are charged as they are fed. So a long prompt shares the steps with
 * other tenants' prompts chunk by chunk, and a short prompt does not wait for its end.
 *
 * A chunk that does not end its prompt stops at a block boundary if it reaches one. A departing sequence can
 * send only whole blocks, and blocks that are sealed early are reusable early. Where the objective makes
 * chunks small, the chunk is aligned only if the cut is small.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/sched/budget.h"
#include "compute/sched/sched_priv.h"

struct cost_step plan_decode_cost(const struct sched *sched)
{
    struct cost_step step = {0};

    list_for_each (at, &sched->running) {
        const struct seq *seq = seq_of(at);
        uint32_t n_rows = seq_n_pending(seq) + seq->draft.n;

        if (seq->state != SEQ_DECODE)
            continue;
        step.n_rows += n_rows;
        step.n_pairs += cost_pairs(seq->n_computed, n_rows);
    }
    return step;
}

/* Sorts the line by insertion, because few sequences prefill at once, and they are mostly in order. */
static void line_up(struct sched *sched)
{
    sched->n_line = 0;
    list_for_each (node, &sched->running) {
        struct seq *seq = seq_of(node);
        uint32_t at = sched->n_line;

        if (seq->state != SEQ_PREFILL)
            continue;
        for (; at > 0 && fair_is_before(&seq->turn, &sched->line[at - 1]->turn); at--)
            sched->line[at] = sched->line[at - 1];
        sched->line[at] = seq;
        sched->n_line++;
    }
}

/* Attended pairs of the next n prompt tokens along the line. Prompts that are not admitted yet count from
 * their beginning. */
static double prompt_pairs(const struct sched *sched, uint32_t n)
{
    double n_pairs = 0;

    for (uint32_t i = 0; i < sched->n_line && n > 0; i++) {
        const struct seq *seq = sched->line[i];
        uint32_t left = seq->spec.n_tokens - seq->n_computed, part = left < n ? left : n;

        n_pairs += cost_pairs(seq->n_computed, part);
        n -= part;
    }
    return n_pairs + cost_pairs(0, n);
}

struct plan_step { /* the step that the rule evaluates */
    const struct sched *sched;
    struct cost_step decode;
};

static double plan_step_s(const void *arg, uint32_t n)
{
    const struct plan_step *plan = arg;
    struct cost_step step = plan->decode;

    step.n_prompt = n;
    step.n_pairs += prompt_pairs(plan->sched, n);
    return cost_predict(&plan->sched->speed.cost, &step);
}

static uint32_t prefill_budget(const struct sched *sched)
{
    const struct plan_step step = {sched, plan_decode_cost(sched)};
    const struct sched_budget budget = {.n_rows = step.decode.n_rows,
                                        .max_batch_tokens = sched->opts.engine->info.max_batch_tokens,
                                        .chunk_tokens = sched->opts.chunk_tokens,
                                        .itl_ns = sched->opts.itl_ns,
                                        .max_step_ns = sched->opts.max_step_ns,
                                        .knows_prompts = cost_knows_prompts(&sched->speed.cost),
                                        .decode_s = cost_predict(&sched->speed.cost, &step.decode),
                                        .per_token_s = cost_per_prompt_token(&sched->speed.cost),
                                        .margin = cost_margin(&sched->speed.cost),
                                        .step_s = plan_step_s,
                                        .arg = &step};

    return sched_budget_tokens(&budget);
}

uint32_t plan_chunk(const struct sched *sched, const struct seq *seq, uint32_t budget)
{
    return sched_budget_chunk(budget, seq->spec.n_tokens - seq->n_computed, seq->n_computed,
                              sched->block_tokens, sched->opts.itl_ns > 0);
}

/* Takes from the budget what a prompt of the line gets in this step: its chunk, limited by the windowed blocks that
 * the sequence has.  Returns the tokens.  The plan and the room for a prompt that is not admitted yet follow from
 * this rule alone. */
static uint32_t plan_take_chunk(const struct sched *sched, const struct seq *seq, uint32_t *budget)
{
    uint32_t room =
        seq->state == SEQ_PREFILL ? windows_room(sched, seq) : UINT32_MAX; /* else preempted since */
    uint32_t n_tokens = plan_chunk(sched, seq, *budget < room ? *budget : room);

    *budget -= n_tokens;
    return n_tokens;
}

uint32_t plan_budget(struct sched *sched)
{
    line_up(sched);
    return prefill_budget(sched);
}

uint32_t plan_budget_left(const struct sched *sched, const struct seq *seq, uint32_t budget)
{
    for (uint32_t i = 0; i < sched->n_line && fair_is_before(&sched->line[i]->turn, &seq->turn); i++)
        (void)plan_take_chunk(sched, sched->line[i], &budget);
    return budget;
}

static void plan_add(struct plan *plan, struct seq *seq, uint32_t n_tokens)
{
    plan->items[plan->n_items++] =
        (struct plan_item){.seq = seq, .n_tokens = n_tokens + seq->draft.n, .n_drafts = seq->draft.n};
    plan->n_drafts += seq->draft.n;
}

void plan_make(struct sched *sched, struct plan *plan)
{
    plan->n_items = plan->n_drafts = plan->n_prefill_tokens = 0;
    list_for_each (at, &sched->running) {
        if (seq_of(at)->state == SEQ_DECODE)
            plan_add(plan, seq_of(at), seq_n_pending(seq_of(at)));
    }
    plan->n_decode = plan->n_items;
    plan->n_decode_rows = 0;
    for (uint32_t i = 0; i < plan->n_decode; i++)
        plan->n_decode_rows += plan->items[i].n_tokens;

    uint32_t budget = plan->budget = plan_budget(sched);
    for (uint32_t i = 0; i < sched->n_line && budget > 0; i++) {
        uint32_t n_tokens = plan_take_chunk(sched, sched->line[i], &budget);

        if (n_tokens == 0)
            continue; /* no room for windowed blocks */
        plan_add(plan, sched->line[i], n_tokens);
        plan->n_prefill_tokens += n_tokens;
    }
}
