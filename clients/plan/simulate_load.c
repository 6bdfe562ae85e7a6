/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a plan as arrivals.  The numbers depend on the seed only, so that fleets are compared under the same
 * requests. */
#include "clients/plan/simulate.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

#define SHARED_SALT 1
#define OWN_SALT    (UINT64_C(1) << 32)

struct simulate_load {
    struct simulate_load_opts opts;
    struct rng rng;
    double sigma_prompt, sigma_answer;
    uint64_t n_made, at_ns;
};

static double load_normal(struct rng *rng)
{
    return sqrt(-2 * log(1 - rng_unit(rng))) * cos(6.283185307179586 * rng_unit(rng));
}

static uint32_t load_length(struct simulate_load *load, double mean, double sigma)
{
    double length = mean * exp(sigma * load_normal(&load->rng) - sigma * sigma / 2);

    return length < 1 ? 1 : length > 1e8 ? 100000000 : (uint32_t)(length + 0.5);
}

static void load_step(struct simulate_load *load)
{
    double gap_s = -log(1 - rng_unit(&load->rng)) / load->opts.rate_per_s;

    load->at_ns += (uint64_t)(gap_s * (double)NS_PER_S);
}

static bool load_when(void *self, uint64_t *at_ns_out)
{
    const struct simulate_load *load = self;

    *at_ns_out = load->at_ns;
    return load->n_made < load->opts.n_requests;
}

static void load_take(void *self, struct sim_request *out)
{
    struct simulate_load *load = self;
    const struct simulate_load_opts *opts = &load->opts;
    uint32_t prompt = load_length(load, opts->work->isl, load->sigma_prompt);
    uint64_t n = load->n_made++;

    *out = (struct sim_request){
        .at_ns = load->at_ns,
        .prompt_tokens = prompt,
        .answer_tokens = load_length(load, opts->work->osl, load->sigma_answer),
        .kind = n < opts->n_first                     ? SIMULATE_FILLING
                : n < opts->n_requests - opts->n_last ? SIMULATE_COUNTED
                                                      : SIMULATE_EMPTYING,
        .n_blocks = prompt / opts->block_tokens,
        .n_public = (uint32_t)(opts->work->hit * prompt / opts->block_tokens + 0.5),
        .salt = OWN_SALT + n,
        .public_salt = SHARED_SALT,
    };
    if (out->n_public > out->n_blocks)
        out->n_public = out->n_blocks;
    load_step(load);
}

int simulate_load_new(const struct simulate_load_opts *opts, struct simulate_load **out)
{
    struct simulate_load *load = calloc(1, sizeof(*load));

    if (load == NULL)
        return E_NOMEM;
    load->opts = *opts;
    rng_init(&load->rng, opts->seed);
    load->sigma_prompt = plan_work_sigma(opts->work->isl, opts->work->isl_p90);
    load->sigma_answer = plan_work_sigma(opts->work->osl, opts->work->osl_p90);
    load_step(load);
    *out = load;
    return 0;
}

void simulate_load_free(struct simulate_load *load)
{
    free(load);
}

struct sim_load simulate_load_of(struct simulate_load *load)
{
    return (struct sim_load){
        .self = load,
        .when = load_when,
        .take = load_take,
        .span_ns = (uint64_t)((double)load->opts.n_requests / load->opts.rate_per_s * (double)NS_PER_S)};
}
