/* SPDX-License-Identifier: Apache-2.0 */
/* The last layer of a pass. Hot path.
 *
 * After its keys and values are stored, only the rows that need logits matter. That is one row per decoding
 * sequence; more where draft tokens are verified; all rows of a prompt whose logprobs are asked for; no row
 * of a prompt chunk that is not the last. These rows move up, and the pass drops the others:
 *
 *     rows     a0 a1 a2 a3 | b0 | c0 c1 c2          ->    a3 | b0         (c needs none)
 *     items    a           | b  | c                       a: one token, three positions on | b
 *
 * A row's bits do not depend on the other rows, so this changes none. A prompt of n tokens saves nearly
 * all of the last layer's queries, output and feed-forward network: with 16 layers, the time of almost
 * one. */
#include "compute/model/model_priv.h"

#include <string.h>

/* Moves rows of one of the pass's arrays up. */
static void last_move(float *rows, size_t to, size_t from, size_t n, size_t width)
{
    if (rows != NULL)
        memmove(rows + to * width, rows + from * width, n * width * sizeof(*rows));
}

void forward_narrow(struct forward *f, float *rows, size_t width, size_t stride)
{
    const struct model_config *c = &f->model->config;
    struct model_state *state = f->state;
    uint32_t n_items = 0, n_rows = 0;

    if (f->model->watch.to.on_input) /* the watch needs all rows */
        return;
    for (uint32_t i = 0; i < f->n_items; i++) {
        struct attn_item item = state->items[i];
        uint32_t n_kept = state->n_kept[i];
        size_t row = item.first + item.n_tokens - n_kept;

        if (n_kept == 0)
            continue;
        for (uint32_t k = 0; k < n_kept; k++)
            memmove(rows + (n_rows + k) * stride, rows + (row + k) * stride, width * sizeof(*rows));
        last_move(state->x, n_rows, row, n_kept, c->hidden);
        last_move(state->input.inputs, n_rows, row, n_kept, (size_t)c->n_layers * c->input);
        last_move(state->recurrent.beside, n_rows, row, n_kept, c->hidden);
        last_move(state->altup.streams, n_rows, row, n_kept, (size_t)c->n_streams * c->hidden);
        last_move(state->altup.laurel, n_rows, row, n_kept, c->hidden);
        item.position += item.n_tokens - n_kept;
        item.first = n_rows;
        item.n_tokens = n_kept;
        n_rows += n_kept;
        state->items[n_items++] = item; /* never ahead of the row being read */
    }
    f->n_items = n_items;
    f->n_rows = n_rows;
    f->is_narrowed = true;
}
