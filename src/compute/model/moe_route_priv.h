/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts a token goes to, and with what weight.  One token at a time, any thread; the same bits on
 * every machine. */
#ifndef COMPUTE_MODEL_MOE_ROUTE_PRIV_H
#define COMPUTE_MODEL_MOE_ROUTE_PRIV_H

#include <stdbool.h>
#include <stdint.h>

enum { ROUTE_MAX_EXPERTS = 512, ROUTE_MAX_USED = 64 };

enum route_gate { /* numbers as files have them in expert_gating_func */
                  ROUTE_SOFTMAX = 1,
                  ROUTE_SIGMOID = 2,
                  ROUTE_SOFTMAX_CHOSEN = 3 /* softmax over those chosen */
};

struct route_rule {
    enum route_gate gate;
    uint32_t n_experts;     /* at most ROUTE_MAX_EXPERTS */
    uint32_t n_used;        /* at most ROUTE_MAX_USED and n_groups_used groups' experts */
    uint32_t n_groups;      /* divides n_experts; 1: no groups */
    uint32_t n_groups_used; /* groups that experts are chosen from */
    bool is_normed;         /* the chosen ones' weights add up to 1, before scale */
    float scale;
};

/* scores: [n_experts].  bias: [n_experts], for the choice only; or NULL.  Out: [n_used], best first; of
 * equals the lower index. */
void route_token(const struct route_rule *rule, const float *scores, const float *bias, uint32_t *experts_out,
                 float *weights_out);

#endif
