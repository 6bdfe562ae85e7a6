/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated engine's two files. */
#ifndef COMPUTE_ENGINE_ENGINE_SIM_PRIV_H
#define COMPUTE_ENGINE_ENGINE_SIM_PRIV_H

#include "compute/engine/engine_sim.h"

/* engine_sim_draw.c: the token after the first n_fed of the item's. */
void sim_draw(const struct engine_sim_opts *opts, const struct engine_item *item, uint32_t n_fed,
              struct sample_result *out);
/* How likely tokens[n_fed] was, after so many of the item's. */
void sim_score(const struct engine_sim_opts *opts, const struct engine_item *item, uint32_t n_fed,
               struct sample_result *out);

#endif
