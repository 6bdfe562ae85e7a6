/* SPDX-License-Identifier: Apache-2.0 */
/* Mixes rows: a token's experts, each times its weight, added from first to last. Per row and element one
 * multiplication, then one fused multiply-add per further row, on every instruction set.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/kern_set_priv.h"

void KERN(mix_rows)(const float *const *rows, const float *weights, uint32_t n_rows, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i += 16) {
        uint32_t lanes = n - i < 16 ? n - i : 16;
        v16 sum = v16_zero();

        for (uint32_t r = 0; r < n_rows; r++) {
            v16 row = lanes < 16 ? v16_load_n(rows[r] + i, lanes) : v16_load(rows[r] + i);
            sum = r == 0 ? v16_mul(v16_set1(weights[r]), row) : v16_fma(v16_set1(weights[r]), row, sum);
        }
        if (lanes < 16)
            v16_store_n(out + i, sum, lanes);
        else
            v16_store(out + i, sum);
    }
}
