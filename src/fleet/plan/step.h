/* SPDX-License-Identifier: Apache-2.0 */
/* The time of one step of an engine on one device type: a calibrated roofline, term by term. */
#ifndef FLEET_PLAN_STEP_H
#define FLEET_PLAN_STEP_H

#include "fleet/plan/constants.h"
#include "fleet/plan/device.h"
#include "fleet/plan/model.h"

enum plan_overlap { PLAN_OVERLAP_NONE, PLAN_OVERLAP_HALF, PLAN_OVERLAP_FULL };

struct plan_setup { /* the strings and objects are borrowed */
    const struct plan_model *model;
    const struct plan_device *device;
    const struct plan_constants *constants;
    const char *weights;       /* bf16, fp8, fp4, q4_k ... */
    const char *kv;            /* bf16, fp8 ... */
    double tp;                 /* devices that share the attention of a token */
    double moe_tp, ep;         /* devices that share an expert; devices among which experts are spread */
    double pp;                 /* devices one after another; 1: none */
    double attention_dp;       /* not 0: each of the ep devices has its own sequences (tp is 1) */
    double nodes;              /* nodes that expert parallelism spans; 1: one */
    double expert_skew;        /* load of the busiest expert rank; 0: the constant */
    double factor;             /* of all times; 0: 1 */
    enum plan_overlap overlap; /* of computing and expert traffic */
};

struct plan_load {     /* one step, per device group (per device with attention_dp) */
    double new_tokens; /* N: prompt tokens */
    double attention;  /* S: sum of new * (cached + new / 2) */
    double n_finished; /* prompts that end in this step */
    double batch;      /* B: sequences that decode one token */
    double context;    /* C: their mean context */
};

enum plan_term {
    TERM_GEMM,
    TERM_EXPERTS,
    TERM_ATTENTION_PREFILL,
    TERM_ATTENTION_DECODE,
    TERM_HEAD,
    TERM_TP,
    TERM_EP,
    TERM_LAYERS,
    TERM_STEP,
    TERM_PIPE,
    TERM_N
};

struct plan_terms {
    double s[TERM_N];
    double total_s;
    bool is_compute_bound; /* the projections */
};

/* Numbers of a setup that do not depend on the load. */
struct plan_cost {
    struct plan_setup setup;
    double weight_bytes;   /* per device */
    double kv_bytes_token; /* per device, of a token of a short context */
    double state_bytes;    /* per device and sequence */
    double memory_bytes;   /* per device; capacity, before a reserve */
    double memory_rate, peak_main, peak_attention_weights, peak_attention;
    double attention_weights, main_weights, expert_weights; /* parameters per device */
    double bytes_attention, bytes_main, bytes_head, bytes_kv;
    double scaleup_rate, nic_rate;
    double matmul_main, matmul_attention; /* measured matmul rates beside those of the fitted devices */
    double is_fp4;
};

const char *plan_term_name(enum plan_term term);
/* E_NOT_FOUND names the number that the device lacks; E_INVAL an impossible setup; E_UNSUPPORTED a type. */
int plan_cost_init(const struct plan_setup *setup, struct fault *fault, struct plan_cost *out);
/* Returns terms->total_s. */
double plan_cost_step(const struct plan_cost *cost, const struct plan_load *load, struct plan_terms *terms);
double plan_cost_prefill(const struct plan_cost *cost, double new_tokens, double cached_tokens);
double plan_cost_decode(const struct plan_cost *cost, double batch, double context);
/* The number of sequences whose caches fit beside the weights while reserve (a part) of the memory stays free.
 * Below 1: none. */
double plan_cost_room(const struct plan_cost *cost, double context_tokens, double reserve);
/* KV and state bytes of a sequence, over all devices of a group, each byte once. */
double plan_cost_kv_bytes(const struct plan_cost *cost, double context_tokens);

/* Bytes of an element of a weight or KV type; those of kv.type by their rows in base/kv_types.h.  NAN: unknown. */
double plan_type_bytes(const char *type);

#endif
