/* SPDX-License-Identifier: Apache-2.0 */
/* A random load: arrivals, lengths, and conversations that continue after their answers. */
#ifndef FLEET_SIM_GENERATE_H
#define FLEET_SIM_GENERATE_H

#include "fleet/sim/sim.h"

enum generate_kind {
    GENERATE_POISSON,
    GENERATE_BURSTS,  /* 8.5 times the rate in a tenth of each minute, a sixth of the rate otherwise */
    GENERATE_DIURNAL, /* a sine over the duration, from a fifth to nine fifths of the rate */
    GENERATE_STEPS,   /* two kinds of requests in turns, each for half of the period */
    GENERATE_TIDES,   /* two kinds; their rates are sines in opposite phase, from 0 to twice the rate */
    GENERATE_MIX,     /* two kinds at once, each at its constant rate */
    GENERATE_SESSIONS /* agents: turns with tool waits, each continuing the prompt and answer before */
};

struct generate_opts {
    enum generate_kind kind;
    double rate_per_s; /* mean, of requests */
    double duration_s;
    uint32_t prompt_tokens, answer_tokens; /* means; lengths are exponential, cut at eight times the mean */
    uint32_t n_tenants, block_tokens;
    uint32_t shared_tokens;  /* the beginning that all prompts share */
    double turns, wait_s;    /* sessions: means */
    double period_s;         /* steps, tides */
    double other_rate_per_s; /* steps, tides, mix: of the second kind */
    uint32_t other_prompt_tokens, other_answer_tokens;
    bool marks_kinds; /* requests of the second kind have sim_request.kind 1 */
    uint64_t seed;
};

struct generate;

/* E_NOMEM. */
int generate_new(const struct generate_opts *opts, struct generate **out);
void generate_free(struct generate *generate);
struct sim_load generate_load(struct generate *generate);

#endif
