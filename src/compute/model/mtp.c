/* SPDX-License-Identifier: Apache-2.0 */
/* MTP heads (multi-token prediction): a layer of the file behind the last one, which drafts tokens. Hot path.
 *
 *     position   i-1  i   i+1
 *     text        a   b    c              h(b): the row from which the model predicted c
 *     joined              [enorm(E(c)) | hnorm(h(b))]
 *     x                   joined . Weh^T
 *                         one layer of the model's own kind, with keys and values of its own
 *     logits of           norm(x) . head^T: the token after c
 *
 * The head is a model of one layer, so passes, engines and samplers treat it like any other. It borrows the
 * embedding and the output head; copies of them in the file (nextn.embed_tokens, nextn.shared_head_head) are not
 * read. For the token after the next one the head's own normed row takes the place of h.  In families with mtp_reads_raw both
 * are the rows before the norm.
 *
 * Its rows need not start at the text's beginning. RoPE depends on distances only, so rows numbered from any
 * token on give the logits of a head that does not see the tokens before. */
#include "compute/model/model_priv.h"

const slot_set MTP_SLOTS = SLOT_BIT(MTP_PROJ) | SLOT_BIT(MTP_TOKEN_NORM) | SLOT_BIT(MTP_HIDDEN_NORM);
const slot_set MTP_MAY = SLOT_BIT(MTP_LAST_NORM) | SLOT_BIT(MTP_LAYER_NORM);

static bool mtp_has_tensor(const struct model *model, const struct gguf *gguf, enum slot slot)
{
    char name[64];

    return gguf_tensor_find(gguf, slot_name(model->config.n_layers, slot, name)) != NULL;
}

/* A head without an indexer, in a model whose layers have one, is left out. */
bool model_has_mtp(const struct model *model, const struct gguf *gguf)
{
    return model->arch->has_mtp && model->config.n_nextn_layers > 0 &&
           (!model->arch->mtp_is_listed || model->has_head_layer) &&
           mtp_has_tensor(model, gguf, SLOT_MTP_PROJ) &&
           (model->config.index_top == 0 || mtp_has_tensor(model, gguf, SLOT_INDEX_PROJ));
}

/* A head's layer has attention, also where the model's last layer is recurrent, and chooses keys by itself, also where
 * that layer shares a choice. Its feed-forward network is the last layer's; with mtp_is_first all of it is as in the first
 * layer (EXAONE, whose first layers have a window and RoPE), but for experts.  With mtp_sees_all (Cohere) it has RoPE and no
 * window, as the dense layers at the beginning; of the other layers none has so. */
void mtp_keep(struct model *model)
{
    struct model_config *config = &model->config;
    uint32_t last = model->arch->mtp_is_first ? 0 : config->n_layers - 1, like = last;
    struct layer head = model->layers[model->arch->mtp_is_listed ? config->n_layers : last];

    while (like > 0 && (model->layers[like].attn->state_bytes || model->layers[like].index == INDEX_SHARED))
        like--;
    if (model->arch->mtp_is_first)
        head.ffn = model->arch->ffn;
    if (model->arch->mtp_sees_all) {
        head.is_local = false;
        head.window = 0;
        head.rope = ROPE_GLOBAL;
    }
    if (!model->arch->mtp_is_listed) {
        head.attn = model->layers[like].attn;
        head.index = model->layers[like].index;
    }
    model->layers[0] = head;
    model->first_layer = config->n_layers;
    config->n_layers = 1;
    config->n_nextn_layers = 0;
    config->is_mtp = true;
    layers_place(model);
}

const float *mtp_last_norm(const struct model *model)
{
    const float *const *vectors = model->layers[0].vectors;

    if (vectors[SLOT_MTP_LAST_NORM] != NULL)
        return vectors[SLOT_MTP_LAST_NORM];
    return vectors[SLOT_MTP_LAYER_NORM] != NULL ? vectors[SLOT_MTP_LAYER_NORM]
                                                : model->mtp_of->final_norm.gain;
}

static void join_rows(const struct forward *f, uint32_t from, uint32_t to)
{
    const struct layer_gain token = {.gain = f->layer->vectors[SLOT_MTP_TOKEN_NORM]};
    const struct layer_gain hidden = {.gain = f->layer->vectors[SLOT_MTP_HIDDEN_NORM]};
    const uint32_t width = f->model->config.hidden;

    for (uint32_t i = 0; i < f->pass->n_items; i++) {
        const struct model_item *item = &f->pass->items[i];
        uint32_t first = f->state->items[i].first, row = first > from ? first : from;

        for (; row < to && row < first + item->n_tokens; row++) {
            float *joined = f->state->joined + (size_t)row * 2 * width;

            forward_norm_row(f->model, f->state->x + (size_t)row * width, &token, width, joined);
            forward_norm_row(f->model, item->hidden + (size_t)(row - first) * width, &hidden, width,
                             joined + width);
        }
    }
}

void forward_mtp(struct forward *f)
{
    f->layer = &f->model->layers[0];
    forward_rows(f, join_rows);
    forward_matmul(f, &f->layer->groups[GROUP_MTP], f->state->joined, 2 * (size_t)f->model->config.hidden,
                   f->state->x);
}
