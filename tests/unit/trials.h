/* SPDX-License-Identifier: Apache-2.0 */
/* How often a test repeats what it does with other numbers.  Sanitizers look for faults of the code, which a few trials
 * reach; rare results and figures are left to the plain build, which does all. */
#ifndef TESTS_UNIT_TRIALS_H
#define TESTS_UNIT_TRIALS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static inline bool trials_are_sanitized(void)
{
    return getenv("BATON_SANITIZED") != NULL;
}

static inline uint32_t trials(uint32_t n_plain, uint32_t n_sanitized)
{
    return trials_are_sanitized() ? n_sanitized : n_plain;
}

#endif
