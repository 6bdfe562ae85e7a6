/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the kernel table, and passes the small operations on to it.
 *
 * All tables give the same bits: each float operation is the same in all of them and in the same order,
 * and integer dots are exact. So there is one numerics id; change it with any change of the arithmetic.
 * Two more ids are for models that multiply with BF16 dots or tiles, which round activations and add
 * products in another order. */
#include "compute/kernels/index.h"
#include "compute/kernels/kern.h"
#include "compute/kernels/recurrent.h"

#include <string.h>

#define NUMERICS_ID       UINT64_C(0x6261746f6e2d0002) /* "baton-", version */
#define DOTS_NUMERICS_ID  UINT64_C(0x6261746f6e620002) /* "batonb" */
#define TILES_NUMERICS_ID UINT64_C(0x6261746f6e740002) /* "batont" */

const struct kern_table *kern_table_get(const char *name)
{
    const struct kern_table *best = NULL;

    for (uint32_t i = 0; i < kern_n_tables; i++) {
        const struct kern_table *table = &kern_tables[i];

        if (table->is_usable() &&
            (strcmp(name, "auto") == 0 || strcmp(name, table->name) == 0 || strcmp(name, table->family) == 0))
            best = table;
    }
    return best;
}

const struct kern_table *kern_table_at(uint32_t index)
{
    for (uint32_t i = 0; i < kern_n_tables; i++)
        if (kern_tables[i].is_usable() && index-- == 0)
            return &kern_tables[i];
    return NULL;
}

const char *kern_table_name(const struct kern_table *table)
{
    return table->name;
}

uint64_t kern_numerics_id(const struct kern_table *table)
{
    (void)table;
    return NUMERICS_ID;
}

uint64_t kern_dots_numerics_id(const struct kern_table *table)
{
    (void)table;
    return DOTS_NUMERICS_ID;
}

uint64_t kern_tiles_numerics_id(const struct kern_table *table)
{
    (void)table;
    return TILES_NUMERICS_ID;
}

bool kern_has_dots(const struct kern_table *table)
{
    (void)table;
    return kern_can_flush();
}

bool kern_has_fast_dots(const struct kern_table *table)
{
    return table->dots != NULL && table->dots->is_usable();
}

bool kern_has_fast_tiles(const struct kern_table *table)
{
    return table->tiles != NULL && table->tiles->is_usable();
}

bool kern_has_points(const struct kern_table *table)
{
    return table->points != NULL && (table->has_points == NULL || table->has_points());
}

enum bf16_math kern_bf16_math(const struct kern_table *table, enum bf16_math asked)
{
    if (!kern_has_dots(table))
        return BF16_EXACT;
    if (asked == BF16_AUTO)
        return kern_has_fast_tiles(table) ? BF16_TILES : BF16_DOTS;
    return asked;
}

void rms_norm(const struct kern_table *table, const float *x, const float *gain, uint32_t n, float eps,
              float *out)
{
    table->vec->rms_norm(x, gain, n, eps, out);
}

void layer_norm(const struct kern_table *table, const float *x, const struct layer_gain *gain, uint32_t n,
                float eps, float *out)
{
    table->vec->layer_norm(x, gain, n, eps, out);
}

void vec_add(const struct kern_table *table, float *x, const float *y, uint32_t n)
{
    table->vec->vec_add(x, y, n);
}

void swiglu(const struct kern_table *table, float *gate, const float *up, uint32_t n)
{
    table->vec->swiglu(gate, up, n);
}

void geglu(const struct kern_table *table, float *gate, const float *up, uint32_t n)
{
    table->vec->geglu(gate, up, n);
}

void gelu(const struct kern_table *table, float *x, uint32_t n)
{
    table->vec->gelu(x, n);
}

void gelu_exact(const struct kern_table *table, float *x, uint32_t n)
{
    table->vec->gelu_exact(x, n);
}

void vec_scale(const struct kern_table *table, float *x, float by, uint32_t n)
{
    table->vec->vec_scale(x, by, n);
}

void vec_cap(const struct kern_table *table, float *x, float cap, uint32_t n)
{
    table->vec->vec_cap(x, cap, n);
}

void rope_rotate(const struct kern_table *table, const struct rope_args *args)
{
    table->vec->rope(args);
}

void conv_rows(const struct kern_table *table, const struct conv_args *args)
{
    table->vec->conv_rows(args);
}

void delta_rows(const struct kern_table *table, const struct delta_args *args)
{
    table->vec->delta_rows(args);
}

void vec_gate(const struct kern_table *table, float *x, const float *gate, uint32_t n)
{
    table->vec->vec_gate(x, gate, n);
}

void kv_store(const struct kv_store_args *args)
{
    args->table->vec->kv_store(args);
}

void kv_gather(const struct kern_table *table, const struct kv_gather_args *args)
{
    table->vec->kv_gather(args);
}

void index_scores(const struct kern_table *table, const struct index_args *args, float *scores_out)
{
    table->vec->index_scores(args, scores_out);
}
