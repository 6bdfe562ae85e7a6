/* SPDX-License-Identifier: Apache-2.0 */
/* How busy, and how fast.
 *
 * Rates are learned from the steps themselves.  A step that only decodes gives the time between two tokens,
 * which is less than the step's when guesses were right.  A step with prompt tokens gives the prefill rate,
 * after what the decoders in it would have taken alone (says the cost model, which sees every step) is taken
 * off.  Small chunks say little, so a chunk counts by its size.
 */
#include "base/clock.h"
#include "sched/sched_priv.h"

#define DECODE_ALPHA  0.05
#define PREFILL_ALPHA 0.25
#define SHARE_MIN     0.25 /* of a mixed step is prefill's at least, whatever the means say */

static struct cost_step cost_of(const struct plan *plan)
{
    struct cost_step step = {.n_rows = plan->n_decode + plan->n_drafts, .n_prompt = plan->n_prefill_tokens};

    for (uint32_t i = 0; i < plan->n_items; i++)
        step.n_pairs += cost_pairs(plan->items[i].seq->n_computed, plan->items[i].n_tokens);
    return step;
}

void load_observe(struct sched *sched, const struct plan *plan, uint32_t n_accepted, uint64_t step_ns)
{
    double step_s = (double)(step_ns ? step_ns : 1) / (double)NS_PER_S;
    struct cost_step step = cost_of(plan);

    cost_observe(&sched->cost, &step, step_s);
    if (plan->n_prefill_tokens == 0) {
        rate_observe(&sched->decode_step, step_s * plan->n_decode / (plan->n_decode + n_accepted),
                     DECODE_ALPHA);
        return;
    }

    struct cost_step decode = plan_decode_cost(sched);
    double decode_s = plan->n_decode ? cost_predict(&sched->cost, &decode) : 0;
    double prefill_s = step_s - decode_s > SHARE_MIN * step_s ? step_s - decode_s : SHARE_MIN * step_s;
    double size = (double)plan->n_prefill_tokens / sched->opts.chunk_tokens;

    rate_observe(&sched->prefill_rate, plan->n_prefill_tokens / prefill_s,
                 PREFILL_ALPHA * (size < 1 ? size : 1));
}

void sched_load(const struct sched *sched, struct sched_load *out)
{
    struct sched_load load = {
        .n_waiting = sched->n_waiting,
        .n_running = sched->n_running,
        .n_tenants = fair_n_tenants(sched->fair),
        .prefill_tokens_per_s = rate_get(&sched->prefill_rate, 0),
        .decode_step_s = rate_get(&sched->decode_step, 0),
        .n_preemptions = sched->n_preemptions,
        .n_steps = sched->n_steps,
        .n_draft_steps = sched->n_draft_steps,
        .n_drafted = sched->n_drafted,
        .n_accepted = sched->n_accepted,
        .chunk_tokens = sched->plan.budget,
    };

    for (const struct seq *seq = sched_next(sched, NULL); seq; seq = sched_next(sched, seq)) {
        switch (seq->state) {
        case SEQ_WAITING:
            load.queued_prefill_tokens += seq->spec.n_tokens - seq->n_cached_guess;
            break;
        case SEQ_ARRIVING:
            load.n_arriving++;
            break;
        case SEQ_PREFILL:
            load.n_prefill++;
            load.queued_prefill_tokens += seq->spec.n_tokens - seq->n_computed;
            break;
        case SEQ_DECODE:
            load.n_decode++;
            load.decode_tokens_context += seq->spec.n_tokens;
            break;
        case SEQ_HELD:
            load.n_held++;
            break;
        case SEQ_DONE:
            break;
        }
    }
    *out = load;
}
