/* SPDX-License-Identifier: Apache-2.0 */
/* How long a simulated worker's steps take: the same terms as the scheduler's cost model
 * (compute/sched/cost.h), fitted, measured, or derived from a roofline. */
#ifndef FLEET_SIM_TIMES_H
#define FLEET_SIM_TIMES_H

#include <stdint.h>

struct sim_times {    /* seconds */
    double step_s;    /* of any step */
    double row_s;     /* for each decoding sequence */
    double context_s; /* for each token of context that a decoding sequence attends to */
    double token_s;   /* for each prompt token */
    double pair_s;    /* for each pair of a prompt token and a token that it attends to */
};

struct sim_roofline { /* a dense model on one worker, all of its devices together */
    double parameters, layers, hidden;
    double kv_bytes_per_token, weight_bytes; /* weight_bytes: of one parameter */
    double flops, bandwidth;                 /* per second, dense; bytes per second */
    double compute_share, bandwidth_share;   /* of the peaks that kernels reach */
    double layer_s;                          /* fixed time of a layer in each step */
};

/* Generic constants (0.75, 0.75, 60 us a layer) have 20 percent mean error on public measurements. */
struct sim_times sim_times_roofline(const struct sim_roofline *roofline);

struct sim_times sim_times_scaled(const struct sim_times *times, double factor);

/* n prompt tokens after p tokens, in steps of at most chunk tokens (0: one step) without other work. */
double sim_times_prefill_s(const struct sim_times *times, uint32_t p, uint32_t n, uint32_t chunk);

#endif
