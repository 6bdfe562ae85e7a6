/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces verbs_fake.c in a build without libibverbs. */
#include "tests/conformance/tr_world.h"

const struct verbs *const world_verbs;
