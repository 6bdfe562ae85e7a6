/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel table: the functions of one instruction set, and their arguments.
 *
 * The files kern_*.c are compiled once per instruction set. Each time KERN_V16 (and KERN_Q8) names another
 * header that implements "sixteen floats at once". KERN(name) gives the copies different linker names. */
#ifndef COMPUTE_KERNELS_KERN_H
#define COMPUTE_KERNELS_KERN_H

#include "compute/kernels/attn_args.h"

enum {
    PANEL_ROWS = 16,   /* lanes: output rows of a panel */
    QBLK_WEIGHTS = 32, /* columns per scale of activations */
    MAX_BLOCK_TOKENS = 128,
    MAX_TILE_TOKENS = 12, /* of a tile function for vector registers */
    TILES_TOKENS = 32,    /* of a tile function for BF16 tiles */
    TILES_COLS = 32,      /* columns that BF16 tiles add up before they add to the sum */
    PEAK_BF16_CHAINS = 12,
    PEAK_TILES_CHAINS = 64,
};

/* y[t][16*p + lane] (+)= sum over k of x[t][k] * w[p][k][lane], for n_tokens x n_panels*16 outputs. Full
 * panels only: for ragged rows the caller passes a buffer. */
struct tile {
    const void *w;     /* element (k 0, lane 0) of the first panel */
    size_t panel_step; /* elements from one panel to the next */
    const float *x;    /* packed [k][n_tokens] */
    float *y;
    size_t y_step; /* floats from one token to the next */
    uint32_t n_k;
    uint32_t n_panels;
    uint32_t n_tokens; /* 1..tile_tokens */
    bool is_first;     /* start at zero; else add to y */
    /* Prefetched meanwhile. NULL: the data ahead in these panels and in the panels after them. */
    const char *next;
    size_t next_k_bytes, next_panel_bytes;
    bool is_near; /* prefetch to the first-level cache, not the second */
};

/* Prefetch distances for quantised weights: this far ahead in each panel into the first-level cache, and
 * before that (0: not) into the second. */
struct fetch_ahead {
    uint32_t near_bytes, far_bytes;
    bool is_spread;    /* far lines alternate between two pages */
    bool next_is_near; /* tile.next is prefetched into the first-level cache, not the second */
};

/* The same product over quantised weights, chunk after chunk (quant.h). */
struct tile_q8 {
    enum dtype type;
    const uint8_t *w;      /* first chunk of the first panel */
    size_t panel_step;     /* bytes */
    const uint8_t *lookup; /* [16], for types with a table */
    const uint8_t *points; /* of the weight (weight_points.c) */
    float unit;            /* the scales of such a type count in it */
    const void *x;         /* packed activations, first qblk */
    size_t x_step;         /* bytes from one tile of tokens to the next */
    float *y;
    size_t y_step;
    uint32_t n_qblks;
    uint32_t n_panels;
    uint32_t n_tokens; /* tokens of each tile, 1..tile_tokens */
    uint32_t n_tiles;  /* number of tiles, one below the other in y */
    bool is_first;
    /* Prefetched with each tile: next_bytes of as many panels, next_step apart. NULL: the data ahead,
     * unless chunks are expanded. */
    const uint8_t *next;
    size_t next_step, next_bytes;
    struct fetch_ahead ahead;
    uint32_t direct_panels; /* panels at once, for packed weights: Q8_DIRECT_PANELS, or 1 */
};

/* Expands a chunk of n_qblks. */
struct expand {
    enum dtype type;
    const uint8_t *chunk;
    const uint8_t *lookup;
    const uint8_t *points;
    float unit;
    uint32_t n_qblks;
    uint8_t *out; /* quant_expanded() */
};

/* Activations to pack: columns [from, to) of n_tokens rows, x_stride floats apart. */
struct pack {
    enum dtype type; /* form of the weights; for q8 */
    const float *x;  /* first row, column `from` */
    size_t x_stride;
    uint32_t n_tokens; /* tokens of this tile */
    uint32_t from, to; /* for q8: multiples of 32 */
    void *out;         /* output: column 0 of the tile */
    float *base;       /* output for quant_pack: column 0 of the bases, [qblk][token] */
};

struct conv_args; /* recurrent.h */
struct delta_args;
struct kv_gather_args; /* index.h */
struct index_args;
struct attn_unit;  /* attn.h */
struct tile_block; /* tile_block.h */
struct tile_give;

/* Measures peak arithmetic: rounds x tile_tokens operations on 16 lanes. The result keeps the compiler
 * from removing the work. */
typedef float (*kern_peak)(uint32_t rounds);

/* How to read memory: this many equal stretches side by side (1, 2, 4 or 8), prefetching this far ahead. */
struct reading {
    uint32_t n_streams, ahead_bytes;
};

/* Functions built from one v16 header. */
struct kern_vec {
    uint32_t tile_tokens;
    uint32_t tile_panels; /* panels used together with this many tokens */

    void (*tile_f32)(const struct tile *tile);
    void (*tile_f16)(const struct tile *tile);
    void (*tile_bf16)(const struct tile *tile);
    void (*pack_f32)(const struct pack *pack);
    /* BF16 tiles by FMAs: in weights and activations each pair's second number is first; n_k is whole
     * TILES_COLS */
    void (*slices_f32)(const struct tile *tile);
    void (*pack_swapped)(const struct pack *pack); /* rounded to BF16, each pair's second number first */
    void (*pack_slices)(const struct pack *pack);  /* the same, padded with zeros to whole TILES_COLS */
    void (*widen_f16)(const uint16_t *in, float *out, size_t n); /* n a multiple of 16 */
    void (*widen_bf16)(const uint16_t *in, float *out, size_t n);

    void (*attn_unit)(const struct attn_unit *unit);
    void (*attn_merge)(const struct attn_unit *unit);
    void (*kv_store)(const struct kv_store_args *args);
    void (*kv_gather)(const struct kv_gather_args *args);
    void (*index_scores)(const struct index_args *args, float *scores_out);

    void (*rms_norm)(const float *x, const float *gain, uint32_t n, float eps, float *out);
    void (*layer_norm)(const float *x, const struct layer_gain *gain, uint32_t n, float eps, float *out);
    void (*vec_add)(float *x, const float *y, uint32_t n);
    void (*swiglu)(float *gate, const float *up, uint32_t n);
    void (*geglu)(float *gate, const float *up, uint32_t n);
    void (*gelu)(float *x, uint32_t n);
    void (*gelu_exact)(float *x, uint32_t n);
    void (*vec_scale)(float *x, float by, uint32_t n);
    void (*vec_cap)(float *x, float cap, uint32_t n);
    void (*rope)(const struct rope_args *args);
    void (*conv_rows)(const struct conv_args *args);
    void (*delta_rows)(const struct delta_args *args);
    void (*vec_gate)(float *x, const float *gate, uint32_t n);
    void (*mix_rows)(const float *const *rows, const float *weights, uint32_t n_rows, uint32_t n, float *out);

    /* 64-aligned, whole KiB */
    float (*read_memory)(const void *from, size_t len_bytes, struct reading reading);
    kern_peak peak; /* fused multiply-adds, tile_tokens per round */
};

/* Integer dots: functions built from one q8 header. */
struct kern_q8 {
    uint32_t tile_tokens;
    uint32_t tile_panels;
    uint32_t quant_bytes;               /* packed bytes of four quants of an activation; */
    uint32_t narrow_most, narrow_bytes; /* this many for weights whose largest u is at most narrow_most */
    bool has_signed; /* and for one token of quant_has_wide_levels(): only `direct` takes these */

    void (*tile)(const struct tile_q8 *tile); /* over expanded chunks */
    void (*expand)(const struct expand *expand);
    void (*direct)(const struct tile_q8 *tile); /* over chunks without expansion; may be NULL */
    uint32_t direct_panels;                     /* takes multiples of this many panels */
    uint32_t wide_least, wide_tokens;           /* and tiles of this many tokens, a panel at a time; 0: not */
    void (*pack)(const struct pack *pack);
    kern_peak peak; /* dots of four per lane, this many per round: */
    uint32_t peak_dots;
    kern_peak narrow_peak; /* the same with narrow weights; NULL: not supported */
};

/* The functions of kern_q8 that read packed chunks, for POINT_TYPES. */
struct kern_points {
    void (*expand)(const struct expand *expand);
    void (*direct)(const struct tile_q8 *tile); /* may be NULL */
};

/* BF16 dots, or tiles: elements are pairs along K, 32 bits wide, in weights and activations. */
struct kern_dots {
    void (*tile)(const struct tile *tile);
    void (*pack)(const struct pack *pack);
    void (*block)(const struct tile_block *block); /* BF16 tiles */
    void (*give)(const struct tile_give *give);
    void (*close)(void); /* called on each rank at the end of a job that used these; may be NULL */
    /* BF16 tiles: blocks of quantised weights with a scale per qblk, expanded (quant_tiles_bytes) */
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
    const struct kern_dots *dots;     /* if the CPU runs them; NULL: by FMAs */
    const struct kern_dots *tiles;    /* the same for BF16 tiles */
    const struct kern_points *points; /* NULL: points are packed as levels */
    bool (*has_points)(void);         /* the CPU runs them; NULL: yes */
    bool has_int8_dot;                /* the CPU has an instruction for q8 dots */
    bool (*is_usable)(void);
};

/* All tables of this build, best last. */
extern const struct kern_table kern_tables[];
extern const uint32_t kern_n_tables;
/* From begin on, this thread flushes subnormal floats to zero (inputs and results), as BF16 dots do. begin
 * returns the value that kern_flush_end restores. kern_can_flush is false on machines that cannot flush;
 * they have no BF16 dots. */
bool kern_can_flush(void);
uint32_t kern_flush_begin(void);
void kern_flush_end(uint32_t before);
/* AMX: the CPU has it, the operating system lets this process use it, and the compiler knew it. */
bool kern_has_amx_bf16(void);
/* A BF16 number to test an instruction with: of any size between 2^-20 and 2^20 times 2^(exponent - 127),
 * or zero, or a subnormal. */
struct rng;
uint16_t kern_trial_number(struct rng *rng, uint32_t exponent);
/* PEAK_BF16_CHAINS dots of two per lane and round; NULL: the CPU has no such instruction. */
kern_peak kern_bf16_peak(void);
/* PEAK_TILES_CHAINS x 16 outputs with 32 columns each, per round; NULL: no such instruction. */
kern_peak kern_tiles_peak(void);

#endif
