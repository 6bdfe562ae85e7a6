/* SPDX-License-Identifier: Apache-2.0 */
/* The rig of a test program and its plain setup and teardown, for tests that open it with no more than its defaults.
 * A test with a setup of its own includes rig.h alone. */
#ifndef TESTS_UNIT_ROUTER_RIG_FIXTURE_H
#define TESTS_UNIT_ROUTER_RIG_FIXTURE_H

#include "rig.h"

static struct rig rig;

static inline int open_rig(void **state)
{
    return rig_open(&rig);
}

static inline int close_rig(void **state)
{
    rig_close(&rig);
    return 0;
}

#endif
