/* SPDX-License-Identifier: Apache-2.0 */
/* See speed.h.
 *
 * A decode-only step gives the time between two tokens, which is shorter than the step when draft tokens were
 * accepted. A step with prompt tokens gives the prefill rate, after the predicted time of its decoding sequences is
 * subtracted; the cost model predicts it and learns from every step. Small chunks are imprecise, so a chunk is weighted
 * by its size.
 *
 * The cost of a prompt token is that of a token in a full chunk.  A step has a fixed cost, which a short prompt bears
 * alone and the tokens of a full chunk share.  So a chunk counts with the part of the fixed cost that belongs to its
 * size.  Otherwise a worker that reads short prompts would look slow for long ones.  That cost is known once the cost
 * model has learned; earlier chunks teach it only. */
#include "compute/sched/speed.h"

#include <math.h>

#define DECODE_ALPHA  0.05
#define PREFILL_ALPHA 0.25
#define SHARE_MIN     0.25 /* least part of a mixed step that counts as prefill, even if less is predicted */
#define SHARED_MIN    0.1  /* least part of a chunk's time that its tokens cost */

/* The part of the fixed cost that the tokens missing in the chunk would bear. */
static double speed_unshared_s(const struct sched_speed *speed, const struct sched_speed_step *step)
{
    if (step->n_decode > 0 || step->n_room <= step->n_prompt)
        return 0;
    return cost_per_step(&speed->cost) * (1 - (double)step->n_prompt / step->n_room);
}

static void speed_learn_prefill(struct sched_speed *speed, const struct sched_speed_step *step,
                                uint64_t now_ns)
{
    double decode_s = step->n_decode > 0 ? cost_predict(&speed->cost, &step->decode) : 0;
    double prefill_s = fmax(step->seconds - decode_s, SHARE_MIN * step->seconds);
    double size = fmin((double)step->n_prompt / step->chunk_tokens, 1);
    struct prompt_cost_sample sample = {
        .n_tokens = step->n_prompt,
        .n_pairs = step->n_prompt_pairs,
        .seconds = fmax(prefill_s - speed_unshared_s(speed, step), SHARED_MIN * prefill_s),
        .weight = size};

    rate_learn(&speed->prefill_rate, step->n_prompt / prefill_s, PREFILL_ALPHA, size, now_ns);
    if (cost_is_learned(&speed->cost))
        prompt_cost_learn(&speed->prompt_cost, &sample, now_ns);
}

struct cost_step sched_speed_whole(const struct sched_speed_step *step)
{
    struct cost_step whole = step->decode;

    whole.n_prompt = step->n_prompt;
    whole.n_pairs += step->n_prompt_pairs;
    return whole;
}

void sched_speed_learn(struct sched_speed *speed, const struct sched_speed_step *step, uint64_t now_ns)
{
    struct cost_step whole = sched_speed_whole(step);

    cost_observe(&speed->cost, &whole, step->seconds);
    if (step->n_prompt > 0)
        speed_learn_prefill(speed, step, now_ns);
    else
        rate_learn(&speed->decode_step,
                   (step->seconds + step->draft_s) * step->n_decode / (step->n_decode + step->n_accepted),
                   DECODE_ALPHA, 1, now_ns);
}

/* The difference to twice as many sequences gives the cost of one more, so that no single size has much weight. */
void sched_speed_decode(const struct sched_speed *speed, const struct cost_step *decode, double *now_s_out,
                        double *row_s_out)
{
    struct cost_step twice = {.n_rows = 2 * decode->n_rows, .n_pairs = 2 * decode->n_pairs};
    double now_s, more_s;

    *now_s_out = *row_s_out = 0;
    if (decode->n_rows == 0 || !cost_is_learned(&speed->cost))
        return;
    now_s = cost_predict(&speed->cost, decode);
    more_s = cost_predict(&speed->cost, &twice) - now_s;
    *now_s_out = now_s;
    *row_s_out = more_s > 0 ? more_s / decode->n_rows : 0;
}

double sched_speed_stretch(double decode_s, double prompt_s)
{
    return decode_s > 0 && prompt_s > 0 ? 1 + decode_s / prompt_s : 1;
}
