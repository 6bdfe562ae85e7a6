/* SPDX-License-Identifier: Apache-2.0 */
/* The load that arrives for one model, by phase: time of prompts, and tokens of answers.
 *
 * Requests count when they arrive, placed or not, so a fleet that refuses most of its load still sees all of it.
 * The window is as short as the number of requests allows.  So a busy fleet sees a change within seconds, and
 * chance does not move a quiet one.  The largest prompt and the longest answer of a window do not count, so that a
 * single long request is not taken for a load.
 *
 * One thread; no clock, no allocation.  All zero is an empty record. */
#ifndef FLEET_PICKER_DEMAND_H
#define FLEET_PICKER_DEMAND_H

#include <stdbool.h>
#include <stdint.h>

#define PICKER_DEMAND_BUCKETS 24
#define PICKER_DEMAND_WIDTH   UINT64_C(5000000000) /* ns of a bucket, unless width_ns says otherwise */

struct picker_demand_bucket {
    uint32_t n_prompts, n_short, n_answers, n_missed;
    double prompt_s, square, most_s; /* time of prompts that are not short; its squares; the longest */
    double short_s;                  /* of prompts that the decode worker computes */
    double prompt_tokens;
    uint64_t answer_tokens, most_tokens;
};

struct picker_demand {
    struct picker_demand_bucket buckets[PICKER_DEMAND_BUCKETS];
    uint64_t width_ns;      /* of a bucket; 0: PICKER_DEMAND_WIDTH.  A change starts anew */
    uint64_t latest;        /* number of the bucket that is filled now, by time / width */
    uint64_t first_ns;      /* of the first request; 0: none yet */
    double step_s;          /* the workers' fixed cost of a prompt: a step */
    double token_s, pair_s; /* mean cost of a prompt token and of its attention */
    double pick_uncached;   /* share of a prompt's tokens that no worker has cached; 0: not known, so all */
    uint32_t short_tokens;  /* prompts of at most this many uncached tokens run where they decode */
};

struct picker_load { /* of the window */
    double window_s;
    uint32_t n_requests;
    double rate_per_s;     /* of prompts for prefill workers */
    double prompt_s, cv2;  /* mean time of one, and its squared coefficient of variation */
    double short_share;    /* number of workers that short prompts keep busy */
    double all_per_s;      /* of all requests */
    double answer_tokens;  /* mean; 0: no answer has ended */
    double context_tokens; /* mean, of prompt and answer */
    double missed_share;   /* of the requests, from 0 to 1: refused, or served beyond an objective */
};

/* A request arrived.  Before the costs are known it counts as one without a time. */
void picker_demand_arrived(struct picker_demand *demand, uint64_t now_ns, uint32_t n_tokens);
/* A request was placed: so many tokens of its prompt were to be computed. */
void picker_demand_placed(struct picker_demand *demand, uint32_t n_tokens, uint32_t n_uncached);
/* A request that had arrived was refused, or it has ended and missed an objective of its class. */
void picker_demand_missed(struct picker_demand *demand, uint64_t now_ns);
/* An answer has ended. */
void picker_demand_ended(struct picker_demand *demand, uint64_t now_ns, uint64_t n_tokens);
/* Sets the width of a bucket.  A new width empties all buckets. */
void picker_demand_set_width(struct picker_demand *demand, uint64_t width_ns);
/* The load of the shortest window with enough requests.  False: there are too few requests. */
bool picker_demand_read(struct picker_demand *demand, uint64_t now_ns, struct picker_load *out);

#endif
