/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of the load, and the measured steps from which speed.c learns.
 *
 * A step in which the thread was stopped is ignored. So are the late ones among the first steps after a pause or an
 * idle time (base/rate.h). */
#include <string.h>

#include "base/clock.h"
#include "compute/sched/sched_priv.h"

#define COLD_AFTER_NS NS_PER_S

static double load_plan_pairs(const struct plan *plan, uint32_t from, uint32_t to)
{
    double n_pairs = 0;

    for (uint32_t i = from; i < to; i++)
        n_pairs += cost_pairs(plan->items[i].seq->n_computed, plan->items[i].n_tokens);
    return n_pairs;
}

static struct cost_step load_decode_cost(const struct plan *plan)
{
    return (struct cost_step){.n_rows = plan->n_decode_rows,
                              .n_pairs = load_plan_pairs(plan, 0, plan->n_decode)};
}

static double load_prompt_pairs(const struct plan *plan)
{
    return load_plan_pairs(plan, plan->n_decode, plan->n_items);
}

struct load_clock load_clock(const struct sched *sched)
{
    return (struct load_clock){.now_ns = sched_now_ns(sched),
                               .cpu_ns = sched->opts.cpu_ns != NULL ? sched->opts.cpu_ns() : 0};
}

static double load_seconds(uint64_t from_ns, uint64_t to_ns)
{
    return (double)(to_ns > from_ns ? to_ns - from_ns : 1) / (double)NS_PER_S;
}

/* True if the thread was stopped during this step or right before it. */
static bool load_is_spoilt(struct sched *sched, const struct cost_step *step, const struct load_clock *began,
                           const struct load_clock *ended)
{
    struct rate_step times = {
        .wall_s = load_seconds(began->now_ns, ended->now_ns),
        .cpu_s = sched->opts.cpu_ns != NULL ? load_seconds(began->cpu_ns, ended->cpu_ns) : -1,
        .expected_s = cost_is_learned(&sched->speed.cost) ? cost_predict(&sched->speed.cost, step) : 0,
    };

    if (began->now_ns > sched->step_end_ns + COLD_AFTER_NS)
        rate_pause_note(&sched->pause);
    sched->step_end_ns = ended->now_ns;
    return rate_pause_spoils(&sched->pause, &times);
}

void load_observe(struct sched *sched, const struct plan *plan, uint32_t n_accepted,
                  const struct load_clock *began)
{
    struct load_clock ended = load_clock(sched);
    struct sched_speed_step step = {.decode = load_decode_cost(plan),
                                    .n_decode = plan->n_decode,
                                    .n_accepted = n_accepted,
                                    .draft_s = sched->draft_model.step_s,
                                    .n_prompt = plan->n_prefill_tokens,
                                    .n_prompt_pairs = load_prompt_pairs(plan),
                                    .n_room = plan->budget,
                                    .chunk_tokens = sched->opts.chunk_tokens,
                                    .seconds = load_seconds(began->now_ns, ended.now_ns)};
    struct cost_step whole = sched_speed_whole(&step);

    if (!load_is_spoilt(sched, &whole, began, &ended))
        sched_speed_learn(&sched->speed, &step, ended.now_ns);
}

static void load_queue(const struct sched *sched, const struct seq *seq, uint32_t from,
                       struct sched_load *load)
{
    uint32_t n_tokens = seq->spec.n_tokens > from ? seq->spec.n_tokens - from : 0;

    load->queued_prefill_tokens += n_tokens;
    load->queued_prefill_s += prompt_cost_s(&sched->speed.prompt_cost, from, n_tokens);
}

static void load_count(const struct sched *sched, const struct seq *seq, struct sched_load *load)
{
    switch (seq->state) {
    case SEQ_WAITING:
        load_queue(sched, seq, seq->n_cached_estimate, load);
        break;
    case SEQ_ARRIVING:
        load->n_arriving++;
        break;
    case SEQ_PREFILL:
        load->n_prefill++;
        load_queue(sched, seq, seq->n_computed, load);
        break;
    case SEQ_DECODE:
        load->n_decode++;
        load->decode_tokens_context += seq->spec.n_tokens;
        break;
    case SEQ_HELD:
        load->n_held++;
        break;
    case SEQ_DONE:
        break;
    }
}

/* Predicts the time of the decoding sequences without prompts, even if every step has prompts. */
static void load_decode(const struct sched *sched, struct sched_load *load)
{
    struct cost_step step = plan_decode_cost(sched);

    sched_speed_decode(&sched->speed, &step, &load->decode_now_s, &load->decode_row_s);
}

/* Sequences with this context represent all others, because attended pairs include the cost of attention. */
#define PREDICTED_CONTEXT 256

static void load_predict(const struct cost_model *cost, struct sched_load *load)
{
    static const uint32_t rows[2] = {1, SCHED_MANY_ROWS}, tokens[2] = {SCHED_FEW_TOKENS, SCHED_MANY_TOKENS};

    if (!cost_is_learned(cost))
        return;
    for (unsigned i = 0; i < 2; i++) {
        struct cost_step decode = {.n_rows = rows[i], .n_pairs = (double)rows[i] * PREDICTED_CONTEXT};
        struct cost_step prompt = {.n_prompt = tokens[i], .n_pairs = cost_pairs(0, tokens[i])};

        load->rows_s[i] = cost_predict(cost, &decode);
        if (cost_knows_prompts(cost))
            load->prompt_s[i] = cost_predict(cost, &prompt);
    }
}

void sched_load(const struct sched *sched, struct sched_load *out)
{
    struct sched_load load = {
        .n_waiting = sched->n_waiting,
        .n_running = sched->n_running,
        .n_tenants = fair_n_tenants(sched->fair),
        .prefill_tokens_per_s = rate_level(&sched->speed.prefill_rate),
        .prompt_token_s = prompt_cost_hope(&sched->speed.prompt_cost, sched_now_ns(sched)),
        .prompt_pair_s = rate_level(&sched->speed.prompt_cost.pair_s),
        .decode_step_s = rate_level(&sched->speed.decode_step),
        .n_preemptions = sched->n_preemptions,
        .n_steps = sched->n_steps,
        .n_draft_steps = sched->n_draft_steps,
        .chunk_tokens = sched->plan.budget,
    };

    memcpy(load.n_drafted, sched->n_drafted, sizeof(load.n_drafted));
    memcpy(load.n_accepted, sched->n_accepted, sizeof(load.n_accepted));
    load_predict(&sched->speed.cost, &load);
    for (const struct seq *seq = sched_next(sched, NULL); seq; seq = sched_next(sched, seq))
        load_count(sched, seq, &load);
    load_decode(sched, &load);
    load.queued_prefill_s *= sched_speed_stretch(load.decode_now_s, load.chunk_tokens * load.prompt_token_s);
    *out = load;
}
