/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which kernel tables of x86-64 the CPU runs (tables_x86_priv.h lists them).
 *
 * The CPU's features decide which of them run here. The AVX-512 tables use BF16 dots if the CPU has them and they
 * give the same bits as FMAs over flushed numbers. Vendor manuals leave details open, so the instruction is first
 * tested on random numbers. All other tables use FMAs, which give the same bits. The same holds for BF16 tiles
 * (amx.c). The BF16 peak is the CPU's, whichever table measures it. */
#include <pthread.h>
#include <string.h>
#include <xmmintrin.h>

#include "base/rng.h"
#include "base/cpu.h"
#include "compute/kernels/tables_x86_priv.h"

float kern_peak_bf16(uint32_t rounds);
void kern_dots_tile(const struct tile *tile);
void kern_dots_pack(const struct pack *pack);

bool kern_x86_any(void)
{
    return true;
}

bool kern_x86_avx2(void)
{
    return cpu_features_get()->has_avx2;
}

bool kern_x86_avx2_vnni(void)
{
    return kern_x86_avx2() && cpu_features_get()->has_avx_vnni;
}

bool kern_x86_avx512(void)
{
    return cpu_features_get()->has_avx512;
}

bool kern_x86_avx512_vnni(void)
{
    return kern_x86_avx512() && cpu_features_get()->has_avx512_vnni;
}

bool kern_x86_avx512_vbmi(void)
{
    return kern_x86_avx512_vnni() && cpu_features_get()->has_avx512_vbmi;
}

/* ---- BF16 dots ---- */

enum { MXCSR_FLUSH = 0x8040 /* FTZ, DAZ */, TRIAL_PAIRS = 64, TRIALS = 64 };

bool kern_can_flush(void)
{
    return true;
}

uint32_t kern_flush_begin(void)
{
    uint32_t before = _mm_getcsr();

    _mm_setcsr(before | MXCSR_FLUSH);
    return before;
}

void kern_flush_end(uint32_t before)
{
    _mm_setcsr(before);
}

uint16_t kern_trial_number(struct rng *rng, uint32_t exponent)
{
    uint32_t bits = (uint32_t)rng_u64(rng);
    uint32_t e = exponent - 20 + bits % 41;

    return (uint16_t)((bits >> 16 & 0x807f) | (bits >> 8 & 31 ? e << 7 : 0));
}

/* Compares one tile of one token by the instruction and by FMAs.  Smaller exponents flush more numbers. */
static bool tables_x86_trial_agrees(struct rng *rng, uint32_t exponent)
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
        dots_are_usable = tables_x86_trial_agrees(&rng, i % 2 ? 127 : 64);
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
