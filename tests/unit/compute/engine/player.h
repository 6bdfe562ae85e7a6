/* SPDX-License-Identifier: Apache-2.0 */
/* One model file and one sequence: feeds tokens and reads logits, for tests with golden vectors. */
#ifndef ENGINE_PLAYER_H
#define ENGINE_PLAYER_H

#include "compute/engine/engine_cpu.h"

struct player {
    struct gguf *gguf;
    struct team *team;
    struct model *model;
    void *arena;
    kv_block_id *blocks;
    uint32_t n_blocks;
    kv_block_id *state; /* blocks of the recurrent state, after the others; written in place */
    struct engine engine;
};

/* Asserts success.  n_tokens: the longest length of the sequence. */
void player_open(struct player *player, const char *path, const struct model_opts *opts, uint32_t n_tokens);
void player_close(struct player *player);
/* Feeds n tokens from position on.  Returns the greedy next token.  Logits stay valid until the next call. */
token_id player_feed(struct player *player, const token_id *tokens, uint32_t n, uint32_t position);
const float *player_logits(struct player *player);

/* Path of a file in the source tree, or in the shared data folder (BATON_DATA, or ../shared/data beside the
 * source tree).  NULL: there is no such file. */
const char *player_source(const char *name, char out[512]);
const char *player_data(const char *name, char out[512]);

/* Largest difference as a share of the largest expected magnitude. */
double player_distance(const float *got, const float *expected, uint32_t n);

#endif
