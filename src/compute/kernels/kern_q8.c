/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised weights times activations of 8 bits: integer dots, and a fixed small number of float
 * operations.
 *
 *     x[k] ~ 2^e * q[k]            |q| <= 127, one e per 32 columns (qblk) and token: the least that fits
 *     w[k] = scale * (u[k] - zero) - min            as in quant.h; a sub is 16 or 32 columns
 *
 *     dot = sum of u q - zero * sum of q  =  sum of (u - zero) q              integers: exact, any order
 *     y   = fma(2^e * dot, scale, y),  then  fma(-2^e * sum of q, min, y)     sub after sub: one order
 *
 * The dots of a sub start at bits(1.5 * 2^(23+e)) - zero * sum of q. Since |dot| <= 32 * 128 * 127 < 2^22,
 * their final value, taken as the bits of a float, is 1.5 * 2^(23+e) + 2^e * dot. One exact subtraction
 * leaves 2^e * dot. This needs no conversion and no multiplication by the activations' scale. Against a
 * free scale, a power of two costs half a bit of the quants on average and saves a tenth of the time. All
 * instruction sets give the same bits: two float operations per sub without a min, three with one.
 *
 * If u is 2^s times too large (a bit field that was not moved: quant_shift), the dots start at bits(1.5 *
 * 2^(23+e-s)) - 2^s * zero * sum of q. The same subtraction leaves the same 2^e * dot, since |2^s * dot| <
 * 2^22 for all fields.
 *
 *     activations packed   [qblk] { [four: 8][token][4 quants]  start[sub][token]  magic[sub][token]
 *                                   base[sub][token] with a min: -2^e * sum of q }
 *
 * This file has the tile over expanded weights, which many tokens share, and the packing of activations.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/kernels/kern_act_priv.h"
#include "compute/kernels/kern_quant_priv.h"

INLINED void tile_form(const struct tile_q8 *tile, struct quant_form form)
{
    uint32_t panel = 0;

    switch (tile->n_tokens) {
#define CASE(height)                                                                                         \
    case height:                                                                                             \
        if (q8_panels(height) > 1)                                                                           \
            panel = tile_groups(tile, form, 0, q8_panels(height), height);                                   \
        tile_groups(tile, form, panel, 1, height);                                                           \
        break;
        Q8_HEIGHTS(CASE)
#undef CASE
    }
}

/* Returns the type that represents an expanded form.  Only the number of scales, the presence of mins and,
 * for narrow dots, the width of u matter after expansion.  So several types share one function. */
INLINED enum dtype type_like(struct quant_form form)
{
    const uint8_t most = is_narrow(form) ? form.most : 255;

    if (form.n_subs == 2)
        return form.has_min      ? DTYPE_Q2_K
               : most <= 7       ? DTYPE_Q3_K
               : form.most <= 63 ? DTYPE_Q6_K
                                 : QUANT_LEVELS_16;
    if (form.has_min)
        return most <= 15 ? DTYPE_Q4_K : DTYPE_Q5_K;
    return most <= 15 ? DTYPE_Q4_0 : most <= 31 ? DTYPE_Q5_0 : most <= 127 ? QUANT_LEVELS_32 : DTYPE_Q8_0;
}

/* Each type has its own function, because compile time grows faster than the size of a function. */
#define FUNCTION(type, ...)                                                                                  \
    static __attribute__((noinline)) void tile_##type(const struct tile_q8 *tile)                            \
    {                                                                                                        \
        if (type_like(quant_form(type)) == type)                                                             \
            tile_form(tile, quant_expanded(quant_form(type)));                                               \
    }
QUANT_TYPES(FUNCTION)
#undef FUNCTION

void Q8(tile_q8)(const struct tile_q8 *tile)
{
    switch ((uint32_t)type_like(quant_form(tile->type))) {
#define CASE(type, ...)                                                                                      \
    case type:                                                                                               \
        tile_##type(tile);                                                                                   \
        break;
        QUANT_TYPES(CASE)
#undef CASE
    }
}

/* ---- activations ---- */

enum { PEAK_AGAIN = 8 }; /* how often each round of the peak repeats the chains */

/* Computes sixteen quants, and returns them as floats. */
static inline v16 kern_q8_quantize(const float *x, float by, int8_t quants[16])
{
    v16 shifted = act_quantize(x, by);

    v16_store_low8(quants, shifted);
    return v16_sub(shifted, v16_set1(ACT_MAGIC));
}

static inline float kern_q8_float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Computes the initial value of the dots of one sub and token, and the number to subtract at their end. */
INLINED void pack_sub(struct quant_form form, uint32_t magic_bits, float sum, uint32_t shift,
                      int32_t *start_out, float *magic_out)
{
    bool is_number = sum >= -4096 && sum <= 4096 && magic_bits != ACT_NAN_BITS;

    /* NaN and infinity reach every output through magic.  They must not reach the cast. */
    magic_bits = is_number ? magic_bits - (shift << 23) : ACT_NAN_BITS;
    *start_out = (int32_t)magic_bits - (is_number ? ((int32_t)form.zero << shift) * (int32_t)sum : 0);
    *magic_out = kern_q8_float_of(magic_bits);
}

INLINED void pack_qblk(const struct pack *pack, struct quant_form form, const float *x,
                       const struct act_scales *scales, uint32_t i, struct act_place place)
{
    const uint32_t n_tokens = pack->n_tokens, token = place.token, quant_bytes = act_quant_bytes(form);
    uint8_t *out = (uint8_t *)pack->out + (size_t)place.qblk * n_tokens * quant_act_bytes(form, quant_bytes);
    int32_t *start = (int32_t *)(out + (size_t)FOURS * n_tokens * quant_bytes);
    float *magic = (float *)(start + form.n_subs * n_tokens), *base = magic + form.n_subs * n_tokens;
    int8_t quants[QBLK_WEIGHTS];
    v16 low = kern_q8_quantize(x, scales->by[i], quants),
        high = kern_q8_quantize(x + 16, scales->by[i], quants + 16);
    float sums[2] = {form.n_subs == 1 ? v16_sum(v16_add(low, high)) : v16_sum(low), 0};

    if (form.n_subs == 2)
        sums[1] = v16_sum(high);
    for (uint32_t s = 0; s < form.n_subs; s++) {
        pack_sub(form, scales->magic[i], sums[s], field_shift(form, place.qblk % 2, s),
                 &start[s * n_tokens + token], &magic[s * n_tokens + token]);
        if (form.has_min)
            base[s * n_tokens + token] = -scales->step[i] * sums[s];
    }
    if (quant_has_order(form))
        act_order_points(form, quants);
    for (uint32_t four = 0; four < FOURS; four++) {
        uint8_t *to = out + ((size_t)four * n_tokens + token) * quant_bytes;

        if (is_narrow(form))
            memcpy(to, quants + four * 4, 4);
        else
            q8_place(to, quants + four * 4);
    }
}

static void pack_q8(const struct pack *pack)
{
    act_pack_each(pack, form_for(quant_form(pack->type), pack->n_tokens), pack_qblk);
}

/* Returns ones, hidden from the compiler, which would otherwise simplify the products. */
static const uint8_t *peak_bytes(void)
{
    static const uint8_t ones[FOUR_BYTES] = {1};
    const uint8_t *bytes = ones;

    __asm__("" : "+r"(bytes));
    return bytes;
}

static float peak_q8(uint32_t rounds)
{
    const uint8_t *ones = peak_bytes();
    q8_sums sums[Q8_PEAK_CHAINS];
    q8_weights u = q8_of_bytes(b64_load(ones));
    q8_x x = q8_load_x(ones);

    for (int i = 0; i < Q8_PEAK_CHAINS; i++)
        sums[i] = q8_start(i);
    /* The compiler copies every sum at the head of a loop.  A round of eight makes that cost small. */
    for (uint32_t round = 0; round < rounds; round++)
#pragma GCC unroll 8
        for (int again = 0; again < PEAK_AGAIN; again++)
#pragma GCC unroll 12
            for (int i = 0; i < Q8_PEAK_CHAINS; i++)
                sums[i] = q8_dot(sums[i], u, q8_again(&x));
    v16 sum = q8_minus(sums[0], 1.0f);
    for (int i = 1; i < Q8_PEAK_CHAINS; i++)
        sum = v16_add(sum, q8_minus(sums[i], 1.0f));
    return v16_sum(sum);
}

#ifdef Q8_NARROW
/* Repeats the operations on pairs and their sums, without the widening. */
static float peak_narrow(uint32_t rounds)
{
    const uint8_t *ones = peak_bytes();
    q8_words words[Q8_PEAK_CHAINS];
    q8_narrow_x x = q8_narrow_load_x(ones);
    b64 u = b64_load(ones);

    for (int i = 0; i < Q8_PEAK_CHAINS; i++)
        words[i] = q8_pairs(u, x);
    for (uint32_t round = 0; round < rounds; round++)
#pragma GCC unroll 8
        for (int again = 0; again < PEAK_AGAIN; again++)
#pragma GCC unroll 12
            for (int i = 0; i < Q8_PEAK_CHAINS; i++)
                words[i] = q8_words_add(words[i], q8_pairs(u, q8_narrow_again(&x)));
    q8_sums sums = q8_start(0);
    for (int i = 0; i < Q8_PEAK_CHAINS; i++)
        sums = q8_widen(sums, words[i]);
    return v16_sum(q8_minus(sums, 1.0f));
}
#define PEAK_NARROW peak_narrow
#else
#define PEAK_NARROW NULL
#endif

const struct kern_q8 Q8(kern_q8) = {
    .tile_tokens = Q8_TILE_TOKENS,
    .tile_panels = Q8_TILE_PANELS,
    .quant_bytes = Q8_QUANT_BYTES,
    .narrow_most = Q8_NARROW_MOST,
    .narrow_bytes = Q8_NARROW_BYTES,
    .has_signed = Q8_HAS_SIGNED,
    .tile = Q8(tile_q8),
    .expand = Q8(expand_q8),
    .direct = Q8_DIRECT,
    .wide_tokens = Q8_WIDE_TOKENS,
    .wide_least = Q8_WIDE_LEAST,
    .direct_panels = Q8_DIRECT_PANELS,
    .pack = pack_q8,
    .peak = peak_q8,
    .peak_dots = Q8_PEAK_CHAINS * PEAK_AGAIN,
    .narrow_peak = PEAK_NARROW,
};
