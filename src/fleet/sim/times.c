/* SPDX-License-Identifier: Apache-2.0 */
/* Weights are read once a step and multiplied once a token; attention costs 4 FLOP for each pair, layer and
 * hidden dimension (query x key, and weights x value). */
#include "fleet/sim/times.h"

struct sim_times sim_times_roofline(const struct sim_roofline *roofline)
{
    double bytes_per_s = roofline->bandwidth * roofline->bandwidth_share;
    double flops = roofline->flops * roofline->compute_share;
    double flop_s = 2 * roofline->parameters / flops;

    return (struct sim_times){
        .step_s = roofline->layers * roofline->layer_s +
                  roofline->parameters * roofline->weight_bytes / bytes_per_s,
        .row_s = flop_s,
        .context_s = roofline->kv_bytes_per_token / bytes_per_s,
        .token_s = flop_s,
        .pair_s = 4 * roofline->layers * roofline->hidden / flops,
    };
}

struct sim_times sim_times_scaled(const struct sim_times *times, double factor)
{
    return (struct sim_times){.step_s = factor * times->step_s,
                              .row_s = factor * times->row_s,
                              .context_s = factor * times->context_s,
                              .token_s = factor * times->token_s,
                              .pair_s = factor * times->pair_s};
}

double sim_times_prefill_s(const struct sim_times *times, uint32_t p, uint32_t n, uint32_t chunk)
{
    double n_steps = chunk > 0 ? (n + chunk - 1) / chunk : 1;
    double n_pairs = (double)n * p + 0.5 * n * (n + 1.0);

    return n_steps * times->step_s + n * times->token_s + n_pairs * times->pair_s;
}
