/* SPDX-License-Identifier: Apache-2.0 */
/* Ends the program after a failed ASSERT.
 *
 * Nothing here may allocate, lock or call the logger: the claim may have failed inside any of them.  It
 * writes one dprintf to descriptor 2 and calls abort().  So the supervisor restarts the daemon, and a core
 * dump shows the place. */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void check_failed(const char *claim, const char *file, int line)
{
    dprintf(STDERR_FILENO, "%s:%d: assertion failed: %s\n", file, line, claim);
    abort();
}
