/* SPDX-License-Identifier: Apache-2.0 */
/* Where the panels of a weight lie when memory nodes divide it.
 *
 *     one run     rows    | 0 1 2 3 4 5 6 7 |                    memory   | 0 1 2 3 | 4 5 6 7 |
 *                                                                           node 0    node 1
 *
 *     two runs    rows    | 0 1 2 3 4 5 6 7 | 8 9 .. 15 |        memory   | 0 1 2 3  8  9 10 11 | 4 5 6 7 12 13 14 15 |
 *                           gate              up                            node 0                node 1
 *
 * Each node has the same rows of every run, so it can gate its part of gate and up, and works on every expert. Its
 * memory is one piece for every number of runs: the kernel keeps few ranges, and huge pages fit.
 *
 * Packing stores the parts, because a team of another shape may multiply, too (small products run on one thread).
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/tensor/weight_priv.h"

enum {
    NODE_PANELS = 4, /* grain of a node's part */
    FEW_RUN_PANELS =
        2, /* of short runs; a quantised block of activations, where a run's rows are columns next */
};

struct team_range weight_run_part(const struct team *team, uint32_t n_panels, uint32_t n_runs, unsigned node)
{
    uint32_t least = n_runs > 1 ? FEW_RUN_PANELS : 1;

    return team_node_split(team, n_panels, n_panels < NODE_PANELS * team_size(team) ? least : NODE_PANELS,
                           node);
}

struct team_range weight_node_panels(const struct weight *weight, const struct team *team, unsigned node)
{
    const uint32_t n_runs = weight_n_runs(weight);
    const struct team_range part =
        weight_run_part(team, weight_n_panels(weight->rows) / n_runs, n_runs, node);

    return (struct team_range){.from = part.from * n_runs, .to = part.to * n_runs};
}

void weight_set_runs(struct weight *weight, const struct team *team, uint32_t n_runs)
{
    weight->n_runs = 1;
    if (n_runs < 2 || !weight_is_divided(weight, team) || weight->rows % n_runs != 0 ||
        weight->rows / n_runs % PANEL_ROWS != 0)
        return;
    weight->n_runs = n_runs;
    for (unsigned node = 0; node < TEAM_MAX_NODES; node++)
        weight->node_ends[node] =
            node < team_n_nodes(team)
                ? (uint32_t)weight_run_part(team, weight->rows / n_runs / PANEL_ROWS, n_runs, node).to
                : UINT32_MAX;
}

/* The stretch at panel `at` of the node's part of a run. */
static struct weight_stretch weight_stretch_in(const struct weight *weight, unsigned node, uint32_t run,
                                               uint32_t at)
{
    const uint32_t run_panels = weight->rows / PANEL_ROWS / weight->n_runs;
    const uint32_t from = node > 0 ? weight->node_ends[node - 1] : 0, n = weight->node_ends[node] - from;

    return (struct weight_stretch){
        .panel = run * run_panels + from + at, .place = from * weight->n_runs + run * n + at, .n = n - at};
}

struct weight_stretch weight_stretch_at(const struct weight *weight, uint32_t place)
{
    unsigned node = 0;
    uint32_t from, n;

    if (weight_n_runs(weight) == 1)
        return (struct weight_stretch){
            .panel = place, .place = place, .n = weight_n_panels(weight->rows) - place};
    while (place >= weight->node_ends[node] * weight->n_runs)
        node++;
    from = node > 0 ? weight->node_ends[node - 1] : 0;
    n = weight->node_ends[node] - from;
    place -= from * weight->n_runs;
    return weight_stretch_in(weight, node, place / n, place % n);
}

struct weight_stretch weight_stretch_of(const struct weight *weight, uint32_t panel)
{
    unsigned node = 0;
    uint32_t run, at;

    if (weight_n_runs(weight) == 1)
        return weight_stretch_at(weight, panel);
    run = panel / (weight->rows / PANEL_ROWS / weight->n_runs);
    at = panel % (weight->rows / PANEL_ROWS / weight->n_runs);
    while (at >= weight->node_ends[node])
        node++;
    return weight_stretch_in(weight, node, run, at - (node > 0 ? weight->node_ends[node - 1] : 0));
}
