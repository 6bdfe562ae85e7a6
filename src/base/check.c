/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a program that broke its own promise.
 *
 * Nothing here may allocate, lock or call the logger: the claim may have failed inside any of them.  One
 * dprintf to descriptor 2, then abort(), so that the supervisor restarts us and a core shows where.
 */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void check_failed(const char *claim, const char *file, int line)
{
    dprintf(STDERR_FILENO, "%s:%d: assertion failed: %s\n", file, line, claim);
    abort();
}
