/* SPDX-License-Identifier: Apache-2.0 */
/* Which units of a product belong to which memory node.
 *
 *     divided      node 0: panels 0 1 2 3 | node 1: panels 4 5 6 7      units of each node, numbered from 0
 *     mirrored     panels 0 1 2 3 4 5 6 7, in each node's copy          units of all ranks
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
