/* SPDX-License-Identifier: Apache-2.0 */
/* Prefetches quantised weights while others are multiplied, a little with each qblk. kern_quant_priv.h
 * chooses the lines, matmul_choice.c the distance.
 *
 * Hot path: no allocation, no log, no system call. */
#ifndef COMPUTE_KERNELS_KERN_FETCH_PRIV_H
#define COMPUTE_KERNELS_KERN_FETCH_PRIV_H

#include "compute/kernels/kern_chunk_priv.h"

enum { LINE_BYTES = 64, FAR_WINDOW = 8192 };

/* Prefetches [done, due) of each panel, two lines at a time; both grow with the qblks that pass. */
struct fetching {
    const uint8_t *near, *far; /* to the first-level cache if is_near; to the second (NULL: not) */
    bool is_near, is_spread;
    size_t panel_step;
    size_t done, due, step;
};

/* Prefetches a line of each panel. */
INLINED void fetch_lines(const uint8_t *at, size_t panel_step, uint32_t n_panels, bool is_near)
{
#pragma GCC unroll 4
    for (uint32_t p = 0; p < n_panels; p++, at += panel_step) {
        if (is_near)
            __builtin_prefetch(at, 0, 3);
        else
            __builtin_prefetch(at, 0, 2);
    }
}

/* Prefetches all lines from done to due.  Lines for the second-level cache may alternate between two pages of a panel
 * (is_spread): this keeps more of the memory busy.  Far lines go first, because they take longer. */
INLINED void fetch_due(struct fetching *fetching, uint32_t n_panels, bool has_far, bool is_near)
{
    const uint8_t *near = fetching->near, *far = fetching->far;
    const size_t due = fetching->due, panel_step = fetching->panel_step;
    const size_t within = fetching->is_spread ? FAR_WINDOW - 1 : 0,
                 other = fetching->is_spread ? FAR_WINDOW / 2 : LINE_BYTES;
    size_t done = fetching->done;

    for (; done < due; done += 2 * LINE_BYTES) {
        if (has_far) {
            const uint8_t *first = far + done - (done & within) / 2;

            fetch_lines(first, panel_step, n_panels, false);
            fetch_lines(first + other, panel_step, n_panels, false);
        }
        fetch_lines(near + done, panel_step, n_panels, is_near);
        fetch_lines(near + done + LINE_BYTES, panel_step, n_panels, is_near);
    }
    fetching->done = done;
}

/* Prefetches with one qblk.  Expanded weights, which many tiles share, keep the first-level cache to themselves. */
INLINED void fetch_some(struct quant_form form, struct fetching *fetching, uint32_t n_panels)
{
    if (form.code != CODE_FIELDS) {
        const size_t step = quant_chunk(form, CHUNK_QBLKS).end / CHUNK_QBLKS;

#pragma GCC unroll 8
        for (size_t at = 0; at < step; at += LINE_BYTES)
            fetch_lines(fetching->near + fetching->done + at, fetching->panel_step, n_panels, true);
        fetching->done += fetching->step;
        return;
    }
    fetching->due += fetching->step;
    if (form.scale == SCALE_F32)
        fetch_due(fetching, n_panels, false, false);
    else if (fetching->far != NULL)
        fetch_due(fetching, n_panels, true, true);
    else if (fetching->is_near)
        fetch_due(fetching, n_panels, false, true);
    else
        fetch_due(fetching, n_panels, false, false);
}

#endif
