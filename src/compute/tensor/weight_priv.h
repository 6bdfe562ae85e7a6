/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of packed weights.
 *
 *     F32 F16 BF16   [panel] { [k][lane] }     padded to 64 bytes
 *     BF16 for dots  [panel] { [k/2][lane][2] }, or, for FMAs, [k/2][2][lane] with k + 1 before k; for tiles
 *                    zeros up to the next multiple of TILES_COLS
 *     quantised      [panel] { [chunk] }       see quant.h
 */
#ifndef COMPUTE_TENSOR_WEIGHT_PRIV_H
#define COMPUTE_TENSOR_WEIGHT_PRIV_H

#include <string.h>

#include "base/check.h"
#include "compute/tensor/tensor.h"
#include "compute/kernels/kern.h"
#include "compute/kernels/quant_chunk.h"

/* Bytes of an element of a plain type; 0 for quantised ones. */
static inline uint32_t weight_plain_bytes(enum dtype type)
{
    return type == DTYPE_F32 ? 4 : type == DTYPE_F16 || type == DTYPE_BF16 ? 2 : 0;
}

/* The type as which weights of a file's type are packed for a table, without a change of any value; DTYPE_COUNT: they
 * cannot be.  Tables that look up lattice points pack the points.  Others get an index to the levels of each weight: three
 * bits for six levels, four for sixteen, where the file has 1.6 to 3.4.  Their lattices share three forms, and only the
 * levels (weight.lookup) and the unit differ. */
static inline enum dtype weight_packed_type(const struct kern_table *table, enum dtype source)
{
    if (table != NULL && kern_has_points(table) && quant_form(source).code != CODE_FIELDS)
        return source;
    switch ((uint32_t)source) {
    case DTYPE_IQ1_S:
    case DTYPE_IQ2_XXS:
        return QUANT_LEVELS_32;
    case DTYPE_IQ1_M:
    case DTYPE_IQ2_XS:
    case DTYPE_IQ2_S:
        return QUANT_LEVELS_16;
    case DTYPE_IQ3_XXS:
    case DTYPE_IQ3_S:
        return QUANT_LEVELS_OF_IQ3;
    case DTYPE_TQ1_0:
        return DTYPE_TQ2_0;
    default:
        return quant_form(source).bits > 0 || weight_plain_bytes(source) > 0 ? source : DTYPE_COUNT;
    }
}

static inline bool weight_is_quant(enum dtype type)
{
    return quant_form(type).bits > 0;
}

/* The functions that read the packed chunks of a quantised weight. */
static inline void (*weight_expander(const struct weight *weight))(const struct expand *)
{
    return quant_form(weight->type).code == CODE_FIELDS ? weight->table->q8->expand
                                                        : weight->table->points->expand;
}

/* NULL: chunks are expanded first. */
static inline void (*weight_direct_kernel(const struct weight *weight))(const struct tile_q8 *)
{
    return quant_form(weight->type).code == CODE_FIELDS ? weight->table->q8->direct
                                                        : weight->table->points->direct;
}

static inline uint32_t weight_n_panels(uint32_t rows)
{
    return rows / PANEL_ROWS + (rows % PANEL_ROWS != 0);
}

enum { WEIGHT_LANE_COLS = CHUNK_COLS };

/* Columns [from, to) of a row, at most WEIGHT_LANE_COLS, and their destination. */
struct weight_lane {
    const void *row; /* as in the file: F16 or BF16 */
    char *panel;
    uint32_t lane;
    uint32_t from, to; /* from is even */
};

/* BF16 for dots, weight_dots.c. */
void weight_dots_pack(const struct weight *weight, enum dtype source, const struct weight_lane *to);
void weight_dots_row(const struct weight *weight, const void *panel, uint32_t lane, float *out);

/* For BF16 tiles: the number of columns multiplied, zeros included. */
static inline uint32_t weight_tiles_cols(const struct weight *weight)
{
    return weight->cols / TILES_COLS * TILES_COLS + (weight->cols % TILES_COLS != 0 ? TILES_COLS : 0);
}

static inline size_t weight_panel_bytes(const struct weight *weight)
{
    uint32_t cols = weight->is_tiles ? weight_tiles_cols(weight) : weight->cols;

    if (weight_is_quant(weight->type))
        return quant_panel_at(quant_form(weight->type), cols);
    return ((size_t)cols * PANEL_ROWS * weight_plain_bytes(weight->type) + 63) / 64 * 64;
}

static inline const char *weight_panel(const struct weight *weight, uint32_t panel)
{
    return (const char *)weight->panels + panel * weight_panel_bytes(weight);
}

/* ---- memory nodes (weight_nodes.c) ---- */

/* Panels of rows that follow each other in memory too. */
struct weight_stretch {
    uint32_t panel; /* the first one, in the order of rows */
    uint32_t place; /* and in the order of memory */
    uint32_t n;
};

/* The panels of each run of n_panels that a node of this team has. n_runs 1: the run is the whole weight. */
struct team_range weight_run_part(const struct team *team, uint32_t n_panels, uint32_t n_runs, unsigned node);
/* The panels, in the order of memory, that lie on a node of this team, if the weight is divided among its nodes. */
struct team_range weight_node_panels(const struct weight *weight, const struct team *team, unsigned node);
/* Stores how the nodes of this team divide n_runs runs; without effect if they do not divide it. */
void weight_set_runs(struct weight *weight, const struct team *team, uint32_t n_runs);
/* The longest stretch from this place in memory, or from this panel of rows. */
struct weight_stretch weight_stretch_at(const struct weight *weight, uint32_t place);
struct weight_stretch weight_stretch_of(const struct weight *weight, uint32_t panel);

static inline uint32_t weight_n_runs(const struct weight *weight)
{
    return weight->n_runs > 1 ? weight->n_runs : 1;
}

/* True if the nodes of this team hold parts of the weight, not copies. */
static inline bool weight_is_divided(const struct weight *weight, const struct team *team)
{
    return team_n_nodes(team) > 1 && weight->copy_bytes == 0;
}

/* A view of the node's copy, or of the only copy, in the order of memory. */
static inline struct weight weight_near(const struct weight *weight, unsigned node)
{
    struct weight near = *weight;

    near.panels = (char *)weight->panels + node * weight->copy_bytes;
    near.copy_bytes = 0;
    near.len_bytes = 0;
    near.n_runs = 1;
    return near;
}

/* The same for the panels of a stretch alone: weight_panel() takes their numbers in the order of rows. */
static inline struct weight weight_near_stretch(const struct weight *weight, unsigned node,
                                                const struct weight_stretch *stretch)
{
    struct weight near = weight_near(weight, node);
    size_t panel_bytes = weight_panel_bytes(weight);

    near.panels =
        (void *)((uintptr_t)near.panels + stretch->place * panel_bytes - stretch->panel * panel_bytes);
    return near;
}

/* A view of some rows of a weight; panels lie one after another. first_row and n_rows are multiples of
 * PANEL_ROWS; n_rows may instead reach to the last row. */
static inline struct weight weight_rows(const struct weight *weight, uint32_t first_row, uint32_t n_rows)
{
    struct weight part = *weight;

    ASSERT(first_row % PANEL_ROWS == 0 && n_rows <= weight->rows - first_row);
    ASSERT(n_rows % PANEL_ROWS == 0 || first_row + n_rows == weight->rows);
    part.panels = (void *)(uintptr_t)weight_panel(weight, first_row / PANEL_ROWS);
    part.rows = n_rows;
    part.len_bytes = 0;
    return part;
}

/* Writes a lane's 16 bits in a row of them. */
static inline void quant_put_half(uint8_t *row, uint32_t lane, uint16_t value)
{
    memcpy(row + lane * sizeof(value), &value, sizeof(value));
}

/* weight_quant.c: packs a chunk of n_qblks from column k on, from a panel's rows (NULL: no row, stays
 * zero). */
struct quant_source {
    enum dtype type, packed; /* in the file, and in the chunk (weight_packed_type()) */
    const char *const *rows; /* [PANEL_ROWS] as in the file */
    const float *scales;     /* [PANEL_ROWS] of whole rows (NVFP4) */
    uint32_t k, n_qblks;
};
void quant_pack_chunk(const struct quant_source *source, uint8_t *chunk);
/* Sets the weight's lookup table and unit, by the type in the file. */
void quant_levels(enum dtype source, struct weight *weight);
/* weight_points.c, for types whose chunks hold points or digits: packs a lane of a whole chunk, reads the integer of column
 * i of a chunk, and returns the table of a packed type (struct weight); NULL: it has none. */
void points_pack_lane(enum dtype type, const void *qblk, uint32_t lane, uint8_t *chunk);
uint32_t points_u_at(const struct weight *weight, const uint8_t *chunk, uint32_t i, uint32_t lane);
/* s of a sub's scale d (2s + 1). */
uint32_t points_scale_at(struct quant_form form, const uint8_t *scales, uint32_t sub, uint32_t lane);
const uint8_t *points_table(enum dtype type);
/* One row of a panel of cols columns. */
void quant_row(const struct weight *weight, const uint8_t *panel, uint32_t lane, float *out);

/* matmul.c, inside a job of the team: prefetches the start of this rank's share of the weight while the
 * rank waits (team_ahead). Assumes that few tokens are multiplied. NULL: does nothing. */
struct team;
void matmul_ahead(struct team *team, unsigned rank, const struct weight *weight);

#endif
