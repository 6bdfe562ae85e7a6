/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 3n: keys and layers.
 *
 * Attention is that of Gemma 3, with normed values. As in Gemma 4, the last layers read the keys and values of
 * earlier layers, and every layer has its own embedding of each token. Four residual streams and a low-rank path
 * beside attention are new: forward_altup.c. The first layers cut off most gates of the feed-forward network. */
#include "compute/model/model_priv.h"

#include <math.h>

/* Published values, for files without these keys: 10 layers keep the largest twentieth of their gates. */
enum { GEMMA3N_SPARSE_LAYERS = 10, GEMMA3N_OWN_LAYERS = 20, GEMMA3N_LAUREL_RANK = 64 };
#define GEMMA3N_CUT 1.6448536269514722

static void gemma3n_read_cuts(struct reading *r, struct model *model)
{
    for (uint32_t i = 0; i < model->config.n_layers; i++) {
        double cut = i < GEMMA3N_SPARSE_LAYERS ? GEMMA3N_CUT : -INFINITY;

        read_fraction(r, "activation_sparsity_scale", i, &cut);
        if (isnan(cut) || cut > 1e6)
            arch_complain(r, E_FORMAT, "layer %u cuts off gates at %g deviations", i, cut);
        model->layers[i].is_sparse = cut > -1e6; /* the converter writes minus infinity if no gates are cut */
        model->layers[i].cut_deviations = (float)cut;
    }
}

void read_gemma3n(struct reading *r, struct model *model)
{
    static const double CAP[2] = {0, 1e6};
    struct model_config *config = &model->config;
    uint32_t n_own = GEMMA3N_OWN_LAYERS, active = 0, rank = tensor_rows(r, "blk.0.laurel_l.weight");
    double logits = 30, base = 10000;

    config->embedding_scale = sqrtf((float)config->hidden);
    config->attn_scale = 1;
    read_number(r, "final_logit_softcapping", OPTIONAL, CAP, &logits);
    read_window_base(r, &base);
    config->logit_cap = (float)logits;
    config->n_streams = 4;
    config->laurel_rank = rank ? rank : GEMMA3N_LAUREL_RANK;
    if (rank == 0)
        read_count(r, "laurel_rank", OPTIONAL, 1u << 16, &config->laurel_rank);
    read_count(r, "embedding_length_per_layer_input", REQUIRED, 1u << 16, &config->input);
    read_count(r, "altup.num_inputs", OPTIONAL, ALTUP_MOST_STREAMS, &config->n_streams);
    read_whole(r, "altup.active_idx", ALTUP_MOST_STREAMS, &active);
    if (active != 0 || config->n_streams < 2)
        arch_complain(r, E_UNSUPPORTED, "stream %u of %u is the one that is computed", active,
                      config->n_streams);
    if (has_complaints(r))
        return;
    use_local_rope(model, base);
    share_keys(r, model, config->n_layers > n_own ? config->n_layers - n_own : 0);
    gemma3n_read_cuts(r, model);
    for (uint32_t i = 0; i < config->n_layers; i++) {
        model->layers[i].attn = model->layers[i].is_shared ? &attn_altup_shared : &attn_altup;
        model->layers[i].tail = &tail_altup;
    }
    model->globals = GLOBAL_BIT(INPUTS) | GLOBAL_BIT(INPUTS_PROJ) | GLOBAL_BIT(INPUTS_NORM) |
                     GLOBAL_BIT(ALTUP_IN) | GLOBAL_BIT(ALTUP_OUT);
}
