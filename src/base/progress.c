/* SPDX-License-Identifier: Apache-2.0 */
/* The line says how much is done, and how long the rest takes at the mean speed so far. */
#include "base/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

#define QUIET_NS (2 * NS_PER_S) /* shorter work shows nothing */
#define SHOW_NS  (NS_PER_S / 5)

void progress_begin(struct progress *progress, const char *what, uint64_t total)
{
    *progress = (struct progress){
        .what = what, .total = total, .began_ns = clock_now_ns(), .is_terminal = isatty(STDERR_FILENO)};
}

/* Writes the remaining time, from the mean speed so far. */
static void progress_put_rest(const struct progress *progress, uint64_t done, uint64_t now_ns)
{
    double part = (double)done / (double)progress->total;
    double spent_s = (double)(now_ns - progress->began_ns) / NS_PER_S;

    fprintf(stderr, "\r\033[K%s %3.0f %%", progress->what, 100 * part);
    if (part > 0.02)
        fprintf(stderr, "  %.0f s left", spent_s / part - spent_s);
}

void progress_show(struct progress *progress, uint64_t done)
{
    uint64_t now_ns;

    if (!progress->is_terminal)
        return;
    now_ns = clock_now_ns();
    if (now_ns - progress->began_ns < QUIET_NS || now_ns - progress->shown_ns < SHOW_NS)
        return;
    progress->shown_ns = now_ns;
    progress->is_shown = true;
    if (progress->total == 0)
        fprintf(stderr, "\r\033[K%s %" PRIu64, progress->what, done);
    else
        progress_put_rest(progress, done < progress->total ? done : progress->total, now_ns);
    fflush(stderr);
}

void progress_end(struct progress *progress)
{
    if (progress->is_shown)
        fputs("\r\033[K", stderr);
    progress->is_shown = false;
}
