/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether this process may use AMX tiles: the CPU has them, and the operating system, asked once,
 * allows them.
 *
 * BF16 tiles must also do what the manual says, for tiles of every height and numbers of all sizes.  A trial
 * compares them once with FMAs over flushed numbers.  If one bit differs, they are not used. */
#include <pthread.h>
#include <string.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "compute/kernels/kern.h"

extern const struct kern_vec kern_vec_avx512;
extern const struct kern_dots kern_tiles_amx;
float kern_peak_amx_bf16(uint32_t rounds);
void kern_tiles_tile(const struct tile *tile);
void kern_tiles_pack(const struct pack *pack);
void kern_tiles_block(const struct tile_block *block);
void kern_tiles_give(const struct tile_give *give);
void kern_tiles_close(void);
void kern_tiles_quant_block(const struct tile_block *block);
void kern_tiles_quant_expand(const struct expand *expand);
void kern_tiles_quant_pack(const struct pack *pack);

bool kern_has_amx_bf16(void)
{
    return cpu_features_get()->has_amx_bf16;
}

/* ---- BF16 tiles ---- */

enum { TRIALS = 4 /* trials for each height */, TRIAL_SLICES = 3, TRIAL_COLS = TRIAL_SLICES * TILES_COLS };

struct trial {
    uint16_t w[TRIAL_COLS / 2][PANEL_ROWS][2];
    float w_swapped[TRIAL_COLS][PANEL_ROWS];
    uint16_t x[TRIAL_SLICES][TILES_TOKENS * TILES_COLS]; /* room for the most tokens of a trial */
    float x_swapped[TILES_TOKENS][TRIAL_COLS];
    float by_tiles[TILES_TOKENS][PANEL_ROWS], by_fma[TILES_TOKENS][PANEL_ROWS];
};

static void draw_trial(struct trial *trial, struct rng *rng, uint32_t exponent, uint32_t n_tokens)
{
    for (uint32_t k = 0; k < TRIAL_COLS; k++) {
        for (uint32_t lane = 0; lane < PANEL_ROWS; lane++) {
            uint16_t w = kern_trial_number(rng, exponent);

            trial->w[k / 2][lane][k % 2] = w;
            trial->w_swapped[k ^ 1][lane] = bf16_to_f32(w);
        }
        for (uint32_t t = 0; t < n_tokens; t++) {
            uint16_t x = kern_trial_number(rng, exponent);

            trial->x[k / TILES_COLS][t * TILES_COLS + k % TILES_COLS] = x;
            trial->x_swapped[t][k ^ 1] = bf16_to_f32(x);
        }
    }
}

/* Runs a trial.  The first slice starts at zero, the others continue from y.
 * Smaller exponents flush more numbers. */
static bool amx_trial_agrees(struct trial *trial, struct rng *rng, uint32_t exponent, uint32_t n_tokens)
{
    struct tile tile = {.panel_step = TRIAL_COLS / 2 * PANEL_ROWS,
                        .y = trial->by_tiles[0],
                        .y_step = PANEL_ROWS,
                        .n_k = TILES_COLS / 2,
                        .n_panels = 1,
                        .n_tokens = n_tokens};

    draw_trial(trial, rng, exponent, n_tokens);
    for (uint32_t slice = 0; slice < TRIAL_SLICES; slice++) {
        tile.w = trial->w[(size_t)slice * TILES_COLS / 2];
        tile.x = (const float *)trial->x[slice];
        tile.is_first = slice == 0;
        kern_tiles_tile(&tile);
    }
    uint32_t before = kern_flush_begin();
    for (uint32_t t = 0; t < n_tokens; t++)
        kern_vec_avx512.slices_f32(&(struct tile){.w = trial->w_swapped,
                                                  .panel_step = (size_t)TRIAL_COLS * PANEL_ROWS,
                                                  .x = trial->x_swapped[t],
                                                  .y = trial->by_fma[t],
                                                  .n_k = TRIAL_COLS,
                                                  .n_panels = 1,
                                                  .n_tokens = 1,
                                                  .is_first = true});
    kern_flush_end(before);
    return memcmp(trial->by_tiles, trial->by_fma, n_tokens * sizeof(trial->by_fma[0])) == 0;
}

static pthread_once_t tiles_once = PTHREAD_ONCE_INIT;
static bool tiles_are_usable;

static void try_tiles(void)
{
    _Alignas(64) struct trial trial;
    struct rng rng;

    if (!kern_has_amx_bf16() || !cpu_features_get()->has_avx512_bf16)
        return;
    rng_init(&rng, 1);
    tiles_are_usable = true;
    for (int i = 0; i < TRIALS; i++)
        for (uint32_t n = 1; n <= TILES_TOKENS && tiles_are_usable; n++)
            tiles_are_usable = amx_trial_agrees(&trial, &rng, i % 2 ? 127 : 64, n);
    kern_tiles_close();
}

static bool has_tiles(void)
{
    pthread_once(&tiles_once, try_tiles);
    return tiles_are_usable;
}

const struct kern_dots kern_tiles_amx = {
    .tile = kern_tiles_tile,
    .pack = kern_tiles_pack,
    .block = kern_tiles_block,
    .give = kern_tiles_give,
    .close = kern_tiles_close,
    .quant_block = kern_tiles_quant_block,
    .quant_expand = kern_tiles_quant_expand,
    .quant_pack = kern_tiles_quant_pack,
    .is_usable = has_tiles,
};

kern_peak kern_tiles_peak(void)
{
    return has_tiles() ? kern_peak_amx_bf16 : NULL;
}
