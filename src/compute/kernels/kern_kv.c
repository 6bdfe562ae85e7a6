/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values in and out of the arena, whose layout tensor.h describes.
 *
 *     store    a row of one token and head is rounded (or quantised: a scale per run of 32 numbers) once,
 *              independently, and written to the block: a key as a column, a value as a row
 *     load     a tile of up to 64 keys, sixteen at a time, as floats: K [d][64], V [64][v_step]
 *     gather   sixteen keys from anywhere, as floats
 *
 * A stored number of any type is exact as a float (a scale of 11 bits times a quant of at most 8). So
 * loading rounds nothing, and all tables see the same keys.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/kern_kv_priv.h"

#include <math.h>
#include <string.h>

/* The part of one block that belongs to one KV head. */
struct head {
    enum dtype type;
    uint32_t k_dim, v_dim, block_tokens;
    char *k, *v;
};

/* Scales follow a head's quants. */
static uint16_t *scales_of(char *quants, const struct head *head, uint32_t dim)
{
    return (uint16_t *)(quants + head->block_tokens * kv_filled_bytes(head->type, dim));
}

static struct head head_at(const struct attn_args *args, uint32_t block, uint32_t kv_head)
{
    size_t k_bytes = args->block_tokens * attn_row_bytes(args->kv_type, args->k_dim);
    size_t v_bytes = args->v_in_k ? 0 : args->block_tokens * attn_row_bytes(args->kv_type, args->v_dim);
    char *base = (char *)args->kv_layer + block * args->block_bytes;

    return (struct head){.type = args->kv_type,
                         .k_dim = args->k_dim,
                         .v_dim = args->v_dim,
                         .block_tokens = args->block_tokens,
                         .k = base + kv_head * k_bytes,
                         .v = base + args->n_kv_heads * k_bytes + kv_head * v_bytes};
}

/* ---- load ---- */

/* Returns a span of sixteen keys: numbers from d on, for tokens from `at` on. */
KV_INLINED struct kv_key_span span_of(enum dtype type, const struct head *head, uint32_t at, uint32_t d)
{
    return kv_key_span(type, head->k + at * kv_key_bytes(type), scales_of(head->k, head, head->k_dim) + at,
                       head->block_tokens, d);
}

KV_INLINED void load_key_span(enum dtype type, const struct kv_key_span *span, uint32_t n, bool is_high,
                              float *out)
{
    for (uint32_t i = 0; i < n; i++)
        v16_store(out + (size_t)i * ATTN_TILE_KEYS, kv_key(type, span, i, is_high));
}

/* Loads sixteen keys into columns of the K tile. */
KV_INLINED void load_keys(enum dtype type, const struct head *head, uint32_t at, float *out)
{
    for (uint32_t d = 0; d < head->k_dim; d += KV_SPAN, out += KV_SPAN * ATTN_TILE_KEYS) {
        const struct kv_key_span span = span_of(type, head, at, d);
        const uint32_t n = head->k_dim - d < KV_SPAN ? head->k_dim - d : KV_SPAN;

        if (d % KV_RUN == 0)
            load_key_span(type, &span, n, false, out);
        else
            load_key_span(type, &span, n, true, out);
    }
}

/* Sixteen vectors in memory (v16_scalar_priv.h) are too many to inline. */
#ifdef V16_TURN
enum { KV_UNROLLED = 1 };
#else
#define V16_TURN KV_INLINED
enum { KV_UNROLLED = KV_SPAN };
#endif

/* Transposes: lane i of a[j] becomes lane j of a[i].  An element's place has eight bits, four of the row and
 * four of the lane.  Each round of zips rotates these bits by one: the row's highest becomes the lane's
 * lowest, and the lane's highest the row's lowest. */
V16_TURN void turn(v16 a[KV_SPAN])
{
    v16 zipped[KV_SPAN];

#pragma GCC unroll 4
    for (uint32_t round = 0; round < 4; round++) {
#pragma GCC unroll 8
        for (uint32_t i = 0; i < KV_SPAN / 2; i++) {
            zipped[2 * i] = a[i];
            zipped[2 * i + 1] = a[i + KV_SPAN / 2];
            v16_zip(&zipped[2 * i], &zipped[2 * i + 1]);
        }
#pragma GCC unroll 16
        for (uint32_t i = 0; i < KV_SPAN; i++)
            a[i] = zipped[i];
    }
}

/* Turns numbers of sixteen keys into sixteen numbers of each of sixteen values.  Only n numbers exist; the
 * others are zero. */
KV_INLINED void turn_span(enum dtype type, const struct kv_key_span *span, uint32_t n, bool is_high,
                          size_t v_step, float *out)
{
    v16 lanes[KV_SPAN];

#pragma GCC unroll KV_UNROLLED
    for (uint32_t i = 0; i < KV_SPAN; i++)
        lanes[i] = i < n ? kv_key(type, span, i, is_high) : v16_zero();
    turn(lanes);
#pragma GCC unroll KV_UNROLLED
    for (uint32_t token = 0; token < ATTN_GROUP_KEYS; token++)
        v16_store(out + token * v_step, lanes[token]);
}

/* Loads values stored inside sixteen keys into rows of the V tile,
 * which has room for whole groups of sixteen. */
KV_INLINED void turn_keys(enum dtype type, const struct head *head, uint32_t at, float *out)
{
    const size_t v_step = attn_v_step(head->v_dim);

    for (uint32_t d = 0; d < head->v_dim; d += KV_SPAN, out += KV_SPAN) {
        const struct kv_key_span span = span_of(type, head, at, d);

        if (head->k_dim - d < KV_SPAN)
            turn_span(type, &span, head->k_dim - d, d % KV_RUN != 0, v_step, out);
        else if (d % KV_RUN == 0)
            turn_span(type, &span, KV_SPAN, false, v_step, out);
        else
            turn_span(type, &span, KV_SPAN, true, v_step, out);
    }
}

/* Loads sixteen values of a type without scales.  The arena may end right after the last value. */
KV_INLINED void load_plain_values(enum dtype type, const struct head *head, uint32_t at, float *out)
{
    const uint32_t v_dim = head->v_dim;
    const size_t row_bytes = kv_bytes(type, v_dim);
    const char *row = head->v + at * row_bytes;

    for (uint32_t token = 0; token < ATTN_GROUP_KEYS; token++) {
        uint32_t d = 0;

        for (; d + 16 <= v_dim; d += 16)
            v16_store(out + d, kv_numbers(type, row + kv_bytes(type, d), false));
        if (d < v_dim) {
            char rest[64] = {0};

            memcpy(rest, row + kv_bytes(type, d), kv_bytes(type, v_dim - d));
            v16_store(out + d, kv_numbers(type, rest, false));
        }
        out += attn_v_step(v_dim);
        row += row_bytes;
    }
}

KV_INLINED void load_quantised_values(enum dtype type, const struct head *head, uint32_t at, float *out)
{
    const uint32_t n_runs = kv_runs(head->v_dim);
    const size_t row_bytes = kv_filled_bytes(type, head->v_dim);
    const uint16_t *halves = scales_of(head->v, head, head->v_dim) + (size_t)at * n_runs;
    const char *row = head->v + at * row_bytes;
    float scales[ATTN_GROUP_KEYS * KV_MAX_RUNS];

    kv_value_scales(halves, n_runs, scales);
    for (uint32_t token = 0; token < ATTN_GROUP_KEYS; token++, row += row_bytes)
        for (uint32_t run = 0; run < n_runs; run++, out += KV_RUN) {
            v16_store(out, kv_value(type, row, scales + token * n_runs, 2 * run, false));
            v16_store(out + 16, kv_value(type, row, scales + token * n_runs, 2 * run + 1, true));
        }
}

KV_INLINED void load_values(enum dtype type, const struct head *head, uint32_t at, float *out)
{
    (kv_is_quantised(type) ? load_quantised_values : load_plain_values)(type, head, at, out);
}

/* Prefetches the scales, which lie apart from the quants, at once: they are a few lines. */
static void fetch_scales(const struct head *head, uint32_t at, bool has_v)
{
    const uint16_t *k = scales_of(head->k, head, head->k_dim) + at;
    const uint16_t *v = scales_of(head->v, head, head->v_dim) + (size_t)at * kv_runs(head->v_dim);

    for (uint32_t run = 0; run < kv_runs(head->k_dim); run++)
        __builtin_prefetch(k + run * head->block_tokens, 0, 3);
    for (uint32_t i = 0; i < kv_runs(head->v_dim) && has_v; i += 2)
        __builtin_prefetch(v + i * ATTN_GROUP_KEYS, 0, 3);
}

void KERN(kv_ahead)(const struct attn_args *args, const struct kv_tile *tile, struct kv_ahead *ahead_out)
{
    const bool is_quantised = kv_is_quantised(args->kv_type);
    const size_t k_bytes = kv_filled_bytes(args->kv_type, args->k_dim);
    const size_t v_bytes = kv_filled_bytes(args->kv_type, args->v_dim);

    for (uint32_t group = 0; group < ATTN_TILE_GROUPS; group++) {
        uint32_t key = tile->key + ATTN_TILE_KEYS + group * ATTN_GROUP_KEYS, at = key % args->block_tokens;

        if (key >= tile->end) { /* no key follows: prefetch a line that is already near */
            ahead_out->k[group] = ahead_out->v[group] = (const char *)tile->k;
            continue;
        }
        struct head head = head_at(args, tile->blocks[key / args->block_tokens], tile->kv_head);
        ahead_out->k[group] = head.k + at * k_bytes;
        ahead_out->v[group] = head.v + at * v_bytes;
        if (is_quantised)
            fetch_scales(&head, at, !args->v_in_k);
    }
    ahead_out->k_bytes = k_bytes * ATTN_GROUP_KEYS;
    ahead_out->v_bytes = args->v_in_k ? 0 : v_bytes * ATTN_GROUP_KEYS;
}

/* Finds a group of the tile, and its first token in the block. */
static struct head head_of_group(const struct attn_args *args, const struct kv_tile *tile, uint32_t group,
                                 uint32_t *at_out)
{
    uint32_t key = tile->key + group * ATTN_GROUP_KEYS;

    *at_out = key % args->block_tokens;
    return head_at(args, tile->blocks[key / args->block_tokens], tile->kv_head);
}

/* Finds the addresses of a whole tile. */
void KERN(kv_find)(const struct attn_args *args, const struct kv_tile *tile, struct attn_direct *out)
{
    for (uint32_t group = 0; group < ATTN_TILE_GROUPS; group++) {
        uint32_t at;
        struct head head = head_of_group(args, tile, group, &at);

        out->k[group] = head.k + at * kv_key_bytes(args->kv_type);
        out->v[group] = head.v + at * kv_filled_bytes(args->kv_type, args->v_dim);
        out->k_scales[group] = scales_of(head.k, &head, args->k_dim) + at;
        out->v_scales[group] = scales_of(head.v, &head, args->v_dim) + (size_t)at * kv_runs(args->v_dim);
    }
}

KV_INLINED void load_tile(enum dtype type, const struct attn_args *args, const struct kv_tile *tile)
{
    for (uint32_t group = tile->from; group < tile->to; group++) {
        uint32_t at;
        struct head head = head_of_group(args, tile, group, &at);
        float *v = tile->v + (size_t)group * ATTN_GROUP_KEYS * attn_v_step(args->v_dim);

        if (tile->k != NULL)
            load_keys(type, &head, at, tile->k + group * ATTN_GROUP_KEYS);
        if (args->v_in_k)
            turn_keys(type, &head, at, v);
        else
            load_values(type, &head, at, v);
    }
}

void KERN(kv_load)(const struct attn_args *args, const struct kv_tile *tile)
{
    switch ((int)args->kv_type) {
#define CASE(type, ...)                                                                                      \
    case DTYPE_##type:                                                                                       \
        load_tile(DTYPE_##type, args, tile);                                                                 \
        break;
        KV_TYPE_TABLE(CASE)
#undef CASE
    }
}

/* ---- gather ---- */

/* Numbers [d, d + KV_SPAN) of sixteen keys that lie anywhere: copied into rows as in a block, then read. d: a multiple
 * of KV_SPAN. */
KV_INLINED void gather_span(enum dtype type, const struct head heads[ATTN_GROUP_KEYS], const uint32_t *at,
                            uint32_t d, const struct kv_gather_args *args)
{
    const size_t size = kv_key_bytes(type), before = type == DTYPE_Q4_0 ? (size_t)d / KV_RUN * KV_SPAN : d;
    const uint32_t n = heads->k_dim - d < KV_SPAN ? heads->k_dim - d : KV_SPAN;
    char numbers[KV_SPAN * ATTN_GROUP_KEYS * sizeof(float)];
    uint16_t halves[ATTN_GROUP_KEYS] = {0};

    for (uint32_t key = 0; key < ATTN_GROUP_KEYS; key++) {
        const char *from = heads[key].k + (before * heads->block_tokens + at[key]) * size;

        for (uint32_t i = 0; i < n; i++)
            memcpy(numbers + (i * ATTN_GROUP_KEYS + key) * size, from + i * heads->block_tokens * size, size);
        if (kv_is_quantised(type))
            halves[key] =
                scales_of(heads[key].k, heads, heads->k_dim)[d / KV_RUN * heads->block_tokens + at[key]];
    }
    for (uint32_t i = 0; i < n; i++) {
        v16 row = kv_numbers(type, numbers + i * ATTN_GROUP_KEYS * size, d % KV_RUN != 0);

        v16_store(args->out + (d + i) * args->out_stride,
                  kv_is_quantised(type) ? v16_mul(row, v16_from_f16(halves)) : row);
    }
}

KV_INLINED void gather_keys(enum dtype type, const struct kv_gather_args *args)
{
    const struct attn_args *attn = args->attn;
    struct head heads[ATTN_GROUP_KEYS];
    uint32_t at[ATTN_GROUP_KEYS];

    for (uint32_t key = 0; key < ATTN_GROUP_KEYS; key++) {
        uint32_t position = args->positions[key < args->n ? key : args->n - 1];

        heads[key] = head_at(attn, args->blocks[position / attn->block_tokens], args->kv_head);
        at[key] = position % attn->block_tokens;
    }
    for (uint32_t d = 0; d < attn->k_dim; d += KV_SPAN)
        gather_span(type, heads, at, d, args);
}

void KERN(kv_gather)(const struct kv_gather_args *args)
{
    switch ((int)args->attn->kv_type) {
#define CASE(type, ...)                                                                                      \
    case DTYPE_##type:                                                                                       \
        gather_keys(DTYPE_##type, args);                                                                     \
        break;
        KV_TYPE_TABLE(CASE)
#undef CASE
    }
}

/* ---- store ---- */

/* The destination of a row of dim numbers: element i at i * step. */
struct place {
    char *base;       /* start of the head's K or V */
    uint16_t *scales; /* scales of the row, scale_step apart */
    size_t at, step;  /* in elements (bytes of quants) */
    size_t scale_step;
};

/* Copies a run's numbers, with zeros after the last. */
static void take_run(const float *x, uint32_t dim, uint32_t run, float *out)
{
    uint32_t left = dim - run * KV_RUN;

    for (uint32_t i = 0; i < KV_RUN; i += 16)
        v16_store(out + i, left >= i + 16 ? v16_load(x + run * KV_RUN + i)
                           : left > i     ? v16_load_n(x + run * KV_RUN + i, left - i)
                                          : v16_zero());
}

/* Rounds a scale to F16, and returns the factor that turns numbers into quants. */
static float scale_to_f16(float scale, uint16_t *half_out)
{
    uint16_t halves[16];
    float back[16];

    v16_to_f16(halves, v16_set1(scale > 65504.0f ? 65504.0f : scale < -65504.0f ? -65504.0f : scale));
    v16_store(back, v16_from_f16(halves));
    *half_out = halves[0];
    return back[0] != 0 ? 1.0f / back[0] : 0.0f;
}

/* Rounds to integers, which then lie in the low byte of each lane. */
static v16 to_whole(v16 x)
{
    return v16_add(x, v16_set1(0x1.8p23f));
}

static v16 kern_kv_clamp(v16 x, float most)
{
    v16 low = v16_max(x, v16_set1(-most)), minus = v16_sub(v16_zero(), low);

    return v16_sub(v16_zero(), v16_max(minus, v16_set1(-most)));
}

static void store_q8_0(const float *x, uint32_t dim, const struct place *place)
{
    for (uint32_t run = 0; run < kv_runs(dim); run++) {
        float numbers[KV_RUN];
        int8_t quants[KV_RUN];

        take_run(x, dim, run, numbers);
        v16 low = v16_load(numbers), high = v16_load(numbers + 16);
        float top = v16_top(v16_max(v16_abs(low), v16_abs(high)));
        v16 by = v16_set1(scale_to_f16(top / 127.0f, place->scales + run * place->scale_step));
        v16_store_low8(quants, to_whole(kern_kv_clamp(v16_mul(low, by), 127.0f)));
        v16_store_low8(quants + 16, to_whole(kern_kv_clamp(v16_mul(high, by), 127.0f)));
        for (uint32_t i = 0; i < KV_RUN; i++)
            place->base[place->at + (run * KV_RUN + i) * place->step] = (char)quants[i];
    }
}

/* The number furthest from zero becomes the quant -8. */
static void store_q4_0(const float *x, uint32_t dim, const struct place *place)
{
    for (uint32_t run = 0; run < kv_runs(dim); run++) {
        float numbers[KV_RUN], top;
        int8_t low[16], high[16];

        take_run(x, dim, run, numbers);
        v16 most = v16_max(v16_load(numbers), v16_load(numbers + 16));
        v16 least =
            v16_max(v16_sub(v16_zero(), v16_load(numbers)), v16_sub(v16_zero(), v16_load(numbers + 16)));
        top = v16_top(most) > v16_top(least) ? v16_top(most) : -v16_top(least);
        v16 by = v16_set1(scale_to_f16(top / -8.0f, place->scales + run * place->scale_step));
        v16_store_low8(low, to_whole(kern_kv_clamp(v16_mul(v16_load(numbers), by), 8.0f)));
        v16_store_low8(high, to_whole(kern_kv_clamp(v16_mul(v16_load(numbers + 16), by), 8.0f)));
        for (uint32_t i = 0; i < 16; i++) {
            uint32_t a = (uint32_t)(low[i] > 7 ? 7 : low[i]) + 8,
                     b = (uint32_t)(high[i] > 7 ? 7 : high[i]) + 8;

            place->base[place->at + (run * 16 + i) * place->step] = (char)((a & 15) | (b & 15) << 4);
        }
    }
}

static void store_plain(enum dtype type, const float *x, uint32_t dim, const struct place *place)
{
    for (uint32_t d = 0; d < dim; d += 16) {
        uint32_t lanes = dim - d < 16 ? dim - d : 16;
        uint16_t halves[16];

        if (type == DTYPE_F16)
            v16_to_f16(halves, v16_load_n(x + d, lanes));
        for (uint32_t i = 0; i < lanes; i++) {
            size_t at = place->at + (d + i) * place->step;

            if (type == DTYPE_F32)
                ((float *)place->base)[at] = x[d + i];
            else
                ((uint16_t *)place->base)[at] = type == DTYPE_F16 ? halves[i] : f32_to_bf16(x[d + i]);
        }
    }
}

static void store_row(enum dtype type, const float *x, uint32_t dim, const struct place *place)
{
    if (type == DTYPE_Q8_0)
        store_q8_0(x, dim, place);
    else if (type == DTYPE_Q4_0)
        store_q4_0(x, dim, place);
    else
        store_plain(type, x, dim, place);
}

void KERN(kv_store)(const struct kv_store_args *args)
{
    struct attn_args shape = {.kv_layer = args->kv_layer,
                              .block_bytes = args->block_bytes,
                              .kv_type = args->kv_type,
                              .v_in_k = args->v_in_k,
                              .n_kv_heads = args->n_kv_heads,
                              .k_dim = args->k_dim,
                              .v_dim = args->v_dim,
                              .block_tokens = args->block_tokens};
    bool is_plain = !kv_is_quantised(args->kv_type);

    for (uint32_t i = 0; i < args->n * args->n_kv_heads; i++) {
        uint32_t token = i / args->n_kv_heads, kv_head = i % args->n_kv_heads;
        uint32_t position = args->position + token, slot = position % args->block_tokens;
        struct head head = head_at(&shape, args->blocks[position / args->block_tokens], kv_head);
        struct place k = {.base = head.k,
                          .scales = scales_of(head.k, &head, head.k_dim) + slot,
                          .at = slot,
                          .step = head.block_tokens,
                          .scale_step = head.block_tokens};
        struct place v = {.base = head.v,
                          .scales = scales_of(head.v, &head, head.v_dim) + (size_t)slot * kv_runs(head.v_dim),
                          .at = slot * (is_plain ? head.v_dim : kv_filled_bytes(head.type, head.v_dim)),
                          .step = 1,
                          .scale_step = 1};

        store_row(head.type, args->k + token * args->k_stride + (size_t)kv_head * head.k_dim, head.k_dim, &k);
        if (!args->v_in_k)
            store_row(head.type, args->v + token * args->v_stride + (size_t)kv_head * head.v_dim, head.v_dim,
                      &v);
    }
}
