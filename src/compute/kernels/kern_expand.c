/* SPDX-License-Identifier: Apache-2.0 */
/* Expands chunks of packed weights, so that many tokens share the work. Bit fields become bytes (at their
 * old shift); small scales times a half become floats (exactly). The result has the same form for all
 * types (quant_expanded) and stays in the first-level cache while the tokens use it.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/kern_quant_priv.h"

INLINED void expand_qblk(struct quant_form form, const struct chunk *chunk, struct sub_at at,
                         const struct quant_chunk *to, uint8_t *out)
{
    const size_t sub = (size_t)at.qblk * form.n_subs;
    /* A store between two of them would make the compiler repeat the lookups that they share. */
    b64 fours[FOURS];

#pragma GCC unroll Q8_UNROLLED_FOURS
    for (uint32_t four = 0; four < FOURS; four++)
        fours[four] = chunk_four(form, chunk, 0, at.qblk, at.parity, four);
#pragma GCC unroll Q8_UNROLLED_FOURS
    for (uint32_t four = 0; four < FOURS; four++)
        b64_store(out + ((size_t)at.qblk * FOURS + four) * FOUR_BYTES, fours[four]);
#pragma GCC unroll 2
    for (at.sub = 0; at.sub < form.n_subs; at.sub++) {
        v16_store((float *)(out + to->scale) + (sub + at.sub) * PANEL_ROWS, chunk_scale(form, chunk, 0, at));
        if (form.has_min)
            v16_store((float *)(out + to->min) + (sub + at.sub) * PANEL_ROWS, chunk_min(form, chunk, 0, at));
    }
}

INLINED void expand_form(const struct expand *expand, struct quant_form form)
{
    struct chunk chunk = {
        .at = expand->chunk, .lookup = expand->lookup, .points = expand->points, .unit = expand->unit};
    struct quant_chunk to = quant_chunk(quant_expanded(form), expand->n_qblks);

    chunk_open(form, expand->n_qblks, 1, &chunk);
    for (uint32_t qblk = 0; qblk < expand->n_qblks; qblk++) {
        expand_qblk(form, &chunk, (struct sub_at){qblk, 0, 0}, &to, expand->out);
        if (++qblk < expand->n_qblks)
            expand_qblk(form, &chunk, (struct sub_at){qblk, 1, 0}, &to, expand->out);
    }
}

/* Each type has its own function, because compile time grows faster than the size of a function. */
#define FUNCTION(type, ...)                                                                                  \
    static __attribute__((noinline)) void expand_##type(const struct expand *expand)                         \
    {                                                                                                        \
        expand_form(expand, quant_form(type));                                                               \
    }
KERN_TYPES(FUNCTION)
#undef FUNCTION

void Q8(expand_q8)(const struct expand *expand)
{
    switch ((uint32_t)expand->type) {
#define CASE(type, ...)                                                                                      \
    case type:                                                                                               \
        expand_##type(expand);                                                                               \
        break;
        KERN_TYPES(CASE)
#undef CASE
    }
}
