/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of packed weights taken apart, so that many tokens share the work: bit fields become bytes
 * (shifted as they were), small scales times a half become floats (exactly).  What comes out is the same form
 * for all types (quant_expanded) and stays in the first-level cache while the tokens go past.
 *
 * Hot path: no allocation, no log, no system call.
 */
#include "tensor/kern_quant_priv.h"

INLINED uint8_t *expand_qblk(struct quant_form form, const struct chunk *chunk, uint32_t qblk,
                             uint32_t parity, uint8_t *out)
{
#pragma GCC unroll 8
    for (uint32_t four = 0; four < FOURS; four++, out += FOUR_BYTES)
        b64_store(out, chunk_four(form, chunk, 0, qblk, parity, four));
    return out;
}

INLINED void expand_form(const struct expand *expand, struct quant_form form)
{
    struct chunk chunk = {.at = expand->chunk, .lookup = expand->lookup};
    struct quant_chunk to = quant_chunk(quant_expanded(form), expand->n_qblks);
    uint8_t *out = expand->out;

    chunk_open(form, expand->n_qblks, 1, &chunk);
    for (uint32_t qblk = 0; qblk < expand->n_qblks; qblk++) {
        out = expand_qblk(form, &chunk, qblk, 0, out);
        if (++qblk < expand->n_qblks)
            out = expand_qblk(form, &chunk, qblk, 1, out);
    }
    for (uint32_t sub = 0; sub < expand->n_qblks * form.n_subs; sub++) {
        v16_store((float *)(expand->out + to.scale) + (size_t)sub * PANEL_ROWS,
                  chunk_scale(form, &chunk, 0, sub));
        if (form.has_min)
            v16_store((float *)(expand->out + to.min) + (size_t)sub * PANEL_ROWS,
                      chunk_min(form, &chunk, 0, sub));
    }
}

void Q8(expand_q8)(const struct expand *expand)
{
    switch ((uint32_t)expand->type) {
#define CASE(type)                                                                                           \
    case type:                                                                                               \
        expand_form(expand, quant_form(type));                                                               \
        break;
        QUANT_TYPES(CASE)
#undef CASE
    }
}
