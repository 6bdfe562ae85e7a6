/* SPDX-License-Identifier: Apache-2.0 */
/* A random load: arrivals, lengths, and conversations that continue after their answers.
 * How to change it: docs/changes-fleet.md, "A load of baton-sim --generate". */
#ifndef FLEET_SIM_GENERATE_H
#define FLEET_SIM_GENERATE_H

#include "fleet/sim/sim.h"

/* Each with its name, and its highest rate in times of the mean:
 *
 *     bursts     8.5 times the rate in a tenth of each minute, a sixth of the rate otherwise
 *     diurnal    a sine over the duration, from a fifth to nine fifths of the rate
 *     steps      two kinds of requests in turns, each for half of the period
 *     tides      two kinds; their rates are sines in opposite phase, from 0 to twice the rate
 *     mix        two kinds at once, each at its constant rate
 *     sessions   agents: turns with tool waits, each continuing the prompt and answer before */
#define GENERATE_KIND_TABLE(X)                                                                               \
    X(POISSON, "poisson", 1)                                                                                 \
    X(BURSTS, "bursts", 8.5)                                                                                 \
    X(DIURNAL, "diurnal", 1.8)                                                                               \
    X(STEPS, "steps", 1)                                                                                     \
    X(TIDES, "tides", 1)                                                                                     \
    X(MIX, "mix", 1)                                                                                         \
    X(SESSIONS, "sessions", 1)

enum generate_kind {
#define X(name, text, most) GENERATE_##name,
    GENERATE_KIND_TABLE(X)
#undef X
};

struct generate_opts {
    enum generate_kind kind;
    double rate_per_s; /* mean, of requests */
    double duration_s;
    uint32_t prompt_tokens, answer_tokens; /* means; lengths are exponential, cut at eight times the mean */
    bool has_equal_lengths;                /* all lengths are the mean */
    uint32_t n_tenants, block_tokens;
    uint32_t shared_tokens;  /* the beginning that all prompts share */
    double turns, wait_s;    /* sessions: means */
    double period_s;         /* steps, tides */
    double other_rate_per_s; /* steps, tides, mix: of the second kind */
    uint32_t other_prompt_tokens, other_answer_tokens;
    bool marks_kinds;     /* requests of the second kind have sim_request.kind 1 */
    bool are_two_tenants; /* the kinds are of two tenants, not of n_tenants */
    uint32_t routers[2];  /* of each kind: sim_request.routers */
    uint64_t n_requests;  /* at most; 0: no bound */
    uint64_t seed;
};

struct generate;

/* E_NOMEM. */
int generate_new(const struct generate_opts *opts, struct generate **out);
void generate_free(struct generate *generate);
struct sim_load generate_load(struct generate *generate);

#endif
