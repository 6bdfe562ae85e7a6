/* SPDX-License-Identifier: Apache-2.0 */
/* Random weights in quantised types.
 *
 * Quantising well takes a hundred times as long as drawing a number.  So each tensor gets a pool of qblks that
 * were quantised from normal weights; every qblk of the tensor is a random one of the pool.
 *
 * This project does not quantise to the IQ, TQ and FP4 types.  Their pools hold random bits: all bits but those of
 * floats are valid weights there, and one scale for all qblks gives the wanted size.  Their weights are not normal.
 * A type with another float, such as a minimum, sets that in put_scale_one() too. */
#include "clients/model/make_priv.h"

#include "base/check.h"
#include "base/err.h"
#include "gguf/qblk.h"
#include "gguf/qblk_write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POOL_WEIGHTS = 1 << 16 };

/* Types that this project reads and does not write. */
static bool is_drawn(enum dtype type)
{
    return qblk_form(type) != NULL && !qblk_can_write(type);
}

bool make_can(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16 || qblk_can_write(type) ||
           is_drawn(type);
}

/* Scale of NVFP4, an unsigned number of four exponent and three mantissa bits; 1 is 0x38. */
static uint8_t e4m3_of(double scale)
{
    int exponent;
    double fraction = frexp(scale, &exponent);

    if (scale < 0x1p-6)
        return (uint8_t)lrint(scale * 0x1p9);
    return scale > 400 ? 0x7e : (uint8_t)((exponent + 6) * 8 + lrint((2 * fraction - 1) * 8));
}

/* Gives a qblk this scale; half: as an F16. */
static void put_scale_one(enum dtype type, double scale, uint16_t half, uint8_t *qblk)
{
    switch ((uint32_t)type) {
    case DTYPE_MXFP4:
        qblk[0] = (uint8_t)(127 + lrint(log2(scale)));
        break;
    case DTYPE_NVFP4:
        memset(((struct qblk_nvfp4 *)qblk)->scales, e4m3_of(scale),
               sizeof(((struct qblk_nvfp4 *)qblk)->scales));
        break;
    case DTYPE_IQ1_M: /* four bits in each of four words */
        for (unsigned i = 0; i < 4; i++) {
            uint8_t *high = &((struct qblk_iq1_m *)qblk)->subs[2 * i + 1];

            *high = (uint8_t)((*high & 15) | (half >> 4 * i & 15) << 4);
        }
        break;
    case DTYPE_TQ1_0:
        memcpy(((struct qblk_tq1_0 *)qblk)->scale, &half, sizeof(half));
        break;
    case DTYPE_TQ2_0:
        memcpy(((struct qblk_tq2_0 *)qblk)->scale, &half, sizeof(half));
        break;
    default: /* the scale is first */
        memcpy(qblk, &half, sizeof(half));
    }
}

static void put_scale(enum dtype type, double scale, uint32_t n, uint8_t *qblks)
{
    const uint16_t half = f32_to_f16((float)scale);

    for (uint32_t i = 0; i < n; i++, qblks += dtype_info(type)->qblk_bytes)
        put_scale_one(type, scale, half, qblks);
}

/* weights: room for n qblks, to measure the size of weights at scale 1. */
static int draw_qblks(const struct qblk_draw *draw, struct rng *rng, uint32_t n, float *weights,
                      uint8_t *qblks)
{
    const enum dtype type = draw->type;
    const struct dtype_info *info = dtype_info(type);
    const size_t n_weights = (size_t)n * info->qblk_weights;
    double square = 0;

    for (size_t i = 0; i < (size_t)n * info->qblk_bytes; i++)
        qblks[i] = (uint8_t)rng_u64(rng);
    put_scale(type, 1.0, n, qblks);
    int rc = qblk_row_f32(type, qblks, n_weights, weights);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n_weights; i++)
        square += (double)weights[i] * (double)weights[i];
    ASSERT(isfinite(square)); /* put_scale_one() sets all floats of the type */
    put_scale(type, draw->deviation / sqrt(square / (double)n_weights), n, qblks);
    return 0;
}

int make_qblk_pool(const struct qblk_draw *draw, struct rng *rng, struct qblk_pool *out)
{
    const enum dtype type = draw->type;
    const struct dtype_info *info = dtype_info(type);
    float *weights = malloc(POOL_WEIGHTS * sizeof(*weights));
    uint32_t n = POOL_WEIGHTS / info->qblk_weights;
    uint8_t *qblks = malloc((size_t)n * info->qblk_bytes);
    int rc = weights != NULL && qblks != NULL ? 0 : E_NOMEM;

    for (unsigned i = 0; i < POOL_WEIGHTS && rc == 0; i++)
        weights[i] = (float)(draw->quantiles[rng_below(rng, draw->n_quantiles)] * draw->deviation);
    if (rc == 0)
        rc = is_drawn(type) ? draw_qblks(draw, rng, n, weights, qblks)
                            : qblk_from_f32(type, weights, POOL_WEIGHTS, qblks);
    free(weights);
    if (rc < 0) {
        free(qblks);
        return rc;
    }
    *out =
        (struct qblk_pool){.qblks = qblks, .n = n, .weights = info->qblk_weights, .bytes = info->qblk_bytes};
    return 0;
}

size_t make_from_pool(const struct qblk_pool *pool, struct rng *rng, size_t n_weights, uint8_t *out)
{
    size_t n = n_weights / pool->weights;

    for (size_t i = 0; i < n; i++)
        memcpy(out + i * pool->bytes, pool->qblks + rng_below(rng, pool->n) * pool->bytes, pool->bytes);
    return n * pool->bytes;
}
