/* SPDX-License-Identifier: Apache-2.0 */
/* Ownership of a work order's heap members. */
#include "compute/order/work.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define HASH_LANES  8
#define HASH_FACTOR UINT64_C(0x9e3779b97f4a7c15)

int work_order_copy_bias(struct work_order *order, const struct sample_bias *bias, uint32_t n)
{
    struct sample_opts *sample = &order->work.sample;
    struct sample_bias *copy = n > 0 ? malloc(n * sizeof(*copy)) : NULL;

    sample->bias = copy;
    sample->n_bias = copy != NULL ? n : 0;
    if (n > 0 && copy == NULL)
        return E_NOMEM;
    if (n > 0)
        memcpy(copy, bias, n * sizeof(*copy));
    return 0;
}

struct work_order work_order_move(struct work_order *from)
{
    struct work_order order = *from;

    *from = (struct work_order){0};
    return order;
}

/* Several lanes, so that the multiplications do not wait for each other. */
uint64_t work_order_hash_prompt(const struct work_order *order)
{
    uint64_t lanes[HASH_LANES], hash = order->n_prompt;

    for (uint32_t lane = 0; lane < HASH_LANES; lane++)
        lanes[lane] = lane + 1;
    for (uint32_t i = 0; i < order->n_prompt; i++) {
        uint64_t *lane = &lanes[i % HASH_LANES];

        *lane = (*lane ^ order->tokens[i]) * HASH_FACTOR;
        *lane ^= *lane >> 32;
    }
    for (uint32_t lane = 0; lane < HASH_LANES; lane++)
        hash = (hash ^ lanes[lane]) * HASH_FACTOR + (hash >> 32);
    return hash;
}

void work_order_free_tokens(struct work_order *order)
{
    free(order->tokens);
    order->tokens = NULL;
    buf_fini(&order->constraint);
}

void work_order_fini(struct work_order *order)
{
    work_order_free_tokens(order);
    free((struct sample_bias *)order->work.sample.bias);
    order->work.sample.bias = NULL;
    order->work.sample.n_bias = 0;
}
