/* SPDX-License-Identifier: Apache-2.0 */
/* Grouped GEMM: cuts pieces into units and hands the units to ranks.
 *
 *     piece 0  | rows of expert 3 x 40 tokens |      unit unit unit       a unit is some panels of one piece,
 *     piece 1  | rows of expert 9 x  2 tokens |      unit                 multiplied by matmul() on a team of
 *     piece 2  | rows of expert 11 x 7 tokens |      unit                 one: the rank that took it
 *
 * A piece gets units in proportion to its work, so that ranks end together although tokens choose experts
 * unevenly. With many pieces most are one unit, and its activations are packed once. The number of units
 * and their assignment to ranks change no bit: an output depends only on its own row and its own
 * activations (matmul.c).
 *
 * Memory nodes that divide a weight have parts of it (weight_nodes.c). Then each node has the same number of units of a
 * piece, for those of the piece's rows that it has.
 *
 * If activations must be gathered or computed first, the rank loads them, a slice of tokens at a time:
 *
 *     scratch:   work | first unit of each piece | per rank: slice of x, scratch of matmul
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/tensor/grouped.h"

#include "base/check.h"
#include "compute/tensor/weight_priv.h"
#include "compute/tensor/work_priv.h"

enum {
    SLICE_TOKENS = 252,
    UNITS_PER_RANK = 6,
    MIN_UNIT_PANELS = 4,
    FIXED_TOKENS = 8, /* cost of reading the weights, in tokens */
};

struct grouped {
    const struct grouped_args *args;
    struct team *team;
    struct work *work;
    uint32_t *first_unit; /* [n_pieces + 1] */
    char *spaces;
    size_t space_bytes;
};

static size_t matmul_grouped_aligned(size_t len_bytes)
{
    return (len_bytes + 63) / 64 * 64;
}

static size_t slice_bytes(uint32_t max_cols)
{
    return matmul_grouped_aligned((size_t)SLICE_TOKENS * max_cols * sizeof(float));
}

static size_t space_bytes(uint32_t max_cols)
{
    return slice_bytes(max_cols) + matmul_grouped_aligned(matmul_scratch_most(SLICE_TOKENS, max_cols, 1));
}

size_t grouped_scratch_bytes(uint32_t max_pieces, uint32_t max_cols, uint32_t n_ranks)
{
    return matmul_grouped_aligned(sizeof(struct work)) +
           matmul_grouped_aligned(((size_t)max_pieces + 1) * sizeof(uint32_t)) +
           n_ranks * space_bytes(max_cols);
}

static uint64_t work_of(const struct grouped_piece *piece)
{
    return (uint64_t)piece->n_rows * piece->weight->cols * (piece->n + FIXED_TOKENS);
}

/* True if each node computes the rows that it has. */
static bool matmul_grouped_is_divided(const struct grouped *grouped)
{
    return team_n_nodes(grouped->team) > 1 && !team_is_mirrored(grouped->team);
}

/* Ranks that share the work of a piece, of the node that has most. */
static unsigned matmul_grouped_ranks(const struct grouped *grouped)
{
    unsigned most = 0;

    if (!matmul_grouped_is_divided(grouped))
        return team_size(grouped->team);
    for (unsigned node = 0; node < team_n_nodes(grouped->team); node++) {
        unsigned n = team_node_ranks(grouped->team, node).n;

        most = n > most ? n : most;
    }
    return most;
}

/* Numbers the units; returns their number, on each node if nodes divide the work. */
static uint32_t matmul_grouped_plan(const struct grouped *grouped, unsigned n_ranks)
{
    const struct grouped_args *args = grouped->args;
    uint64_t total = 0;
    uint32_t n_units = 0;

    for (uint32_t i = 0; i < args->n_pieces; i++)
        total += work_of(&args->pieces[i]);
    for (uint32_t i = 0; i < args->n_pieces; i++) {
        const struct grouped_piece *piece = &args->pieces[i];
        uint64_t most = weight_n_panels(piece->n_rows) / MIN_UNIT_PANELS;
        uint64_t n = n_ranks == 1 || total == 0 ? 1 : work_of(piece) * n_ranks * UNITS_PER_RANK / total;

        n = n > most ? most : n;
        grouped->first_unit[i] = n_units;
        n_units += piece->n == 0 || piece->n_rows == 0 ? 0 : n < 1 ? 1 : (uint32_t)n;
    }
    grouped->first_unit[args->n_pieces] = n_units;
    return n_units;
}

static void matmul_grouped_work_init(const struct grouped *grouped, uint32_t n_units)
{
    uint32_t of_node[TEAM_MAX_NODES];

    if (!matmul_grouped_is_divided(grouped)) {
        work_init(grouped->work, n_units, team_size(grouped->team));
        return;
    }
    for (unsigned node = 0; node < team_n_nodes(grouped->team); node++)
        of_node[node] = n_units;
    work_init_nodes(grouped->work, grouped->team, of_node);
}

/* Multiplies rows of the weight that follow each other in memory. */
static void matmul_grouped_multiply(const struct grouped *grouped, unsigned rank,
                                    const struct grouped_piece *piece, const struct weight *part, float *y)
{
    char *space = grouped->spaces + rank * grouped->space_bytes;
    float *slice = (float *)space;

    ASSERT(part->cols <= grouped->args->max_cols);
    for (uint32_t i = 0; i < piece->n; i += SLICE_TOKENS) {
        uint32_t n = piece->n - i < SLICE_TOKENS ? piece->n - i : SLICE_TOKENS;

        for (uint32_t t = 0; piece->load != NULL && t < n; t++)
            piece->load(piece, i + t, slice + (size_t)t * part->cols);
        matmul(grouped->args->solos[rank],
               &(struct matmul_args){.weight = part,
                                     .x = piece->load ? slice : piece->x + i * piece->x_stride,
                                     .x_stride = piece->load ? part->cols : piece->x_stride,
                                     .n = n,
                                     .y = y + i * piece->y_stride,
                                     .y_stride = piece->y_stride,
                                     .scratch = space + slice_bytes(grouped->args->max_cols)});
    }
}

/* Rows [from, to) of a weight, all of this piece. */
static void matmul_grouped_rows(const struct grouped *grouped, unsigned rank,
                                const struct grouped_piece *piece, uint32_t from, uint32_t to)
{
    while (from < to) {
        const struct weight_stretch stretch = weight_stretch_of(piece->weight, from / PANEL_ROWS);
        const struct weight near =
            weight_near_stretch(piece->weight, team_node_of(grouped->team, rank), &stretch);
        const uint64_t end = (uint64_t)(stretch.panel + stretch.n) * PANEL_ROWS;
        const uint32_t n = end < to ? (uint32_t)end - from : to - from;
        const struct weight part = weight_rows(&near, from, n);

        matmul_grouped_multiply(grouped, rank, piece, &part, piece->y + (from - piece->first_row));
        from += n;
    }
}

/* The rows of a piece that lie in one run of its weight and that the rank's node has. */
static struct team_range matmul_grouped_part(const struct grouped *grouped, unsigned rank,
                                             const struct grouped_piece *piece, uint32_t run)
{
    const uint32_t n_runs = weight_n_runs(piece->weight),
                   run_panels = weight_n_panels(piece->weight->rows) / n_runs;
    const uint64_t first = (uint64_t)run * run_panels, end_row = piece->first_row + piece->n_rows;
    struct team_range part = {.from = 0, .to = run_panels};

    if (matmul_grouped_is_divided(grouped))
        part = weight_run_part(grouped->team, run_panels, n_runs, team_node_of(grouped->team, rank));
    part.from = (first + part.from) * PANEL_ROWS;
    part.to = (first + part.to) * PANEL_ROWS;
    part.from = part.from > piece->first_row ? part.from : piece->first_row;
    part.to = part.to < end_row ? part.to : end_row;
    part.to = part.to > part.from ? part.to : part.from;
    return part;
}

/* A unit is a part of those rows of the piece that the rank's node has. */
static void matmul_grouped_run_unit(const struct grouped *grouped, unsigned rank,
                                    const struct grouped_piece *piece, uint32_t unit, uint32_t n_units)
{
    const uint32_t run_rows =
        weight_n_panels(piece->weight->rows) / weight_n_runs(piece->weight) * PANEL_ROWS;
    const uint32_t first = piece->first_row / run_rows,
                   last = (piece->first_row + piece->n_rows - 1) / run_rows;
    uint64_t n = 0, before = 0;

    for (uint32_t run = first; run <= last; run++) {
        const struct team_range part = matmul_grouped_part(grouped, rank, piece, run);

        n += part.to - part.from;
    }
    const struct team_range own = team_split(n, (uint64_t)MIN_UNIT_PANELS * PANEL_ROWS, unit, n_units);
    for (uint32_t run = first; run <= last; run++) {
        const struct team_range part = matmul_grouped_part(grouped, rank, piece, run);
        const uint64_t len = part.to - part.from;
        uint64_t from = own.from > before ? own.from - before : 0, to = own.to > before ? own.to - before : 0;

        to = to < len ? to : len;
        if (from < to)
            matmul_grouped_rows(grouped, rank, piece, (uint32_t)(part.from + from),
                                (uint32_t)(part.from + to));
        before += len;
    }
}

static void grouped_job(void *arg, unsigned rank, unsigned n_ranks)
{
    const struct grouped *grouped = arg;
    uint32_t unit;

    (void)n_ranks;
    while (work_next(grouped->work, rank, &unit)) {
        uint32_t i = work_owner(grouped->first_unit, sizeof(uint32_t), grouped->args->n_pieces, unit);

        matmul_grouped_run_unit(grouped, rank, &grouped->args->pieces[i], unit - grouped->first_unit[i],
                                grouped->first_unit[i + 1] - grouped->first_unit[i]);
    }
}

void matmul_grouped(struct team *team, const struct grouped_args *args)
{
    char *at = args->scratch;
    struct grouped grouped = {.args = args, .team = team, .space_bytes = space_bytes(args->max_cols)};
    uint32_t n_units;

    ASSERT((uintptr_t)args->scratch % 64 == 0);
    grouped.work = (struct work *)at;
    at += matmul_grouped_aligned(sizeof(struct work));
    grouped.first_unit = (uint32_t *)at;
    grouped.spaces = at + matmul_grouped_aligned(((size_t)args->n_pieces + 1) * sizeof(uint32_t));
    n_units = matmul_grouped_plan(&grouped, matmul_grouped_ranks(&grouped));
    if (n_units == 0)
        return;
    matmul_grouped_work_init(&grouped, n_units);
    team_run(team, grouped_job, &grouped);
}

void mix_rows(const struct kern_table *table, const struct weighted_rows *from, uint32_t n, float *out)
{
    table->vec->mix_rows(from->rows, from->weights, from->n_rows, n, out);
}
