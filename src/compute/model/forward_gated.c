/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with a gate for each number of its output (Qiu et al. 2025; Qwen 3.5).
 *
 * A file stores each head's rows of the query and then its rows of the gate.  Packing parts them:
 *
 *     file    q0 g0 q1 g1 ..          packed    q0 q1 .. | k | v | g0 g1 ..
 *
 * So the pass is that of forward_attn.c, with the gates behind q, k and v in each row. */
#include "compute/model/model_priv.h"

#include <stdlib.h>
#include <string.h>

/* Every second run of head_dim rows of the tensor, from `first` on. */
static int gated_pack_part(struct loading *load, const struct gguf_tensor *tensor, uint32_t first,
                           struct weight *out)
{
    const struct model_config *c = &load->model->config;
    const struct dtype_info *info = dtype_info(tensor->type);
    size_t row_bytes = tensor->dims[0] / info->qblk_weights * info->qblk_bytes;
    struct weight_part *parts = calloc(c->n_heads, sizeof(*parts));
    int rc;

    if (parts == NULL)
        return fault_set(load->fault, E_NOMEM, "no memory for the heads of a matrix");
    for (size_t head = 0; head < c->n_heads; head++)
        parts[head] = (struct weight_part){.data = (const uint8_t *)tensor->data +
                                                   (2 * head + first) * c->head_dim * row_bytes,
                                           .rows = c->head_dim};
    rc = weights_matrix(load, tensor, weights_packing(tensor, parts, c->n_heads), out);
    free(parts);
    return rc;
}

/* The group holds k and v already. */
static int gated_pack(struct loading *load, uint32_t index)
{
    const struct gguf_tensor *tensor = load->bound[index].slot[SLOT_Q_GATED];
    struct weight_group *group = &load->model->layers[index].groups[GROUP_QKV];
    int rc;

    memmove(group->parts + 1, group->parts, group->n_parts * sizeof(*group->parts));
    memset(group->parts, 0, sizeof(*group->parts));
    group->n_parts++;
    rc = gated_pack_part(load, tensor, 0, &group->parts[0]);
    if (rc == 0)
        rc = gated_pack_part(load, tensor, 1, &group->parts[group->n_parts]);
    if (rc < 0)
        return rc;
    group->rows += group->parts[0].rows + group->parts[group->n_parts].rows;
    load->model->config.weight_bytes += group->parts[0].len_bytes + group->parts[group->n_parts].len_bytes;
    group->n_parts++;
    return weights_packed(load, &tensor, 1);
}

const struct half attn_gated = {
    .name = "grouped, with gates",
    .first = GROUP_QKV,
    .needs =
        SLOT_BIT(Q_GATED) | SLOT_BIT(K) | SLOT_BIT(V) | SLOT_BIT(OUT) | SLOT_BIT(Q_NORM) | SLOT_BIT(K_NORM),
    .forward = forward_attn,
    .has_gates = true,
    .pack = gated_pack,
};
