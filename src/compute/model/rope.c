/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary position embedding: the angle by which each pair of a head turns per position, and its sines.
 *
 *    plain      pair i turns by  base^(-2i/dims)  per position                  (RoFormer, Su et al. 2021)
 *
 *    linear     the same, divided by factor: positions are squeezed into the trained range  (Chen et al.
 * 2023)
 *
 *    yarn       pairs that turn often within the trained context keep their angle, those that never finish a
 *               turn are divided by factor, those between are blended; and attention is sharpened by
 *               1 + 0.1 ln(factor), or by the file's own factor; scaling the sines makes this free
 *                                                                                     (Peng et al. 2023)
 *
 *    llama3     the file brings one divisor per pair (rope_freqs.weight)
 *
 *    longrope   the file brings two lists of divisors, one for contexts within the original length and one
 * for longer ones, and the temperature                                       (Ding et al. 2024)
 *
 * The context length that a longrope model is served with selects its list at load. If the list changed
 * while a sequence grows, the stored keys and the new ones would be turned by different angles.
 *
 *    temperature  queries are scaled by 1 + scale log(1 + whole original contexts before them);
 *               Llama 4 does so in layers without RoPE only  (Llama 4,
 * Mistral 3)
 *
 * Angles and sines are double precision and are rounded to float once. There is no table over the whole
 * context. A step computes the sines of its own rows, once for all layers. This costs a few microseconds
 * per token, and start-up and memory do not depend on a context length that a file merely claims. */
#include "compute/model/model_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The pair that makes `turns` full turns within the original context. */
static double pair_of_turns(const struct rope_params *params, uint32_t dims, double turns)
{
    return dims * log(params->original_context / (turns * 2 * M_PI)) / (2 * log(params->freq_base));
}

/* Share of the unscaled angle in pair i: 1 below the first bound, 0 above the second, linear between. */
static double yarn_share(const struct rope_params *params, uint32_t dims, uint32_t i)
{
    double first = pair_of_turns(params, dims, params->beta_fast);
    double last = pair_of_turns(params, dims, params->beta_slow);
    double low = fmax(0, params->has_exact_bounds ? first : floor(first));
    double high = fmin(dims - 1, params->has_exact_bounds ? last : ceil(last));
    double along = (i - low) / fmax(0.001, high - low);

    return params->ext_factor * (1 - fmin(1, fmax(0, along)));
}

int rope_init(const struct rope_params *params, uint32_t max_dims, const float *factors, struct rope *out)
{
    const uint32_t dims = params->dims ? params->dims : max_dims;
    double *angles = calloc(dims / 2 + 1, sizeof(*angles));
    double magnitude = params->attn_factor;

    if (angles == NULL)
        return E_NOMEM;
    for (uint32_t i = 0; i < dims / 2; i++) {
        double plain = pow(params->freq_base, -2.0 * i / dims) / (factors ? factors[i] : 1);
        double share = 1;

        if (params->scaling == ROPE_SCALE_LINEAR)
            share = 0;
        if (params->scaling == ROPE_SCALE_YARN)
            share = yarn_share(params, dims, i);
        angles[i] = share * plain + (1 - share) * plain / params->factor;
    }
    if (params->scaling == ROPE_SCALE_YARN && params->ext_factor != 0 && !params->is_attn_factor_whole)
        magnitude *= 1 + 0.1 * log(params->factor);
    *out = (struct rope){.pairs = params->pairs,
                         .dims = dims,
                         .magnitude = (float)magnitude,
                         .angle_per_position = angles,
                         .temperature_scale = params->temperature_scale,
                         .temperature_offset = params->temperature_offset,
                         .scales_unturned = params->scales_unturned,
                         .temperature_length = params->temperature_length != 0 ? params->temperature_length
                                                                               : params->original_context};
    return 0;
}

void rope_fini(struct rope *rope)
{
    free(rope->angle_per_position);
    memset(rope, 0, sizeof(*rope));
}

void rope_angles(const struct rope *rope, uint32_t position, float *cos_out, float *sin_out)
{
    for (uint32_t i = 0; i < rope->dims / 2; i++) {
        double angle = position * rope->angle_per_position[i];

        cos_out[i] = (float)(cos(angle) * rope->magnitude);
        sin_out[i] = (float)(sin(angle) * rope->magnitude);
    }
}

float rope_temperature(const struct rope *rope, uint32_t position)
{
    return (float)(1 + rope->temperature_scale *
                           log(1 + floor((position + rope->temperature_offset) / rope->temperature_length)));
}

static uint64_t rope_mixed(uint64_t digest, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    digest = (digest ^ bits) * UINT64_C(0x9e3779b97f4a7c15);
    return digest ^ digest >> 29;
}

uint64_t rope_digest(const struct rope *rope)
{
    uint64_t digest = UINT64_C(0x243f6a8885a308d3) ^ rope->dims;
    float cosine, sine;

    for (uint32_t i = 0; i < rope->dims / 2; i++) {
        struct rope pair = {
            .dims = 2, .magnitude = rope->magnitude, .angle_per_position = &rope->angle_per_position[i]};

        for (uint32_t position = 1; position < 1u << 20; position = position * 3 + i % 7) {
            rope_angles(&pair, position, &cosine, &sine);
            digest = rope_mixed(rope_mixed(digest, cosine), sine);
        }
    }
    for (uint32_t n = 1; rope->temperature_scale != 0 && n < 1024; n++)
        digest = rope_mixed(digest, rope_temperature(rope, (uint32_t)(n * rope->temperature_length)));
    return digest;
}
