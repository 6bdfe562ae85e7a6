/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the margins of routers that share workers alike.
 *
 *     row = digest of the model's fingerprint 8 | margin of first tokens 4 | margin of the time between tokens 4
 *
 * Ten times a second a router that has learned sends its margins.  Each receiver moves its own a part of the way
 * (fleet/picker/admit.h says why).  So margins follow the mean of the routers that place requests. */
#include "fleet/router/margins_priv.h"

#include "base/str.h"

#define MARGINS_UNIT 1e6
#define MARGINS_ZERO UINT32_C(1000000) /* added, because margins may be negative */

static uint32_t margins_encode(const struct picker_lateness *late)
{
    return (uint32_t)(picker_lateness_margin(late) * MARGINS_UNIT + MARGINS_ZERO);
}

static double margins_decode(uint32_t encoded)
{
    return ((double)encoded - MARGINS_ZERO) / MARGINS_UNIT;
}

void margins_pack(struct router *router, struct buf *out)
{
    for (uint32_t i = 0; i < router->n_models && i < MARGINS_MAX_ROWS; i++) {
        struct router_model *model = &router->models[i];
        uint32_t n_learned = model->late.n_seen + model->itl_late.n_seen;
        uint8_t image[MARGINS_ROW_BYTES];

        if (n_learned == model->n_margins_sent)
            continue;
        model->n_margins_sent = n_learned;
        put_u64(image, str_digest(model->gen.fingerprint));
        put_u32(image + 8, margins_encode(&model->late));
        put_u32(image + 12, margins_encode(&model->itl_late));
        buf_append(out, image, sizeof(image));
    }
}

void margins_receive(struct router *router, struct bytes section)
{
    for (size_t at = 0;
         at + MARGINS_ROW_BYTES <= section.len_bytes && at < MARGINS_MAX_ROWS * MARGINS_ROW_BYTES;
         at += MARGINS_ROW_BYTES) {
        const uint8_t *image = section.data + at;

        for (uint32_t i = 0; i < router->n_models; i++) {
            struct router_model *model = &router->models[i];

            if (str_digest(model->gen.fingerprint) != get_u64(image))
                continue;
            model->itl_late.least = PICKER_ITL_LEAST;
            picker_lateness_approach(&model->late, margins_decode(get_u32(image + 8)));
            picker_lateness_approach(&model->itl_late, margins_decode(get_u32(image + 12)));
            metric_set(router->admission.m_margin, picker_lateness_margin(&model->late));
        }
    }
}
