/* SPDX-License-Identifier: Apache-2.0 */
/* Packs weights: from rows in a model file to panels for the kernels.
 *
 *     file:   row 0   w w w w w w ...           panel 0:   k 0:  row 0, row 1, .. row 15
 *             row 1   w w w w w w ...    ->                k 1:  row 0, row 1, .. row 15
 *             ...                                          ...
 *             row 15                            (one output row per vector lane)
 *
 * Every rank packs its share of the panels, so each memory page is first touched by the rank that will
 * read it. Missing rows of the last panel are zero. Quantised types keep their bits in another order
 * (quant.h, weight_quant.c). */
#include "compute/tensor/weight_priv.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

enum { PACK_COLS = CHUNK_COLS }; /* at once: their part of a panel fits the first-level cache */
enum { LINE_BYTES = 64 };

struct packing {
    struct weight *weight;
    enum dtype source; /* F16 may become BF16 */
    const struct weight_part *parts;
    uint32_t n_parts;
    size_t row_bytes; /* bytes in the file */
    uint64_t end_ns;  /* when to give up; 0: never */
    atomic_bool is_late;
};

static bool packing_is_late(struct packing *packing)
{
    if (packing->end_ns == 0)
        return false;
    if (clock_now_ns() >= packing->end_ns)
        atomic_store_explicit(&packing->is_late, true, memory_order_relaxed);
    return atomic_load_explicit(&packing->is_late, memory_order_relaxed);
}

/* A row of the stacked matrix; NULL past the last row. */
static const char *source_row(const struct packing *packing, uint32_t row)
{
    for (uint32_t i = 0; i < packing->n_parts; i++) {
        if (row < packing->parts[i].rows)
            return (const char *)packing->parts[i].data + row * packing->row_bytes;
        row -= packing->parts[i].rows;
    }
    return NULL;
}

/* Copies columns [from, to) of a row into its lane. */
static void pack_plain16(const char *row, uint32_t from, uint32_t to, uint16_t *lane)
{
    for (uint32_t k = from; k < to; k++)
        memcpy(lane + (size_t)k * PANEL_ROWS, row + (size_t)k * 2, 2);
}

static void pack_plain32(const char *row, uint32_t from, uint32_t to, uint32_t *lane)
{
    for (uint32_t k = from; k < to; k++)
        memcpy(lane + (size_t)k * PANEL_ROWS, row + (size_t)k * 4, 4);
}

static void pack_plain(const struct packing *packing, const void *row, char *panel, uint32_t lane,
                       uint32_t from)
{
    const struct weight *weight = packing->weight;
    uint32_t to = weight->cols - from < PACK_COLS ? weight->cols : from + PACK_COLS;

    if (weight->is_dots || packing->source != weight->type)
        weight_dots_pack(weight, packing->source, &(struct weight_lane){row, panel, lane, from, to});
    else if (weight->type == DTYPE_F32)
        pack_plain32(row, from, to, (uint32_t *)panel + lane);
    else
        pack_plain16(row, from, to, (uint16_t *)panel + lane);
}

/* Prefetches columns [from, from + PACK_COLS) of a panel's rows. The pieces are too short and too far
 * apart for the processor to predict. */
static void fetch_columns(const struct packing *packing, const char *const *rows, uint32_t from)
{
    const struct dtype_info *info = dtype_info(packing->source);
    const size_t begin = from / info->qblk_weights * info->qblk_bytes;
    const size_t len = PACK_COLS / info->qblk_weights * info->qblk_bytes;
    const size_t end = begin + len < packing->row_bytes ? begin + len : packing->row_bytes;

    for (uint32_t lane = 0; lane < PANEL_ROWS && rows[lane] != NULL; lane++)
        for (size_t at = begin; at < end; at += LINE_BYTES)
            __builtin_prefetch(rows[lane] + at);
}

/* Packs columns from `from` on of all rows of a panel. */
static void pack_columns(const struct packing *packing, const char *const *rows, char *panel, uint32_t from)
{
    const struct weight *weight = packing->weight;
    uint32_t rest = weight->cols - from;

    if (weight_is_quant(weight->type))
        quant_pack_chunk(
            &(struct quant_source){.type = weight->type,
                                   .rows = rows,
                                   .k = from,
                                   .n_qblks = (rest < CHUNK_COLS ? rest : CHUNK_COLS) / QBLK_WEIGHTS},
            (uint8_t *)panel + quant_panel_at(quant_form(weight->type), from));
    else
        for (uint32_t lane = 0; lane < PANEL_ROWS && rows[lane] != NULL; lane++)
            pack_plain(packing, rows[lane], panel, lane, from);
}

static void pack_job(void *arg, unsigned rank, unsigned n_ranks)
{
    struct packing *packing = arg;
    const struct weight *weight = packing->weight;
    uint64_t first, end;

    team_split(weight_n_panels(weight->rows), 1, rank, n_ranks, &first, &end);
    for (uint32_t p = (uint32_t)first; p < end && !packing_is_late(packing); p++) {
        char *panel = (char *)weight->panels + p * weight_panel_bytes(weight);
        const char *rows[PANEL_ROWS];

        for (uint32_t lane = 0; lane < PANEL_ROWS; lane++)
            rows[lane] = source_row(packing, p * PANEL_ROWS + lane);
        for (uint32_t from = 0; from < weight->cols; from += PACK_COLS) {
            fetch_columns(packing, rows, from + PACK_COLS);
            pack_columns(packing, rows, panel, from);
        }
    }
}

bool weight_type_ok(enum dtype type)
{
    return weight_is_quant(type) || weight_plain_bytes(type) > 0;
}

const char *weight_types(char *out, size_t capacity_bytes)
{
    size_t len = 0;

    out[0] = 0;
    for (uint32_t type = 0; type <= DTYPE_MXFP4; type++)
        if (weight_type_ok(type) && len < capacity_bytes)
            len += (size_t)snprintf(out + len, capacity_bytes - len, "%s%s", len > 0 ? " " : "",
                                    dtype_info(type)->name);
    return out;
}

/* The flags set in *packing->weight choose the form: plain or quantised, dots, tiles. */
static int pack_as(struct packing *packing, enum dtype type, struct team *team)
{
    struct weight *out = packing->weight, weight = *out;
    const struct weight_part *parts = packing->parts;
    uint32_t n_parts = packing->n_parts;
    uint32_t cols = weight.cols;
    uint64_t rows = 0;

    if (!weight_type_ok(type))
        return E_UNSUPPORTED;
    for (uint32_t i = 0; i < n_parts; i++)
        rows += parts[i].rows;
    const struct dtype_info *info = dtype_info(type);
    if (cols == 0 || cols % info->qblk_weights != 0 || rows == 0 || rows > UINT32_MAX - PANEL_ROWS)
        return E_INVAL;

    weight.rows = (uint32_t)rows;
    struct mem_region region;
    size_t panel_bytes = weight_panel_bytes(&weight), len_bytes;
    if (__builtin_mul_overflow(panel_bytes, weight_n_panels(weight.rows), &len_bytes))
        return E_NOMEM;
    int rc = mem_region_open(len_bytes, false, false, "weights", &region);
    if (rc < 0)
        return rc;
    weight.panels = region.base;
    weight.len_bytes = len_bytes;
    weight.region_bytes = region.len_bytes;
    quant_lookup(type, weight.lookup);

    packing->source = type;
    packing->row_bytes = (size_t)cols / info->qblk_weights * info->qblk_bytes;
    *out = weight;
    team_run(team, pack_job, packing);
    if (!packing_is_late(packing))
        return 0;
    weight_fini(out);
    return E_TIMEOUT;
}

int weight_pack(const struct kern_table *table, enum dtype type, const struct weight_part *parts,
                uint32_t n_parts, uint32_t cols, struct team *team, struct weight *out)
{
    struct weight weight = {.table = table, .type = type, .cols = cols};
    struct packing packing = {.weight = &weight, .parts = parts, .n_parts = n_parts};
    int rc = pack_as(&packing, type, team);

    if (rc == 0)
        *out = weight;
    return rc;
}

int weight_pack_before(uint64_t end_ns, const struct weight_part *parts, uint32_t n_parts, struct team *team,
                       struct weight *weight)
{
    struct weight packed = *weight;
    struct packing packing = {.weight = &packed, .parts = parts, .n_parts = n_parts, .end_ns = end_ns};
    int rc = pack_as(&packing, weight->type, team);

    if (rc == 0)
        *weight = packed;
    return rc;
}

static int pack_bf16(struct weight weight, enum dtype type, const struct weight_part *parts, uint32_t n_parts,
                     struct team *team, struct weight *out)
{
    struct packing packing = {.weight = &weight, .parts = parts, .n_parts = n_parts};
    int rc = type == DTYPE_F16 || type == DTYPE_BF16 ? pack_as(&packing, type, team) : E_UNSUPPORTED;

    if (rc == 0)
        *out = weight;
    return rc;
}

int weight_pack_dots(const struct kern_table *table, enum dtype type, const struct weight_part *parts,
                     uint32_t n_parts, uint32_t cols, struct team *team, struct weight *out)
{
    return pack_bf16((struct weight){.table = table,
                                     .type = DTYPE_BF16,
                                     .cols = cols,
                                     .is_dots = kern_has_dots(table),
                                     .is_paired = kern_has_fast_dots(table)},
                     type, parts, n_parts, team, out);
}

int weight_pack_tiles(const struct kern_table *table, enum dtype type, const struct weight_part *parts,
                      uint32_t n_parts, uint32_t cols, struct team *team, struct weight *out)
{
    return pack_bf16((struct weight){.table = table,
                                     .type = DTYPE_BF16,
                                     .cols = cols,
                                     .is_dots = kern_has_dots(table),
                                     .is_tiles = kern_has_dots(table),
                                     .is_paired = kern_has_fast_tiles(table)},
                     type, parts, n_parts, team, out);
}

void weight_fini(struct weight *weight)
{
    struct mem_region region = {.base = weight->panels, .len_bytes = weight->region_bytes, .fd = -1};

    if (weight->panels != NULL)
        mem_region_close(&region);
    *weight = (struct weight){0};
}

void weight_row(const struct weight *weight, uint32_t row, float *out)
{
    const void *panel = weight_panel(weight, row / PANEL_ROWS);
    uint32_t lane = row % PANEL_ROWS;

    ASSERT(row < weight->rows);
    if (weight->is_dots)
        weight_dots_row(weight, panel, lane, out);
    else if (weight_is_quant(weight->type))
        quant_row(weight, panel, lane, out);
    else if (weight->type == DTYPE_F32)
        for (uint32_t k = 0; k < weight->cols; k++)
            out[k] = ((const float *)panel)[(size_t)k * PANEL_ROWS + lane];
    else if (weight->type == DTYPE_F16)
        for (uint32_t k = 0; k < weight->cols; k++)
            out[k] = f16_to_f32(((const uint16_t *)panel)[(size_t)k * PANEL_ROWS + lane]);
    else
        for (uint32_t k = 0; k < weight->cols; k++)
            out[k] = bf16_to_f32(((const uint16_t *)panel)[(size_t)k * PANEL_ROWS + lane]);
}
