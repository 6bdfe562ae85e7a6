/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the margins of routers that share workers alike.
 *
 *     row = digest of the model's fingerprint 8 | margin of first tokens 4 | margin of the time between tokens 4
 *
 * Ten times a second a router that has learned sends its margins, and before them in rows of the same form how far its own
 * samples moved them.  Each receiver moves its own as far, and then a part of the way to the sender's (fleet/picker/admit.h
 * says why).  So margins rise as fast as those of one router, and follow the mean of the routers that place requests.  An
 * older router sends and reads no moves. */
#include "fleet/router/margins_priv.h"

#include "base/str.h"

#define MARGINS_UNIT 1e6
#define MARGINS_ZERO UINT32_C(1000000) /* added, because margins may be negative */

static uint32_t margins_encode(double margin)
{
    margin = margin < -1 ? -1 : margin > 1 ? 1 : margin;
    return (uint32_t)(margin * MARGINS_UNIT + MARGINS_ZERO);
}

static double margins_decode(uint32_t encoded)
{
    return ((double)encoded - MARGINS_ZERO) / MARGINS_UNIT;
}

static void margins_put(struct buf *out, const struct router_model *model, double first, double between)
{
    uint8_t image[MARGINS_ROW_BYTES];

    put_u64(image, str_digest(model->gen.fingerprint));
    put_u32(image + 8, margins_encode(first));
    put_u32(image + 12, margins_encode(between));
    buf_append(out, image, sizeof(image));
}

void margins_pack(struct router *router, struct buf *margins, struct buf *moves)
{
    for (uint32_t i = 0; i < router->n_models && i < MARGINS_MAX_ROWS; i++) {
        struct router_model *model = &router->models[i];
        uint32_t n_learned = model->late.n_seen + model->itl_late.n_seen;

        if (n_learned == model->n_margins_sent)
            continue;
        model->n_margins_sent = n_learned;
        margins_put(margins, model, picker_lateness_margin(&model->late),
                    picker_lateness_margin(&model->itl_late));
        margins_put(moves, model, picker_lateness_take(&model->late), picker_lateness_take(&model->itl_late));
    }
}

void margins_skip(struct router *router)
{
    for (uint32_t i = 0; i < router->n_models; i++) {
        (void)picker_lateness_take(&router->models[i].late);
        (void)picker_lateness_take(&router->models[i].itl_late);
    }
}

static void margins_apply(struct router *router, struct bytes section, bool are_moves)
{
    void (*apply)(struct picker_lateness *, double) =
        are_moves ? picker_lateness_join : picker_lateness_approach;

    for (size_t at = 0;
         at + MARGINS_ROW_BYTES <= section.len_bytes && at < MARGINS_MAX_ROWS * MARGINS_ROW_BYTES;
         at += MARGINS_ROW_BYTES) {
        const uint8_t *image = section.data + at;

        for (uint32_t i = 0; i < router->n_models; i++) {
            struct router_model *model = &router->models[i];

            if (str_digest(model->gen.fingerprint) != get_u64(image))
                continue;
            model->itl_late.least = PICKER_ITL_LEAST;
            apply(&model->late, margins_decode(get_u32(image + 8)));
            apply(&model->itl_late, margins_decode(get_u32(image + 12)));
            metric_set(router->admission.m_margin, picker_lateness_margin(&model->late));
        }
    }
}

void margins_receive(struct router *router, struct bytes section)
{
    margins_apply(router, section, false);
}

void margins_receive_moves(struct router *router, struct bytes section)
{
    margins_apply(router, section, true);
}
