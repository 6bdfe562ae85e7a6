/* SPDX-License-Identifier: Apache-2.0 */
/* Random weights in quantised types.
 *
 * Quantising well takes a hundred times as long as drawing a number, so each tensor gets a pool of qblks that
 * were quantised from normal weights, and every one of its qblks is a random one of these. */
#include "clients/model/make_priv.h"

#include "base/err.h"
#include "gguf/qblk_write.h"

#include <stdlib.h>
#include <string.h>

enum { POOL_WEIGHTS = 1 << 16 };

int make_qblk_pool(enum dtype type, const double *quantiles, unsigned n_quantiles, double deviation,
                   struct rng *rng, struct qblk_pool *out)
{
    const struct dtype_info *info = dtype_info(type);
    float *weights = malloc(POOL_WEIGHTS * sizeof(*weights));
    uint32_t n = POOL_WEIGHTS / info->qblk_weights;
    uint8_t *qblks = malloc((size_t)n * info->qblk_bytes);
    int rc = weights != NULL && qblks != NULL ? 0 : E_NOMEM;

    for (unsigned i = 0; i < POOL_WEIGHTS && rc == 0; i++)
        weights[i] = (float)(quantiles[rng_below(rng, n_quantiles)] * deviation);
    if (rc == 0)
        rc = qblk_from_f32(type, weights, POOL_WEIGHTS, qblks);
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
