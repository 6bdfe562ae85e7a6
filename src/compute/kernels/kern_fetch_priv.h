/* SPDX-License-Identifier: Apache-2.0 */
/* Prefetches quantised weights while others are multiplied, a little with each qblk. kern_quant_priv.h
 * chooses the lines, matmul_choice.c the distance.
 *
 * Hot path: no allocation, no log, no system call. */
#ifndef COMPUTE_KERNELS_KERN_FETCH_PRIV_H
#define COMPUTE_KERNELS_KERN_FETCH_PRIV_H

#include "compute/kernels/kern_chunk_priv.h"

enum { LINE_BYTES = 64, FAR_WINDOW = 8192 };

/* Prefetches [done, due) of each panel; both grow with the qblks that pass. */
struct fetching {
    const uint8_t *near, *far; /* to the first-level cache if is_near; to the second (NULL: not) */
    bool is_near, is_spread;
    size_t panel_step;
    size_t done, due, step;
};

/* Lines for the second-level cache may alternate between two pages of a panel: this keeps more of the
 * memory busy. */
INLINED size_t far_at(const struct fetching *fetching, size_t done)
{
    const size_t line = done % FAR_WINDOW / LINE_BYTES;

    if (!fetching->is_spread)
        return done;
    return done - done % FAR_WINDOW + line % 2 * (FAR_WINDOW / 2) + line / 2 * LINE_BYTES;
}

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

/* Far lines go first, because they take longer. Expanded weights, which many tiles share, keep the
 * first-level cache to themselves. */
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
    const bool is_packed = form.scale != SCALE_F32;
    const size_t from = fetching->done;
    size_t done = from;

    fetching->due += fetching->step;
    if (is_packed && fetching->far != NULL)
        for (; done < fetching->due; done += LINE_BYTES)
            fetch_lines(fetching->far + far_at(fetching, done), fetching->panel_step, n_panels, false);
    for (done = from; done < fetching->due; done += LINE_BYTES)
        fetch_lines(fetching->near + done, fetching->panel_step, n_panels, is_packed && fetching->is_near);
    fetching->done = done;
}

#endif
