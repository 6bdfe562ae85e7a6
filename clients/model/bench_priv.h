/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of baton-model bench share. */
#ifndef MODEL_BENCH_PRIV_H
#define MODEL_BENCH_PRIV_H

#include "clients/model/rig.h"
#include "compute/tensor/tensor.h"

enum bench_kind { BENCH_PREFILL, BENCH_DECODE, BENCH_BATCH };

struct bench_test {
    enum bench_kind kind;
    uint32_t n;     /* tokens of the prompt, tokens drawn, or sequences */
    uint32_t depth; /* tokens in the context before */
    uint32_t chunk; /* most tokens of a prompt per step */
};

enum {
    BENCH_MAX_TESTS = 64,
    BENCH_BATCH_STEPS = 32, /* steps of a batch test */
    BENCH_BATCH_DEPTH = 128 /* context of its sequences unless --depth says otherwise */
};

void bench_test_name(const struct bench_test *test, char out[32]); /* "pp512", "tg128@4096", "b32" */

/* ---- bench_limit.c: what the machine would allow ---- */

enum bench_by { BY_INT8, BY_NARROW /* weights, see tensor_is_narrow */, BY_BF16, BY_FLOAT, N_BENCH_BY };

struct bench_work {                                 /* of a model, per token */
    double macs[N_BENCH_BY], head_macs[N_BENCH_BY]; /* multiply-adds of the layers, and of the head */
    enum bf16_math math;                            /* dots or tiles: what BY_BF16 is by */
    double attn_macs;                               /* per token of context */
    double weight_bytes;                            /* that every step reads */
    double expert_bytes; /* of all experts, and the share of them that one token chooses */
    double expert_share;
    double kv_bytes; /* read per token of context */
};

void bench_work_of(const struct rig *rig, struct bench_work *out);
/* The shortest time in which this machine could do the test: all its arithmetic at the peak of its class, or
 * all its reads at full bandwidth, whichever takes longer. */
double bench_limit_s(const struct bench_work *work, const struct tensor_limits *limits,
                     const struct bench_test *test);
/* Tokens that the test counts. */
uint32_t bench_tokens(const struct bench_test *test);

/* ---- bench_run.c: the clock ---- */

/* Checks that the model can do the test.  E_RANGE; the fault names the limit that the test exceeds. */
int bench_check(const struct rig *rig, const struct bench_test *test, struct fault *fault);
/* Makes seats for the test, which was checked, fills its context, and runs it once unmeasured. */
int bench_prepare(struct rig *rig, const struct bench_test *test, struct fault *fault);
/* One measured run.  E_CANCELLED after Ctrl-C. */
int bench_once(struct rig *rig, const struct bench_test *test, double *seconds_out);

#endif
