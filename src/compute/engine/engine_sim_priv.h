/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two files of the simulated engine. */
#ifndef COMPUTE_ENGINE_ENGINE_SIM_PRIV_H
#define COMPUTE_ENGINE_ENGINE_SIM_PRIV_H

#include "compute/engine/engine_sim.h"

/* engine_sim_draw.c: samples the token after the item's first n_fed tokens. */
void sim_draw(const struct engine_sim_opts *opts, const struct engine_item *item, uint32_t n_fed,
              struct sample_result *out);
/* The logprob of tokens[n_fed] after the item's first n_fed tokens. */
void sim_score(const struct engine_sim_opts *opts, const struct engine_item *item, uint32_t n_fed,
               struct sample_result *out);

#endif
