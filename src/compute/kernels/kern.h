/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel table: what one instruction set has to offer, and the arguments of its functions.
 *
 * The files kern_*.c are compiled once per instruction set, each time with another KERN_V16 (and KERN_Q8),
 * the header that says what "sixteen floats at once" is there.  KERN(name) keeps the copies apart for the
 * linker. */
#ifndef COMPUTE_KERNELS_KERN_H
#define COMPUTE_KERNELS_KERN_H

#include "compute/kernels/attn_args.h"

enum {
    PANEL_ROWS = 16,   /* lanes: output rows of a panel */
    QBLK_WEIGHTS = 32, /* along K, per scale of activations */
    MAX_BLOCK_TOKENS = 128,
    MAX_TILE_TOKENS = 12, /* of tiles in vector registers */
    TILES_TOKENS = 32,    /* of a tile function for BF16 tiles */
    TILES_COLS = 32,      /* that BF16 tiles add up before they add to the sum */
    PEAK_BF16_CHAINS = 12,
    PEAK_TILES_CHAINS = 64,
};

/* y[t][16*p + lane] (+)= sum over k of x[t][k] * w[p][k][lane], for n_tokens x n_panels*16 outputs.  Full
 * panels only: the caller lends a buffer for ragged rows. */
struct tile {
    const void *w;     /* element (k 0, lane 0) of the first panel */
    size_t panel_step; /* elements from one panel to the next */
    const float *x;    /* packed [k][n_tokens] */
    float *y;
    size_t y_step; /* floats from one token to the next */
    uint32_t n_k;
    uint32_t n_panels;
    uint32_t n_tokens; /* 1..tile_tokens */
    bool is_first;     /* start at zero, else go on from y */
    /* Fetched meanwhile; NULL: what lies ahead in these panels and those behind them. */
    const char *next;
    size_t next_k_bytes, next_panel_bytes;
    bool is_near; /* to the first-level cache, not the second */
};

/* How quantised weights come from memory: lines are fetched so far ahead in each panel into the first-level
 * cache, and before that (0: not) into the second. */
struct fetch_ahead {
    uint32_t near_bytes, far_bytes;
    bool is_spread;    /* far lines come from two pages by turns */
    bool is_told_near; /* what the caller says goes to the first-level cache, not the second */
};

/* The same over quantised weights, chunk after chunk (quant.h). */
struct tile_q8 {
    enum dtype type;
    const uint8_t *w;      /* first chunk of the first panel */
    size_t panel_step;     /* bytes */
    const uint8_t *lookup; /* [16] of types with a table */
    const void *x;         /* packed, the first qblk's */
    size_t x_step;         /* bytes from one tile of tokens to the next */
    float *y;
    size_t y_step;
    uint32_t n_qblks;
    uint32_t n_panels;
    uint32_t n_tokens; /* 1..tile_tokens, of each tile */
    uint32_t n_tiles;  /* one below the other in y */
    bool is_first;
    /* Fetched meanwhile: next_bytes of as many panels, next_step apart, with each tile.  NULL, but
     * not with expanded chunks: what lies ahead. */
    const uint8_t *next;
    size_t next_step, next_bytes;
    struct fetch_ahead ahead;
    uint32_t direct_panels; /* at once, of packed weights: Q8_DIRECT_PANELS, or one after the other */
};

/* A chunk of n_qblks to take apart. */
struct expand {
    enum dtype type;
    const uint8_t *chunk;
    const uint8_t *lookup;
    uint32_t n_qblks;
    uint8_t *out; /* quant_expanded() */
};

/* Activations to pack: columns [from, to) of n_tokens rows, x_stride floats apart. */
struct pack {
    enum dtype type; /* of the weights; for q8 */
    const float *x;  /* of the first row, column `from` */
    size_t x_stride;
    uint32_t n_tokens; /* of this tile */
    uint32_t from, to; /* for q8: multiples of 32 */
    void *out;         /* of the tile, its column 0 */
    float *base;       /* the same: [qblk][token], of quant_pack */
};

struct attn_unit;  /* attn.h */
struct tile_block; /* tile_block.h */
struct tile_give;

struct rope_args { /* see rope_rotate */
    enum rope_pairs pairs;
    float *x;
    uint32_t n_heads, head_dim, dims;
    const float *cos, *sin;
};

/* Do what there is to measure for a while: rounds x tile_tokens operations on 16 lanes.  The result keeps the
 * compiler from leaving it out. */
typedef float (*kern_peak)(uint32_t rounds);

/* How to go through memory: so many equal stretches side by side (1, 2, 4 or 8), fetching so far ahead. */
struct reading {
    uint32_t n_streams, ahead_bytes;
};

/* What is made of the operations of one v16 header. */
struct kern_vec {
    uint32_t tile_tokens;
    uint32_t tile_panels; /* that go with so many tokens */

    void (*tile_f32)(const struct tile *tile);
    void (*tile_f16)(const struct tile *tile);
    void (*tile_bf16)(const struct tile *tile);
    void (*pack_f32)(const struct pack *pack);
    /* BF16 tiles by FMAs, over weights and activations with each pair's second first; n_k whole TILES_COLS */
    void (*slices_f32)(const struct tile *tile);
    void (*pack_swapped)(const struct pack *pack); /* rounded to BF16, each pair's second first */
    void (*pack_slices)(const struct pack *pack);  /* the same, filled up to whole TILES_COLS with zeros */
    void (*widen_f16)(const uint16_t *in, float *out, size_t n); /* n a multiple of 16 */
    void (*widen_bf16)(const uint16_t *in, float *out, size_t n);

    void (*attn_unit)(const struct attn_unit *unit);
    void (*attn_merge)(const struct attn_unit *unit);
    void (*kv_store)(const struct kv_store_args *args);

    void (*rms_norm)(const float *x, const float *gain, uint32_t n, float eps, float *out);
    void (*vec_add)(float *x, const float *y, uint32_t n);
    void (*swiglu)(float *gate, const float *up, uint32_t n);
    void (*geglu)(float *gate, const float *up, uint32_t n);
    void (*vec_scale)(float *x, float by, uint32_t n);
    void (*rope)(const struct rope_args *args);
    void (*mix_rows)(const float *const *rows, const float *weights, uint32_t n_rows, uint32_t n, float *out);

    /* 64-aligned, whole KiB */
    float (*read_memory)(const void *from, size_t len_bytes, struct reading reading);
    kern_peak peak; /* fused multiply-adds, tile_tokens a round */
};

/* Integer dots: what is made of one q8 header. */
struct kern_q8 {
    uint32_t tile_tokens;
    uint32_t tile_panels;
    uint32_t quant_bytes;               /* that four quants of an activation take, packed; */
    uint32_t narrow_most, narrow_bytes; /* beside weights whose u is at most so large, so many */

    void (*tile)(const struct tile_q8 *tile); /* over expanded chunks */
    void (*expand)(const struct expand *expand);
    void (*direct)(const struct tile_q8 *tile); /* over chunks as they are; may be NULL */
    uint32_t direct_panels;                     /* it takes whole groups of so many */
    uint32_t wide_least, wide_tokens; /* and, a panel at a time, tiles of so many tokens; 0: it does not */
    void (*pack)(const struct pack *pack);
    kern_peak peak; /* dots of four per lane, so many a round: */
    uint32_t peak_dots;
    kern_peak narrow_peak; /* the same with narrow weights; NULL: none are */
};

/* BF16 dots, or tiles: elements are pairs along K, 32 bits wide, in weights as in activations. */
struct kern_dots {
    void (*tile)(const struct tile *tile);
    void (*pack)(const struct pack *pack);
    void (*block)(const struct tile_block *block); /* BF16 tiles */
    void (*give)(const struct tile_give *give);
    void (*close)(void); /* on each rank at the end of a job that used these; may be NULL */
    /* BF16 tiles: blocks of quantised weights with a scale per qblk, taken apart (quant_tiles_bytes) */
    void (*quant_block)(const struct tile_block *block);
    void (*quant_expand)(const struct expand *expand);
    void (*quant_pack)(const struct pack *pack);
    bool (*is_usable)(void);
};

struct kern_table {
    const char *name;
    const char *family;
    const struct kern_vec *vec;
    const struct kern_q8 *q8;
    const struct kern_dots *dots;  /* if the CPU runs them; NULL: FMAs do */
    const struct kern_dots *tiles; /* the same for BF16 tiles */
    bool has_int8_dot;             /* the CPU has an instruction for q8's dots */
    bool (*is_usable)(void);
};

/* All tables of this build, the best last. */
extern const struct kern_table kern_tables[];
extern const uint32_t kern_n_tables;
/* From here on this thread takes subnormal floats for zero and makes none, as BF16 dots do; returns what
 * kern_flush_end wants back.  False from kern_can_flush: this machine cannot, so it has no BF16 dots at all.
 */
bool kern_can_flush(void);
uint32_t kern_flush_begin(void);
void kern_flush_end(uint32_t before);
/* AMX: the CPU has it, the kernel of the system lets this process use it, and the compiler knew it. */
bool kern_has_amx_bf16(void);
/* A BF16 number to try an instruction with: of any size between 2^-20 and 2^20 times 2^(exponent - 127), or
 * zero, or a subnormal. */
struct rng;
uint16_t kern_trial_number(struct rng *rng, uint32_t exponent);
/* PEAK_BF16_CHAINS dots of two per lane and round; NULL: the CPU has no such instruction. */
kern_peak kern_bf16_peak(void);
/* PEAK_TILES_CHAINS x 16 outputs, 32 columns of each, a round; NULL: no such instruction. */
kern_peak kern_tiles_peak(void);

#endif
