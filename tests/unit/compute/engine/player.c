/* SPDX-License-Identifier: Apache-2.0 */
/* Plays a model for a test: opens a file, uses blocks in order, feeds the test's tokens. */
#include "tests/unit/compute/engine/player.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/compute/check_team.h"

void player_open(struct player *player, const char *path, const struct model_opts *opts, uint32_t n_tokens)
{
    const struct kv_layout *layout;
    struct fault fault = {0};

    memset(player, 0, sizeof(*player));
    player->team = check_team(2);
    if (gguf_open(path, &fault, &player->gguf) < 0 ||
        model_new(player->gguf, player->team, opts, &fault, &player->model) < 0)
        fail_msg("%s: %s", path, fault.text);
    layout = model_kv_layout(player->model);
    player->n_blocks = (n_tokens + layout->block_tokens - 1) / layout->block_tokens;
    uint32_t n_all = player->n_blocks + kv_layout_state_blocks(layout);

    player->arena = calloc(n_all, kv_layout_block_bytes(layout));
    player->blocks = calloc(n_all, sizeof(*player->blocks));
    player->state = player->blocks + player->n_blocks;
    for (uint32_t i = 0; i < n_all; i++)
        player->blocks[i] = i;
    assert_int_equal(engine_cpu_new(&(struct engine_cpu_opts){.model = player->model,
                                                              .team = player->team,
                                                              .kv_arena = player->arena,
                                                              .n_blocks = n_all,
                                                              .max_batch_tokens = n_tokens,
                                                              .max_items = 1},
                                    &player->engine),
                     0);
}

void player_close(struct player *player)
{
    engine_free(&player->engine);
    model_free(player->model);
    team_free(player->team);
    gguf_close(player->gguf);
    free(player->arena);
    free(player->blocks);
}

token_id player_feed(struct player *player, const token_id *tokens, uint32_t n, uint32_t position)
{
    struct kv_state_cut cut = {.n_tokens = n, .blocks = player->state};
    struct engine_item item = {.tokens = tokens,
                               .n_tokens = n,
                               .position = position,
                               .blocks = player->blocks,
                               .n_blocks = player->n_blocks,
                               .recurrent = position > 0 ? player->state : NULL,
                               .cuts = &cut,
                               .n_cuts = model_kv_layout(player->model)->state_bytes > 0,
                               .wants_token = true,
                               .sample = {.top_p = 1}};
    struct sample_result drawn;

    assert_int_equal(
        engine_step(&player->engine, &(struct engine_batch){.items = &item, .n_items = 1}, &drawn), 0);
    return drawn.id;
}

const float *player_logits(struct player *player)
{
    return player->engine.ops->logits(player->engine.self, 0);
}

static const char *existing(const char *folder, const char *name, char out[512])
{
    snprintf(out, 512, "%s/%s", folder, name);
    return access(out, R_OK) == 0 ? out : NULL;
}

const char *player_source(const char *name, char out[512])
{
    const char *source = getenv("srcdir");

    return existing(source ? source : ".", name, out);
}

const char *player_data(const char *name, char out[512])
{
    const char *source = getenv("srcdir"), *data = getenv("BATON_DATA");
    char beside[400];

    snprintf(beside, sizeof(beside), "%s/../shared/data", source ? source : ".");
    return existing(data ? data : beside, name, out);
}

double player_distance(const float *got, const float *expected, uint32_t n)
{
    double worst = 0, largest = 0;

    for (uint32_t i = 0; i < n; i++) {
        double apart = fabs((double)got[i] - (double)expected[i]);

        if (!(apart <= worst))
            worst = apart; /* keeps a NaN */
        largest = fmax(largest, fabs((double)expected[i]));
    }
    return worst / largest;
}
