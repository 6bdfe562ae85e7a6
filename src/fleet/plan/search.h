/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: how many prefill and decode workers meet the objectives, for each pair of pools; ranked.
 *
 * A worker of a pool is one engine: tp devices (or ep devices with data-parallel attention, or pp stages).
 * The two pools are sized apart and joined by the transfer of KV and by the objective of the first token. */
#ifndef FLEET_PLAN_SEARCH_H
#define FLEET_PLAN_SEARCH_H

#include "fleet/plan/step.h"

#define PLAN_MAX_POOLS 16384

struct plan_work {
    double isl, isl_p90; /* prompt tokens: mean, and 90 % point (0: 1.0 x the mean) */
    double osl, osl_p90;
    double hit;        /* part of the prompt tokens that a cache holds */
    double rate_per_s; /* requests */
    double ttft_s, itl_s;
    double ttft_percentile, itl_percentile; /* of requests, and of steps, that meet the objectives: 0.9 */
    double reserve;                         /* part of memory that stays free */
    double max_load;                        /* of a prefill worker, at most; of decode slots in use */
    double spare;                           /* spare workers in each pool, for failures */
    struct plan_link link;                  /* of a worker; rate NAN: the network cards of its devices */
    bool is_layerwise;                      /* KV is sent while the prompt is computed */
};

enum plan_bound {               /* the bound that keeps a pool from being smaller */
                  BOUND_LOAD,   /* the highest load of a worker */
                  BOUND_TTFT,   /* waiting, within the objective of the first token */
                  BOUND_ITL,    /* step time */
                  BOUND_MEMORY, /* KV beside the weights */
                  BOUND_LINK,   /* the path of KV between the pools */
                  BOUND_NONE
};

struct plan_pool { /* a worker type in a role, sized for the work */
    struct plan_cost cost;
    double price, watts; /* per device; NAN: not known */
    double devices;      /* of a worker */
    double lanes;        /* sequences that a worker computes apart from each other */
    bool can_prefill, can_decode;
    struct plan_kind kind;
};

struct plan_side {   /* a pool's numbers for the work */
    double time_s;   /* prefill: mean of a prompt; decode: of a step */
    double spread_s; /* prefill: by how much the percentile lies above the mean */
    double second;   /* prefill: mean square */
    double load;
    double batch;   /* decode: sequences in a step of a worker */
    double slots;   /* decode: sequences that a worker holds, including those in prefill */
    double held_s;  /* decode: how long a sequence has its slot before its first step */
    double rate;    /* requests per second and worker */
    double wait_s;  /* at the percentile */
    double workers; /* before rounding */
    enum plan_bound bound;
};

struct plan_candidate {
    size_t prefill, decode; /* indices of the pools; decode == SIZE_MAX: aggregated */
    struct plan_side p, d;
    double n_prefill, n_decode, devices; /* rounded up, with spares */
    double ttft_s, itl_s, transfer_s;
    double link_load;
    double dollars_in, dollars_out; /* per million tokens; NAN: a price is not known */
    double dollars_hour, watts;
    double tps_device, tps_user, joules_token;
    double low[3], high[3]; /* devices, TTFT, ITL at the ends of the 90 % interval */
    enum plan_bound bound;
};

struct plan_answer {
    struct plan_candidate *list; /* owned; best first */
    size_t n;
    size_t n_tried;
};

const char *plan_bound_name(enum plan_bound bound);
/* Checks the work and fills in the fields that are 0.  E_INVAL with the field's name. */
int plan_work_check(struct plan_work *work, struct fault *fault);
/* sigma of the log-normal length with that mean and 90 % point; 0: all lengths are equal. */
double plan_work_sigma(double mean, double p90);

/* Mean answer length of the sequences that hold slots at a random time. Each counts in proportion to its
 * length. */
double plan_work_held_answer(const struct plan_work *work);

/* Sides of one pool.  Returns false when no load meets the objectives; why_out names the objective that
 * fails. */
bool plan_prefill_side(const struct plan_pool *pool, const struct plan_work *work, double budget_s,
                       struct plan_side *out);
bool plan_decode_side(const struct plan_pool *pool, const struct plan_work *work, struct plan_side *out);
/* One engine for both phases. */
bool plan_aggregated_side(const struct plan_pool *pool, const struct plan_work *work,
                          struct plan_candidate *out);
/* Bytes per second of KV that a worker's path carries: the link of the work, or the NICs. NAN: not known. */
double plan_link_rate(const struct plan_pool *pool, const struct plan_work *work);
/* Seconds that sending a prompt's KV adds to its first token, after time_s of computing it. */
double plan_transfer(const struct plan_pool *from, const struct plan_work *work, double time_s);

/* All pairs of pools and all aggregated plans, ranked by cost (devices where no price is known).  The pools are
 * borrowed.  The best n_banded get intervals.  E_NOMEM; E_NOT_FOUND when none meets the objectives. */
int plan_search(const struct plan_pool *pools, size_t n, const struct plan_work *work, size_t n_banded,
                struct plan_answer *out);
void plan_answer_fini(struct plan_answer *answer);
/* Sizes one pair again (decode SIZE_MAX: aggregated), with all times multiplied by factor. */
bool plan_candidate_size(const struct plan_pool *pools, size_t prefill, size_t decode,
                         const struct plan_work *work, struct plan_candidate *out);

/* Workers of known rates: tokens per second in and out, of the cluster and of a worker. */
struct plan_ratio {
    double prefill, decode, total, decode_per_prefill;
};
struct plan_ratio plan_ratio_of(double tokens_in_s, double tokens_out_s, double prefill_rate,
                                double decode_rate);

#endif
