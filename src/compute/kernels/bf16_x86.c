/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether the AVX-512 tables use BF16 dots: the CPU has them, and they give the same bits as FMAs over
 * flushed numbers.  Vendor manuals leave details open, so the instruction is first tested on random numbers.  All
 * other tables use FMAs, which give the same bits.  The BF16 peak is the CPU's, whichever table measures it. */
#include <pthread.h>
#include <string.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "compute/kernels/tables_x86_priv.h"

float kern_peak_bf16(uint32_t rounds);
void kern_dots_tile(const struct tile *tile);
void kern_dots_pack(const struct pack *pack);

enum { TRIAL_PAIRS = 64, TRIALS = 64 };

/* Compares one tile of one token by the instruction and by FMAs.  Smaller exponents flush more numbers. */
static bool bf16_trial_agrees(struct rng *rng, uint32_t exponent)
{
    uint16_t w[TRIAL_PAIRS][PANEL_ROWS][2], x[TRIAL_PAIRS][2];
    uint16_t w_swapped[TRIAL_PAIRS][2][PANEL_ROWS];
    float x_swapped[TRIAL_PAIRS][2], by_dots[PANEL_ROWS], by_fma[PANEL_ROWS];

    for (int k = 0; k < TRIAL_PAIRS; k++)
        for (int i = 0; i < 2; i++) {
            x[k][i] = kern_trial_number(rng, exponent);
            x_swapped[k][1 - i] = bf16_to_f32(x[k][i]);
            for (int lane = 0; lane < PANEL_ROWS; lane++)
                w_swapped[k][1 - i][lane] = w[k][lane][i] = kern_trial_number(rng, exponent);
        }
    struct tile tile = {.w = w,
                        .panel_step = TRIAL_PAIRS * PANEL_ROWS,
                        .x = (const float *)x,
                        .y = by_dots,
                        .n_k = TRIAL_PAIRS,
                        .n_panels = 1,
                        .n_tokens = 1,
                        .is_first = true};
    kern_dots_tile(&tile);
    tile.w = w_swapped;
    tile.panel_step *= 2;
    tile.x = x_swapped[0];
    tile.y = by_fma;
    tile.n_k *= 2;
    uint32_t before = kern_flush_begin();
    kern_vec_avx512.tile_bf16(&tile);
    kern_flush_end(before);
    return memcmp(by_dots, by_fma, sizeof(by_dots)) == 0;
}

static pthread_once_t dots_once = PTHREAD_ONCE_INIT;
static bool dots_are_usable;

static void try_dots(void)
{
    struct rng rng;

    if (!cpu_features_get()->has_avx512_bf16)
        return;
    rng_init(&rng, 1);
    dots_are_usable = true;
    for (int i = 0; i < TRIALS && dots_are_usable; i++)
        dots_are_usable = bf16_trial_agrees(&rng, i % 2 ? 127 : 64);
}

static bool has_dots(void)
{
    pthread_once(&dots_once, try_dots);
    return dots_are_usable;
}

const struct kern_dots kern_dots_avx512 = {
    .tile = kern_dots_tile,
    .pack = kern_dots_pack,
    .is_usable = has_dots,
};

kern_peak kern_bf16_peak(void)
{
    return cpu_features_get()->has_avx512_bf16 ? kern_peak_bf16 : NULL;
}
