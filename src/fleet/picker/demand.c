/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of buckets by time.
 *
 *      [ 5 s | 5 s | 5 s | ... | 5 s ]          two minutes
 *                        <-- window ->          at least three buckets, then as many as 200 requests need
 *
 * A prompt's time follows from its tokens, the learned share that is not cached, and the workers' costs at the
 * time of its arrival. */
#include "fleet/picker/demand.h"

#define ENOUGH         200 /* requests end the search for a longer window */
#define TOO_FEW        20
#define LEAST_BUCKETS  3
#define UNCACHED_ALPHA 0.02

static uint64_t demand_width(const struct picker_demand *demand)
{
    return demand->width_ns > 0 ? demand->width_ns : PICKER_DEMAND_WIDTH;
}

void picker_demand_set_width(struct picker_demand *demand, uint64_t width_ns)
{
    if (width_ns == demand_width(demand))
        return;
    for (unsigned i = 0; i < PICKER_DEMAND_BUCKETS; i++)
        demand->buckets[i] = (struct picker_demand_bucket){0};
    demand->width_ns = width_ns;
    demand->latest = demand->first_ns = 0;
}

/* Moves to the bucket of this time; buckets in between are empty. */
static struct picker_demand_bucket *demand_at(struct picker_demand *demand, uint64_t now_ns)
{
    uint64_t now = now_ns / demand_width(demand);

    if (now > demand->latest + PICKER_DEMAND_BUCKETS)
        demand->latest = now - PICKER_DEMAND_BUCKETS;
    while (demand->latest < now)
        demand->buckets[++demand->latest % PICKER_DEMAND_BUCKETS] = (struct picker_demand_bucket){0};
    return &demand->buckets[demand->latest % PICKER_DEMAND_BUCKETS];
}

void picker_demand_arrived(struct picker_demand *demand, uint64_t now_ns, uint32_t n_tokens)
{
    struct picker_demand_bucket *bucket = demand_at(demand, now_ns);
    double pick_uncached = n_tokens * (demand->pick_uncached > 0 ? demand->pick_uncached : 1);
    double time_s =
        demand->step_s + pick_uncached * (demand->token_s + demand->pair_s * (n_tokens - pick_uncached / 2));

    if (demand->first_ns == 0)
        demand->first_ns = now_ns > 0 ? now_ns : 1;
    bucket->prompt_tokens += n_tokens;
    if (pick_uncached <= demand->short_tokens) {
        bucket->n_short++;
        bucket->short_s += time_s;
        return;
    }
    bucket->n_prompts++;
    bucket->prompt_s += time_s;
    bucket->square += time_s * time_s;
    bucket->most_s = time_s > bucket->most_s ? time_s : bucket->most_s;
}

void picker_demand_placed(struct picker_demand *demand, uint32_t n_tokens, uint32_t n_uncached)
{
    double share = n_tokens > 0 && n_uncached < n_tokens ? (double)n_uncached / n_tokens : 1;

    demand->pick_uncached +=
        (share - demand->pick_uncached) * (demand->pick_uncached > 0 ? UNCACHED_ALPHA : 1);
    demand->pick_uncached = demand->pick_uncached > 1e-3 ? demand->pick_uncached : 1e-3;
}

void picker_demand_missed(struct picker_demand *demand, uint64_t now_ns)
{
    demand_at(demand, now_ns)->n_missed++;
}

void picker_demand_ended(struct picker_demand *demand, uint64_t now_ns, uint64_t n_tokens)
{
    struct picker_demand_bucket *bucket = demand_at(demand, now_ns);

    bucket->n_answers++;
    bucket->answer_tokens += n_tokens;
    bucket->most_tokens = n_tokens > bucket->most_tokens ? n_tokens : bucket->most_tokens;
}

static void demand_add(struct picker_demand_bucket *sum, const struct picker_demand_bucket *bucket)
{
    sum->n_prompts += bucket->n_prompts;
    sum->n_short += bucket->n_short;
    sum->n_answers += bucket->n_answers;
    sum->n_missed += bucket->n_missed;
    sum->prompt_s += bucket->prompt_s;
    sum->square += bucket->square;
    sum->short_s += bucket->short_s;
    sum->prompt_tokens += bucket->prompt_tokens;
    sum->answer_tokens += bucket->answer_tokens;
    sum->most_s = bucket->most_s > sum->most_s ? bucket->most_s : sum->most_s;
    sum->most_tokens = bucket->most_tokens > sum->most_tokens ? bucket->most_tokens : sum->most_tokens;
}

static void demand_leave_out_largest(struct picker_demand_bucket *sum)
{
    if (sum->n_prompts > 1) {
        sum->n_prompts--;
        sum->prompt_s -= sum->most_s;
        sum->square -= sum->most_s * sum->most_s;
    }
    if (sum->n_answers > 1) {
        sum->n_answers--;
        sum->answer_tokens -= sum->most_tokens;
    }
}

bool picker_demand_read(struct picker_demand *demand, uint64_t now_ns, struct picker_load *out)
{
    struct picker_demand_bucket sum = {0};
    uint64_t began_ns = now_ns;
    uint32_t n;

    (void)demand_at(demand, now_ns);
    for (unsigned i = 0; i < PICKER_DEMAND_BUCKETS && i <= demand->latest; i++) {
        if (i >= LEAST_BUCKETS && sum.n_prompts + sum.n_short >= ENOUGH && sum.n_answers > 0)
            break;
        demand_add(&sum, &demand->buckets[(demand->latest - i) % PICKER_DEMAND_BUCKETS]);
        began_ns = (demand->latest - i) * demand_width(demand);
        if (began_ns <= demand->first_ns)
            break;
    }
    n = sum.n_prompts + sum.n_short;
    demand_leave_out_largest(&sum);
    began_ns = began_ns > demand->first_ns ? began_ns : demand->first_ns;
    *out = (struct picker_load){.window_s = (double)(now_ns - began_ns) / 1e9, .n_requests = n};
    if (n < TOO_FEW || sum.n_answers == 0 || out->window_s <= 0 || demand->token_s <= 0)
        return false;
    out->rate_per_s = sum.n_prompts / out->window_s;
    out->all_per_s = n / out->window_s;
    out->short_share = sum.short_s / out->window_s;
    out->missed_share = sum.n_missed < n ? (double)sum.n_missed / n : 1;
    if (sum.n_prompts > 0 && sum.prompt_s > 0) {
        out->prompt_s = sum.prompt_s / sum.n_prompts;
        out->cv2 = sum.square / sum.n_prompts / (out->prompt_s * out->prompt_s) - 1;
        out->cv2 = out->cv2 > 0 ? out->cv2 : 0;
    }
    out->answer_tokens = (double)sum.answer_tokens / sum.n_answers;
    out->context_tokens = sum.prompt_tokens / n + out->answer_tokens;
    return true;
}
