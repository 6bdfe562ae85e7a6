/* SPDX-License-Identifier: Apache-2.0 */
#include "source.h"

#include <math.h>

#include "gguf/qblk.h"

const enum dtype
    source_types
        [] =
            {
                DTYPE_F32,   DTYPE_F16,     DTYPE_BF16,   DTYPE_Q8_0,    DTYPE_Q4_0,
                DTYPE_Q4_1,  DTYPE_Q5_0,    DTYPE_Q5_1,   DTYPE_Q2_K,    DTYPE_Q3_K,
                DTYPE_Q4_K,  DTYPE_Q5_K,    DTYPE_Q6_K,   DTYPE_IQ4_NL,  DTYPE_IQ4_XS,
                DTYPE_MXFP4, DTYPE_IQ2_XXS, DTYPE_IQ2_XS, DTYPE_IQ3_S, /* the others are packed as one of these */
                DTYPE_IQ1_S, DTYPE_IQ1_M,   DTYPE_IQ2_S,  DTYPE_IQ3_XXS, DTYPE_TQ1_0,
                DTYPE_TQ2_0, DTYPE_NVFP4,   DTYPE_Q1_0,   DTYPE_Q2_0};

static void put_half(uint8_t *to, double value)
{
    uint16_t half = f32_to_f16((float)value);

    memcpy(to, &half, 2);
}

/* Returns where the 16-bit floats of a qblk are; -1: none. */
static void scale_places(enum dtype type, int *scale, int *min)
{
    *scale = type == DTYPE_Q2_K    ? 80
             : type == DTYPE_Q3_K  ? 108
             : type == DTYPE_Q6_K  ? 208
             : type == DTYPE_TQ1_0 ? 52
             : type == DTYPE_TQ2_0 ? 64
                                   : 0;
    *min = type == DTYPE_Q2_K ? 82 : qblk_form(type)->has_min ? 2 : -1;
}

/* The four bits of each quarter of an IQ1_M's small scales, together a 16-bit float. */
static void put_quarters(uint8_t *subs, double value)
{
    uint16_t half = f32_to_f16((float)value);

    for (unsigned i = 0; i < 4; i++)
        subs[2 * i + 1] = (uint8_t)((subs[2 * i + 1] & 15) | (half >> 4 * i & 15) << 4);
}

/* Random bits are left where scale_places() does not know the type. */
static void source_check(enum dtype type, const uint8_t *qblk)
{
    struct qblk_parts parts;

    qblk_parts(type, qblk, &parts);
    assert_true(fabsf(parts.scale) <= 2 && fabsf(parts.min) <= 1);
}

void source_fill_scales(struct rng *rng, enum dtype type, uint8_t *data, size_t n_qblks)
{
    const struct dtype_info *info = dtype_info(type);
    const struct qblk_form *form = qblk_form(type);
    bool has_subs = form->n_subs > 1;
    int scale, min;

    scale_places(type, &scale, &min);
    for (size_t b = 0; b < n_qblks; b++, data += info->qblk_bytes) {
        double size =
            2.0 / (form->quant_high - form->quant_low) / (has_subs ? 40 : 1) * (1 << form->unit_bits);

        if (type == DTYPE_MXFP4)
            data[0] = (uint8_t)check_pick(rng, 120, 126);
        else if (type == DTYPE_NVFP4)
            for (unsigned i = 0; i < 4; i++)
                data[i] = (uint8_t)check_pick(rng, 0x10, 0x30);
        else if (type == DTYPE_IQ1_M)
            put_quarters(data + 48, rng_unit(rng) * size);
        else
            put_half(data + scale, rng_unit(rng) * size);
        if (min >= 0)
            put_half(data + min, (rng_unit(rng) - 0.3) / (has_subs ? 40 : 1));
        source_check(type, data);
    }
}

/* Any bits are a valid qblk. */
static void fill_quants(struct rng *rng, enum dtype type, uint8_t *data, size_t n_qblks)
{
    for (size_t i = 0; i < n_qblks * dtype_info(type)->qblk_bytes; i++)
        data[i] = (uint8_t)rng_u64(rng);
    source_fill_scales(rng, type, data, n_qblks);
}

static void fill_plain(struct rng *rng, struct source *source)
{
    for (size_t i = 0; i < (size_t)source->rows * source->cols; i++) {
        float value = check_normal(rng);

        if (source->type == DTYPE_F32)
            ((float *)source->data)[i] = value;
        else
            ((uint16_t *)source->data)[i] =
                source->type == DTYPE_F16 ? f32_to_f16(value) : f32_to_bf16(value);
    }
}

struct source source_make(struct rng *rng, enum dtype type, uint32_t rows, uint32_t cols)
{
    const struct dtype_info *info = dtype_info(type);
    struct source source = {.type = type, .rows = rows, .cols = cols};
    size_t n = (size_t)rows * cols;

    assert_int_equal(cols % info->qblk_weights, 0);
    source.data = malloc(n / info->qblk_weights * info->qblk_bytes);
    source.values = malloc(n * sizeof(double));
    source.floats = malloc(n * sizeof(float));
    assert_non_null(source.data);
    assert_non_null(source.values);
    assert_non_null(source.floats);
    if (qblk_form(type) != NULL)
        fill_quants(rng, type, source.data, n / info->qblk_weights);
    else
        fill_plain(rng, &source);
    assert_int_equal(qblk_row_f64(type, source.data, n, source.values), 0);
    assert_int_equal(qblk_row_f32(type, source.data, n, source.floats), 0);
    return source;
}

void source_free(struct source *source)
{
    free(source->data);
    free(source->values);
    free(source->floats);
}

uint32_t source_cols(enum dtype type, uint32_t cols)
{
    uint32_t unit = dtype_info(type)->qblk_weights;

    return unit == 1 ? cols : (cols + unit - 1) / unit * unit;
}

struct weight source_pack_runs(const struct kern_table *table, const struct source *source, struct team *team,
                               uint32_t n_runs)
{
    struct weight weight;
    struct weight_part part = {source->data, source->rows};
    struct weight_packing packing = {.table = table,
                                     .type = source->type,
                                     .parts = &part,
                                     .n_parts = 1,
                                     .cols = source->cols,
                                     .n_runs = n_runs,
                                     .team = team};

    assert_int_equal(weight_pack(&packing, &weight), 0);
    return weight;
}

struct weight source_pack(const struct kern_table *table, const struct source *source, struct team *team)
{
    return source_pack_runs(table, source, team, 1);
}
