/* SPDX-License-Identifier: Apache-2.0 */
/* The feed-forward of many tokens: a rank's work on some rows of gate and up.
 *
 *              rows of gate   of up            packed for down, [F]
 *            +--------------+------+        +--+-----+------------+
 *     tokens |     |unit|   | unit |  act   |  |unit |            |   . down^T  ->  y
 *            +--------------+------+  -->   +--+-----+------------+
 *               a rank's buffer                of all ranks
 *
 * A unit is a few panels of gate and the same panels of up. The rank multiplies all tokens by them into
 * its own buffer, which stays in its cache. It then gates the result and packs it where down expects these
 * columns. No rank waits for another before all columns are packed. gate | up of all tokens never go to
 * memory and back.
 *
 * Memory nodes that divide the weight have the same rows of gate and of up, and units of their own.
 *
 * Every step is a step of matmul() on the same numbers, so the bits are the same, too.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/tensor/gated.h"

#include "base/check.h"
#include "compute/tensor/matmul_priv.h"

enum {
    UNITS_PER_RANK = 8,
    LEAST_PANELS = QBLK_WEIGHTS / PANEL_ROWS, /* packing width of activations in columns */
};

struct gated {
    const struct gated_args *args;
    struct product in, down;
    float *buffers;    /* buffers of the ranks, each [n][2][unit] */
    uint32_t n_panels; /* of gate */
    uint32_t unit_panels;
};

static uint32_t n_gate(const struct weight *gate_up)
{
    return gate_up->rows / 2;
}

bool gated_takes(const struct weight *gate_up, const struct weight *down)
{
    return n_gate(gate_up) % QBLK_WEIGHTS == 0 && gate_up->rows == 2 * down->cols && down->rows > 0;
}

static uint32_t matmul_gated_unit_panels(uint32_t n_panels, uint32_t n_ranks)
{
    uint32_t each = n_panels / (n_ranks * UNITS_PER_RANK) / LEAST_PANELS * LEAST_PANELS;

    return each < LEAST_PANELS ? LEAST_PANELS : each < MAX_UNIT_PANELS ? each : MAX_UNIT_PANELS;
}

static size_t matmul_gated_aligned(size_t len_bytes)
{
    return (len_bytes + 63) / 64 * 64;
}

/* Floats of a buffer for this many panels of gate and of up. */
static size_t buffer_len(uint32_t n_tokens, uint32_t n_panels)
{
    return (size_t)n_tokens * 2 * n_panels * PANEL_ROWS;
}

/* Floats of all buffers of a team of up to n_ranks ranks; a smaller team may have larger units. */
static uint32_t most_panels(uint32_t n_panels, uint32_t n_ranks)
{
    uint32_t shared = n_panels / UNITS_PER_RANK, least = LEAST_PANELS * n_ranks;
    uint32_t most = MAX_UNIT_PANELS * n_ranks;

    return shared < least ? least : shared < most ? shared : most;
}

size_t gated_scratch_bytes(const struct weight *gate_up, const struct weight *down, uint32_t max_tokens,
                           uint32_t n_ranks)
{
    uint32_t n_panels = most_panels(n_gate(gate_up) / PANEL_ROWS, n_ranks);

    return matmul_gated_aligned(matmul_scratch_bytes(gate_up, max_tokens, n_ranks)) +
           matmul_gated_aligned(matmul_scratch_bytes(down, max_tokens, n_ranks)) +
           buffer_len(max_tokens, n_panels) * sizeof(float);
}

/* The panels of gate, and of up, that the ranks of a node compute. */
static struct panel_range matmul_gated_panels(const struct gated *gated, unsigned node)
{
    if (!weight_is_divided(gated->args->gate_up, gated->in.team))
        return (struct panel_range){0, gated->n_panels};
    const struct team_range part = weight_run_part(gated->in.team, gated->n_panels, 2, node);
    return (struct panel_range){(uint32_t)part.from, (uint32_t)part.to};
}

static void matmul_gated_work_init(const struct gated *gated)
{
    const struct team *team = gated->in.team;
    const uint32_t each = gated->unit_panels;
    uint32_t n_units[TEAM_MAX_NODES];

    if (!weight_is_divided(gated->args->gate_up, team)) {
        work_init(&gated->in.scratch->work, (gated->n_panels + each - 1) / each, team_size(team));
        return;
    }
    for (unsigned node = 0; node < team_n_nodes(team); node++) {
        const struct panel_range panels = matmul_gated_panels(gated, node);

        n_units[node] = (panels.to - panels.from + each - 1) / each;
    }
    work_init_nodes(&gated->in.scratch->work, team, n_units);
}

static void matmul_gated_run_unit(const struct gated *gated, unsigned rank, uint32_t unit)
{
    const struct gated_args *args = gated->args;
    const struct panel_range of_node = matmul_gated_panels(gated, team_node_of(gated->in.team, rank));
    uint32_t from = of_node.from + unit * gated->unit_panels, left = of_node.to - from;
    uint32_t n_panels = left < gated->unit_panels ? left : gated->unit_panels;
    uint32_t width = n_panels * PANEL_ROWS, up = gated->n_panels + from;
    float *gate = gated->buffers + rank * buffer_len(args->n, gated->unit_panels);
    size_t stride = (size_t)2 * width;

    matmul_rows(&gated->in, rank, (struct panel_range){from, from + n_panels}, gate, stride);
    matmul_rows(&gated->in, rank, (struct panel_range){up, up + n_panels}, gate + width, stride);
    for (uint32_t i = 0; i < args->n; i++)
        args->act(args->gate_up->table, gate + i * stride, gate + i * stride + width, width);
    matmul_pack(&gated->down, gate, stride,
                (struct col_range){from * PANEL_ROWS, (from + n_panels) * PANEL_ROWS});
}

static void gated_job(void *arg, unsigned rank, unsigned n_ranks)
{
    const struct gated *gated = arg;
    struct team *team = gated->in.team;
    uint32_t unit;

    matmul_pack_share(&gated->in, rank, n_ranks);
    team_barrier(team, rank);
    while (work_next(&gated->in.scratch->work, rank, &unit))
        matmul_gated_run_unit(gated, rank, unit);
    if (gated->in.close != NULL)
        gated->in.close();
    team_barrier(team, rank);
    matmul_units(&gated->down, rank);
    if (gated->down.close != NULL)
        gated->down.close();
    matmul_ahead(team, rank, NULL);
}

void matmul_gated(struct team *team, const struct gated_args *args)
{
    uint32_t n_ranks = team_size(team);
    char *in = args->scratch, *down, *buffers;
    struct gated gated = {.args = args, .n_panels = n_gate(args->gate_up) / PANEL_ROWS};

    ASSERT(args->n > 1 && gated_takes(args->gate_up, args->down));
    if (gated.n_panels == 0)
        return;
    down = in + matmul_gated_aligned(matmul_scratch_bytes(args->gate_up, args->n, n_ranks));
    buffers = down + matmul_gated_aligned(matmul_scratch_bytes(args->down, args->n, n_ranks));
    gated.buffers = (float *)buffers;
    gated.unit_panels = matmul_gated_unit_panels(gated.n_panels, n_ranks);
    matmul_open(
        &gated.in, team,
        &(struct matmul_args){
            .weight = args->gate_up, .x = args->x, .x_stride = args->x_stride, .n = args->n, .scratch = in});
    matmul_open(
        &gated.down, team,
        &(struct matmul_args){
            .weight = args->down, .n = args->n, .y = args->y, .y_stride = args->y_stride, .scratch = down});
    matmul_gated_work_init(&gated);
    team_run(team, gated_job, &gated);
}
