/* SPDX-License-Identifier: Apache-2.0 */
/* The constants of the arithmetic: how far a real engine stays behind the device's rates.
 *
 * They are effective, not physical: correlated constants compensate for each other, so a single one has no meaning.
 * A constants file also has factors, which correct for single engines, models and devices.  Its bands give the
 * distance of measurements from predictions that did not use them. */
#ifndef FLEET_PLAN_CONSTANTS_H
#define FLEET_PLAN_CONSTANTS_H

#include "fleet/plan/table.h"

/* id, name in files, lowest and highest value that a fit may choose, meaning */
#define PLAN_CONSTANTS(X)                                                                                    \
    X(PC_ETA_C, "eta_c", 0.1, 1.2, "part of the dense FLOPS that projections reach")                         \
    X(PC_ETA_B, "eta_b", 0.2, 1.2, "part of the memory rate that reading dense weights reaches")             \
    X(PC_ETA_KV, "eta_kv", 0.05, 1.2, "part of the memory rate that reading KV reaches")                     \
    X(PC_ETA_A, "eta_a", 0.02, 1, "part of the BF16 FLOPS that attention reaches")                           \
    X(PC_ETA_CM, "eta_cm", 0.05, 1.2, "part of the FLOPS that expert projections reach")                     \
    X(PC_ETA_BM, "eta_bm", 0.05, 1.2, "part of the memory rate that reading experts reaches")                \
    X(PC_TAU_LAYER, "tau_layer", 1e-6, 2e-3, "seconds of fixed time for a layer")                            \
    X(PC_TAU_MOE, "tau_moe", 1e-7, 2e-3, "seconds of fixed time more for a layer with experts")              \
    X(PC_TAU_STEP, "tau_step", 1e-5, 3e-2, "seconds of fixed time for a step")                               \
    X(PC_TAU_TOKEN, "tau_token", 1e-7, 2e-3, "seconds of host time for a sequence of a step")                \
    X(PC_ALPHA, "alpha", 1e-7, 1e-4, "seconds to start a collective")                                        \
    X(PC_ETA_N, "eta_n", 0.05, 1, "part of the scale-up rate that collectives reach")                        \
    X(PC_M_H, "m_h", 1, 256, "rows at which a projection reaches half of its rate")                          \
    X(PC_SKEW, "skew", 1, 4, "load of the busiest rank of expert parallelism, of the mean")                  \
    X(PC_FP4, "fp4", 0.15, 1.5, "factor of eta_c and eta_cm when weights of 4 bits compute in FP4")          \
    X(PC_MIX, "mix", 0.1, 3, "part of the prefill time that delays running sequences")                       \
    X(PC_SAME_HOST, "same_host", 1e-3, 5, "slow-down of decode by a busy prefill worker on the same host")   \
    X(PC_T0, "ttft_start", 1e-4, 1, "seconds before the first prefill step of a request")                    \
    X(PC_TTFT_X, "ttft_prefill", 0.1, 10, "prefill time to first token, of the time of a step alone")        \
    X(PC_TTFT_Y, "ttft_crowd", 1e-3, 3, "part of half the other prompts that a prompt waits for")

enum plan_constant {
#define X(id, name, low, high, text) id,
    PLAN_CONSTANTS(X)
#undef X
        PC_N
};

enum plan_target { PLAN_TPOT, PLAN_TTFT, PLAN_N_TARGETS };

/* How well the fit's data cover a kind of measurement. */
enum plan_known {
    KNOWN_ALL,    /* this model on this device with this engine was measured */
    KNOWN_PARTS,  /* model, device and engine, but not together */
    KNOWN_LITTLE, /* the model or the device or the engine is new */
    KNOWN_N
};

/* A correction for the predictions of an engine, a model and a device. "*" stands for any. */
struct plan_factor {
    char engine[24], model[48], device[48];
    double log_ratio[PLAN_N_TARGETS]; /* of measurement to prediction, shrunk towards 0 */
    double n;                         /* measurements behind it */
};

struct plan_constants { /* after plan_constants_init() */
    char name[48];
    char date[16];
    char source[200];
    double at[PC_N];
    struct plan_factor *factors; /* owned */
    size_t n_factors;
    /* Logarithms of measurement to prediction: 5 % lie below [0], and 5 % above [1]. */
    double band[PLAN_N_TARGETS][KNOWN_N][2];
    double held_out[PLAN_N_TARGETS]; /* mean absolute error of held-out rows; NAN: not known */
};

struct plan_kind { /* subject of a prediction; NULL: unknown */
    const char *engine, *model, *device;
};

const char *plan_constant_name(enum plan_constant constant);
const char *plan_constant_text(enum plan_constant constant);
double plan_constant_low(enum plan_constant constant);
double plan_constant_high(enum plan_constant constant);

void plan_constants_init(struct plan_constants *constants); /* generic values, no factors */
void plan_constants_fini(struct plan_constants *constants);
int plan_constants_copy(const struct plan_constants *constants, struct plan_constants *out); /* E_NOMEM */
/* Reads and writes a constants file (lines of "name value", "factor ...", "band ..."). */
int plan_constants_parse(struct bytes text, struct fault *fault, struct plan_constants *out);
int plan_constants_write(const struct plan_constants *constants, struct buf *out); /* E_NOMEM */
/* Adds a factor; a NULL part is any.  E_NOMEM. */
int plan_constants_add_factor(struct plan_constants *constants, const struct plan_factor *factor);
/* The product of all factors that match the kind. known_out (may be NULL): how well the data cover it. */
double plan_constants_factor(const struct plan_constants *constants, const struct plan_kind *kind,
                             enum plan_target target, enum plan_known *known_out);

#endif
