/* SPDX-License-Identifier: Apache-2.0 */
/* Routing: the experts that a token goes to, and their weights. One token per call, any thread; the same
 * bits on every machine. */
#ifndef COMPUTE_MODEL_MOE_ROUTE_PRIV_H
#define COMPUTE_MODEL_MOE_ROUTE_PRIV_H

#include <stdbool.h>
#include <stdint.h>

enum { ROUTE_MAX_EXPERTS = 512, ROUTE_MAX_USED = 64 };

enum route_gate { /* numbers of expert_gating_func in model files */
                  ROUTE_SOFTMAX = 1,
                  ROUTE_SIGMOID = 2,
                  ROUTE_SOFTMAX_CHOSEN = 3, /* softmax over the chosen experts */
                  ROUTE_SPARSEMIXER = 100   /* has no number in files: phimoe */
};

struct route_rule {
    enum route_gate gate;
    uint32_t n_experts;     /* at most ROUTE_MAX_EXPERTS */
    uint32_t n_used;        /* at most ROUTE_MAX_USED, and at most the experts of n_groups_used groups */
    uint32_t n_groups;      /* divides n_experts; 1: no groups */
    uint32_t n_groups_used; /* groups from which experts are chosen */
    bool averages_shared; /* half of the chosen and half of the shared experts, not their sum (cohere2moe) */
    bool is_normed;       /* the weights of the chosen experts add up to 1, before scale */
    bool scales_input;    /* the weight multiplies the input of an expert, not its output */
    float scale;
};

/* scores: [n_experts]. bias: [n_experts], used for the choice only; or NULL. Outputs: [n_used], best
 * first; of equal experts the lower index comes first. */
void route_token(const struct route_rule *rule, const float *scores, const float *bias, uint32_t *experts_out,
                 float *weights_out);

/* 1 / (1 + e^-score), the same bits on every machine. */
float route_sigmoid(double score);

#endif
