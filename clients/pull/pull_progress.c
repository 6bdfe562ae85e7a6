/* SPDX-License-Identifier: Apache-2.0 */
/* Progress on stderr: one changing line on a terminal, else a line every tenth. */
#include "clients/pull/pull.h"

#include "base/clock.h"

#include <stdio.h>
#include <unistd.h>

void pull_progress_start(struct pull_progress *progress, const char *what, uint64_t done_bytes,
                         uint64_t total_bytes, bool is_quiet)
{
    *progress = (struct pull_progress){.what = what,
                                       .total_bytes = total_bytes > 0 ? total_bytes : 1,
                                       .begin_bytes = done_bytes,
                                       .began_ns = clock_now_ns(),
                                       .is_quiet = is_quiet,
                                       .is_terminal = isatty(STDERR_FILENO)};
    if (done_bytes > 0 && !is_quiet)
        fprintf(stderr, "%s: continues at %.1f of %.1f MB\n", what, (double)done_bytes / 1e6,
                (double)total_bytes / 1e6);
}

static void show_terminal(struct pull_progress *progress, uint64_t done_bytes, uint64_t now_ns)
{
    double elapsed_s = (double)(now_ns - progress->began_ns + 1) / NS_PER_S;
    double rate = (double)(done_bytes - progress->begin_bytes) / elapsed_s;
    double left_s = rate > 0 ? (double)(progress->total_bytes - done_bytes) / rate : 0;

    if (now_ns - progress->printed_ns < NS_PER_S / 5)
        return;
    progress->printed_ns = now_ns;
    fprintf(stderr, "\r\033[K%s  %5.1f %%  %.1f of %.1f MB  %.1f MB/s  %.0f s left", progress->what,
            100.0 * (double)done_bytes / (double)progress->total_bytes, (double)done_bytes / 1e6,
            (double)progress->total_bytes / 1e6, rate / 1e6, left_s);
    fflush(stderr);
}

void pull_progress_show(struct pull_progress *progress, uint64_t done_bytes)
{
    unsigned percent = (unsigned)(100 * (double)done_bytes / (double)progress->total_bytes);

    if (progress->is_quiet || progress->what == NULL || done_bytes < progress->begin_bytes)
        return;
    if (progress->is_terminal) {
        show_terminal(progress, done_bytes, clock_now_ns());
    } else if (percent / 10 > progress->printed_percent / 10) {
        progress->printed_percent = percent;
        fprintf(stderr, "%s %u %%\n", progress->what, percent);
    }
}

void pull_progress_end(struct pull_progress *progress)
{
    if (!progress->is_quiet && progress->is_terminal)
        fputs("\r\033[K", stderr);
}
