/* SPDX-License-Identifier: Apache-2.0 */
/* Admission by prediction: predicts the time of a request's first token, and whether that is in time.
 *
 *    predicted = max(queue of the best worker + prompts ahead, time until a decode seat is free) + own prompt
 *
 *    predicted within the limit, less the margin    placed or queued
 *    beyond it                                      refused at once, with a time to come back
 *
 * The limit of a request is the larger of the TTFT objective and twice the time of its prompt alone.  The margin is
 * a learned part of the limit: 98 % of the first tokens were late by less.  So a machine with inaccurate
 * predictions admits fewer requests, and its answers still keep the objective.  Up to 0.4 of the limit every late
 * first token raises the margin, above that only one that missed the limit: first tokens that are later than predicted
 * and still in time are no reason to refuse more.
 *
 * Pure functions: no clock, no I/O, no randomness.  The router and the simulator link the same code. */
#ifndef FLEET_PICKER_ADMIT_H
#define FLEET_PICKER_ADMIT_H

#include "fleet/picker/fleet.h"

/* How late first tokens are, compared with their predictions.  Zeroed except for least: no evidence. */
struct picker_lateness {
    double share; /* of the limit: 49 of 50 first tokens were late by less */
    double least; /* lower bound of the share; negative: corrects predictions that are too late on average */
    double moved; /* by its own samples since picker_lateness_take() */
    uint32_t n_seen;
};

/* A first token took actual_s instead of predicted_s.  One sample moves the share by 0.05 at most. */
void picker_lateness_learn(struct picker_lateness *late, double predicted_s, double actual_s, double limit_s);
/* The same for the mean time between the tokens of an answer.  The sequences and prompts beside it change meanwhile, so
 * a prediction may be far too low although the workers keep the objective.  So an answer that stays within 0.7 of it
 * never raises the share above zero. */
void picker_lateness_learn_itl(struct picker_lateness *late, double predicted_s, double actual_s,
                               double slo_s);
double picker_lateness_margin(const struct picker_lateness *late); /* least to 0.75 of the limit */
/* Moves the margin a part of the way to that of another router of the same workers.  A margin lowers the queue that a
 * router accepts at a worker, and the queue is common to all routers.  So the router with the least margin would fill it,
 * and the others would find it too long for theirs.  What these still admit would wait behind the first one's requests
 * and be late, which would raise their margins further: in the end one router would place everything. */
void picker_lateness_approach(struct picker_lateness *late, double theirs);
/* How far this router's samples moved the margin since the last call. */
double picker_lateness_take(struct picker_lateness *late);
/* Moves the margin by what the samples of another router of the same workers moved theirs.  So the margins rise as fast as
 * that of one router for all requests.  Each of four learned from a quarter of the late first tokens, four times as slowly.  A move by more than 1 is ignored. */
void picker_lateness_join(struct picker_lateness *late, double moved);
#define PICKER_ITL_TOKENS 8      /* shorter answers hardly show the time between tokens */
#define PICKER_ITL_LEAST  (-0.5) /* least of that time: estimates may be too high by half the objective */
/* The part of the limit that a placement may use; the rest is for the router's queue, where tenants take turns. */
double picker_begin_share(const struct picker_lateness *late);

/* The state of the fleet that the predictions of all requests of a model use. */
struct picker_outlook {
    double prompt_tokens_per_s; /* of all workers that read prompts, together; 0: unknown */
    double seat_s;              /* time until a decode worker has a seat within its objective; 0: now */
    double seats_per_s;         /* seats that become free; 0: unknown */
};

/* Prompt tokens of requests that waited, as means of the latest ones.  Zeroed: there was none. */
struct picker_local_prefill {
    double local_tokens, all_tokens; /* computed by decode workers; by all */
};

/* A request that waited was placed; its prompt tokens are computed where it decodes, or not. */
void picker_local_prefill_learn(struct picker_local_prefill *of, uint32_t n_tokens, bool is_local);

/* Prompt tokens per second of all workers that read the prompts of a model, together; 0: unknown.  local_prefill NULL:
 * prefill workers compute all prompts that wait.  Time grows with the number of workers. */
double picker_prompt_rate(const struct picker_fleet *fleet, uint32_t group,
                          const struct picker_local_prefill *local_prefill);

struct picker_outlook_opts {
    uint32_t group;
    /* NULL: prefill workers compute all prompts that wait. */
    const struct picker_local_prefill *local_prefill;
    uint32_t n_routers; /* that use these workers, whose time they share; 0: one */
    double itl_slo_s;
    uint32_t answer_tokens;  /* expected of a running answer */
    uint32_t context_tokens; /* that the request needs at the decode worker */
};

/* Time grows with the number of workers. */
void picker_outlook(const struct picker_fleet *fleet, const struct picker_outlook_opts *opts,
                    struct picker_outlook *out);

/* The fleet's time for one more request of so many prompt tokens, when many wait: the reading of its prompt, or the
 * time between two seats while decode workers are full. */
double picker_outlook_each_s(const struct picker_outlook *outlook, uint32_t prompt_tokens);

struct picker_wait {       /* a request that no worker can begin within the objectives now */
    double queue_s;        /* of the best worker */
    double alone_s;        /* the prompt's own time there */
    double ttft_slo_s;     /* the objective */
    double waited_s;       /* how long it has waited */
    double margin;         /* picker_lateness_margin() */
    uint64_t ahead_tokens; /* uncached prompt tokens of waiting requests whose turn comes before its own */
    uint32_t n_ahead;      /* these requests */
};

struct picker_verdict {
    bool is_in_time;
    double ttft_s;  /* predicted, from the request's arrival */
    double limit_s; /* its limit, without the margin */
    double late_s;  /* time beyond the limit less the margin; 0: in time */
};

void picker_admit(const struct picker_wait *wait, const struct picker_outlook *outlook,
                  struct picker_verdict *out);
double picker_limit_s(double ttft_slo_s, double alone_s);

/* Retry times.  Each refusal takes the next free slot of a schedule that drains at the fleet's speed.  So
 * refused clients do not all come back at once. */
struct picker_returns {
    uint64_t next_ns; /* the schedule is full until then */
};

/* Returns the seconds after which the client should retry: 1 to 60. each_s: picker_outlook_each_s(). */
uint32_t picker_returns_take(struct picker_returns *returns, double late_s, double each_s, uint64_t now_ns);

/* The part of the waiting work that is served before a tenant's newest request, in turns by weight. own: the
 * tenant's waiting work; all: that of all tenants; credit: how far the tenant is behind (base/fair.h). */
uint64_t picker_turn_ahead(uint64_t own, uint64_t all, uint32_t n_tenants, uint64_t credit);

#endif
