/* SPDX-License-Identifier: Apache-2.0 */
/* One prefill and one decode worker, for tests of admission: they compute about 18 prompts of 1,024 tokens per second, and
 * 57 sequences keep the objective, which is 17.8 answers per second. */
#ifndef TESTS_UNIT_FLEET_SIM_SMALL_FLEET_H
#define TESTS_UNIT_FLEET_SIM_SMALL_FLEET_H

#include "fleet/sim/sim.h"

struct sim_opts small_fleet(bool refuses_early);

#endif
