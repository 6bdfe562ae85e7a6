/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of a worker, learned from its steps.
 *
 *    step --> cost (cost.h)                      --> chunk sizes, drafts, decode_now_s, decode_row_s
 *         \-> prompt_cost (prompt_cost.h), rates --> reports to routers
 *
 * load.c feeds it with measured steps, and the simulator (fleet/sim) with the steps of its workers.  So equal steps give
 * equal reports and equal chunks.
 *
 * Pure; any one thread; no allocation. */
#ifndef COMPUTE_SCHED_SPEED_H
#define COMPUTE_SCHED_SPEED_H

#include "compute/sched/cost.h"
#include "compute/sched/prompt_cost.h"

struct sched_speed { /* zeroed: has learned nothing */
    struct cost_model cost;
    struct prompt_cost prompt_cost;
    struct rate prefill_rate, decode_step; /* prompt tokens per second; seconds between two tokens */
};

struct sched_speed_step {    /* a step that ran */
    struct cost_step decode; /* of its decoding sequences */
    uint32_t n_decode;       /* that many */
    uint32_t n_accepted;     /* draft tokens accepted */
    double draft_s;          /* of the draft model, beside the step */
    uint32_t n_prompt;
    double n_prompt_pairs;
    uint32_t n_room;       /* prompt tokens that it could have had; less than n_prompt: unknown */
    uint32_t chunk_tokens; /* so many prompt tokens are a full sample */
    double seconds;
};

/* The whole step, as the cost model sees it. */
struct cost_step sched_speed_whole(const struct sched_speed_step *step);
void sched_speed_learn(struct sched_speed *speed, const struct sched_speed_step *step, uint64_t now_ns);
/* The step of the decoding sequences alone, and the time that one more of them adds; 0 where unknown. */
void sched_speed_decode(const struct sched_speed *speed, const struct cost_step *decode, double *now_s_out,
                        double *row_s_out);
/* The factor by which prompts take longer beside decoding sequences, because each step computes both: decode_s for the
 * sequences, and prompt_s for as many prompt tokens as it may have. */
double sched_speed_stretch(double decode_s, double prompt_s);

#endif
