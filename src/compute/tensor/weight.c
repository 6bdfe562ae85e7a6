/* SPDX-License-Identifier: Apache-2.0 */
/* Packs weights: from rows in a model file to panels for the kernels.
 *
 *     file:   row 0   w w w w w w ...           panel 0:   k 0:  row 0, row 1, .. row 15
 *             row 1   w w w w w w ...    ->                k 1:  row 0, row 1, .. row 15
 *             ...                                          ...
 *             row 15                            (one output row per vector lane)
 *
 * Every rank packs its share of the panels, so each memory page is first touched by the rank that will
 * read it. With several memory nodes, the kernel is also asked for the node, because a page may be larger than
 * a rank's share. A refusal costs speed only.
 *
 *     parts   | rows of node 0 | rows of node 1 |          copies   | all rows | all rows |
 *                                                                  node 0     node 1
 *
 * weight_nodes.c says which rows a node has.
 *
 * Missing rows of the last panel are zero. Quantised types keep their bits in another order
 * (quant.h, weight_quant.c). */
#include "compute/tensor/weight_priv.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/numa.h"
#include "gguf/qblk.h"

enum { PACK_COLS = CHUNK_COLS }; /* at once: their part of a panel fits the first-level cache */
enum { LINE_BYTES = 64, PAGE_ALIGN_BYTES = 4096, COPY_ALIGN_BYTES = 2 << 20 };

struct packing {
    struct weight *weight;
    struct team *team;
    enum dtype source; /* F16 may become BF16 */
    const struct weight_part *parts;
    const float *scales; /* of parts; NULL: 1 */
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

/* A row of the stacked matrix, and its scale; NULL past the last row. */
static const char *source_row(const struct packing *packing, uint32_t row, float *scale_out)
{
    *scale_out = 1.0f;
    for (uint32_t i = 0; i < packing->n_parts; i++) {
        if (row < packing->parts[i].rows) {
            if (packing->scales != NULL)
                *scale_out = packing->scales[i];
            return (const char *)packing->parts[i].data + row * packing->row_bytes;
        }
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
static void pack_columns(const struct packing *packing, const char *const *rows, const float *scales,
                         char *panel, uint32_t from)
{
    const struct weight *weight = packing->weight;
    uint32_t rest = weight->cols - from;

    if (weight_is_quant(weight->type))
        quant_pack_chunk(
            &(struct quant_source){.type = packing->source,
                                   .packed = weight->type,
                                   .rows = rows,
                                   .scales = scales,
                                   .k = from,
                                   .n_qblks = (rest < CHUNK_COLS ? rest : CHUNK_COLS) / QBLK_WEIGHTS},
            (uint8_t *)panel + quant_panel_at(quant_form(weight->type), from));
    else
        for (uint32_t lane = 0; lane < PANEL_ROWS && rows[lane] != NULL; lane++)
            pack_plain(packing, rows[lane], panel, lane, from);
}

static void pack_panel(const struct packing *packing, uint32_t p, char *panel)
{
    const char *rows[PANEL_ROWS];
    float scales[PANEL_ROWS];

    for (uint32_t lane = 0; lane < PANEL_ROWS; lane++)
        rows[lane] = source_row(packing, p * PANEL_ROWS + lane, &scales[lane]);
    for (uint32_t from = 0; from < packing->weight->cols; from += PACK_COLS) {
        fetch_columns(packing, rows, from + PACK_COLS);
        pack_columns(packing, rows, scales, panel, from);
    }
}

/* The places of the panels that a node packs: its part, or all of its copy. */
static struct team_range packing_panels(const struct packing *packing, unsigned node)
{
    const struct weight *weight = packing->weight;

    if (weight->copy_bytes > 0)
        return (struct team_range){.from = 0, .to = weight_n_panels(weight->rows)};
    return weight_node_panels(weight, packing->team, node);
}

static void pack_job(void *arg, unsigned rank, unsigned n_ranks)
{
    struct packing *packing = arg;
    const struct weight *weight = packing->weight;

    const unsigned node = team_node_of(packing->team, rank);
    const struct team_ranks ranks = team_node_ranks(packing->team, node);
    const struct team_range of_node = packing_panels(packing, node);
    const struct team_range range = team_split(of_node.to - of_node.from, 1, rank - ranks.first, ranks.n);
    char *panels = (char *)weight->panels + node * weight->copy_bytes;

    (void)n_ranks;
    for (uint64_t p = of_node.from + range.from; p < of_node.from + range.to && !packing_is_late(packing);
         p++)
        pack_panel(packing, weight_stretch_at(weight, (uint32_t)p).panel,
                   panels + p * weight_panel_bytes(weight));
}

/* Asks for the memory of each node where it will be read. */
static void packing_place(const struct packing *packing)
{
    const struct weight *weight = packing->weight;

    for (unsigned node = 0; team_n_nodes(packing->team) > 1 && node < team_n_nodes(packing->team); node++) {
        const struct team_range range = packing_panels(packing, node);
        char *panels = (char *)weight->panels + node * weight->copy_bytes;

        (void)numa_place(panels + range.from * weight_panel_bytes(weight),
                         (range.to - range.from) * weight_panel_bytes(weight),
                         team_node_id(packing->team, node)); /* refused: first touch decides */
    }
}

/* Compares the panel at a place of a node's copy, in an arena that another process filled, with the file. */
static int pack_compare(const struct packing *packing, uint32_t place, unsigned copy)
{
    size_t n_bytes = weight_panel_bytes(packing->weight);
    char *panel = mem_aligned(MEM_CACHE_LINE, n_bytes);
    int rc;

    if (panel == NULL)
        return E_NOMEM;
    pack_panel(packing, weight_stretch_at(packing->weight, place).panel, panel);
    rc = memcmp(panel,
                (const char *)packing->weight->panels + copy * packing->weight->copy_bytes + place * n_bytes,
                n_bytes) == 0
             ? 0
             : E_MISMATCH;
    free(panel);
    return rc;
}

bool weight_type_ok(enum dtype type)
{
    return weight_packed_type(NULL, type) != DTYPE_COUNT;
}

const char *weight_types(char *out, size_t capacity_bytes)
{
    size_t len = 0;

    out[0] = 0;
    for (uint32_t type = 0; type < DTYPE_COUNT; type++)
        if (weight_type_ok(type) && len < capacity_bytes)
            len += (size_t)snprintf(out + len, capacity_bytes - len, "%s%s", len > 0 ? " " : "",
                                    dtype_info(type)->name);
    return out;
}

/* Memory for the panels of weight, and for a copy on each further node. */
static int pack_room(struct weight *weight, const struct team *team, struct mem_sealed *arena)
{
    struct mem_region region;
    size_t all_bytes;
    int rc;

    if (__builtin_mul_overflow(weight_panel_bytes(weight), weight_n_panels(weight->rows), &weight->len_bytes))
        return E_NOMEM;
    all_bytes = weight->len_bytes;
    if (team_is_mirrored(team)) {
        /* A huge page has one node. */
        size_t unit = all_bytes >= COPY_ALIGN_BYTES ? COPY_ALIGN_BYTES : PAGE_ALIGN_BYTES;

        if (all_bytes > SIZE_MAX / 2 / TEAM_MAX_NODES)
            return E_NOMEM;
        weight->copy_bytes = (all_bytes + unit - 1) / unit * unit;
        all_bytes = weight->copy_bytes * team_n_nodes(team);
    }
    if (arena != NULL)
        return mem_sealed_take(arena, all_bytes, &weight->panels);
    rc = mem_region_open(all_bytes, false, false, "weights", &region);
    if (rc == 0) {
        weight->panels = region.base;
        weight->region_bytes = region.len_bytes;
    }
    return rc;
}

static struct weight pack_form(const struct weight_packing *packing)
{
    struct weight weight = {.table = packing->table,
                            .type = weight_packed_type(packing->table, packing->type),
                            .cols = packing->cols};

    if (packing->form == WEIGHT_AS_STORED)
        return weight;
    weight.type = DTYPE_BF16;
    weight.is_dots = kern_has_dots(packing->table);
    weight.is_tiles = packing->form == WEIGHT_TILES && weight.is_dots;
    weight.is_paired = packing->form == WEIGHT_TILES ? kern_has_fast_tiles(packing->table)
                                                     : kern_has_fast_dots(packing->table);
    return weight;
}

static int pack_check(const struct weight_packing *packing, struct weight *weight)
{
    const struct dtype_info *info = dtype_info(packing->type);
    uint64_t rows = 0;

    if (!weight_type_ok(packing->type) ||
        (packing->form != WEIGHT_AS_STORED && packing->type != DTYPE_F16 && packing->type != DTYPE_BF16))
        return E_UNSUPPORTED;
    for (uint32_t i = 0; i < packing->n_parts; i++)
        rows += packing->parts[i].rows;
    if (packing->cols == 0 || packing->cols % info->qblk_weights != 0 || rows == 0 ||
        rows > UINT32_MAX - PANEL_ROWS)
        return E_INVAL;
    weight->rows = (uint32_t)rows;
    return 0;
}

int weight_pack(const struct weight_packing *to, struct weight *out)
{
    struct weight weight = pack_form(to);
    const struct dtype_info *info = dtype_info(to->type);
    struct packing packing = {.weight = &weight,
                              .team = to->team,
                              .source = to->type,
                              .parts = to->parts,
                              .scales = to->scales,
                              .n_parts = to->n_parts,
                              .end_ns = to->end_ns};
    int rc = pack_check(to, &weight);

    if (rc == 0)
        rc = pack_room(&weight, to->team, to->arena);
    if (rc < 0)
        return rc;
    weight_set_runs(&weight, to->team, to->n_runs);
    packing.row_bytes = (size_t)to->cols / info->qblk_weights * info->qblk_bytes;
    quant_levels(to->type, &weight);
    if (to->arena == NULL || !mem_sealed_is_filled(to->arena)) {
        packing_place(&packing);
        team_run(to->team, pack_job, &packing);
        rc = packing_is_late(&packing) ? E_TIMEOUT : 0;
    } else {
        for (unsigned copy = 0; copy < (weight.copy_bytes > 0 ? team_n_nodes(to->team) : 1) && rc == 0;
             copy++) {
            rc = pack_compare(&packing, 0, copy);
            if (rc == 0)
                rc = pack_compare(&packing, weight_n_panels(weight.rows) - 1, copy);
        }
    }
    if (rc == 0)
        *out = weight;
    else
        weight_fini(&weight);
    return rc;
}

void weight_fini(struct weight *weight)
{
    struct mem_region region = {.base = weight->panels, .len_bytes = weight->region_bytes, .fd = -1};

    if (weight->region_bytes > 0)
        mem_region_close(&region);
    *weight = (struct weight){0};
}

void weight_row(const struct weight *weight, uint32_t row, float *out)
{
    const void *panel = weight_panel(weight, weight_stretch_of(weight, row / PANEL_ROWS).place);
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
