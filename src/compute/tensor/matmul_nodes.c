/* SPDX-License-Identifier: Apache-2.0 */
/* Which units of a product belong to which memory node.
 *
 *     divided      node 0: panels 0 1 2 3 | node 1: panels 4 5 6 7      units of each node, numbered from 0
 *     mirrored     panels 0 1 2 3 4 5 6 7, in each node's copy          units of all ranks
 *
 * Units are cut in the order of memory. A unit that reaches over the end of a stretch (weight_nodes.c) is computed in
 * two steps, each with a view of the weight whose panels count as its rows do.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/tensor/matmul_priv.h"

struct panel_range matmul_panels_of(const struct weight *weight, const struct team *team, unsigned rank)
{
    if (!weight_is_divided(weight, team))
        return (struct panel_range){0, weight_n_panels(weight->rows)};
    const struct team_range range = weight_node_panels(weight, team, team_node_of(team, rank));
    return (struct panel_range){(uint32_t)range.from, (uint32_t)range.to};
}

void matmul_work_init(const struct product *product)
{
    const struct team *team = product->team;
    const uint32_t each = product->unit_panels;
    uint32_t n_units[TEAM_MAX_NODES];

    if (!weight_is_divided(product->args->weight, team)) {
        work_init(&product->scratch->work, (product->n_panels + each - 1) / each, team_size(team));
        return;
    }
    for (unsigned node = 0; node < team_n_nodes(team); node++) {
        const struct team_range range = weight_node_panels(product->args->weight, team, node);

        n_units[node] = (uint32_t)((range.to - range.from + each - 1) / each);
    }
    work_init_nodes(&product->scratch->work, team, n_units);
}

void matmul_units(const struct product *product, unsigned rank)
{
    const struct weight *weight = product->args->weight;
    const unsigned node = team_node_of(product->team, rank);
    const struct panel_range panels = matmul_panels_of(weight, product->team, rank);
    struct matmul_args args = *product->args;
    struct product own = *product;
    struct weight_stretch stretch = {0};
    struct weight near;
    uint32_t unit;

    args.weight = &near;
    own.args = &args;
    while (work_next(&product->scratch->work, rank, &unit)) {
        uint32_t from = panels.from + unit * product->unit_panels, to = from + product->unit_panels;

        to = to < panels.to ? to : panels.to;
        while (from < to) {
            uint32_t panel, n;

            if (from < stretch.place || from - stretch.place >= stretch.n) {
                stretch = weight_stretch_at(weight, from);
                near = weight_near_stretch(weight, node, &stretch);
            }
            panel = stretch.panel + (from - stretch.place);
            n = stretch.place + stretch.n - from;
            n = n < to - from ? n : to - from;
            matmul_run_unit(&own, rank, panel, panel + n);
            from += n;
        }
    }
}

void matmul_rows(const struct product *product, unsigned rank, struct panel_range panels, float *y,
                 size_t y_stride)
{
    const struct weight *weight = product->args->weight;
    struct matmul_args args = *product->args;
    struct product part = *product;

    args.y_stride = y_stride;
    part.args = &args;
    while (panels.from < panels.to) {
        const struct weight_stretch stretch = weight_stretch_of(weight, panels.from);
        const struct weight near = weight_near_stretch(weight, team_node_of(product->team, rank), &stretch);
        uint32_t left = panels.to - panels.from, n = left < stretch.n ? left : stretch.n;
        const struct weight rows = weight_rows(&near, panels.from * PANEL_ROWS, n * PANEL_ROWS);

        args.weight = &rows;
        args.y = y;
        part.n_panels = n;
        matmul_run_unit(&part, rank, 0, n);
        panels.from += n;
        y += (size_t)n * PANEL_ROWS;
    }
}
