/* SPDX-License-Identifier: Apache-2.0 */
/* What the map of peers' blocks asks of the rest of a worker, as its unit test and its fuzz target play it
 * alike; links and the way to the engine thread each plays itself. */
#ifndef TESTS_UNIT_WORKER_MAP_RIG_H
#define TESTS_UNIT_WORKER_MAP_RIG_H

#include <stdint.h>

extern uint32_t map_rig_snapshots; /* that the worker was to tell */

#endif
