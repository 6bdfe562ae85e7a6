/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 tiles without AMX: what they multiply, quantised weights and activations as their kernels expand and pack them, is
 * multiplied here in plain C.  The products have the bits of integer dots, so both sides have the same order of columns. */
#include "source.h"

#include "base/cpu.h"
#include "compute/kernels/kern.h"
#include "compute/kernels/kern_table.h"
#include "compute/kernels/quant_chunk.h"
#include "compute/kernels/tile_block.h"

enum { ROWS = PANEL_ROWS, COLS = 2 * CHUNK_COLS, TOKENS = 5, QBLKS = COLS / QBLK_WEIGHTS, ROW_BYTES = 64 };

struct operands {
    uint8_t *x; /* [qblk][token][32] BF16 */
    float *base;
    uint8_t *w; /* [qblk] quant_tiles_bytes() */
};

static float tile_number(const uint8_t *at, uint32_t i)
{
    uint32_t bits = (uint32_t)at[2 * i] << 16 | (uint32_t)at[2 * i + 1] << 24;
    float number;

    memcpy(&number, &bits, sizeof(number));
    return number;
}

static void make_operands(const struct weight *weight, const float *x, struct operands *out)
{
    const struct quant_form form = quant_form(weight->type);
    const size_t each = quant_tiles_bytes(form.has_min);
    const uint8_t *chunk = weight->panels;

    out->x = mem_aligned(64, (size_t)QBLKS * TOKENS * ROW_BYTES);
    out->base = mem_aligned(64, (size_t)QBLKS * TOKENS * sizeof(float));
    out->w = mem_aligned(64, QBLKS * each);
    assert_true(out->x != NULL && out->base != NULL && out->w != NULL);
    weight->table->tiles->quant_pack(&(struct pack){.type = weight->type,
                                                    .x = x,
                                                    .x_stride = COLS,
                                                    .n_tokens = TOKENS,
                                                    .to = COLS,
                                                    .out = out->x,
                                                    .base = out->base});
    for (uint32_t at = 0; at < QBLKS; at += CHUNK_QBLKS) {
        weight->table->tiles->quant_expand(&(struct expand){.type = weight->type,
                                                            .chunk = chunk,
                                                            .lookup = weight->lookup,
                                                            .points = weight->points,
                                                            .unit = weight->unit,
                                                            .n_qblks = CHUNK_QBLKS,
                                                            .out = out->w + at * each});
        chunk += quant_chunk(form, CHUNK_QBLKS).end;
    }
}

/* The output of a row (lane) and a token, qblk after qblk as the tiles' vectors add them. */
static float tile_product(struct quant_form form, const struct operands *operands, uint32_t token,
                          uint32_t lane)
{
    float sum = 0;

    for (uint32_t qblk = 0; qblk < QBLKS; qblk++) {
        const uint8_t *x = operands->x + ((size_t)qblk * TOKENS + token) * ROW_BYTES;
        const uint8_t *w = operands->w + qblk * quant_tiles_bytes(form.has_min);
        const float *floats = (const float *)(w + TILES_B_BYTES);
        float dot = 0; /* exact in any order */

        for (uint32_t pair = 0; pair < QBLK_WEIGHTS / 2; pair++)
            for (uint32_t i = 0; i < 2; i++)
                dot +=
                    tile_number(x, 2 * pair + i) * tile_number(w + ((size_t)pair * PANEL_ROWS + lane) * 4, i);
        sum = fmaf(dot, floats[lane], sum);
        if (form.has_min)
            sum = fmaf(operands->base[qblk * TOKENS + token], floats[PANEL_ROWS + lane], sum);
    }
    return sum;
}

static void check_type(struct team *team, struct rng *rng, enum dtype type)
{
    struct source source = source_make(rng, type, ROWS, COLS);
    struct weight weight = source_pack(kern_table_get("auto"), &source, team);
    float *x = check_floats(TOKENS * COLS), y[TOKENS * ROWS];
    void *scratch = mem_aligned(64, matmul_scratch_most(TOKENS, COLS, team_size(team)));
    struct operands operands;

    assert_non_null(scratch);
    for (uint32_t i = 0; i < TOKENS * COLS; i++)
        x[i] = (float)rng_unit(rng) * 2 - 1;
    matmul(team, &(struct matmul_args){.weight = &weight,
                                       .x = x,
                                       .x_stride = COLS,
                                       .n = TOKENS,
                                       .y = y,
                                       .y_stride = ROWS,
                                       .scratch = scratch});
    make_operands(&weight, x, &operands);
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t lane = 0; lane < ROWS; lane++) {
            float product = tile_product(quant_form(weight.type), &operands, t, lane);

            assert_memory_equal(&product, &y[t * ROWS + lane], sizeof(product));
        }
    free(operands.x);
    free(operands.base);
    free(operands.w);
    free(scratch);
    free(x);
    weight_fini(&weight);
    source_free(&source);
}

static void both_sides_have_one_order(void **state)
{
    const struct kern_table *table = kern_table_get("auto");
    struct rng rng;

    if (table->tiles == NULL || !cpu_features_get()->has_avx512_bf16)
        skip();
    rng_init(&rng, 11);
    for (int i = N_PLAIN; i < N_TYPES; i++)
        if (quant_form(source_types[i]).n_subs == 1)
            check_type(*state, &rng, source_types[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_sides_have_one_order)};

    return cmocka_run_group_tests(tests, check_team_open, check_team_close);
}
