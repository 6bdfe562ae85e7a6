/* SPDX-License-Identifier: Apache-2.0 */
/* The load if the recorded trace is not available.  Conversations begin with one system prompt, return with
 * their history and a longer question, and end after some turns.  Length, sharing and bursts (arrivals in
 * steps of three seconds) are similar to the recorded trace. */
#include "tests/bench/route/route.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/rng.h"

#define N_REQUESTS  12000
#define N_TALKS     4000
#define MAX_BLOCKS  240
#define STEP_NS     (3 * NS_PER_S)
#define SPAN_NS     (3537 * NS_PER_S)
#define COME_BACK   45 /* of a hundred */
#define MEAN_BLOCKS 14.0

struct talk {
    uint32_t n_blocks;
    uint64_t ids[MAX_BLOCKS];
};

static uint32_t some_blocks(struct rng *rng, double mean)
{
    double n = -mean * log(1 - rng_unit(rng));

    return n < 1 ? 1 : n > MAX_BLOCKS / 2 ? MAX_BLOCKS / 2 : (uint32_t)n;
}

static void grow(struct talk *talk, uint32_t n, uint64_t *next_id)
{
    for (uint32_t i = 0; i < n && talk->n_blocks < MAX_BLOCKS; i++)
        talk->ids[talk->n_blocks++] = (*next_id)++;
}

void route_make_trace(struct trace *out)
{
    struct talk *talks = route_grab(N_TALKS, sizeof(*talks));
    uint64_t next_id = 1;
    struct rng rng;

    rng_init(&rng, 42);
    *out = (struct trace){.entries = route_grab(N_REQUESTS, sizeof(*out->entries)),
                          .block_ids = route_grab((size_t)N_REQUESTS * MAX_BLOCKS, sizeof(*out->block_ids))};
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        struct talk *talk = &talks[rng_below(&rng, N_TALKS)];
        struct trace_entry *entry = &out->entries[out->n_entries++];
        bool is_new = talk->n_blocks == 0 || rng_below(&rng, 100) >= COME_BACK;

        if (is_new) {
            talk->n_blocks = 1;
            talk->ids[0] = 0;
        } else {
            talk->n_blocks--; /* the last block was not full */
        }
        grow(talk, some_blocks(&rng, MEAN_BLOCKS), &next_id);
        *entry = (struct trace_entry){.at_ns = i * (SPAN_NS / N_REQUESTS) / STEP_NS * STEP_NS,
                                      .prompt_tokens = talk->n_blocks * ROUTE_BLOCK_TOKENS - 100,
                                      .answer_tokens = 1 + (uint32_t)rng_below(&rng, 680),
                                      .first_block = (uint32_t)out->n_block_ids,
                                      .n_blocks = talk->n_blocks};
        for (uint32_t k = 0; k < talk->n_blocks; k++)
            out->block_ids[out->n_block_ids++] = talk->ids[k];
    }
    free(talks);
}
