/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of verbs_fake.c where libibverbs was not there to build with. */
#include "tests/conformance/tr_world.h"

const struct verbs *const world_verbs;
