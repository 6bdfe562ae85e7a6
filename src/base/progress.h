/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of long work: one changing line on stderr.  It appears on a terminal after two seconds, and never in a
 * file or pipe. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress { /* zeroed: shows nothing */
    const char *what;
    uint64_t total, began_ns, shown_ns;
    bool is_terminal, is_shown;
};

/* Borrows `what`.  Total 0: the amount of work is unknown. */
void progress_begin(struct progress *progress, const char *what, uint64_t total);
/* Shows that `done` of the total is done, five times a second at most.  Reads the clock: call it per piece of work. */
void progress_show(struct progress *progress, uint64_t done);
/* Clears the line. */
void progress_end(struct progress *progress);

#endif
