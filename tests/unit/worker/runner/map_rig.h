/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a worker that the map of peers' blocks needs, for its unit test and its fuzz target.  Each of
 * these supplies the links and the mailbox to the engine thread itself. */
#ifndef TESTS_UNIT_WORKER_MAP_RIG_H
#define TESTS_UNIT_WORKER_MAP_RIG_H

#include <stdint.h>

#include "worker/runner/remote_priv.h"

extern struct remote_hope map_rig_hope; /* the blocks that the shared store should have */
extern uint32_t map_rig_snapshots;      /* snapshots that the worker was to send */

#endif
