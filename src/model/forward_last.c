/* SPDX-License-Identifier: Apache-2.0 */
/* The last layer of a pass.  Hot path.
 *
 * When its keys and values are stored, only the rows that want logits have a future: one per answer that goes
 * on, none of a prompt's chunk that is not its last.  So they move up and the rest is left behind:
 *
 *     rows     a0 a1 a2 a3 | b0 | c0 c1 c2          ->    a3 | b0         (c wants none)
 *     items    a           | b  | c                       a: one token, three positions on | b
 *
 * A row's bits do not depend on its company, so this changes none.  A prompt of n tokens saves nearly all of
 * the last layer's queries, output and feed-forward network: of 16 layers, the time of almost one. */
#include "model/model_priv.h"

#include <string.h>

void forward_narrow(struct forward *f, float *rows, size_t width, size_t stride)
{
    struct model_state *state = f->state;
    size_t hidden = f->model->config.hidden;
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->n_items; i++) {
        struct attn_item item = state->items[i];
        size_t row = item.first + item.n_tokens - 1;

        if (state->logits_row[i] == UINT32_MAX)
            continue;
        memmove(rows + n * stride, rows + row * stride, width * sizeof(*rows));
        memmove(state->x + n * hidden, state->x + row * hidden, hidden * sizeof(*state->x));
        item.position += item.n_tokens - 1;
        item.first = n;
        item.n_tokens = 1;
        state->items[n++] = item; /* never ahead of what is read */
    }
    f->n_items = f->n_rows = n;
    f->is_narrowed = true;
}
