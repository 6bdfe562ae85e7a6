/* SPDX-License-Identifier: Apache-2.0 */
/* For programs that measure a model: the inputs of its matrices, while it computes (watch.c). */
#ifndef COMPUTE_MODEL_WATCH_H
#define COMPUTE_MODEL_WATCH_H

#include "compute/model/model.h"

enum { MODEL_INPUT_GROUPS = 24 };

struct model_input { /* rows that the matrices of a group read */
    uint32_t layer;
    uint32_t group;  /* below MODEL_INPUT_GROUPS; model_input_tensor() has the names of its matrices */
    uint32_t expert; /* of stacked matrices */
    const float *x;  /* [n_rows], stride floats apart */
    size_t stride;
    uint32_t n_rows, n_cols;
};

struct model_watch {
    void (*on_input)(void *arg, const struct model_input *input); /* on the thread of model_forward() */
    void *arg;
};

/* Shows all inputs from now on, for steps of at most 64 tokens. E_NOMEM. */
int model_watch_inputs(struct model *model, const struct model_watch *watch);
/* The name of tensor number index of a group, which the file may lack; false beyond the last. */
bool model_input_tensor(const struct model *model, uint32_t layer, uint32_t group, uint32_t index,
                        char name_out[64]);

#endif
